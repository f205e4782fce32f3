"""Peer copies that the driver stages: a call has work in two contexts, the second part in a stream of the driver.

Without peer access a copy from one GPU to another is a copy to the host in the call's stream and a copy from the host
in a stream that the driver has in the target's context. That stream runs its copies in order, so that one which waits
holds up all later ones, of whatever stream. Both parts have the call's correlation number (observed on two H200).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.watch.attribution.gpu_work import WorkTable
from stallprobes.watch.attribution.intervals import Int64s, int64s
from stallprobes.watch.attribution.slow_calls import CallTable, Waits

_COPIES = (int(RecordKind.COPY), int(RecordKind.PEER_COPY))


def staged_work(calls: CallTable, work: WorkTable, streams: Int64s, contexts: Int64s) -> Mapping[int, Int64s]:
    """The rows of work, by call, for which a synchronization waits because of a staged copy; most calls have none.

    These are the parts in other contexts of copies in its stream or context, what is in front of these parts, and what
    that waits for in turn. ``streams`` and ``contexts`` are the numbers of what each call waits for, or -1.
    """
    homes = _homes(work)
    parts = np.flatnonzero(homes != np.arange(len(work)))
    if not len(parts):
        return {}
    orders, found = calls.order_of(int64s(work.rows["correlation"])), {}
    own_orders = calls.order_of(calls.correlations)
    of_stream, of_context = work.streams[homes[parts]], work.contexts[homes[parts]]
    for at in np.flatnonzero(np.isin(calls.waits, (Waits.STREAM, Waits.CONTEXT))).tolist():
        mine = (of_stream == streams[at]) if streams[at] >= 0 else (of_context == contexts[at])
        begin_ns, end_ns = int(calls.begins[at]), int(calls.ends[at])
        mine &= (orders[parts] < own_orders[at]) & (work.ends[parts] > begin_ns) & (work.starts[parts] < end_ns)
        if mine.any():
            found[at] = _in_front(work, homes, orders, parts[mine], begin_ns)
    return found


def _homes(work: WorkTable) -> Int64s:
    """For each row the first row of its call, where both are copies in different contexts; else the row itself."""
    every, correlations = np.arange(len(work)), int64s(work.rows["correlation"])
    order = np.lexsort((work.starts, correlations))
    new = np.concatenate(([True], np.diff(correlations[order]) != 0))[: len(work)]
    first = np.empty(len(work), dtype=np.int64)
    first[order] = order[np.maximum.accumulate(np.where(new, every, 0))]
    copies = np.isin(work.rows["kind"], _COPIES)
    staged = copies & copies[first] & (correlations != 0) & (work.contexts[first] != work.contexts)
    return int64s(np.where(staged, first, every))


def _in_front(work: WorkTable, homes: Int64s, orders: Int64s, parts: Int64s, begin_ns: int) -> Int64s:
    """``parts``, the earlier work in their streams, and the work before the homes of both.

    Work that ended until ``begin_ns`` is left out.
    """
    since = work.ends > begin_ns
    found = [parts]
    for part in parts.tolist():
        earlier = np.flatnonzero(since & (work.streams == work.streams[part]) & (orders < orders[part]))
        found.append(earlier)
        for row in (part, *earlier.tolist()):
            home = homes[row]
            found.append(np.flatnonzero(since & (work.streams == work.streams[home]) & (orders <= orders[home])))
    return int64s(np.unique(np.concatenate(found)))
