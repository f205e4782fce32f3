"""Streams that wait for something other than GPU work, and how long calls waited for them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.driver_calls import StreamRole, Waits, function_of
from stallprobes.watch.attribution.gpu_waits import OVERLAP_SHARE, GpuWaits
from stallprobes.watch.attribution.gpu_work import WorkTable
from stallprobes.watch.attribution.slow_calls import CallTable
from stallprobes.watch.intervals import Int64s, int64s

# Roles of calls that can make a stream wait for something other than GPU work: the call lets the stream wait for an
# event, adds a host function to it, or launches a graph in it.
_HOLDERS = (StreamRole.WAITS, StreamRole.HOLDS, StreamRole.LAUNCHES)


def may_hold_streams(functions: Iterable[str]) -> bool:
    """True if a program that calls ``functions`` can make a stream wait for something other than GPU work."""
    return any(function_of(name).role in _HOLDERS for name in functions)


def held_streams(
    calls: CallTable, work: WorkTable, waits: GpuWaits, asked: NDArray[np.bool_], behind: NDArray[np.bool_]
) -> Int64s:
    """Time (ns) for which the stream of each of the ``asked`` calls was held; 0 where it was not.

    A held call is a blocking copy whose own work began late, a synchronization with work in front of it that began
    late, or a call ``behind`` one that holds its stream, while no work of the context ran.
    """
    held_ns = np.zeros(len(calls), dtype=np.int64)
    own_start = work.own_start(-1)
    copies = (calls.waits == Waits.COPY) & (own_start >= 0)
    until = np.where(copies, np.minimum(own_start, calls.ends), 0)
    for at in np.flatnonzero(asked & np.isin(calls.waits, (Waits.STREAM, Waits.CONTEXT))).tolist():
        until[at] = _first_start(calls, work, waits, at)
    until = np.where(behind & (until == 0), calls.ends, until)
    members = np.flatnonzero(asked & (until > 0) & (calls.excess > 0))
    if not len(members):
        return held_ns
    numbers = int64s([work.context_numbers.get(context, -1) for context in calls.contexts[members].tolist()])
    begins, until = calls.begins[members], until[members]
    busy = work.by_context.covered(numbers, begins, until) + waits.context[members] + waits.process[members]
    held = until - begins - busy
    kept = held >= OVERLAP_SHARE * calls.excess[members]
    held_ns[members[kept]] = held[kept]
    return held_ns


def _first_start(calls: CallTable, work: WorkTable, waits: GpuWaits, at: int) -> int:
    """When the work in front of a synchronization that had not ended began; 0 without any."""
    stream, context = int(waits.stream[at]), int(waits.whole[at])
    mine = work.streams == stream if stream >= 0 else work.contexts == context
    mine &= (work.ends > calls.begins[at]) & (work.starts < calls.ends[at])
    rows = np.flatnonzero(mine)
    orders = calls.order_of(int64s(work.rows["correlation"][rows]))
    rows = rows[orders < calls.order_of(calls.correlations[at : at + 1])[0]]
    return int(work.starts[rows].min()) if len(rows) else 0
