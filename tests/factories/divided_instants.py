"""Reference of the division: the part of each instant by the rules, one instant after the other, from plain lists.

It shares no code with the division but names: numbers of parts, kinds of calls, and the containers of the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from stallprobes.native.layouts.driver_calls import CallKind, HostTask
from stallprobes.watch.division.instants import COMMUNICATION, COPY, KERNEL, MOST_BEHIND, SequenceTimes, Spans
from stallprobes.watch.division.parts import Part

_CAUSES = {
    CallKind.ALLOCATES: Part.ALLOCATION,
    CallKind.FREES: Part.FREE,
    CallKind.HOST_MEMORY: Part.HOST_MEMORY,
    CallKind.CONTEXT: Part.CONTEXT,
    CallKind.LOADS: Part.LOADING,
    CallKind.WORKS: Part.SUBMITTING,
}
_FOREVER = 2**62


class Call(NamedTuple):
    thread: int
    begin: int
    end: int
    kind: CallKind
    context: int


class Operation(NamedTuple):
    start: int
    end: int
    kind: int
    engine: bool
    returned: int
    thread: int
    stream: int


class Instant(NamedTuple):
    """What one instant is, as the division's columns say it."""

    part: Part
    waiting: bool
    submits: bool
    queue_full: bool
    allocates: bool
    free_waits: bool
    late_frees: bool
    copying: bool
    own_copies: bool
    awaited_copies: bool
    apart: bool
    beside: bool
    elsewhere: bool
    ordered: bool


FLAGS = Instant._fields[1:]
_ALLOCATION = (Part.ALLOCATION, Part.FREE, Part.HOST_MEMORY)


def divided_one_by_one(times: SequenceTimes, begin: int, end: int) -> dict[int, Instant]:
    """Each recorded instant from ``begin`` to ``end``."""
    found = {at: instant(times, at) for at in range(begin, end)}
    return {at: one for at, one in found.items() if one is not None}


def totals(instants: dict[int, Instant]) -> Counter[str]:
    """The number of instants of each part and flag."""
    sums: Counter[str] = Counter()
    for one in instants.values():
        sums[one.part.value] += 1
        sums.update(name for name in FLAGS if getattr(one, name))
    return sums


def instant(times: SequenceTimes, at: int) -> Instant | None:
    recorded_until = next((end for begin, end in _pairs(times.recorded) if begin <= at < end), None)
    if recorded_until is None:
        return None
    calls = [one for one in _calls(times) if one.begin <= at < one.end]
    running = [one for one in _operations(times) if one.start <= at < one.end]
    away = _in(times.away, at)
    part = _of_running(running, away) if running else _of_gap(times, at, recorded_until, calls, away)
    blocked = [one for one in calls if _long(times, one)]
    queued = part is Part.BETWEEN and [one for one in blocked if one.kind is CallKind.QUEUES]
    full = [one for one in (blocked if running else queued or ()) if not _held(times, one, at)]
    waits = [one for one in calls if one.kind is CallKind.WAITS]
    copies = [one for one in calls if one.kind is CallKind.COPIES]
    waits += [one for one in copies if part is not Part.COPY and at < _started(times, one)]
    every = waits + full
    counts = part is not Part.END
    waiting = counts and bool(every) and all(one in every for one in calls)
    submits = any(one.kind in (CallKind.SUBMITS, CallKind.QUEUES) for one in calls) and counts and not waiting
    allocates = [one for one in calls if _CAUSES.get(one.kind) in _ALLOCATION]
    before_waits = [one for one in allocates if counts and running and _waits_next(times, one)]
    frees = [one for one in calls if counts and running and one.kind is CallKind.FREES] + before_waits
    copying = counts and any(one not in waits for one in copies)
    only = part is Part.COPIES
    kernels = [one for one in _operations(times) if one.kind != COPY]
    earlier = set(times.kernel_streams.tolist())
    behind = [
        one.stream in earlier or any(each.stream == one.stream and each.start <= one.start for each in kernels)
        for one in running
    ]
    apart = only and not all(behind)
    beside = not only and any(one.kind == COPY for one in running)
    allocating = counts and bool(allocates), bool(frees), bool(before_waits)
    elsewhere = counts and _in(times.elsewhere[0], at)
    later = min((one for one in _operations(times) if one.start > at), key=lambda one: one.start, default=None)
    ordered = part is Part.OTHER_GPU and later is not None and 0 <= later.returned <= at
    flags = *allocating, copying, copying and only, waiting and only, apart, beside, elsewhere, ordered
    return Instant(part, waiting, submits, waiting and bool(full), *flags)


def _started(times: SequenceTimes, one: Call) -> int:
    """When the first operation starts that a call submitted."""
    same = [each for each in _operations(times) if each.returned == one.end]
    first = min(same, key=lambda each: each.start, default=None)
    return first.start if first is not None and first.thread == one.thread else one.end


