"""A process that runs, with the injected library in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stallprobes.errors import WatchError
from stallprobes.watch.environment import WatchOptions


@dataclass(frozen=True)
class Attachment:
    """The injected library of the process ``pid``, which writes to ``folder`` until ``detach``."""

    pid: int
    folder: Path

    def detach(self) -> None:
        """Switch everything off and unsubscribe; the library stays in the process, asleep."""


def attach(pid: int, options: WatchOptions, folder: Path) -> Attachment:
    """Let the injected library record the process ``pid`` to ``folder``. Raises WatchError."""
    raise WatchError(f"process {pid} cannot be attached: this version has no attacher.")
