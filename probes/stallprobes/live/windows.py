"""Windows of all probes at one moment, computed when the first one is asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from stallprobes.engine.snapshot import ProbeSnapshot, Snapshot, windows
from stallprobes.latency.window import ChannelMap, Window
from stallprobes.model import MS
from stallprobes.verdicts.kinds import STARVED_WINDOW_NS

# Usual length (ns) of the window that the screen judges, and of a baseline window. After a longer time without an
# observation, the baseline window begins anew.
WINDOW_NS = 1_000 * MS
# Smallest sum (ns) of a victim's time slots in a window, if victims take turns in time slots. The screen extends a
# window with a smaller sum, but not beyond LONGEST_WINDOW_NS.
_OWN_NS = STARVED_WINDOW_NS
# Longest window (ns) on the screen, except for a probe with a long period. After a longer time without an observation,
# all windows begin anew.
LONGEST_WINDOW_NS = 4_000 * MS
# Smallest number of a probe's periods in its window, unless the window would exceed _LONGEST_EXTENDED_NS. With this
# number, also the window of a rarely called probe has TAIL_CALLS calls, which a verdict on slow calls needs.
_LEAST_PERIODS = 4
# Longest window (ns) of a rarely called probe, even if it has fewer than _LEAST_PERIODS periods.
_LONGEST_EXTENDED_NS = 60_000 * MS


def thinned(recent: deque[Snapshot]) -> None:
    """Remove snapshots older than the usual windows from ``recent``, up to one a second.

    Only windows of calls with a long period are that long.
    """
    at, old_ns = 0, recent[-1].at_ns - LONGEST_WINDOW_NS
    while at + 2 < len(recent) and recent[at + 1].at_ns < old_ns:
        if recent[at + 2].at_ns - recent[at].at_ns <= WINDOW_NS:
            del recent[at + 1]
        else:
            at += 1


class LazyWindows(Mapping[str, Window]):
    """The windows that end with the last of ``recent`` (two snapshots or more, oldest first), by probe."""

    def __init__(self, recent: Sequence[Snapshot]) -> None:
        self.end = recent[-1]
        self._recent = tuple(recent)

    @cached_property
    def _starts(self) -> list[ProbeSnapshot]:
        return [self._start(part) for part in self.end.probes.values()]

    @cached_property
    def _windows(self) -> dict[str, Window]:
        return dict(zip(self.end.probes, windows(list(self.end.probes.values()), self._starts), strict=True))

    def __getitem__(self, name: str) -> Window:
        return self._windows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.end.probes)

    def __len__(self) -> int:
        return len(self.end.probes)

    @property
    def longest_ns(self) -> int:
        """The longest window in ns of the board's time."""
        return max((self.end.at_ns - start.at_ns for start in self._starts), default=0)

    def channels_until(self, part: ProbeSnapshot) -> ChannelMap:
        """The histograms of the window that ends with ``part``, a later state of one probe."""
        return part.minus(self._start(part)).channels

    def _start(self, part: ProbeSnapshot) -> ProbeSnapshot:
        """The latest snapshot of the probe that makes its window long enough, else the oldest."""
        # The earlier it begins, the longer it is.
        first_short = bisect_left(self._recent, True, key=lambda start: not long_enough(part, start.probes[part.name]))
        return self._recent[max(first_short - 1, 0)].probes[part.name]


def extended_ns(period_ns: int) -> int:
    """The length of the window of a probe with few calls in a second; 0 for others."""
    length_ns = min(_LEAST_PERIODS * period_ns, _LONGEST_EXTENDED_NS)
    return length_ns if length_ns > WINDOW_NS else 0


def long_enough(now: ProbeSnapshot, start: ProbeSnapshot) -> bool:
    """True if the window from ``start`` to ``now`` has its full length."""
    length_ns = now.at_ns - start.at_ns
    if length_ns < max(WINDOW_NS, extended_ns(now.period_ns) if now.on else 0):
        return False
    return (
        not now.in_slots or not now.on or now.allowed_ns - start.allowed_ns >= _OWN_NS or length_ns >= LONGEST_WINDOW_NS
    )


def calls_left_ns(needed: int, calls: int, period_ns: int, passed_ns: int) -> int:
    """The time until ``needed`` calls were made, one each ``period_ns``: ``calls`` were made in ``passed_ns``.

    The next one is due within a period.
    """
    return max(needed * period_ns - passed_ns, (needed - calls - 1) * period_ns, 0)
