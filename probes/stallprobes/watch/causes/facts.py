"""Arrays of facts about slow calls that the rules of several causes use."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import OverheadKind, RecordKind
from stallprobes.native.layouts.driver_calls import DriverFunction, HostTask, Waits, function_of
from stallprobes.watch.attribution.alike_calls import NO_CALLS, AlikeCalls, AlikeSum
from stallprobes.watch.attribution.evidence import EvidenceReader
from stallprobes.watch.attribution.findings import WaitEvidence
from stallprobes.watch.attribution.gpu_waits import (
    DIRECT_SHARE,
    OVERLAP_SHARE,
    GpuWaits,
    Neighbours,
    gpu_waits,
    held_streams,
    neighbours,
)
from stallprobes.watch.attribution.gpu_work import WorkTable
from stallprobes.watch.attribution.other_processes import OthersWork, nobody
from stallprobes.watch.attribution.other_threads import CulpritCalls, culprits_of
from stallprobes.watch.attribution.slow_calls import CallTable
from stallprobes.watch.attribution.stream_numbers import StreamNumbers
from stallprobes.watch.attribution.stream_order import NOTHING_BEHIND, Behind, StreamOrder, rows_behind
from stallprobes.watch.attribution.wait_cause import CAUSE_RANKS, WaitCause, cause_of_task
from stallprobes.watch.causes.known_stalls import KnownStalls
from stallprobes.watch.division.recorded_times import Tenures
from stallprobes.watch.intervals import GroupedTimes, Int64s, int64s
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.process import SlowDriverCall
from stallprobes.watch.reading.record_windows import NO_WINDOWS, RecordWindows

Flags = NDArray[np.bool_]
# Correlation number of the first launch of each kernel, by context and name.
FirstLaunches = Mapping[tuple[int, int], int]
# Cause of a call by the kind of its overhead record; other kinds explain nothing.
_OVERHEADS = {
    OverheadKind.MODULE_LOADING: WaitCause.MODULE_LOADING,
    OverheadKind.LAZY_FUNCTION_LOADING: WaitCause.LAZY_LOADING,
    OverheadKind.DRIVER_COMPILER: WaitCause.COMPILATION,
    OverheadKind.COMMAND_BUFFER_FULL: WaitCause.QUEUE_FULL,
    OverheadKind.BUFFER_FLUSH: WaitCause.TRACING,
    OverheadKind.INSTRUMENTATION: WaitCause.TRACING,
    OverheadKind.RESOURCE: WaitCause.TRACING,
    OverheadKind.ACTIVITY_BUFFER_REQUEST: WaitCause.TRACING,
}
# Largest number of slow calls in a reading for which waits for other streams, events and host functions are searched.
# The later slow calls are left out. Reason: each search reads all calls that order streams (records of events, waits
# for events, …).
MOST_FOLLOWED = 256
# Longest time (ns) by which a call that holds its stream (with a host function, or a wait for a value in memory or an
# external semaphore) may begin before a slow call that waits for the stream. The slow call's duration is added to this
# time. Reason for a limit: no record shows how long the stream is held.
HOLDS_NS = 10_000_000
# Ranks (in CAUSE_RANKS) of the four causes on the GPU, in the order of the columns of ``parts`` in ``gpu_cause``.
_GPU_RANKS = int64s(
    [
        CAUSE_RANKS[cause]
        for cause in (WaitCause.GPU_WORK, WaitCause.OWN_WORK, WaitCause.OTHER_CONTEXT, WaitCause.OTHER_PROCESS)
    ]
)
# Causes in the overhead records of a call that loads device code. Calls of other threads may wait for the end of the
# loading call.
_LOADING = (WaitCause.MODULE_LOADING, WaitCause.LAZY_LOADING, WaitCause.COMPILATION)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Records of a process beside its slow calls.

    - ``records``: in the layout of the file.
    - ``names``: those of its kernels by their place.
    - ``tenures``: by device.
    - ``run_delays``: for each thread's id int64[n][3], ascending: a time (ns), for how long until then the thread was
      ready to run and had no CPU, and for how long it had one (ns).
    - ``preempted``: for each thread's id int64[n][2], ascending: begins and ends (ns) of times in which the kernel had
      given its CPU to others.
    - ``thread_names``: by id.
    - ``stacks``: by their number in the file.
    - ``first_launches``: those of each kernel.
    - ``complete``: no record was lost, so that the GPU did nothing else.
    - ``windows``: those in which records were on or off.
    - ``streams``: the numbers of streams.
    - ``may_hold_streams``: the program makes calls after which a stream waits for an event or a host function;
      ``order`` has them.
    - ``alike``: calls whose causes are final; ``noted`` says which of the slow calls are among them.
    - ``others``: the kernels of other watched processes.
    """

    records: NDArray[Any]
    names: Mapping[int, str] = field(default_factory=dict)
    tenures: Mapping[int, Tenures] = field(default_factory=dict)
    run_delays: Mapping[int, Int64s] = field(default_factory=dict)
    thread_names: Mapping[int, str] = field(default_factory=dict)
    stacks: Mapping[int, CallStack] = field(default_factory=dict)
    first_launches: FirstLaunches = field(default_factory=dict)
    complete: bool = False
    windows: RecordWindows = NO_WINDOWS
    streams: StreamNumbers = field(default_factory=StreamNumbers)
    may_hold_streams: bool = False
    order: StreamOrder | None = None
    alike: AlikeCalls = NO_CALLS
    others: OthersWork = nobody
    noted: Sequence[bool] = ()
    preempted: Mapping[int, Int64s] = field(default_factory=dict)


