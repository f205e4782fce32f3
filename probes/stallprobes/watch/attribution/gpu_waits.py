"""Waits of slow calls for the GPU: for work in front of them, for their own, and for other contexts' time-slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import CallKind, Waits
from stallprobes.traces.delay import LONGEST_CHANGE_NS
from stallprobes.watch.attribution.gpu_work import WorkTable
from stallprobes.watch.attribution.slow_calls import COPIES, CallTable
from stallprobes.watch.attribution.stream_numbers import StreamNumbers
from stallprobes.watch.division.instants import CoveredTime, Spans
from stallprobes.watch.division.recorded_times import Tenures
from stallprobes.watch.intervals import Int64s, distinct, distinct_pairs, expanded, int64s
from stallprobes.watch.reading.words import Memory

# Smallest share of a slow call's excess that GPU work, or an overhead of the driver, must cover to be the cause of the
# call. The excess is the time above the median of similar calls. Records, or calls that order streams, must show that
# the call waits for this work or overhead.
DIRECT_SHARE = 0.5
# Smallest share of a slow call's excess that something simultaneous (work, a call, lack of a CPU) must cover to be the
# cause. The excess is the time above the median of similar calls. The share is larger than DIRECT_SHARE, since overlap
# in time is weaker evidence than records that show the wait.
OVERLAP_SHARE = 0.8
# Largest distance (ns) between the ends of a call and of its possible cause (GPU work or another call).
SAME_END_NS = 50_000
# Longest time (ns) from the end of another thread's call, or of GPU work that freed a place in the launch queue, to the
# end of the waiting call. The waiting thread has to wake up, which took 60 to 350 µs in launches during pageable copies
# (virtual machine, H200). For calls of more than 10 ms that waited for another thread, the limit is larger (see
# _WAKE_UP_DIVISOR in other_threads.py).
WAKE_UP_NS = 500_000


@dataclass(frozen=True, eq=False)
class GpuWaits:
    """What each slow call waited for on the GPU, in ns within the call, one value for each call.

    - ``front``: work in front of it.
    - ``own``: its own work.
    - ``context`` and ``process``: time-slices of others.
    - ``stream`` and ``whole``: the numbers of the stream and the context whose work counts (-1: not known).
    - ``until``: when the last of that work ended.
    - ``engine_until``: the same for the graphics engine, if tenures are known.
    - ``staged``: rows of work in other streams for which some calls wait too; for ``by_staging`` it is most of what
      they wait for.
    """

    front: Int64s
    own: Int64s
    context: Int64s
    process: Int64s
    stream: Int64s
    whole: Int64s
    until: Int64s
    engine_until: Int64s
    tenures: Mapping[int, Tenures]
    pageable: NDArray[np.bool_]
    staged: Mapping[int, Int64s] = field(default_factory=dict)
    by_staging: set[int] = field(default_factory=set)

    @cached_property
    def total(self) -> Int64s:
        """All of it, once it is complete."""
        return self.front + self.own + self.context + self.process


def gpu_waits(calls: CallTable, work: WorkTable, streams: StreamNumbers, tenures: Mapping[int, Tenures]) -> GpuWaits:
    """The waits of ``calls``. ``streams`` are the process's, ``tenures`` are by device."""
    size = len(calls)
    stream, whole = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    own_end = np.full(size, -1, dtype=np.int64)
    owned = work.owners >= 0
    np.maximum.at(own_end, work.owners[owned], work.ends[owned])
    own_stream = np.full(size, -1, dtype=np.int64)
    own_stream[work.last_of_call >= 0] = work.streams[work.last_of_call[work.last_of_call >= 0]]
    pageable, blocking = _copies(calls, work)
    copies = (calls.waits == Waits.COPY) & blocking
    stream[copies] = own_stream[copies]
    _stream_by_handle(calls, work, streams, own_stream, stream, copies)
    for at in np.flatnonzero(calls.waits == Waits.CONTEXT).tolist():
        whole[at] = work.context_numbers.get(int(calls.contexts[at]), -1)
    orders = calls.order_of(calls.correlations)
    until = _of_scope(
        stream,
        whole,
        lambda groups: work.prior_of_stream.before(groups, orders, calls.begins),
        lambda groups: work.prior_of_context.before(groups, orders, calls.begins),
        calls.begins,
    )
    until = np.minimum(np.where(copies & (own_end >= 0), own_end, until), calls.ends)
    covered = _of_scope(
        stream,
        whole,
        lambda groups: work.by_stream.covered(groups, calls.begins, until),
        lambda groups: work.by_context.covered(groups, calls.begins, until),
        np.zeros(size, dtype=np.int64),
    )
    every = np.arange(size)
    own = work.by_owner.covered(every, calls.begins, calls.ends)
    # A call that need not wait did so if its work ended just before it.
    ended_with = (own_end >= 0) & (own_end <= calls.ends) & (calls.ends - own_end <= SAME_END_NS)
    waited = copies | ((calls.waits == Waits.NOTHING) & ended_with & (own >= OVERLAP_SHARE * calls.excess))
    own = np.where(waited, own, 0)
    engine_until = until
    if any(len(each.starts) for each in tenures.values()):
        engine_until = _of_scope(
            stream,
            whole,
            lambda groups: work.prior_engine_of_stream.before(groups, orders + copies, calls.begins),
            lambda groups: work.prior_engine_of_context.before(groups, orders, calls.begins),
            calls.begins,
        )
        engine_until = np.minimum(engine_until, until)
    waits = GpuWaits(
        front=np.maximum(covered - np.where(copies, own, 0), 0),
        own=own,
        context=np.zeros(size, dtype=np.int64),
        process=np.zeros(size, dtype=np.int64),
        stream=stream,
        whole=whole,
        until=until,
        engine_until=engine_until,
        tenures=tenures,
        pageable=pageable,
        staged=_staged_work(calls, work, stream, whole),
    )
    _add_time_slices(calls, work, waits)
    _add_staged_work(calls, work, waits)
    return waits


