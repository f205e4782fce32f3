"""Slowdown by records: what a program does differently while work of the GPU is recorded.

A program whose records are on for a part of the time is divided in that part, in which it is slower: each call that
submits work takes longer, and so do the nodes of graphs. By its calls with and without records, its division becomes
that of the whole time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.records.rows import Rows, rows_where
from stallprobes.watch.division.call_columns import AWAITS_WORK, columns_of
from stallprobes.watch.division.instants import LEAST_GAPS, SUBMITS, WAITING
from stallprobes.watch.division.parts import GPU_PARTS, NUMBERS, ORDER, Part
from stallprobes.watch.division.pending import threads_of
from stallprobes.watch.intervals import Int64s, distinct, int64s
from stallprobes.watch.reading.process import CallBatch, WatchedProcess
from stallprobes.watch.reading.record_windows import NEVER

# Keys of sums for windows with records and without.
_ON, _OFF = True, False
# Smallest number of a function's calls with records, and also without records, for a comparison of the calls'
# durations. With fewer calls, records count as adding no time to the function.
_LEAST_CALLS = 30
# Largest number of call durations of a function that are kept from one reading in one window. From more calls, an even
# selection is kept.
_MOST_CALLS = 256
# Largest number of lists of call durations that are kept of a function: the last lists. Each list has the calls of one
# reading in one window.
_KEPT_WINDOWS = 64
# Largest number of calls that are kept while their window has not ended. With more calls, the oldest calls are dropped.
_MOST_KEPT = 500_000
# Largest number of pairs of thread and function that are counted. Calls of further pairs are ignored.
_MOST_KEYS = 4096
# Smallest rate of a function's logged calls in windows without records, as a share of the rate with records. Below this
# share, the function's calls count as not logged in windows without records. Reason: in these windows, the library may
# log only a part of frequent calls.
_LEAST_FOLLOWED = 0.5
# Time (ns) that CUPTI itself takes for the two callbacks of a call.
_DISPATCH_NS = 200
# Largest time (ns) by which a record makes a call longer. Measured on an H200: 0.3 to 1.5 us for launches, and 4.6 us
# for uploads of pinned memory. A larger difference comes from a full queue.
_MOST_LONGER_NS = 5_000
# Beginning of the names of the functions that launch graphs. _MOST_LONGER_NS does not limit launches of graphs, since
# each node of a graph has a record.
_GRAPH_LAUNCH = "cuGraphLaunch"
# Smallest share of the time with records that waiting calls must take for a comparison of waits with and without
# records.
_LEAST_WAITS = 0.02
# Largest ratio of two shares of a sequence's time: waits for the GPU, and time inside calls that wait. The larger share
# is divided by the smaller share. With a larger ratio, waits with and without records are not compared.
_MOST_FACTOR = 1.5
# Largest slowdown of a program by records, as a multiple of the time that records add to the program's calls. Reason
# for a limit above 1: records also lengthen the nodes of graphs and the gaps between the nodes.
_MOST_SLOWER = 1.4
# Largest share by which records lengthen the nodes of graphs and the gaps between the nodes. Measured: 8.5 % of 2 us
# (H200).
_NODES_LONGER = 0.085
# Smallest time (ns) that CUPTI, while in a process, adds to a graph launch for each node, with records and without.
# Measured: 180 to 360 ns (graphs of 900 kernels, H200, CUPTI 13.5, ten processes).
_PRESENT_NODE_NS = 180
# Duration (ns) of a graph launch without CUPTI. Only time above this duration counts as added by CUPTI.
_LEAST_LAUNCH_NS = 5_000
# Largest share of the time of a bin that records can add.
_MOST_OF_BIN = 0.9
# Parts of the time in which the GPU does nothing while the host submits. The time that records add is subtracted from
# these parts, in this order.
_SUBMITTING = (Part.SUBMITTING, Part.QUEUED, Part.BLOCKED)


class Slowdown(NamedTuple):
    """How a sequence differs with records, as shares (0 to 1) of its time with them.

    ``added`` is by how much its calls took longer, ``slower`` how much of its time it would not have taken without
    records. ``waits`` are the shares of its time inside calls that wait, with records and without, None where that is
    not known. ``off`` is the share of all time without records. ``known``: it was measured.
    """

    added: float = 0.0
    slower: float = 0.0
    waits: tuple[float, float] | None = None
    off: float = 0.0
    present: float = 0.0
    known: bool = False

    @property
    def pace(self) -> float:
        """How much it does in all time, by how much it does in as much time with records."""
        return 1 + self.off * self.slower / (1 - self.slower)


# Slowdowns of a sequence without measurements, and of a sequence whose records are never switched.
NO_SLOWDOWN, NEVER_SWITCHED = Slowdown(), Slowdown(known=True)


class SlowdownSums:
    """Numbers and durations of calls with and without records, of the windows that have ended."""

    def __init__(self) -> None:
        self._calls: list[tuple[Rows, Int64s]] = []
        # From when on all calls are here, and until when they are counted.
        self._since_ns = self._done_ns = 0
        self._ns = {_ON: 0, _OFF: 0}
        self._switched = False
        # By thread and function.
        self._counts: dict[bool, dict[tuple[int, int], int]] = {_ON: defaultdict(int), _OFF: defaultdict(int)}
        self._waited: dict[bool, dict[tuple[int, int], int]] = {_ON: defaultdict(int), _OFF: defaultdict(int)}
        self._durations: dict[tuple[bool, int], list[Int64s]] = defaultdict(list)
        self._graphs: set[int] = set()
        # Number of records of nodes of graphs in windows with records: records minus calls.
        self._nodes = 0
        self._callback_ns = 0.0

    def add(self, process: WatchedProcess, calls: CallBatch, steady_ns: int | None, now_ns: int) -> None:
        """Add a reading's calls at ``now_ns``; ``steady_ns`` is when the steady state began, None before that is
        known."""
        windows = process.windows
        self._switched |= len(windows) > 0
        if not len(windows) or windows.on.all():
            self._since_ns = now_ns
            return
        self._calls.append((calls.rows, columns_of(calls.rows, calls.functions)[0]))
        self._callback_ns = process.callback_ns
        self._graphs.update(number for number, name in calls.functions.items() if name.startswith(_GRAPH_LAUNCH))
        self._drop_oldest()
        if steady_ns is None:
            return
        begins = np.maximum(windows.begins, max(steady_ns, self._since_ns))
        for at in np.flatnonzero((windows.ends < NEVER) & (windows.ends > self._done_ns)).tolist():
            begin, end = int(begins[at]), int(windows.ends[at])
            if begin < end:
                # What passes between two windows belongs to none.
                self._ns[bool(windows.on[at])] += end - begin
                if windows.on[at]:
                    self._nodes += max(int(windows.counted[at]) - int(windows.calls[at]), 0)
                for rows, kinds in self._calls:
                    self._count(rows, kinds, bool(windows.on[at]), begin, end)
            self._done_ns = end
        # The last rows are in the order of their ends.
        self._calls = [each for each in self._calls if len(each[0]) and each[0]["returned_ns"].max() > self._done_ns]

    def _drop_oldest(self) -> None:
        """Keep no more calls than the limit: of a program that never becomes steady, or of a long window."""
        while len(self._calls) > 1 and sum(len(rows) for rows, _ in self._calls) > _MOST_KEPT:
            rows, _ = self._calls.pop(0)
            self._since_ns = max(self._since_ns, int(rows["returned_ns"].max(initial=0)))

    def _count(self, rows: Rows, kinds: Int64s, on: bool, begin_ns: int, end_ns: int) -> None:
        """Count what calls do in a window."""
        begins, ends = rows["began_ns"], rows["returned_ns"]
        waits = AWAITS_WORK[kinds] & (begins < end_ns) & (ends > begin_ns)
        if waits.any():
            inside = np.minimum(ends[waits], end_ns) - np.maximum(begins[waits], begin_ns)
            _add(self._waited[on], _by_function(rows_where(rows, waits), inside))
        inside = (begins >= begin_ns) & (begins < end_ns)
        rows, kinds = rows_where(rows, inside), kinds[inside]
        _add(self._counts[on], _by_function(rows))
        submits = rows_where(rows, kinds == int(CallKind.SUBMITS))
        for function in distinct(int64s(submits["function"])).tolist():
            own = rows_where(submits, submits["function"] == function)
            kept = self._durations[on, function]
            kept.append((own["returned_ns"] - own["began_ns"])[:: -(-len(own) // _MOST_CALLS)])
            del kept[:-_KEPT_WINDOWS]

    def of(self, threads: Iterable[int]) -> Slowdown:
        """The slowdown of the sequence of some threads; NO_SLOWDOWN before it can be measured."""
        if not self._switched:
            return NEVER_SWITCHED
        chosen = set(threads)
        if not all(self._ns.values()):
            return NO_SLOWDOWN
        rates = {on: self._rates(self._counts[on], on, chosen) for on in (_ON, _OFF)}
        waits = {on: self._rates(self._waited[on], on, chosen) for on in (_ON, _OFF)}
        followed = {name for name, rate in rates[_ON].items() if rates[_OFF].get(name, 0) >= _LEAST_FOLLOWED * rate}
        added = 0.0
        for function, rate in rates[_ON].items():
            added += rate * self._longer_ns(function)
            if function not in followed:
                added += rate * (2 * self._callback_ns + _DISPATCH_NS)
        added = min(added, 0.9)
        with_records, without = (sum(rates[on].get(function, 0) for function in followed) for on in (_ON, _OFF))
        # Without a measure of it: as if the program never waited.
        slower = min(max(1 - with_records / without, 0.0), added * _MOST_SLOWER, 0.9) if without else added
        known = waits[_ON].keys() <= followed and sum(waits[_ON].values()) >= _LEAST_WAITS
        return Slowdown(
            added,
            slower,
            (sum(waits[_ON].values()), sum(waits[_OFF].values())) if known else None,
            self._ns[_OFF] / sum(self._ns.values()),
            self._present(rates[_OFF]),
            known=True,
        )

    def _present(self, rates: Mapping[int, float]) -> float:
        """The share of the time that CUPTI adds to launches of graphs; ``rates`` are calls per ns without records."""
        launches = sum(count for (_, function), count in self._counts[_ON].items() if function in self._graphs)
        longer_ns = self._nodes / launches * _PRESENT_NODE_NS if launches else 0.0
        return min(
            sum(
                rate * min(longer_ns, max(self._median_ns(_OFF, function) - _LEAST_LAUNCH_NS, 0.0))
                for function, rate in rates.items()
                if function in self._graphs
            ),
            0.9,
        )

    def _median_ns(self, on: bool, function: int) -> float:
        kept = self._durations.get((on, function))
        return float(np.median(np.concatenate(kept))) if kept else 0.0

    def _rates(self, values: Mapping[tuple[int, int], int], on: bool, threads: set[int]) -> dict[int, float]:
        """Values of ``threads`` by function, in a nanosecond."""
        rates: dict[int, float] = defaultdict(float)
        for (thread, function), value in values.items():
            if thread in threads:
                rates[function] += value / self._ns[on]
        return dict(rates)

    def _longer_ns(self, function: int) -> float:
        """By how much (ns) a call of a function takes longer with records, by the medians."""
        on, off = (self._durations.get((each, function), []) for each in (_ON, _OFF))
        if min(sum(map(len, on)), sum(map(len, off))) < _LEAST_CALLS:
            return 0.0
        longer = max(self._median_ns(_ON, function) - self._median_ns(_OFF, function), 0.0)
        return longer if function in self._graphs else min(longer, _MOST_LONGER_NS)


def _add(sums: dict[tuple[int, int], int], values: Iterable[tuple[tuple[int, int], int]]) -> None:
    for key, value in values:
        # Of more threads than the limit nothing is known.
        if key in sums or len(sums) < _MOST_KEYS:
            sums[key] += value


def _by_function(rows: Rows, values: Int64s | None = None) -> Iterator[tuple[tuple[int, int], int]]:
    """The number of rows, or the sum of their values, by thread and function."""
    threads = threads_of(rows)
    for thread in distinct(threads).tolist():
        own = threads == thread
        sums = np.bincount(rows["function"][own], None if values is None else values[own])
        for function in np.flatnonzero(sums).tolist():
            yield (thread, function), int(sums[function])


def without_slowdown(sums: Int64s, whole: Int64s, slowdown: Slowdown) -> Int64s:
    """``sums`` (int64[bins][COLUMNS]) as they are in all time, with and without records; ``whole`` is the time of each
    bin (ns), which stays.

    What made the program slower is taken off the time in which it submitted work and the GPU had none, and off its
    kernels as far as these were longer. The host waits for as much as it did without records, where that is known; else
    for what its calls took longer without making the program slower.
    """
    if not whole.any():
        return sums
    if slowdown.added:
        sums = _without_records(sums, whole, slowdown)
    return _without_presence(sums, whole, slowdown.present) if slowdown.present else sums


def _without_records(sums: Int64s, whole: Int64s, slowdown: Slowdown) -> Int64s:
    total = sums.sum(axis=0)
    whole_ns, waiting_ns = int(whole.sum()), int(total[WAITING])
    waits = _waits_without(waiting_ns / whole_ns, slowdown)
    changed = sums.astype(np.float64)
    # Records lengthen the calls that submit.
    by_bin = sums[:, SUBMITS] * (whole_ns / total[SUBMITS]) if total[SUBMITS] else whole
    added, left = (np.minimum(by_bin * share, whole * _MOST_OF_BIN) for share in (slowdown.added, slowdown.slower))
    works = [*(NUMBERS[part] for part in GPU_PARTS), LEAST_GAPS]
    working = changed[:, works].sum(axis=1)
    _take(changed, left, added.copy())
    longer = np.minimum(left, working * _NODES_LONGER)
    changed[:, works] *= 1 - np.minimum(longer / np.maximum(working, 1), 1)[:, None]
    left -= longer
    _take(changed, left, left.copy())
    rest = changed[:, : len(ORDER)].sum(axis=1) - sums[:, NUMBERS[Part.END]]
    if waits is None:
        waits_ns = changed[:, WAITING] + np.maximum(added - (whole - rest), 0)
    else:
        waits_ns = changed[:, WAITING] * (waits * rest.sum() / max(waiting_ns, 1))
    # What it waits for is work, of other threads too.
    changed[:, WAITING] = np.minimum(waits_ns, np.maximum(changed[:, works].sum(axis=1), changed[:, WAITING]))
    changed[:, SUBMITS] = np.maximum(changed[:, SUBMITS] - added, 0)
    changed = _as_long(changed, sums, whole)
    return np.rint(sums + (changed - sums) * slowdown.off).astype(np.int64)


def _without_presence(sums: Int64s, whole: Int64s, present: float) -> Int64s:
    """``sums`` without the time that CUPTI adds to launches of graphs. Where the GPU works during a launch, the host
    waits for the GPU instead."""
    changed, left = sums.astype(np.float64), whole * present
    _take(changed, left, left.copy())
    changed[:, WAITING] += left
    changed[:, SUBMITS] = np.maximum(changed[:, SUBMITS] - whole * present, 0)
    return int64s(np.rint(_as_long(changed, sums, whole)))


def _as_long(changed: NDArray[Any], sums: Int64s, whole: Int64s) -> NDArray[Any]:
    """Changed sums, scaled so that the parts of each bin have its whole time again."""
    rest = changed[:, : len(ORDER)].sum(axis=1) - sums[:, NUMBERS[Part.END]]
    as_long: NDArray[Any] = changed * (whole / np.maximum(rest, 1))[:, None]
    as_long[:, NUMBERS[Part.END]] = sums[:, NUMBERS[Part.END]]
    return as_long


def _take(sums: NDArray[Any], left: NDArray[Any], most: NDArray[Any]) -> None:
    """Take what is ``left`` of the time that records add, at most ``most`` (both by bin), off the parts in which the
    GPU does nothing while the host submits."""
    gaps = sums[:, LEAST_GAPS].copy()
    for part in _SUBMITTING:
        column = sums[:, NUMBERS[part]]
        kept = np.minimum(gaps, column)
        gaps -= kept
        taken = np.minimum(np.minimum(left, most), column - kept)
        column -= taken
        left -= taken
        most = most - taken


def _waits_without(waiting: float, slowdown: Slowdown) -> float | None:
    """The share of the time without records in which the sequence waits, by that with records; None if not known."""
    if slowdown.waits is None:
        return None
    with_records, without = slowdown.waits
    factor = waiting / with_records
    return min(without * factor, 1.0) if 1 / _MOST_FACTOR <= factor <= _MOST_FACTOR else None