class Facts:
    """Slow calls and all that was recorded beside them. Arrays have one value for each call."""

    def __init__(
        self,
        slow: Sequence[SlowDriverCall],
        excess: Sequence[int],
        recorded: Recorded,
        known: KnownStalls | None,
    ) -> None:
        self.slow, self.excess, self.recorded, self.known = slow, excess, recorded, known
        self.calls = CallTable.of(slow, excess)
        self.work = WorkTable.of(recorded.records, self.calls)
        self._near: Neighbours | None = None
        self._culprits: tuple[Int64s, Int64s] | None = None
        self._held: Int64s | None = None
        self._behind: dict[int, Behind] = {}
        # Slow calls of this reading whose causes their records show.
        self.alike = AlikeCalls()
        self._like: dict[Hashable, AlikeSum | None] = {}

    @property
    def nothing(self) -> Flags:
        """Flags of no call, to be set."""
        return np.zeros(len(self.calls), dtype=np.bool_)

    @cached_property
    def waits(self) -> GpuWaits:
        """Waits of each call on the GPU."""
        recorded = self.recorded
        return gpu_waits(self.calls, self.work, recorded.streams, recorded.tenures)

    @cached_property
    def evidence(self) -> EvidenceReader:
        """The reader of the evidence of single calls."""
        recorded = self.recorded
        return EvidenceReader(self.calls, self.work, recorded.names, recorded.thread_names, self.waits, recorded.others)

    @cached_property
    def busy(self) -> Int64s:
        """Time (ns) of each call in which the GPU worked, for any context."""
        return self.work.covered(slice(None), self.calls.begins, self.calls.ends)

    @cached_property
    def sizes(self) -> Int64s:
        """The bytes of each call, -1 where it has none."""
        return int64s([-1 if call.bytes is None else call.bytes for call in self.slow])

    @cached_property
    def by_end(self) -> Int64s:
        """The rows of work in the order of their ends."""
        return int64s(np.argsort(self.work.ends, kind="stable"))

    @cached_property
    def overheads(self) -> Int64s:
        """The time (ns) of the overhead records of each call: int64[calls][causes], by the rank of the cause."""
        calls, records = self.calls, self.recorded.records
        times = np.zeros((len(calls), len(CAUSE_RANKS)), dtype=np.int64)
        rows = records[(records["kind"] == int(RecordKind.OVERHEAD)) & np.isin(records["subkind"], list(_OVERHEADS))]
        if not len(rows) or not len(calls):
            return times
        starts, ends = int64s(rows["start"]), int64s(rows["end"])
        correlations = int64s(rows["correlation"])
        # Before CUDA 12.3 a record has a thread in place of a call.
        places = np.where(
            correlations != 0, calls.places_of(correlations), _around(calls, int64s(rows["thread"]), starts)
        )
        ranks = int64s([CAUSE_RANKS[_OVERHEADS[OverheadKind(kind)]] for kind in rows["subkind"].tolist()])
        at = np.maximum(places, 0)
        overlap = np.minimum(ends, calls.ends[at]) - np.maximum(starts, calls.begins[at])
        kept = (places >= 0) & (overlap > 0)
        np.add.at(times, (places[kept], ranks[kept]), overlap[kept])
        return int64s(np.minimum(times, (calls.ends - calls.begins)[:, None]))

    @cached_property
    def overhead(self) -> Int64s:
        """The rank of each call's cause by its overhead records, -1 where they explain too little."""
        best = self.overheads.argmax(axis=1)
        time = self.overheads[np.arange(len(self.calls)), best]
        return np.where((time > 0) & (time >= DIRECT_SHARE * self.calls.excess), best, -1)

    @cached_property
    def delays(self) -> Int64s:
        """Least time (ns) in each call for which its thread was ready to run without a CPU."""
        known = preempted_ns(self.calls, self.recorded.preempted)
        return np.maximum(run_delays(self.calls, self.recorded.run_delays), known)

    @cached_property
    def without_cpu(self) -> Flags:
        """Flags of the calls whose threads had no CPU for most of the excess."""
        return (self.delays > 0) & (self.delays >= OVERLAP_SHARE * self.calls.excess)

    @cached_property
    def not_recorded(self) -> Flags:
        """Flags of the calls made while work of the GPU was not recorded."""
        return ~self.recorded.windows.contain(self.calls.begins, self.calls.ends)

    def like(self, at: int) -> AlikeSum | None:
        """Sum of the calls of the same sort that were made while work was recorded; None without a cause for most."""
        call = self.slow[at]
        sort = call.function, call.bytes, call.stack, call.thread
        if sort not in self._like:
            self._like[sort] = self.recorded.alike.like(call, self.alike)
        return self._like[sort]

    @cached_property
    def gpu_cause(self) -> Int64s:
        """Rank of the cause with most of each call's wait for the GPU, -1 where that explains too little."""
        waits = self.waits
        parts = np.stack((waits.front, waits.own, waits.context, waits.process), axis=1)
        ranks = _GPU_RANKS[parts.argmax(axis=1)]
        staging = np.isin(np.arange(len(ranks)), list(waits.by_staging))
        ranks[staging & (ranks == CAUSE_RANKS[WaitCause.GPU_WORK])] = CAUSE_RANKS[WaitCause.STAGED_COPY]
        return np.where((waits.total >= DIRECT_SHARE * self.calls.excess) & (waits.total > 0), ranks, -1)

    @property
    def all_work_known(self) -> bool:
        """True if the GPU did nothing else than what was recorded."""
        return self.recorded.complete and len(self.work) > 0

    def near(self, asked: Flags) -> Neighbours:
        """Streams whose work ends with calls that wait for something, of those first ``asked`` about."""
        if self._near is None:
            waits = self.calls.waits
            waiting = (waits == Waits.EVENT) | (waits == Waits.MAYBE)
            waiting |= (waits == Waits.STREAM) | ((waits == Waits.COPY) & self.waits.pageable)
            self._near = neighbours(self.calls, self.work, asked & waiting)
        return self._near

    def held(self, asked: Flags) -> Int64s:
        """Time (ns) for which the stream of each call was held, else 0, of the calls that are first ``asked`` about."""
        if self._held is None:
            asked = asked & (self.all_work_known and self.recorded.may_hold_streams)
            places = np.flatnonzero(asked & np.isin(self.calls.waits, (Waits.EVENT, Waits.STREAM)))[:MOST_FOLLOWED]
            behind = self.nothing
            behind[places] = [self._is_behind_holder(at) for at in places.tolist()]
            self._held = held_streams(self.calls, self.work, self.waits, asked, behind)
        return self._held

    def _is_behind_holder(self, at: int) -> bool:
        """True if a call that holds the stream was made shortly before: later, nothing says that it still does."""
        calls, holders = self.calls, self.behind(at).holders
        since = int(2 * calls.begins[at] - calls.ends[at]) - HOLDS_NS
        return bool(holders) and int(holders[0]["began_ns"]) >= since

    def behind(self, at: int) -> Behind:
        """Work in front of a call in other streams, and the calls that hold its own, as far as the calls say."""
        if at not in self._behind:
            order = self.recorded.order
            self._behind[at] = NOTHING_BEHIND if order is None else order.behind(self.slow[at])
        return self._behind[at]

    def work_behind(self, at: int) -> tuple[Int64s, int]:
        """Rows of work in front of a call in other streams, and the time (ns) of the call that they cover."""
        behind, work, calls = self.behind(at), self.work, self.calls
        rows = rows_behind(behind, work.stream_numbers, work.streams, work.orders, calls.order_of)
        begin, end = calls.begins[at : at + 1], calls.ends[at : at + 1]
        rows = rows[(work.ends[rows] > begin) & (work.starts[rows] < end)]
        return rows, int(work.covered(rows, begin, end)[0])

    @cached_property
    def holds(self) -> Int64s:
        """Task (HostTask) of each call for whose end other threads may wait.

        A call that loads a module holds what module loading holds.
        """
        plain, of_pageable = (
            self.calls.by_function(partial(DriverFunction.holds, pageable=pageable)) for pageable in (False, True)
        )
        holds = np.where(self.waits.pageable, of_pageable, plain)
        loading = np.isin(self.overhead, [CAUSE_RANKS[cause] for cause in _LOADING])
        return np.where((holds == 0) & loading, int(HostTask.MODULE), holds)

    @cached_property
    def culprit_calls(self) -> CulpritCalls:
        """The calls for which other threads may wait, in groups."""
        return CulpritCalls.of(self.calls, self.holds)

    def culprits(self, asked: Flags) -> tuple[Int64s, Int64s]:
        """Group of calls of another thread for which each call waits, else -1, and the time (ns) that it covers.

        They are known of the calls that are first ``asked`` about.
        """
        if self._culprits is None:
            self._culprits = culprits_of(self.calls, self.culprit_calls, self.holds, asked)
        return self._culprits

    @cached_property
    def alongside(self) -> Mapping[int, WaitEvidence]:
        """The evidence of the calls that have culprits, by their place; asked for once these are known."""
        assert self._culprits is not None
        groups, covered = self._culprits
        return self.evidence.other_threads(np.flatnonzero(groups >= 0), self.culprit_calls, groups, covered)

    def own_blame(self, at: int) -> WaitCause | None:
        """Cause in a call's own work; None for a call that returns at once."""
        return cause_of_task(function_of(self.slow[at].function).task)


