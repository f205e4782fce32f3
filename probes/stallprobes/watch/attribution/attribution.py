"""Attribution: the cause of each slow call, by the strongest evidence, for many calls and records at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import OverheadKind, RecordKind
from stallprobes.watch.attribution.causes import Certainty, WaitCause
from stallprobes.watch.attribution.evidence import EvidenceReader
from stallprobes.watch.attribution.findings import NO_EVIDENCE, EngineUse, ExplainedCall, PartOfWait, WaitEvidence
from stallprobes.watch.attribution.gpu_waits import DIRECT_SHARE, OVERLAP_SHARE, GpuWaits, gpu_waits, neighbours
from stallprobes.watch.attribution.gpu_work import WorkTable
from stallprobes.watch.attribution.host_causes import (
    FirstLaunches,
    first_launches,
    held_streams,
    own_causes,
    work_beside_destruction,
)
from stallprobes.watch.attribution.known_stalls import KnownStalls
from stallprobes.watch.attribution.other_threads import (
    CAUSES_BY_RANK,
    RANKS,
    CulpritCalls,
    causes_for_others,
    culprits_of,
)
from stallprobes.watch.attribution.slow_calls import CallTable
from stallprobes.watch.attribution.switch_clock import Tenures
from stallprobes.watch.division.call_kinds import Waits
from stallprobes.watch.intervals import GroupedTimes, Int64s, int64s
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.process import SlowDriverCall
from stallprobes.watch.reading.record_windows import NO_WINDOWS, RecordWindows

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

    ``records`` are in the layout of the file, ``names`` those of its kernels by their place. ``tenures`` are by
    device. ``run_delays`` has for each thread's id int64[n][3], ascending: a time (ns), for how long until then the
    thread was ready to run and had no CPU, and for how long it had one (ns). ``thread_names`` are by id, ``stacks``
    by their number in the file. ``first_launches`` are those of each kernel. ``complete``: no record was lost, so
    that the GPU did nothing else. ``windows`` are those in which records were on or off. ``may_hold_streams``: the
    program makes calls after which a stream waits for an event or a host function.
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
    may_hold_streams: bool = False


class _Answer(NamedTuple):
    """The cause of a slow call, the time (ns) that it explains, and what shows it."""

    cause: WaitCause
    certainty: Certainty | None
    explained_ns: int
    evidence: WaitEvidence
    also: tuple[PartOfWait, ...] = ()


class _Answers:
    """The answer for each slow call; ``open`` are the calls that have none yet."""

    def __init__(self, calls: CallTable) -> None:
        self.open = np.ones(len(calls), dtype=np.bool_)
        self.given = [_Answer(WaitCause.UNATTRIBUTED, None, 0, NO_EVIDENCE)] * len(calls)

    def give(self, calls: NDArray[np.bool_], answer: Callable[[int], _Answer]) -> None:
        """Give the open ones of ``calls`` the ``answer`` for their place."""
        chosen = self.open & calls
        self.open &= ~calls
        for at in np.flatnonzero(chosen).tolist():
            self.given[at] = answer(at)


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
    work = WorkTable.of(recorded.records, calls)
    waits = gpu_waits(calls, recorded.records, work, recorded.tenures)
    reader = EvidenceReader(calls, work, recorded.names, recorded.thread_names, waits)
    answers = _Answers(calls)
    overheads = _overheads(calls, recorded.records)
    overhead = _overhead_causes(calls, overheads)
    answers.give(overhead != _UNATTRIBUTED, lambda at: _by_overhead(overhead[at], overheads[at, overhead[at]]))
    answers.open &= calls.excess > 0
    on_gpu = (waits.total >= DIRECT_SHARE * calls.excess) & (waits.total > 0)
    answers.give(on_gpu, lambda at: _by_gpu(waits, at, excess[at], reader))
    delays = run_delays(calls, recorded.run_delays)

    def by_delay(at: int) -> _Answer:
        ns = int(delays[at])
        return _Answer(WaitCause.NO_CPU, Certainty.PROVEN, ns, WaitEvidence(ns, run_delay_ns=ns))

    without_cpu = (delays > 0) & (delays >= OVERLAP_SHARE * calls.excess)
    # What follows takes it as evidence that the GPU did nothing else.
    off = ~recorded.windows.contain(calls.begins, calls.ends)
    answers.give(off & without_cpu, by_delay)
    answers.give(off, lambda at: _Answer(WaitCause.RECORDS_OFF, None, excess[at], NO_EVIDENCE))
    waiting = (calls.waits == Waits.EVENT) | (calls.waits == Waits.MAYBE)
    waiting |= (calls.waits == Waits.STREAM) | ((calls.waits == Waits.COPY) & waits.pageable)
    near = neighbours(calls, work, answers.open & waiting)

    def by_neighbour(at: int, certainty: Certainty) -> _Answer:
        return _Answer(WaitCause.GPU_WORK, certainty, int(near.covered[at]), reader.neighbour(at, near))

    by_event = (calls.waits == Waits.EVENT) & (near.count == 1)
    answers.give(by_event, lambda at: by_neighbour(at, Certainty.PROVEN))
    blamed = causes_for_others(calls, waits.pageable, overhead)
    culprit_calls = CulpritCalls.of(calls, blamed)
    groups, covered = culprits_of(calls, culprit_calls, blamed, answers.open)

    by_others = reader.other_threads(np.flatnonzero(answers.open & (groups >= 0)), culprit_calls, groups, covered)

    def by_thread(at: int) -> _Answer:
        evidence, ns = by_others[at], int(covered[at])
        cause = CAUSES_BY_RANK[int(culprit_calls.cause[groups[at]])]
        if known is not None and known.contains(slow[at], cause, evidence.calls[0]):
            return _Answer(cause, Certainty.KNOWN, ns, replace(evidence, known_by=known.source))
        return _Answer(cause, Certainty.BESIDE, ns, evidence)

    answers.give(groups >= 0, by_thread)
    answers.give(near.count > 0, lambda at: by_neighbour(at, Certainty.BESIDE))
    answers.give(without_cpu, by_delay)
    known_work = recorded.complete and len(work) > 0
    held = held_streams(calls, work, waits, answers.open & (known_work and recorded.may_hold_streams))
    answers.give(
        held != 0,
        lambda at: _Answer(WaitCause.HELD_STREAM, Certainty.BESIDE, int(held[at]), WaitEvidence(int(held[at]))),
    )
    answers.give(
        first_launches(
            calls, work, answers.open & (calls.ends < recorded.windows.first_off_ns), recorded.first_launches
        ),
        lambda at: _Answer(WaitCause.LAZY_LOADING, Certainty.KNOWN, excess[at], reader.own(at)),
    )
    beside = work_beside_destruction(calls, work, answers.open)

    def by_other_context(at: int) -> _Answer:
        context, ns = beside[at]
        evidence = WaitEvidence(ns, engine=(EngineUse(context, ns),))
        return _Answer(WaitCause.OTHER_CONTEXT, Certainty.BESIDE, ns, evidence)

    answers.give(np.isin(np.arange(len(calls)), list(beside)), by_other_context)
    for at, cause in own_causes(calls, answers.open, known_work):
        answers.given[at] = _Answer(cause, Certainty.KNOWN, excess[at], WaitEvidence(excess[at]))
    names, stacks = recorded.thread_names, recorded.stacks
    return tuple(
        ExplainedCall.of(
            one,
            thread_name=names.get(one.thread, ""),
            excess_ns=ns,
            cause=answer.cause,
            certainty=answer.certainty,
            explained_ns=min(answer.explained_ns, ns),
            evidence=answer.evidence,
            nested=nested,
            also=answer.also,
            stack=stacks.get(one.stack),
        )
        for one, ns, answer, nested in zip(slow, excess, answers.given, calls.nested().tolist(), strict=True)
    )


def run_delays(calls: CallTable, samples: Mapping[int, Int64s]) -> Int64s:
    """The least time (ns) for which the thread of each call was ready to run without a CPU during it: int64[calls].

    ``samples`` are those around it, by thread as ``Recorded`` describes them; 0 where there are none on both sides.
    What lies between a sample and the call may all have been a delay.
    """
    found = np.zeros(len(calls), dtype=np.int64)
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
        found[places] = np.where(between, delays, 0)
    return found


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


def _overhead_causes(calls: CallTable, overheads: Int64s) -> Int64s:
    """The rank of each call's cause by its overhead records, that of UNATTRIBUTED where they explain too little."""
    best = overheads.argmax(axis=1)
    time = overheads[np.arange(len(calls)), best]
    return np.where((time > 0) & (time >= DIRECT_SHARE * calls.excess), best, _UNATTRIBUTED)


def _by_overhead(rank: int, ns: int) -> _Answer:
    return _Answer(CAUSES_BY_RANK[rank], Certainty.PROVEN, int(ns), WaitEvidence(int(ns), overhead_ns=int(ns)))


def _by_gpu(waits: GpuWaits, at: int, most: int, reader: EvidenceReader) -> _Answer:
    """A wait for the GPU: its main cause, and the other parts; together at most ``most`` ns."""
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
    return _Answer(parts[0].cause, Certainty.PROVEN, parts[0].ns, reader.gpu(at), tuple(parts[1:]))
