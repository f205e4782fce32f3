"""Waits for the GPU outside calls: a thread spins on memory that a kernel writes, sleeps until a host function wakes
it, or sleeps between queries.

No call records such a wait. It shows in the next call, which begins a fixed time after the end of the GPU's work,
however long that work was. Where the work always takes as long, or the host's time varies with it, a host that computes
looks the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.binned_sums import BinnedSums, Times, add_at
from stallprobes.watch.division.call_columns import QUERIES
from stallprobes.watch.division.cpu_time import CpuSamples, passed_ns
from stallprobes.watch.division.instants import Calls, Flags, Operations
from stallprobes.watch.intervals import NONE, Int64s, expanded, int64s

# Number in place of a function's number, for a wait for the GPU outside calls.
OUTSIDE = -2
# Number of the function after a gap, for a gap that is a run of queries with time between them. The gap lasts from the
# first query of the run to the last query.
_POLLED = -3
# Name in place of a function's name, for a wait for the GPU outside calls.
OUTSIDE_NAME = "code outside calls"
# Shortest gap (ns) between two calls of a thread that can be a wait for the GPU. After a call by which the GPU wakes a
# thread (HOST_FUNCTIONS), the limit is _LEAST_WORK_NS.
_LEAST_GAP_NS = 100_000
# If the GPU work ends less than this time (ns) after the beginning of a gap between calls, the gap is no wait. After a
# call in HOST_FUNCTIONS, a gap that is shorter than this time is no wait either.
_LEAST_WORK_NS = 20_000
# Error (ns) of the clocks of the records. If GPU work ends at most this time after a gap between calls, the work counts
# as ended in the gap. The error also enters the standard error of the slope (see _LEAST_SLOPE).
_CLOCK_ERROR_NS = 5_000
# Smallest number of gaps between calls of the same two functions at which the gaps can be waits.
_LEAST_GAPS = 20
# Smallest share of the gaps between the same two functions in which GPU work must end for the gaps to be waits.
_LEAST_ENDED = 0.95
# Smallest slope (ms per ms) at which gaps between calls can be waits: how the time from the end of GPU work to the next
# call depends on the work's duration. The slope is 0 if the thread waits for the work, and -1 if the host computes all
# the time. _DEVIATIONS standard errors are subtracted from the slope before the comparison.
_LEAST_SLOPE = -0.75
# Upper limit of the slope (see _LEAST_SLOPE) for waits: the slope plus one standard error must be below this limit. The
# slope is above 0 if inputs with longer GPU work also take the host longer.
_MOST_SLOPE = 0.35
# Number of standard errors that are subtracted from the slope before the comparison with _LEAST_SLOPE. If the GPU wakes
# the thread (HOST_FUNCTIONS) and the thread sleeps, the standard errors are added.
_DEVIATIONS = 3.0
# Variance (ms²) that is added to the variance of the work's duration. Reason: the slope is computed with this sum as
# the divisor, and the variance of the duration may be 0.
_LEAST_SCATTER = 1e-9
# If the slope (see _LEAST_SLOPE) plus two standard errors is below this limit, the host computes in the gaps. The test
# is used only if the duration of the work varies by more than _CLOCK_ERROR_NS. Reason: the error of the clocks makes
# every slope smaller.
_COMPUTING_SLOPE = -0.5
# Largest ratio of two times at which gaps between calls can be waits: GPU work in the gaps, divided by the thread's
# time awake outside calls. Reason: a thread that polls for the GPU is awake while the GPU works. The limit does not
# apply if no time awake is known, or if the GPU wakes the thread (HOST_FUNCTIONS).
_MOST_WORK_PER_AWAKE = 1.25
# Functions by which GPU work calls a function on the host, which may wake a thread.
HOST_FUNCTIONS = ("cuLaunchHostFunc", "cuStreamAddCallback")
# Gaps after calls in HOST_FUNCTIONS are waits if the thread sleeps for at least this share of the GPU work's duration.
# The gaps are still no waits if the slope (see _LEAST_SLOPE) shows that the host computes. With less sleep, both limits
# of the slope decide.
_LEAST_ASLEEP = 0.8
# Columns of the sums of gaps: times in ns.
# _WORKED: time in which GPU work runs.
# _REST: rest of the gap, if the GPU wakes the thread.
# _LEFT: part of _WORKED that was not taken for waits when it was divided.
# _TAKEN: part of _WORKED that was.
_WORKED, _REST, _LEFT, _TAKEN, _COLUMNS = range(5)


@dataclass
class _Gaps:
    """The gaps between calls of two functions: their number, in how many work ended, and of these the sums of the
    work's time (ms), of that after it, and of their products. ``asleep_ns`` and ``awake_ns``: how long the thread slept
    outside calls, and did not, in slices of time in which work took ``pending_ns`` of such gaps. ``wakes``: the GPU
    wakes the thread, or the thread itself, to ask for the work."""

    counts: Int64s = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(5))
    asleep_ns: float = 0.0
    awake_ns: float = 0.0
    pending_ns: float = 0.0
    wakes: bool = False

    def add(self, work_ns: Int64s, after_ns: Int64s) -> None:
        ended = after_ns >= -_CLOCK_ERROR_NS
        work, after = work_ns[ended] / 1e6, after_ns[ended] / 1e6
        self.counts += (len(work_ns), len(work))
        self.sums += [each.sum() for each in (work, after, work * work, work * after, after * after)]

    @property
    def wait(self) -> bool | None:
        """True if the thread waits for the GPU in these gaps, None if that is not known."""
        count, ended = self.counts.tolist()
        if count < _LEAST_GAPS or ended < _LEAST_ENDED * count:
            return False
        work, after, squares, products, squares_after = (self.sums / ended).tolist()
        scatter = max(squares - work * work, 0.0) + _LEAST_SCATTER
        slope = (products - work * after) / scatter
        left = max(squares_after - after * after - slope * slope * scatter, 0.0) + (_CLOCK_ERROR_NS / 1e6) ** 2
        error: float = (left / scatter / ended) ** 0.5
        if self.wakes and self.pending_ns and self.asleep_ns >= _LEAST_ASLEEP * self.pending_ns:
            return bool(slope + _DEVIATIONS * error > _LEAST_SLOPE)
        if not self.wakes and self.pending_ns > _MOST_WORK_PER_AWAKE * self.awake_ns > 0:
            return False
        if slope - _DEVIATIONS * error > _LEAST_SLOPE and slope + error < _MOST_SLOPE:
            return True
        return False if slope + 2 * error < _COMPUTING_SLOPE and scatter > (_CLOCK_ERROR_NS / 1e6) ** 2 else None


# Times (ns) in gaps that may be waits: where the thread is on a CPU, and where it sleeps; of the latter those while the
# GPU works, of which it is not known that they are waits. Before a gap in which it sleeps is a call by which the GPU
# wakes a thread. That takes a while after the work.
PossibleWaits = tuple[int, int, int]
# No gap that may be a wait.
NO_WAITS: PossibleWaits = (0, 0, 0)


class OutsideWaits:
    """What is known of the gaps between calls of a process, by the functions before and behind them."""

    def __init__(self) -> None:
        self._gaps: dict[tuple[int, int], _Gaps] = {}
        # Sums of the gaps of each thread, by the functions before and behind.
        self._sums: dict[int, dict[tuple[int, int], BinnedSums]] = {}
        # The last call of each thread before a slice of time: its end and its function.
        self._last: dict[int, tuple[int, int]] = {}
        self._wakes = self._queries = NONE
        self._origin_ns = -1

    def possible_ns(self, thread: int, times: Times) -> PossibleWaits:
        """Time in ``times`` in gaps of a thread that may be waits."""
        spins = sleeps = unproven = 0
        for names, sums in self._sums.get(thread, {}).items():
            gaps, (work_ns, rest_ns, *_) = self._gaps[names], sums.during(times).sum(axis=0).tolist()
            spins += work_ns + rest_ns if gaps.wait is None else 0
            # What passes after the work may be a wait too.
            sleeps += rest_ns + (0 if gaps.wait else work_ns) if gaps.wakes else 0
            unproven += work_ns if gaps.wakes and not gaps.wait else 0
        return spins, sleeps, unproven

    def missing_ns(self, thread: int, begins: Int64s, width_ns: int) -> Int64s:
        """Time (ns) of a thread in bins of ``width_ns``: waits that were not taken for such when they were divided,
        less what was, and is none by what is known now."""
        missing = np.zeros(len(begins), dtype=np.int64)
        borders = np.stack((begins, begins + width_ns), axis=1).ravel()
        for names, sums in self._sums.get(thread, {}).items() if len(begins) else ():
            wait = self._gaps[names].wait
            if wait is not None:
                missing += sums.totals(borders)[::2, _LEFT if wait else _TAKEN] * (1 if wait else -1)
        return missing

    def with_waits(
        self,
        threads: Mapping[int, Calls],
        operations: Operations,
        functions: Mapping[int, str],
        cpu: CpuSamples,
        begin_ns: int,
        end_ns: int,
    ) -> dict[int, Calls]:
        """``threads`` with their waits outside calls, as calls, by the calls of the slice from ``begin_ns`` to
        ``end_ns`` and those before. ``functions`` are names by number."""
        self._origin_ns = begin_ns if self._origin_ns < 0 else self._origin_ns
        self._wakes, self._queries = (
            int64s([number for number, name in functions.items() if name.startswith(names)])
            for names in (HOST_FUNCTIONS, QUERIES)
        )
        found, work = {}, (operations.threads, operations.returned, operations.ends)
        for thread, calls in threads.items():
            slept = None
            if (passed := passed_ns(cpu.get(thread), begin_ns, end_ns)) is not None:
                inside = calls.spans.within(begin_ns, end_ns)
                outside = end_ns - begin_ns - int((inside.ends - inside.begins).sum())
                slept = max(outside - sum(passed), 0.0), min(float(outside), sum(passed))
            found[thread] = self._with_waits(thread, calls, work, slept, begin_ns, end_ns)
        return found

    def _with_waits(
        self,
        thread: int,
        calls: Calls,
        work: Sequence[Int64s],
        slept: tuple[float, float] | None,
        begin_ns: int,
        end_ns: int,
    ) -> Calls:
        # A call in flight may have begun later, behind calls that are not known yet.
        begun = int(calls.begins.searchsorted(end_ns, "left"))
        if not begun:
            return calls
        last_end, last_function = self._last.get(thread, (int(calls.begins[0]), OUTSIDE))
        self._last[thread] = int(calls.ends[begun - 1]), int(calls.functions[begun - 1])
        before = np.concatenate(([min(last_end, int(calls.begins[0]))], calls.ends[:-1]))
        first, inner = _runs_of(calls.functions[:begun], self._queries)
        before[:begun] = np.append(before[:1], calls.ends)[first]
        lengths = calls.begins - before
        gaps = np.flatnonzero((lengths[:begun] >= _LEAST_WORK_NS) & ~inner)
        polled = gaps - first[gaps] > 0
        functions = np.concatenate(([last_function], calls.functions[:-1]))[gaps]
        wakes = np.isin(functions, self._wakes) | polled
        kept = wakes | (lengths[gaps] >= _LEAST_GAP_NS)
        gaps, functions, wakes, polled = gaps[kept], functions[kept], wakes[kept], polled[kept]
        if not len(gaps):
            return calls
        threads, *columns = work
        returned, ends = (each.compress(threads == thread) for each in columns)
        order = np.argsort(returned, kind="stable")
        ends = np.concatenate(([0], np.maximum.accumulate(ends[order])))
        ends = ends[np.searchsorted(returned[order], before[gaps], "right")]
        begins = calls.begins[gaps]
        took, after = ends - before[gaps], begins - ends
        pending, new = took >= _LEAST_WORK_NS, begins >= begin_ns
        # How much of each gap the work takes, and how much is left of it.
        ran = np.minimum(np.maximum(took, 0), took + after)
        # A run of queries waits until a query finds the work ended.
        ran = np.where(polled, took + after, ran)
        rest = took + after - ran
        # In a wait, the query before the last one begins before the work ends.
        after = np.where(polled & (calls.begins[gaps - 1] > ends + _CLOCK_ERROR_NS), -_LEAST_GAP_NS, after)
        ended, unfinished = after >= -_CLOCK_ERROR_NS, polled & (gaps == begun - 1)
        waits = np.zeros(len(gaps), dtype=np.bool_)
        # The function of a call in flight is not known, and its number negative.
        pairs = functions << 32 | np.where(polled, _POLLED, calls.functions[gaps]) & 0xFFFFFFFF
        for pair in set(pairs[pending | wakes].tolist()):
            names = pair >> 32, pair & 0xFFFFFFFF
            same = pairs == pair
            known = self._gaps.setdefault(names, _Gaps(wakes=bool(wakes[same].any())))
            counted = same & new & pending & ~unfinished
            known.add(took[counted], after[counted])
            if slept is not None and counted.any():
                # Not all work is recorded.
                known.pending_ns += float(took[counted].mean()) * int((same & new).sum())
                known.asleep_ns += slept[0]
                known.awake_ns += slept[1]
            sums = self._sums.setdefault(thread, {}).setdefault(names, BinnedSums(self._origin_ns, columns=_COLUMNS))
            chosen = same & new if known.wakes else counted & (after >= 0)
            add_at(sums, begins[chosen], _WORKED, ran[chosen], *([rest[chosen]] if known.wakes else ()))
            is_wait = bool(known.wait)
            chosen = counted & ended
            add_at(sums, begins[chosen], _TAKEN if is_wait else _LEFT, ran[chosen])
            if is_wait:
                waits |= same & pending & (ended | unfinished)
        if not waits.any():
            return calls
        ends = np.where(polled, begins, np.minimum(ends, begins))[waits]
        gaps, polled = gaps[waits], polled[waits]
        begins = before[gaps]
        # The wait replaces its queries.
        kept = np.ones(len(calls), dtype=np.bool_)
        kept[expanded(first[gaps[polled]], gaps[polled])[1]] = False
        return _inserted(calls, gaps, begins, ends, kept)


def _runs_of(functions: Int64s, queries: Int64s) -> tuple[Int64s, Flags]:
    """First call after the begin of each call's gap, by place, and flags of the inner queries of runs: int64[calls] and
    bool[calls].

    A run has three or more queries of one function. The gap of its last query begins with the end of its first query.
    """
    places = np.arange(len(functions))
    follows = np.append(False, np.isin(functions[1:], queries) & (functions[1:] == functions[:-1]))[: len(places)]
    inner = follows & np.append(follows[1:], False)
    first = np.maximum.accumulate(np.where(follows, 0, places))
    return np.where(follows & ~inner, np.minimum(first + 1, places), places), inner


def _inserted(calls: Calls, places: Int64s, begins: Int64s, ends: Int64s, kept: Flags) -> Calls:
    """The ``kept`` calls of ``calls``, with waits before the calls at ``places``."""
    waits, none = calls.at(places), np.zeros(len(places), dtype=np.int64)
    waits = replace(
        waits,
        begins=begins,
        ends=ends,
        contexts=none,
        correlations=none,
        functions=none + OUTSIDE,
        kinds=none + int(CallKind.WAITS),
        holds=none,
    )
    before = int64s(np.cumsum(kept) - kept)[places]
    calls = calls.where(kept)
    return Calls.joined((calls, waits)).at(np.insert(np.arange(len(calls)), before, len(calls) + np.arange(len(waits))))
