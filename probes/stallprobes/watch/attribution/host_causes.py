"""Causes of slow calls on the host: a held stream, the first launch of a kernel, and what a call itself does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.driver_calls import CallFamily, plain_name
from stallprobes.watch.attribution.causes import WaitCause
from stallprobes.watch.attribution.gpu_waits import OVERLAP_SHARE, GpuWaits
from stallprobes.watch.attribution.gpu_work import WorkTable
from stallprobes.watch.attribution.slow_calls import CallTable, blame_of
from stallprobes.watch.division.call_kinds import Waits
from stallprobes.watch.intervals import Int64s, IntervalGroups, int64s

# Context and name of a kernel, and the correlation number of the launch that was its first.
FirstLaunches = Mapping[tuple[int, int], int]
_HOLDERS = (
    "cuStreamWaitEvent",
    "cuLaunchHostFunc",
    "cuStreamAddCallback",
    "cuStreamWaitValue",
    "cuStreamBatchMemOp",
    "cuGraphLaunch",
    "cuWaitExternalSemaphores",
)


def may_hold_streams(functions: Iterable[str]) -> bool:
    """Whether a program that calls ``functions`` can make a stream wait for something that is no work of the GPU."""
    return any(plain_name(name).startswith(_HOLDERS) for name in functions)


def held_streams(calls: CallTable, work: WorkTable, waits: GpuWaits, asked: NDArray[np.bool_]) -> Int64s:
    """For how long (ns) the stream of each of the ``asked`` calls was held; 0 where it was not.

    A blocking copy whose own work began late, or a synchronization with work in front of it that did, while no work of
    the context ran.
    """
    found = np.zeros(len(calls), dtype=np.int64)
    own_start = work.own_start(-1)
    copies = (calls.waits == Waits.COPY) & (own_start >= 0)
    until = np.where(copies, np.minimum(own_start, calls.ends), 0)
    for at in np.flatnonzero(asked & np.isin(calls.waits, (Waits.STREAM, Waits.CONTEXT))).tolist():
        until[at] = _first_start(calls, work, waits, at)
    members = np.flatnonzero(asked & (until > 0) & (calls.excess > 0))
    if not len(members):
        return found
    numbers = int64s([work.context_numbers.get(context, -1) for context in calls.contexts[members].tolist()])
    begins, until = calls.begins[members], until[members]
    busy = work.by_context.covered(numbers, begins, until) + waits.context[members] + waits.process[members]
    held = until - begins - busy
    kept = held >= OVERLAP_SHARE * calls.excess[members]
    found[members[kept]] = held[kept]
    return found


def _first_start(calls: CallTable, work: WorkTable, waits: GpuWaits, at: int) -> int:
    """When the work in front of a synchronization that had not ended began; 0 without any."""
    stream, context = int(waits.stream[at]), int(waits.whole[at])
    mine = work.streams == stream if stream >= 0 else work.contexts == context
    mine &= (work.ends > calls.begins[at]) & (work.starts < calls.ends[at])
    rows = np.flatnonzero(mine)
    orders = calls.order_of(int64s(work.rows["correlation"][rows]))
    rows = rows[orders < calls.order_of(calls.correlations[at : at + 1])[0]]
    return int(work.starts[rows].min()) if len(rows) else 0


def work_beside_destruction(
    calls: CallTable, work: WorkTable, asked: NDArray[np.bool_]
) -> Mapping[int, tuple[int, int]]:
    """The ``asked`` calls that destroy a context while work of another one runs nearly all the time, by their place:
    the other context with most of it, and the time (ns) that the work covers.

    Seen on H200s and H100s: ``cuCtxDestroy`` took 50 ms, and 2.5 s beside a kernel of so long in another context.
    """
    found: dict[int, tuple[int, int]] = {}
    contexts, zero = int64s(work.rows["context"]), int64s([0])
    for at in np.flatnonzero(asked & (calls.waits == Waits.MAYBE)).tolist():
        if not plain_name(calls.calls[at].function).startswith("cuCtxDestroy"):
            continue
        begin, end = calls.begins[at : at + 1], calls.ends[at : at + 1]
        others = np.flatnonzero((contexts != calls.contexts[at]) & (work.starts < end) & (work.ends > begin))
        times: dict[int, int] = {}
        for context in np.unique(contexts[others]).tolist():
            rows = others[contexts[others] == context]
            groups = np.zeros(len(rows), dtype=np.int64)
            covered = IntervalGroups(groups, work.starts[rows], work.ends[rows]).covered(zero, begin, end)
            times[context] = int(covered[0])
        busiest = max(times, key=lambda context: times[context], default=None)
        if busiest is not None and times[busiest] >= OVERLAP_SHARE * calls.excess[at]:
            found[at] = busiest, times[busiest]
    return found


def first_launches(
    calls: CallTable, work: WorkTable, asked: NDArray[np.bool_], first: FirstLaunches
) -> NDArray[np.bool_]:
    """Which of the ``asked`` calls launched a kernel for the first time in its context."""
    found = np.zeros(len(calls), dtype=np.bool_)
    rows = np.flatnonzero((work.owners >= 0) & (work.rows["kind"] == int(RecordKind.KERNEL)))
    for row in rows[asked[work.owners[rows]]].tolist():
        at, record = int(work.owners[row]), work.rows[row]
        if calls.calls[at].family is CallFamily.LAUNCH:
            key = int(record["context"]), int(record["name"])
            found[at] |= first.get(key) == int(record["correlation"])
    return found


def own_causes(calls: CallTable, asked: NDArray[np.bool_], with_gpu_work: bool) -> Iterator[tuple[int, WaitCause]]:
    """What the ``asked`` calls do themselves that takes long, by their place; without functions that return at once.

    ``with_gpu_work``: all work of the GPU is known, so that a function that may wait for it did not.
    """
    for at in np.flatnonzero(asked & (with_gpu_work | (calls.waits == Waits.NOTHING))).tolist():
        blame = blame_of(calls.calls[at].function, calls.calls[at].family, False)
        if blame is not None:
            yield at, WaitCause.MODULE_LOADING if blame is WaitCause.MODULE else WaitCause.ITSELF
