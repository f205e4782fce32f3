"""Timers of the screens: the pace of work less often than frames, and the trigger of "freeze on stall"."""

from __future__ import annotations

import math

# Delay (s) from the first slow call until "freeze on stall" stops the view. Reason: the view then shows the stall and
# not only its first call.
DELAY_S = 1.5


class Pace:
    """The frames at which work is due ``per_second`` times a second.

    A frame that is at most half a frame early counts, since timers are not exact: otherwise work at the rate of the
    frames would miss every other one.
    """

    def __init__(self, per_second: float, frames_per_second: float) -> None:
        self.interval_s = 1 / per_second
        self._early_s = 0.5 / frames_per_second
        self._next_s = -math.inf

    def due(self, now_s: float) -> bool:
        """True if the work is due at ``now_s``; it then counts as done."""
        if now_s < self._next_s - self._early_s:
            return False
        late = now_s - self._next_s > self.interval_s
        self._next_s = (now_s if late else self._next_s) + self.interval_s
        return True

    def restart(self, now_s: float) -> None:
        """Count from ``now_s``, when the work was done before it was due."""
        self._next_s = now_s + self.interval_s


class StallTrigger:
    """Fires once after it was ``armed``, ``DELAY_S`` seconds after the first call above a threshold."""

    def __init__(self) -> None:
        self.armed = False
        self._due_s: float | None = None

    def toggle(self) -> None:
        """Arm or disarm."""
        self.armed, self._due_s = not self.armed, None

    def fires(self, slowest_ns: int, threshold_ns: float, now_s: float) -> bool:
        """True if it fires now; then it is no longer armed. ``slowest_ns`` is the slowest call of the window."""
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
