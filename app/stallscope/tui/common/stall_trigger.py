"""The trigger of "freeze on stall"."""

from __future__ import annotations

# The view then shows the stall itself and not only its first call.
DELAY_S = 1.5


class StallTrigger:
    """Fires once after it was ``armed``, ``DELAY_S`` seconds after the first call above a threshold."""

    def __init__(self) -> None:
        self.armed = False
        self._due_s: float | None = None

    def toggle(self) -> None:
        """Arm or disarm."""
        self.armed, self._due_s = not self.armed, None

    def fires(self, slowest_ns: int, threshold_ns: float, now_s: float) -> bool:
        """Whether it fires now; then it is no longer armed. ``slowest_ns`` is the slowest call of the window."""
        if not self.armed:
            return False
        if self._due_s is None:
            if slowest_ns >= threshold_ns:
                self._due_s = now_s + DELAY_S
            return False
        if now_s < self._due_s:
            return False
        self.armed, self._due_s = False, None
        return True