def _of_scope(
    stream: Int64s,
    whole: Int64s,
    of_stream: Callable[[Int64s], Int64s],
    of_context: Callable[[Int64s], Int64s],
    otherwise: Int64s,
) -> Int64s:
    """Values of the stream for which each call waits, else of its context; ``otherwise`` without either.

    A scope for which no call waits is skipped: it takes as long for one call as for many.
    """
    values = otherwise
    for numbers, value in ((whole, of_context), (stream, of_stream)):
        if (numbers >= 0).any():
            values = np.where(numbers >= 0, value(numbers), values)
    return values


def _copies(calls: CallTable, work: WorkTable) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Flags of the calls that copy with pageable memory at one end, and of the copies that block."""
    copies = calls.waits == Waits.COPY
    pageable = np.zeros(len(calls), dtype=np.bool_)
    if not copies.any():
        return pageable, pageable
    owned = copies & (work.last_of_call >= 0)
    for end in ("source", "target"):
        kinds = [getattr(call, end) for call in calls.calls]
        pageable |= copies & [kind is Memory.PAGEABLE for kind in kinds]
        # The library may not know the kind of a program's memory; the driver does.
        unknown = owned & [kind is None for kind in kinds]
        pageable[unknown] |= work.rows[end][work.last_of_call[unknown]] == int(MemoryKind.PAGEABLE)
    always = calls.by_function(lambda each: each.kind) == int(CallKind.COPIES)
    return pageable, copies & (pageable | always)


def _stream_by_handle(
    calls: CallTable,
    work: WorkTable,
    streams: StreamNumbers,
    own_stream: Int64s,
    stream: Int64s,
    copies: NDArray[np.bool_],
) -> None:
    """Sets the streams that are still unknown, by calls with the same handle whose work has a record.

    The handles are those of all calls, or of the slow ones where all calls were not read.
    """
    owned = np.flatnonzero(own_stream >= 0).tolist()
    numbers = {(calls.calls[at].context, calls.calls[at].stream): int(own_stream[at]) for at in owned}
    unknown = (stream < 0) & (copies | (calls.waits == Waits.STREAM))
    for at in np.flatnonzero(unknown).tolist():
        call = calls.calls[at]
        if call.stream is None:
            continue
        number = streams.number_of(call.context, call.stream, call.begin_ns, call.thread, call.function)
        if number is None:
            stream[at] = numbers.get((call.context, call.stream), -1)
        else:
            stream[at] = work.stream_numbers.get((call.context, number), -1)


def _add_time_slices(calls: CallTable, work: WorkTable, waits: GpuWaits) -> None:
    """Moves time in which others had the graphics engine from ``front`` to ``context`` and ``process``."""
    waiting = (waits.engine_until > calls.begins) & ((waits.stream >= 0) | (waits.whole >= 0))
    if not waiting.any() or not any(len(each.starts) for each in waits.tenures.values()):
        return
    devices = dict(zip(work.rows["context"].tolist(), work.rows["device"].tolist(), strict=True))
    # Each stream and each context for which calls waited.
    scopes = np.where(waits.stream >= 0, waits.stream, -2 - waits.whole)
    for scope in np.unique(scopes[waiting]).tolist():
        members = np.flatnonzero(waiting & (scopes == scope))
        mine = work.streams == scope if scope >= 0 else work.contexts == -2 - scope
        context = int(work.rows["context"][np.argmax(mine)])
        tenures = waits.tenures.get(devices[context])
        if tenures is not None and len(tenures.starts):
            _add_of_scope(calls, work, waits, members, mine, tenures, context)


def _add_staged_work(calls: CallTable, work: WorkTable, waits: GpuWaits) -> None:
    """Adds what calls wait for because of staged copies to ``front``."""
    for at, rows in waits.staged.items():
        until = min(int(work.ends[rows].max()), int(calls.ends[at]))
        waits.until[at] = max(until, int(waits.until[at]))
        own = work.streams == waits.stream[at] if waits.stream[at] >= 0 else work.contexts == waits.whole[at]
        every = np.union1d(rows, np.flatnonzero(own & (work.ends > calls.begins[at]) & (work.starts < until)))
        covered = work.covered(every, calls.begins[at : at + 1], waits.until[at : at + 1])
        rest = int(covered[0]) - int(waits.context[at]) - int(waits.process[at])
        if rest > 2 * int(waits.front[at]):
            waits.by_staging.add(at)
        waits.front[at] = max(rest, int(waits.front[at]))


def _staged_work(calls: CallTable, work: WorkTable, streams: Int64s, contexts: Int64s) -> Mapping[int, Int64s]:
    """Rows of work, by call, for which a synchronization waits because of a staged copy; most calls have none.

    The rows are the parts in other contexts of copies of its stream or context, the work in front of the parts, and the
    work for which that waits in turn. ``streams`` and ``contexts`` are the numbers of the awaited ones of each call, or
    -1.

    Without peer access, a copy from one GPU to another is a copy to the host in the call's stream and a copy from the
    host in a stream of the driver in the target's context. That stream runs its copies in order: a copy that waits
    holds up all later copies, of whatever stream. Both parts have the call's correlation number (observed on two H200).
    """
    homes = _homes(work)
    parts = np.flatnonzero(homes != np.arange(len(work)))
    if not len(parts):
        return {}
    orders, staged = calls.order_of(int64s(work.rows["correlation"])), {}
    own_orders = calls.order_of(calls.correlations)
    of_stream, of_context = work.streams[homes[parts]], work.contexts[homes[parts]]
    for at in np.flatnonzero(np.isin(calls.waits, (Waits.STREAM, Waits.CONTEXT))).tolist():
        mine = (of_stream == streams[at]) if streams[at] >= 0 else (of_context == contexts[at])
        begin_ns, end_ns = int(calls.begins[at]), int(calls.ends[at])
        mine &= (orders[parts] < own_orders[at]) & (work.ends[parts] > begin_ns) & (work.starts[parts] < end_ns)
        if mine.any():
            staged[at] = _in_front(work, homes, orders, parts[mine], begin_ns)
    return staged


def _homes(work: WorkTable) -> Int64s:
    """For each row the first row of its call, where both are copies in different contexts; else the row itself."""
    every, correlations = np.arange(len(work)), int64s(work.rows["correlation"])
    copies = np.isin(work.rows["kind"], COPIES)
    if len(distinct(work.contexts[copies])) < 2:
        return every
    order = np.lexsort((work.starts, correlations))
    new = np.concatenate(([True], np.diff(correlations[order]) != 0))[: len(work)]
    first = np.empty(len(work), dtype=np.int64)
    first[order] = order[np.maximum.accumulate(np.where(new, every, 0))]
    staged = copies & copies[first] & (correlations != 0) & (work.contexts[first] != work.contexts)
    return int64s(np.where(staged, first, every))


def _in_front(work: WorkTable, homes: Int64s, orders: Int64s, parts: Int64s, begin_ns: int) -> Int64s:
    """``parts``, the earlier work in their streams, and the work before the homes of both.

    Work that ended until ``begin_ns`` is left out.
    """
    since = work.ends > begin_ns
    rows = [parts]
    for part in parts.tolist():
        earlier = np.flatnonzero(since & (work.streams == work.streams[part]) & (orders < orders[part]))
        rows.append(earlier)
        for row in (part, *earlier.tolist()):
            home = homes[row]
            rows.append(np.flatnonzero(since & (work.streams == work.streams[home]) & (orders <= orders[home])))
    return int64s(np.unique(np.concatenate(rows)))


def _add_of_scope(
    calls: CallTable,
    work: WorkTable,
    waits: GpuWaits,
    members: Int64s,
    mine: NDArray[np.bool_],
    tenures: Tenures,
    context: int,
) -> None:
    begins, until, engine_until = calls.begins[members], waits.until[members], waits.engine_until[members]
    others = tenures.contexts != context
    gaps = tenures.joined & (
        tenures.starts - np.concatenate((tenures.starts[:1], tenures.ends[:-1])) > LONGEST_CHANGE_NS
    )
    gap_starts, gap_ends = tenures.ends[:-1][gaps[1:]], tenures.starts[1:][gaps[1:]]
    if not others.any() and not len(gap_starts):
        return
    parts = {
        "work": (work.starts[mine], work.ends[mine]),
        "copies": (work.starts[mine & ~work.engine], work.ends[mine & ~work.engine]),
        "context": (tenures.starts[others], tenures.ends[others]),
        "process": (gap_starts, gap_ends),
    }
    # While a copy engine works for the call, it does not wait for the graphics engine.
    copying = _covered(parts, ("copies",), begins, engine_until)
    in_context = _covered(parts, ("copies", "context"), begins, engine_until) - copying
    in_process = _covered(parts, ("copies", "process"), begins, engine_until) - copying
    together = _covered(parts, ("work", "context", "process"), begins, engine_until)
    together += _covered(parts, ("work",), engine_until, until)
    waits.context[members], waits.process[members] = in_context, in_process
    rest = together - in_context - in_process
    own = np.minimum(waits.own[members], rest)
    waits.own[members] = own
    waits.front[members] = np.maximum(rest - own, 0)


def _covered(parts: Mapping[str, tuple[Int64s, Int64s]], names: Sequence[str], begins: Int64s, ends: Int64s) -> Int64s:
    starts = np.concatenate([parts[name][0] for name in names])
    stops = np.concatenate([parts[name][1] for name in names])
    return CoveredTime(Spans.united(starts, stops)).during(begins, ends)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For each slow call the stream whose work covers most of it and ends with it; -1 without one. ``count`` is the
    number of such streams, ``until`` when the call, or its own work, is taken to have been free to start."""

    stream: Int64s
    covered: Int64s
    count: Int64s
    until: Int64s


