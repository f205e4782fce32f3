"""Pace of work that takes place less often than frames."""

from __future__ import annotations


class Pace:
    """Says at which frames work is due that takes place ``per_second`` times a second.

    A frame that is at most half a frame early counts, since timers are not exact: otherwise work at the rate of the
    frames would miss every other one.
    """

    def __init__(self, per_second: float, frames_per_second: float) -> None:
        self.interval_s = 1 / per_second
        self._early_s = 0.5 / frames_per_second
        self._next_s: float | None = None

    def due(self, now_s: float) -> bool:
        """Whether the work is due at ``now_s``; it then counts as done."""
        if self._next_s is not None and now_s < self._next_s - self._early_s:
            return False
        late = self._next_s is None or now_s - self._next_s > self.interval_s
        self._next_s = (now_s if late or self._next_s is None else self._next_s) + self.interval_s
        return True

    def restart(self, now_s: float) -> None:
        """Count from ``now_s``, when the work was done before it was due."""
        self._next_s = now_s + self.interval_s
