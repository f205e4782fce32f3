"""Divided time: all of a process's time, or a part of each slice where all processes make too many calls.

A second with more calls and operations takes longer to divide. A part is a sample of its slice, as a window with
records is a sample of the run, and the figures say how far they may be off.
"""

from __future__ import annotations

from collections.abc import Iterable

from stallprobes.watch.division.instants import NO_SPANS, Spans, united
from stallprobes.watch.intervals import int64s

# Largest number of calls and GPU operations a second, in all processes, at which all time is divided into parts. With
# more calls and operations, only a share of the time is divided. Reason: the division of this number takes up to a
# tenth of a core (bench_division.py).
MOST_EVENTS = 100_000
# Nanoseconds in a second.
SECOND_NS = 1_000_000_000
# Exponent of the share of time that is divided in a process with more events (calls and GPU operations) a second than
# its limit. The share is (limit / events) ** _POWER; the limit is the process's part of MOST_EVENTS. Reason for an
# exponent above 1: reading and choosing events take time as well.
_POWER = 5 / 3
# Share of the possible places by which the divided part of a slice of time (or of a period) moves from one slice to the
# next. A move beyond the last place continues at the first place. Reason for the golden ratio: the parts do not always
# fall on the same place in the cycle of a periodic program.
_GOLDEN_RATIO = 0.6180339887498949
# Length (ns) of the periods for processes that are compared (with kernels that communicate). In each period, all these
# processes divide a part at the same time.
PERIOD_NS = 4_000_000_000
# Smallest share of a period (PERIOD_NS) that is divided if processes are compared. Reason: most collectives then lie in
# the same divided part as the collective before.
LEAST_COMPARED = 1 / 8


def most_of_each(rates: Iterable[float], most: float) -> float:
    """Rate (calls and operations a second) up to which each process is divided in full, where all have ``rates``.

    The limit of all together is ``most``; the larger processes share what the smaller ones leave.
    """
    left, every = most, sorted(rates)
    for place, rate in enumerate(every):
        part = left / (len(every) - place)
        if rate > part:
            return part
        left -= rate
    return most


class DividedTime:
    """The time that is divided, chosen slice by slice."""

    def __init__(self, most_events: int = MOST_EVENTS) -> None:
        """``most_events`` are the calls and operations in a second of all processes that are divided in full."""
        self._most = most_events
        self._chosen = NO_SPANS
        self._slices = self._whole_ns = self._left_ns = 0

    def choose(
        self,
        begin_ns: int,
        until_ns: int,
        events: int,
        last: bool = False,
        beside: Iterable[float] = (),
        compared: bool = False,
        recorded: Spans = NO_SPANS,
    ) -> None:
        """Choose from the next slice, which has so many calls and operations; of the ``last`` one, its end.

        ``beside`` are the calls and operations a second of each other process. ``compared``: what this process does is
        compared with what others do at the same time. Their parts are in the same place, the smaller ones inside the
        larger ones; a slice may have none. Else the part lies in one of the ``recorded`` times, if the slice has some.
        """
        length_ns = until_ns - begin_ns
        # A program that runs for less than a second is divided in full.
        seconds = max(length_ns, SECOND_NS) / SECOND_NS
        most = most_of_each((events / seconds, *beside), self._most) * seconds
        share = (most / events) ** _POWER if events > most else 1.0
        parts = [(begin_ns, until_ns)]
        if share < 1:
            self._slices += 1
            if compared:
                parts = _in_periods(begin_ns, until_ns, max(share, LEAST_COMPARED))
            if not compared or last:
                part_ns = int(length_ns * share)
                low_ns, high_ns = self._free(begin_ns, until_ns, part_ns, NO_SPANS if last or compared else recorded)
                first_ns = low_ns + int(
                    (high_ns - part_ns - low_ns) * (1 if last else self._slices * _GOLDEN_RATIO % 1)
                )
                parts = [*(parts if compared else ()), (first_ns, first_ns + part_ns)]
        begins, ends = zip(*parts, strict=True) if parts else ((), ())
        chosen = united((Spans(int64s(begins), int64s(ends)),))
        self._whole_ns += max(length_ns, 0)
        self._left_ns += max(length_ns, 0) - int((chosen.ends - chosen.begins).sum())
        self._chosen = united((self._chosen, chosen))

    def _free(self, begin_ns: int, until_ns: int, part_ns: int, recorded: Spans) -> tuple[int, int]:
        """The time from which a part of a slice is chosen: one of the ``recorded`` times, another one each time."""
        within = recorded.within(begin_ns, until_ns)
        if not len(within.begins):
            return begin_ns, until_ns
        chosen = self._slices % len(within.begins)
        low_ns = min(int(within.begins[chosen]), until_ns - part_ns)
        return low_ns, max(int(within.ends[chosen]), low_ns + part_ns)

    @property
    def share(self) -> float:
        """The share (0 to 1) of the time so far that is divided."""
        return 1 - self._left_ns / self._whole_ns if self._left_ns else 1.0

    def within(self, begin_ns: int, until_ns: int) -> list[tuple[int, int]]:
        """The chosen times (ns) from ``begin_ns`` to ``until_ns``."""
        spans = self._chosen.within(begin_ns, until_ns)
        return list(zip(spans.begins.tolist(), spans.ends.tolist(), strict=True))

    def drop_before(self, time_ns: int) -> None:
        """Forget times that ended before ``time_ns``."""
        kept = self._chosen.ends > time_ns
        self._chosen = Spans(self._chosen.begins[kept], self._chosen.ends[kept])


def _in_periods(begin_ns: int, until_ns: int, share: float) -> list[tuple[int, int]]:
    """Parts of the periods from ``begin_ns`` to ``until_ns``; each has the ``share`` of its period."""
    part_ns, parts = int(PERIOD_NS * share), []
    for period in range(begin_ns // PERIOD_NS, until_ns // PERIOD_NS + 1):
        first_ns = period * PERIOD_NS + int((PERIOD_NS - part_ns) * (period * _GOLDEN_RATIO % 1))
        part = max(first_ns, begin_ns), min(first_ns + part_ns, until_ns)
        if part[0] < part[1]:
            parts.append(part)
    return parts