def neighbours(calls: CallTable, work: WorkTable, asked: NDArray[np.bool_]) -> Neighbours:
    """Streams of the call's context whose work ends within 50 µs of the end of the call, or of the start of its own
    work, and covers at least 80 % of the excess until then."""
    size = len(calls)
    until = np.minimum(work.own_start(np.iinfo(np.int64).max), calls.ends)
    near = Neighbours(np.full(size, -1, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64), until)
    members = np.flatnonzero(asked & (until > calls.begins))
    order = np.argsort(work.ends, kind="stable")
    ends = work.ends[order]
    first = np.searchsorted(ends, until[members] - SAME_END_NS, "left")
    last = np.searchsorted(ends, until[members] + SAME_END_NS, "right")
    owners, places = expanded(first, last)
    at, rows = members[owners], order[places]
    same = (int64s(work.rows["context"][rows]) == calls.contexts[at]) & (work.owners[rows] != at)
    at, streams = distinct_pairs(at[same], work.streams[rows[same]])
    # What was submitted later is not waited for.
    prior = work.prior_of_stream.before(streams, calls.order_of(calls.correlations[at]), calls.begins[at])
    covered = work.by_stream.covered(streams, calls.begins[at], np.minimum(prior, until[at]))
    kept = (covered >= OVERLAP_SHARE * calls.excess[at]) & (prior >= until[at] - SAME_END_NS)
    at, streams, covered = at[kept], streams[kept], covered[kept]
    np.add.at(near.count, at, 1)
    best = np.argsort(covered, kind="stable")
    near.stream[at[best]], near.covered[at[best]] = streams[best], covered[best]
    return near


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
