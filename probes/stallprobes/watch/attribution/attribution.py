"""Attribution: the cause of each slow call, by the strongest evidence, for many calls and records at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import OverheadKind, RecordKind
from stallprobes.watch.attribution.causes import Certainty, WaitCause
from stallprobes.watch.attribution.evidence import EvidenceReader
from stallprobes.watch.attribution.findings import NO_EVIDENCE, ExplainedCall, PartOfWait, WaitEvidence
from stallprobes.watch.attribution.gpu_waits import DIRECT_SHARE, OVERLAP_SHARE, GpuWaits, gpu_waits, neighbours
from stallprobes.watch.attribution.gpu_work import WorkTable
from stallprobes.watch.attribution.host_causes import FirstLaunches, first_launches, held_streams, own_causes
from stallprobes.watch.attribution.intervals import GroupedTimes, Int64s, int64s
from stallprobes.watch.attribution.known_stalls import KnownStalls
from stallprobes.watch.attribution.other_threads import (
    CAUSES_BY_RANK,
    RANKS,
    CulpritCalls,
    causes_for_others,
    culprits_of,
)
from stallprobes.watch.attribution.slow_calls import CallTable, Waits
from stallprobes.watch.attribution.switch_clock import Tenures
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.process import SlowDriverCall

OVERHEADS = {
    OverheadKind.MODULE_LOADING: WaitCause.MODULE_LOADING,
    OverheadKind.LAZY_FUNCTION_LOADING: WaitCause.LAZY_LOADING,
    OverheadKind.DRIVER_COMPILER: WaitCause.COMPILATION,
    OverheadKind.COMMAND_BUFFER_FULL: WaitCause.QUEUE_FULL,
    OverheadKind.BUFFER_FLUSH: WaitCause.TRACING,
    OverheadKind.INSTRUMENTATION: WaitCause.TRACING,
    OverheadKind.RESOURCE: WaitCause.TRACING,
    OverheadKind.ACTIVITY_BUFFER_REQUEST: WaitCause.TRACING,
}
_GPU_CAUSES = (WaitCause.GPU_WORK, WaitCause.OWN_WORK, WaitCause.OTHER_CONTEXT, WaitCause.OTHER_PROCESS)
_UNATTRIBUTED = RANKS[WaitCause.UNATTRIBUTED]


@dataclass(frozen=True, eq=False)
class Recorded:
    """What was recorded of a process beside its slow calls.

    ``records`` are in the layout of the file, ``names`` those of its kernels by their place. ``tenures`` are by device.
    ``run_delays`` has for each thread's id int64[n][2], ascending: a time (ns), and for how long until then the thread
    was ready to run and had no CPU (ns). ``thread_names`` are by id, ``stacks`` by their number in the file.
    ``first_launches`` are those of each kernel. ``complete``: no record was lost, so that the GPU did nothing else.
    ``may_hold_streams``: the program makes calls after which a stream waits for an event or a host function.
    """

    records: NDArray[Any]
    names: Mapping[int, str] = field(default_factory=dict)
    tenures: Mapping[int, Tenures] = field(default_factory=dict)
    run_delays: Mapping[int, Int64s] = field(default_factory=dict)
    thread_names: Mapping[int, str] = field(default_factory=dict)
    stacks: Mapping[int, CallStack] = field(default_factory=dict)
    first_launches: FirstLaunches = field(default_factory=dict)
    complete: bool = False
    may_hold_streams: bool = False


def attribute(
    slow: Sequence[SlowDriverCall],
    excess: Sequence[int],
    recorded: Recorded,
    known: KnownStalls | None = None,
) -> tuple[ExplainedCall, ...]:
    """The cause of each of the ``slow`` calls, in their order.

    ``excess`` is each call's duration less the median of its row (ns). Calls of other threads are a proven cause of
    nothing: they are named "beside", unless ``known`` has the pair.
    """
    calls = CallTable.of(slow, excess)
    overheads = _overheads(calls, recorded.records)
    overhead_causes = _overhead_causes(calls, overheads)
    work = WorkTable.of(recorded.records, calls)
    waits = gpu_waits(calls, recorded.records, work, recorded.tenures)
    overhead = int64s([RANKS[cause] for cause in overhead_causes])
    unsolved = (overhead == _UNATTRIBUTED) & (calls.excess > 0)
    on_gpu = unsolved & (waits.total >= DIRECT_SHARE * calls.excess) & (waits.total > 0)
    unsolved &= ~on_gpu
    waiting = (calls.waits == Waits.EVENT) | (calls.waits == Waits.MAYBE)
    waiting |= (calls.waits == Waits.STREAM) | ((calls.waits == Waits.COPY) & waits.pageable)
    near = neighbours(calls, work, unsolved & waiting)
    by_event = unsolved & (calls.waits == Waits.EVENT) & (near.count == 1)
    unsolved &= ~by_event
    blamed = causes_for_others(calls, waits.pageable, overhead_causes)
    culprit_calls = CulpritCalls.of(calls, blamed)
    culprits = culprits_of(calls, culprit_calls, blamed, unsolved)
    by_thread = unsolved & (culprits.group >= 0)
    unsolved &= ~by_thread
    beside_work = unsolved & (near.count > 0)
    unsolved &= ~beside_work
    delays = int64s([run_delay_within(recorded.run_delays.get(one.thread), one.begin_ns, one.end_ns) for one in slow])
    no_cpu = unsolved & (delays > 0) & (delays >= OVERLAP_SHARE * calls.excess)
    unsolved &= ~no_cpu
    known_work = recorded.complete and len(work) > 0
    held = held_streams(calls, work, waits, unsolved & (known_work and recorded.may_hold_streams))
    unsolved &= held == 0
    first = first_launches(calls, work, unsolved, recorded.first_launches)
    unsolved &= ~first
    itself = own_causes(calls, unsolved, known_work)
    reader = EvidenceReader(calls, work, recorded.names, recorded.thread_names, waits, culprit_calls)
    nested = calls.nested()
    found = []
    for at, one in enumerate(slow):
        cause, certainty, explained, evidence = WaitCause.UNATTRIBUTED, None, 0, NO_EVIDENCE
        also: tuple[PartOfWait, ...] = ()
        most = int(calls.excess[at])
        if overhead[at] != _UNATTRIBUTED:
            cause, certainty = overhead_causes[at], Certainty.PROVEN
            overhead_ns = int(overheads[at, RANKS[cause]])
            explained, evidence = overhead_ns, WaitEvidence(overlap_ns=overhead_ns, overhead_ns=overhead_ns)
        elif on_gpu[at]:
            cause, explained, also = _gpu_parts(waits, at, most)
            certainty, evidence = Certainty.PROVEN, reader.gpu(at)
        elif by_event[at] or beside_work[at]:
            cause, certainty = WaitCause.GPU_WORK, Certainty.PROVEN if by_event[at] else Certainty.BESIDE
            explained, evidence = int(near.covered[at]), reader.neighbour(at, near)
        elif by_thread[at]:
            group = int(culprits.group[at])
            cause = CAUSES_BY_RANK[int(culprit_calls.cause[group])]
            explained, evidence, culprit = reader.other_thread(at, group, int(culprits.covered[at]))
            pair = known is not None and known.contains(one, cause, culprit)
            certainty = Certainty.KNOWN if pair else Certainty.BESIDE
            if known is not None and pair:
                evidence = replace(evidence, known_by=known.source)
        elif no_cpu[at]:
            cause, certainty, explained = WaitCause.NO_CPU, Certainty.PROVEN, int(delays[at])
            evidence = WaitEvidence(overlap_ns=explained, run_delay_ns=explained)
        elif held[at]:
            cause, certainty, explained = WaitCause.HELD_STREAM, Certainty.BESIDE, int(held[at])
            evidence = WaitEvidence(overlap_ns=explained)
        elif first[at]:
            cause, certainty, explained = WaitCause.LAZY_LOADING, Certainty.KNOWN, most
            evidence = reader.own(at)
        elif (own := itself[at]) is not None:
            cause, certainty, explained = own, Certainty.KNOWN, most
            evidence = WaitEvidence(overlap_ns=most)
        named = {"thread_name": recorded.thread_names.get(one.thread, ""), "stack": recorded.stacks.get(one.stack)}
        found.append(
            ExplainedCall(
                **(vars(one) | named),
                excess_ns=most,
                cause=cause,
                certainty=certainty,
                explained_ns=min(explained, most),
                evidence=evidence,
                nested=bool(nested[at]),
                also=also,
            )
        )
    return tuple(found)


def run_delay_within(samples: Int64s | None, begin_ns: int, end_ns: int) -> int:
    """The least time (ns) for which a thread was ready to run without a CPU between two times, by samples around them.

    0 where there are no samples on both sides. What lies between a sample and the span may all have been a delay.
    """
    if samples is None or not len(samples):
        return 0
    before = int(np.searchsorted(samples[:, 0], begin_ns, "right")) - 1
    after = int(np.searchsorted(samples[:, 0], end_ns, "left"))
    if before < 0 or after >= len(samples):
        return 0
    outside = (begin_ns - int(samples[before, 0])) + (int(samples[after, 0]) - end_ns)
    return min(max(int(samples[after, 1] - samples[before, 1]) - outside, 0), end_ns - begin_ns)


def _overheads(calls: CallTable, records: NDArray[Any]) -> Int64s:
    """The time (ns) of the overhead records of each call: int64[calls][causes], by the rank of the cause."""
    found = np.zeros((len(calls), len(RANKS)), dtype=np.int64)
    rows = records[(records["kind"] == int(RecordKind.OVERHEAD)) & np.isin(records["subkind"], list(OVERHEADS))]
    if not len(rows) or not len(calls):
        return found
    starts, ends = int64s(rows["start"]), int64s(rows["end"])
    correlations = int64s(rows["correlation"])
    # Before CUDA 12.3 a record has a thread in place of a call.
    places = np.where(correlations != 0, calls.places_of(correlations), _around(calls, int64s(rows["thread"]), starts))
    ranks = int64s([RANKS[OVERHEADS[OverheadKind(kind)]] for kind in rows["subkind"].tolist()])
    at = np.maximum(places, 0)
    overlap = np.minimum(ends, calls.ends[at]) - np.maximum(starts, calls.begins[at])
    kept = (places >= 0) & (overlap > 0)
    np.add.at(found, (places[kept], ranks[kept]), overlap[kept])
    return int64s(np.minimum(found, (calls.ends - calls.begins)[:, None]))


def _around(calls: CallTable, threads: Int64s, starts: Int64s) -> Int64s:
    """The place of the last call of each thread that began at or before the time and had not ended; -1 without one."""
    order = np.lexsort((calls.begins, calls.threads))
    places = GroupedTimes(calls.threads[order], calls.begins[order]).last(threads, starts)
    found = order[places]
    return np.where((places >= 0) & (calls.ends[found] > starts), found, -1)


def _overhead_causes(calls: CallTable, overheads: Int64s) -> list[WaitCause]:
    """The cause of each call by its overhead records, UNATTRIBUTED where they explain too little."""
    if not len(calls):
        return []
    best = overheads.argmax(axis=1)
    time = overheads[np.arange(len(calls)), best]
    shown = (time > 0) & (time >= DIRECT_SHARE * calls.excess)
    return [CAUSES_BY_RANK[rank] if one else WaitCause.UNATTRIBUTED for rank, one in zip(best, shown, strict=True)]


def _gpu_parts(waits: GpuWaits, at: int, most: int) -> tuple[WaitCause, int, tuple[PartOfWait, ...]]:
    """The main cause of a wait for the GPU, its time, and the other parts; together at most ``most`` ns."""
    times = (int(waits.front[at]), int(waits.own[at]), int(waits.context[at]), int(waits.process[at]))
    # Of equal times, the first cause.
    order = sorted(range(len(times)), key=lambda number: -times[number])
    left, parts = most, []
    for number in order:
        ns = min(times[number], left)
        left -= ns
        if ns:
            staged = number == 0 and at in waits.by_staging
            parts.append(PartOfWait(WaitCause.STAGED_COPY if staged else _GPU_CAUSES[number], ns))
    return parts[0].cause, parts[0].ns, tuple(parts[1:])
