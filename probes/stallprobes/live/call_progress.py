"""Progress of a probe that makes few calls: how many of those that a baseline or a verdict needs."""

from __future__ import annotations

from dataclasses import dataclass

# A longer time is named in minutes.
_MINUTES_FROM_S = 100


@dataclass(frozen=True)
class CallProgress:
    """``calls`` of the ``needed`` calls of a ``baseline``, or of a verdict; the rest takes about ``left_s`` seconds.

    ``left_s`` is None while an aggressor prevents a baseline.
    """

    calls: int
    needed: int
    left_s: float | None
    baseline: bool = False

    @property
    def state(self) -> str:
        """The state of a row: ``1/3 calls``, ``base 7/20``."""
        count = f"{self.calls}/{self.needed}"
        return f"base {count}" if self.baseline else f"{count} calls"

    @property
    def text(self) -> str:
        """``1 of the 3 calls for a verdict, about 10 s left``."""
        what = "its baseline" if self.baseline else "a verdict"
        if self.left_s is None:
            when = "counted while no aggressor runs"
        elif self.left_s > _MINUTES_FROM_S:
            when = f"about {self.left_s / 60:.0f} min left"
        else:
            when = f"about {max(self.left_s, 1):.0f} s left"
        return f"{self.calls} of the {self.needed} calls for {what}, {when}"


def calls_left_ns(needed: int, calls: int, period_ns: int, passed_ns: int) -> int:
    """The time until ``needed`` calls were made, one each ``period_ns``: ``calls`` were made in ``passed_ns``.

    The next one is due within a period.
    """
    return max(needed * period_ns - passed_ns, (needed - calls - 1) * period_ns, 0)
