"""Where the start-up of a program ends and its steady state begins."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.binned_sums import BinnedSums, Times, add_at
from stallprobes.watch.division.instants import Flags
from stallprobes.watch.intervals import FOREVER, Int64s, int64s

# Nanoseconds in a second.
SECOND_NS = 1_000_000_000
# The steady state begins with this number of consecutive seconds without an event of the start-up. Events of the
# start-up are the loading of code, a new context and a new kernel.
QUIET_SECONDS = 3
# Number of seconds at the beginning of a program that each have sums of their own. The steady state may begin with each
# of these seconds. Later seconds share sums (see _BEGINS).
FIRST_SECONDS = 60
# Seconds at which the steady state may begin: each second below FIRST_SECONDS, and a few later seconds. Reason for few
# later seconds: the sums since each of the seconds take memory.
_BEGINS = np.array([*range(FIRST_SECONDS), 60, 90, 120, 180, 240, 360, 480, 720, 960, 1440, 1800], dtype=np.int64)
# Last second at which the steady state may begin.
_MOST_SECONDS = int(_BEGINS[-1])
# Longest time (ns) that one call adds to the sums of the start-up. Reason: no call can take longer within the seconds
# that are judged.
_LONGEST_NS = (_MOST_SECONDS + QUIET_SECONDS) * SECOND_NS


def period_of(passed_ns: Int64s) -> Int64s:
    """The number of the period in which each time since a process began (ns) is: a period begins where a steady state
    may begin."""
    return int64s(np.maximum(np.searchsorted(_BEGINS * SECOND_NS, passed_ns, "right") - 1, 0))


def periods_in(times: Times, until_ns: int) -> Set[int]:
    """The periods of which most is in ``times``, since a process began until ``until_ns`` (ns)."""
    begins = _BEGINS * SECOND_NS
    ends = np.minimum(np.append(begins[1:], FOREVER), until_ns)
    inside = sum(np.maximum(np.minimum(ends, end) - np.maximum(begins, begin), 0) for begin, end in times)
    return set(np.flatnonzero((ends > begins) & (2 * inside > ends - begins)).tolist())


def times_of(periods: Set[int]) -> Times:
    """The times (ns) of periods since a process began; the last one has no end."""
    ends = np.append(_BEGINS[1:] * SECOND_NS, FOREVER)
    return [(int(_BEGINS[period]) * SECOND_NS, int(ends[period])) for period in sorted(periods)]


class StartUp:
    """The first seconds of a process, from ``began_ns`` on: which had an event of the start-up, and the time in calls.

    Events are a load or compilation of device code, a new context, and a kernel that was never seen before. A second
    in which no kernel or graph was launched is not steady either, as while weights are copied or a compiler runs on the
    host, unless no three seconds in a row of the first minute have more. What is ``late``, a recording that began while
    the program ran, has no start-up.
    """

    def __init__(self, began_ns: int, late: bool = False) -> None:
        self.began_ns = began_ns
        self._late = late
        self._busy = np.zeros(_MOST_SECONDS + QUIET_SECONDS, dtype=np.bool_)
        self._launched = np.zeros(_MOST_SECONDS + QUIET_SECONDS, dtype=np.bool_)
        self._calls = BinnedSums(began_ns, columns=len(CallKind))

    def note(self, times: Int64s) -> None:
        """Note events at ``times`` (ns)."""
        seconds = (times - self.began_ns) // SECOND_NS
        self._busy[seconds[(seconds >= 0) & (seconds < len(self._busy))]] = True

    def note_calls(self, begins: Int64s, ends: Int64s, kinds: Int64s) -> None:
        """Note calls, for the time inside calls of each kind."""
        seconds = (ends - self.began_ns) // SECOND_NS
        kept: Flags = (seconds >= 0) & (seconds < len(self._busy))
        ends, kinds, lasted = (each.compress(kept) for each in (ends, kinds, np.minimum(ends - begins, _LONGEST_NS)))
        add_at(self._calls, ends, kinds, lasted)

    def note_launches(self, begins: Int64s, ends: Int64s) -> None:
        """Note times in which there were launches, or may have been."""
        first, last = ((times - self.began_ns) // SECOND_NS for times in (begins, ends))
        for second, end in zip(np.maximum(first, 0).tolist(), last.tolist(), strict=True):
            self._launched[second : end + 1] = True

    def steady_ns(self, known_ns: int, ended: bool) -> int | None:
        """When the steady state began, by all events until ``known_ns``, the end of the run if it has ``ended``.

        None without one, or while that is not known.
        """
        if self._late:
            return self.began_ns
        complete = (known_ns - self.began_ns) // SECOND_NS
        steady = self._first_steady(~self._busy & self._launched, complete)
        if steady is None and (ended or complete >= FIRST_SECONDS + QUIET_SECONDS):
            steady = self._first_steady(~self._busy, min(complete, FIRST_SECONDS + QUIET_SECONDS))
        return None if steady is None else self.began_ns + steady * SECOND_NS

    @staticmethod
    def _first_steady(quiet: Flags, complete: int) -> int | None:
        """The second with which the steady state begins by the seconds before ``complete``: the first that is quiet
        with those that follow it, or the next one after it in which it may begin."""
        quiet = quiet[: max(complete, 0)]
        every = np.flatnonzero(
            np.logical_and.reduce([quiet[at : len(quiet) - QUIET_SECONDS + 1 + at] for at in range(QUIET_SECONDS)])
        )
        if not len(every):
            return None
        begin = int(_BEGINS[min(int(np.searchsorted(_BEGINS, every[0])), len(_BEGINS) - 1)])
        return begin if begin <= complete else None

    def is_settled(self, known_ns: int) -> bool:
        """True if no event after ``known_ns`` changes when the steady state begins: one moves it that is in its first
        seconds, and known a little later. One that has not begun by then may never begin."""
        complete = (known_ns - self.began_ns) // SECOND_NS
        if self._late or complete >= len(self._busy):
            return True
        steady = self._first_steady(~self._busy & self._launched, complete)
        return steady is not None and complete - steady >= 2 * QUIET_SECONDS

    def time_of(self, kind: CallKind, end_ns: int) -> int:
        """The time (ns) inside calls of a kind that returned before ``end_ns``, of all threads together."""
        return int(self._calls.during(((self.began_ns, end_ns),))[:, int(kind)].sum())