def _waits_next(times: SequenceTimes, one: Call) -> bool:
    """Whether the thread's next call that does not allocate, free or submit waits, or is a copy that blocks, soon."""
    behind = [each for each in _calls(times) if each.thread == one.thread and each.begin >= one.end]
    later = [each for each in behind if _CAUSES.get(each.kind) not in _ALLOCATION and each.kind is not CallKind.SUBMITS]
    following = min(later, key=lambda each: each.begin, default=None)
    if following is None or following.kind not in (CallKind.WAITS, CallKind.COPIES):
        return False
    submits = any(each.kind is CallKind.SUBMITS and each.begin < following.begin for each in behind)
    limit = (one.end - one.begin) * (MOST_BEHIND if submits else 1)
    return following.begin - one.end < limit


def _of_running(running: list[Operation], away: bool) -> Part:
    if away and all(one.engine for one in running):
        return Part.SHARED
    kinds = {one.kind for one in running}
    if KERNEL in kinds:
        return Part.KERNELS
    assert kinds <= {COMMUNICATION, COPY}
    return Part.COMMUNICATION if COMMUNICATION in kinds else Part.COPIES


def _of_gap(times: SequenceTimes, at: int, recorded_until: int, calls: list[Call], away: bool) -> Part:
    kernels, work = times.elsewhere
    part = _without_others(times, at, recorded_until, calls, away)
    waits = (Part.QUEUED, Part.BETWEEN, Part.BLOCKED, Part.WAKE_UP, Part.OTHER_WORK)
    if part not in waits or not _in(work, at):
        return part
    return Part.OTHER_GPU if _in(kernels, at) else Part.COPIES


def _without_others(times: SequenceTimes, at: int, recorded_until: int, calls: list[Call], away: bool) -> Part:
    """The part of a gap where no other GPU works for the sequence."""
    if _in(times.lost, at):
        return Part.UNKNOWN
    later = [one for one in _operations(times) if one.start > at]
    gap_began = max([times.last_end.at_ns, *(one.end for one in _operations(times) if one.start <= at)])
    following = min(later, key=lambda one: one.start) if later else None
    if following is None and times.ended and recorded_until >= _FOREVER:
        return Part.END
    if following is not None and following.start > recorded_until:
        following = None
    if following is not None and following.returned < 0:
        return Part.UNKNOWN
    if following is not None and at >= following.returned:
        if away and following.engine:
            return Part.SHARED
        before = [one for one in _operations(times) if one.stream == following.stream]
        place = before.index(following)
        earlier = times.last_end.at_ns if times.last_end.stream == following.stream else -1
        ready = max([earlier, *(one.end for one in before[:place])]) == gap_began
        return Part.BETWEEN if ready and following.returned <= gap_began - times.limits.launch_ns else Part.QUEUED
    own = [one for one in calls if following is not None and one.thread == following.thread]
    call = next(iter(own or calls), None)
    if call is None:
        return Part.HOST
    if call.kind in (CallKind.WAITS, CallKind.COPIES):
        submits_it = following is not None and call in own and call.end == following.returned
        if call.kind is CallKind.COPIES and submits_it:
            return Part.COPY
        if call.begin <= gap_began and at < gap_began + times.limits.wake_up_ns:
            return Part.WAKE_UP
        if following is None:
            previous = [one for one in _calls(times) if one.thread == call.thread and one.end <= call.begin]
            last = max(previous, key=lambda one: one.begin, default=None)
            submitted = last is not None and last.kind is CallKind.SUBMITS and last.end > gap_began
            return Part.KERNELS if submitted else Part.UNKNOWN
        if call.kind is CallKind.COPIES:
            return Part.COPY
        if call.begin > gap_began and call.end - call.begin < times.limits.blocked_ns:
            return Part.SUBMITTING
        return Part.OTHER_WORK if _in(times.other_work, at) else Part.BLOCKED
    if call.kind in (CallKind.SUBMITS, CallKind.QUEUES):
        if not _long(times, call):
            return Part.SUBMITTING
        return Part.LOCK if _held(times, call, at) else Part.BLOCKED
    return _CAUSES[call.kind]


def _long(times: SequenceTimes, one: Call) -> bool:
    took = one.end - one.begin
    return one.kind is CallKind.QUEUES or (one.kind is CallKind.SUBMITS and took >= times.limits.blocked_ns)


def _held(times: SequenceTimes, one: Call, at: int) -> bool:
    """Whether a call of another thread holds one up: a lock of its context, or the making of a context."""
    of_others = times.holding
    columns = (of_others.begins, of_others.ends, of_others.holds, of_others.contexts)
    for begin, end, holds, context in zip(*(column.tolist() for column in columns), strict=True):
        if begin <= at < end and holds and (context == one.context != 0 or holds == HostTask.CONTEXT):
            return True
    return False


def _pairs(spans: Spans) -> list[tuple[int, int]]:
    return list(zip(spans.begins.tolist(), spans.ends.tolist(), strict=True))


def _in(spans: Spans, at: int) -> bool:
    return any(begin <= at < end for begin, end in _pairs(spans))


def _calls(times: SequenceTimes) -> Iterator[Call]:
    for thread, calls in times.threads.items():
        columns = _pairs(calls.spans), calls.kinds.tolist(), calls.contexts.tolist()
        for (begin, end), kind, context in zip(*columns, strict=True):
            yield Call(thread, begin, end, CallKind(kind), context)


def _operations(times: SequenceTimes) -> list[Operation]:
    work = times.work
    columns = (work.starts, work.ends, work.kinds, work.engine, work.returned, work.threads, work.streams)
    return [Operation(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