def flags(values: Any) -> Flags:
    """``values`` as flags, without a copy."""
    return np.asarray(values, dtype=np.bool_)


def run_delays(calls: CallTable, samples: Mapping[int, Int64s]) -> Int64s:
    """Least time (ns) in each call for which its thread was ready to run without a CPU: int64[calls].

    ``samples`` are those around it, by thread as ``Recorded`` describes them; 0 without samples on both sides. The time
    between a sample and the call may all be a delay.
    """
    least = np.zeros(len(calls), dtype=np.int64)
    for thread in np.unique(calls.threads).tolist():
        times = samples.get(thread)
        if times is None or not len(times):
            continue
        places = np.flatnonzero(calls.threads == thread)
        begins, ends = calls.begins[places], calls.ends[places]
        before = np.searchsorted(times[:, 0], begins, "right") - 1
        after = np.searchsorted(times[:, 0], ends, "left")
        between = (before >= 0) & (after < len(times))
        before, after = np.maximum(before, 0), np.minimum(after, len(times) - 1)
        outside = begins - times[before, 0] + times[after, 0] - ends
        delays = np.clip(times[after, 1] - times[before, 1] - outside, 0, ends - begins)
        least[places] = np.where(between, delays, 0)
    return least


def preempted_ns(calls: CallTable, times: Mapping[int, Int64s]) -> Int64s:
    """Time (ns) in each call for which its thread had no CPU, by the ``times`` of threads as ``Recorded`` describes
    them: int64[calls]."""
    found = np.zeros(len(calls), dtype=np.int64)
    for thread in np.unique(calls.threads).tolist():
        spans = times.get(thread)
        if spans is None or not len(spans):
            continue
        places = np.flatnonzero(calls.threads == thread)
        before = np.append(0, np.cumsum(spans[:, 1] - spans[:, 0]))
        until = []
        for at in (calls.begins[places], calls.ends[places]):
            last = np.searchsorted(spans[:, 0], at, "right")
            later = np.maximum(spans[np.maximum(last - 1, 0), 1] - at, 0)
            until.append(before[last] - np.where(last > 0, later, 0))
        found[places] = until[1] - until[0]
    return found


def _around(calls: CallTable, threads: Int64s, starts: Int64s) -> Int64s:
    """The place of the last call of each thread that began at or before the time and had not ended; -1 without one."""
    order = np.lexsort((calls.begins, calls.threads))
    places = GroupedTimes(calls.threads[order], calls.begins[order]).last(threads, starts)
    rows = order[places]
    return np.where((places >= 0) & (calls.ends[rows] > starts), rows, -1)
