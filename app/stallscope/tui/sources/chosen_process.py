"""The process that the screen was left for. It imports nothing, since it is made before the first frame."""

from __future__ import annotations


class ChosenProcess:
    """A controller that outlives the screen: ``pid`` is the process to attach then, None for none."""

    def __init__(self) -> None:
        self.pid: int | None = None

    def close(self) -> None:
        """Nothing runs here."""
