"""Parts of the instants of one sequence on one GPU, for many calls and operations at once.

Between two neighbouring times at which anything begins or ends, nothing changes: each such span has one part. ``Part``
defines the rules; ``tests/factories/divided_instants.py`` states them again, instant by instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.columns import Columns
from stallprobes.watch.division.call_columns import ALLOCATES_BY_KIND, AWAITS_WORK, may_hold_up
from stallprobes.watch.division.parts import NUMBERS, ORDER, Part
from stallprobes.watch.intervals import NONE, Int64s, count_until, distinct, expanded, int64s, running_maximum

Flags = NDArray[np.bool_]
# Empty column of flags.
NO_FLAGS: Flags = np.zeros(0, dtype=np.bool_)
# Kinds of operations on the GPU.
KERNEL, COMMUNICATION, COPY = range(3)
# Time (ns) that stands for "never": no operation follows, or the recording has no end.
_NEVER = 2**62
# Number of parts (kernels, copies, locks, …) into which the time of a sequence (threads that call by turns) is
# divided.
_PARTS = len(ORDER)
# Columns of a sequence's sums after the columns of the parts: times in ns.
# WAITING: time in which the sequence waits for the GPU.
# SUBMITS: time inside calls that submit work, except for time in WAITING.
# QUEUE_FULL: part of WAITING in which calls that submit work find the launch queue full.
# ALLOCATES: time inside calls that allocate or free.
# LATE_FREES: time inside calls that allocate or free while the GPU works, if a wait of the thread follows soon
# (MOST_BEHIND).
# FREE_WAITS: LATE_FREES, plus time inside other frees while the GPU works.
# COPYING: time inside blocking copies, except while the copy waits for earlier work.
# OWN_COPIES: part of COPYING in which the GPU only copies.
# AWAITED_COPIES: part of WAITING in which the GPU only copies.
# APART: time in which the GPU only copies, in streams in which no kernel has run before. Kernels could run at the same
# time if the host did not wait.
# BESIDE: time in which the GPU runs copies and kernels at the same time.
# ELSEWHERE: time in which other GPUs run kernels of the sequence.
# ORDERED: time in which the GPU waits for these kernels, and its next operation is submitted: no wait of the host ends
# it.
(
    WAITING, SUBMITS, QUEUE_FULL, ALLOCATES, FREE_WAITS, LATE_FREES, COPYING, OWN_COPIES, AWAITED_COPIES, APART, BESIDE,
    ELSEWHERE, ORDERED,
) = range(_PARTS, _PARTS + 13)  # fmt: skip
# Eight more columns of the sums: times in ns.
# LEAST_GAPS: time that the GPU itself needs between operations, in gaps that the host causes by late submissions.
# LONGER: the longer of host time and GPU time in each group of eight waits, summed over the groups.
# LONGER_QUEUES: as LONGER, in each group of as many launches as a queue of the GPU holds.
# WITHOUT_WAITS: time that the sequence would take without waits, if its frees and loads still waited for the GPU. The
# column is 0 for a sequence with few of these calls.
# SAVED_FREES: time that the sequence would save without calls that allocate or free, if its waits remained.
# SAVED_ORDER: time that the sequence would save if kernels with room for each other did not wait for those of other
# streams, and its waits remained.
# SAVED_COPIES: time that the sequence would save without copies, if its waits remained. The column is 0 if all work is
# in one stream.
# OVERLAP: time that the GPU's work would save if the host kept no stream waiting, since work of several streams would
# run at the same time.
LEAST_GAPS, LONGER, LONGER_QUEUES, WITHOUT_WAITS, SAVED_FREES, SAVED_ORDER, SAVED_COPIES, OVERLAP = range(
    _PARTS + 13, _PARTS + 21
)
# Number of columns of a sequence's sums: a column for each part of the time, the thirteen columns from WAITING to
# ORDERED, and the eight from LEAST_GAPS to OVERLAP.
COLUMNS = _PARTS + 21

# Part of the time for each kind of GPU work. If work of several kinds runs at once, the first kind in this table
# decides.
_PART_OF_WORK = ((KERNEL, Part.KERNELS), (COMMUNICATION, Part.COMMUNICATION), (COPY, Part.COPIES))
# Part of the time inside a call while the GPU does nothing, by number of CallKind. The last part is for the time
# without a call.
_PART_OF_KIND = np.array(
    [
        NUMBERS[
            {
                CallKind.SUBMITS: Part.SUBMITTING,
                CallKind.WORKS: Part.SUBMITTING,
                CallKind.QUEUES: Part.BLOCKED,
                CallKind.WAITS: Part.BLOCKED,
                CallKind.COPIES: Part.COPY,
                CallKind.ALLOCATES: Part.ALLOCATION,
                CallKind.FREES: Part.FREE,
                CallKind.HOST_MEMORY: Part.HOST_MEMORY,
                CallKind.CONTEXT: Part.CONTEXT,
                CallKind.LOADS: Part.LOADING,
            }[kind]
        ]
        for kind in CallKind
    ]
    + [NUMBERS[Part.HOST]],
    dtype=np.int8,
)

# Flags by number of the part of a gap: the part is a wait for another GPU while work of the sequence runs there.
_TURNS = np.array([part in (Part.QUEUED, Part.BETWEEN, Part.BLOCKED, Part.WAKE_UP, Part.OTHER_WORK) for part in ORDER])
# Largest time from a call that allocates or frees to the thread's next wait for the GPU at which the call is a late
# free (LATE_FREES), as a share of the call's duration. If no launches lie in between, the limit is the whole duration.
# Reason: without the late free, the wait would be longer by the duration of the late free. Limitation: a wait in the
# next slice of time is not visible, so one late free in each slice (0.9 s) may count as another free.
MOST_BEHIND = 0.1


@dataclass(frozen=True)
class Limits:
    """Times (ns) by which parts are distinguished.

    A call that submits has blocked if it took ``blocked_ns``. A wait has woken up ``wake_up_ns`` after its work ended.
    An operation that was submitted ``launch_ns`` before the GPU was free could have started then. A copy of pageable
    memory that took ``staged_ns`` copied into a buffer of the driver.
    """

    blocked_ns: int = 100_000
    wake_up_ns: int = 500_000
    launch_ns: int = 5_000
    staged_ns: int = 20_000


# Default limits (ns) by which parts of the time are distinguished, such as the duration from which a call that submits
# work counts as blocked.
LIMITS = Limits()


class Spans(NamedTuple):
    """Spans of time in order, without overlap: int64[n] each, ns."""

    begins: Int64s
    ends: Int64s

    @classmethod
    def united(cls, begins: Int64s, ends: Int64s) -> Spans:
        """The union of intervals, which may be in any order."""
        kept = ends > begins
        if not kept.any():
            return NO_SPANS
        if not kept.all():
            begins, ends = begins.compress(kept), ends.compress(kept)
        if (begins[1:] < begins[:-1]).any():
            # Most are in order: only a stable sort uses that.
            order = np.argsort(begins, kind="stable")
            begins, ends = begins[order], ends[order]
        ends = np.maximum.accumulate(ends)
        apart = begins[1:] > ends[:-1]
        if apart.all():
            return cls(begins, ends)
        first = np.flatnonzero(np.append(True, apart))
        return cls(begins[first], ends[np.append(first[1:], len(begins)) - 1])

    def place(self, times: Int64s) -> Int64s:
        """Number of the span that contains each time, -1 without one."""
        places = self.begins.searchsorted(times, "right") - 1
        return np.where(self._inside(places, times), places, -1)

    def contain(self, times: Int64s) -> Flags:
        """Flags of the times that lie in a span."""
        return self._inside(self.begins.searchsorted(times, "right") - 1, times)

    def place_ascending(self, times: Int64s) -> Int64s:
        """As ``place`` for times that ascend, in less time where there are more of them than spans."""
        places, inside = self.located(times)
        # np.where would take several times as long where it changes often.
        return (places + 1) * inside - 1

    def located(self, times: Int64s) -> tuple[Int64s, Flags]:
        """Of times that ascend: the number of the last span that begins at or before each, and whether it contains
        it."""
        places = count_until(self.begins, times) - 1
        return places, self._inside(places, times)

    def _inside(self, places: Int64s, times: Int64s) -> Flags:
        """True for each time before the end of the span at its place, which begins before it."""
        inside: Flags = places >= 0
        return inside & (self.ends.take(places) > times) if len(self.ends) else inside

    def within(self, begin_ns: int, end_ns: int) -> Spans:
        """Parts of the spans between two times."""
        first, end = self._reaching(begin_ns, end_ns)
        return Spans(np.maximum(self.begins[first:end], begin_ns), np.minimum(self.ends[first:end], end_ns))

    def ending_after(self, time_ns: int) -> Spans:
        """The spans that end after a time."""
        kept = self.ends > time_ns
        return Spans(self.begins[kept], self.ends[kept])

    def _reaching(self, begin_ns: int, end_ns: int) -> tuple[int, int]:
        """The first of the spans that reach into a time, and the one behind the last."""
        first = int(self.ends.searchsorted(begin_ns, "right"))
        return first, max(int(self.begins.searchsorted(end_ns, "left")), first)

    def inside(self, times: Int64s) -> Int64s:
        """Ascending ``times`` that lie in a span, not at its border."""
        _, places = expanded(times.searchsorted(self.begins, "right"), times.searchsorted(self.ends, "left"))
        return times[places]

    def contain_ascending(self, times: Int64s) -> Flags:
        """As ``contain`` for times that ascend."""
        return self.located(times)[1] if len(self.begins) else np.zeros(len(times), dtype=np.bool_)


# Empty set of spans of time.
NO_SPANS = Spans(NONE, NONE)


def united(spans: Iterable[Spans]) -> Spans:
    """The union of several unions."""
    every = list(spans)
    return Spans.united(
        np.concatenate([NONE, *(part.begins for part in every)]), np.concatenate([NONE, *(part.ends for part in every)])
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class OfCalls(Columns):
    """Calls, or operations by the calls that submit them: int64[n] each, ``ends`` in ns."""

    ends: Int64s
    threads: Int64s
    contexts: Int64s
    correlations: Int64s


@dataclass(frozen=True, eq=False, kw_only=True)
class Calls(OfCalls):
    """Calls of one thread or of several: int64[n] each, times in ns.

    ``functions`` are the numbers of functions, -1 where that is not known; ``kinds`` are CallKinds. ``holds`` is the
    driver's task on the host (HostTask) for whose end calls of other threads may wait.
    """

    begins: Int64s
    functions: Int64s
    kinds: Int64s
    holds: Int64s

    @property
    def spans(self) -> Spans:
        """When they run. In order and without overlap for calls of one thread."""
        return Spans(self.begins, self.ends)

    @property
    def lengths(self) -> Int64s:
        """Duration of each call (ns)."""
        return self.ends - self.begins

    def during(self, begin_ns: int, end_ns: int) -> Calls:
        """The calls of one thread that reach into a time or return when it begins, not cut."""
        first = int(self.ends.searchsorted(begin_ns, "left"))
        return self.at(slice(first, int(self.begins.searchsorted(end_ns, "left"))))

    def held_up(self, context: int) -> Spans:
        """When they may hold up calls of a context."""
        chosen = may_hold_up(self.holds, self.contexts, context)
        return Spans.united(self.begins[chosen], self.ends[chosen])


# Calls of a thread that has made none.
NO_CALLS = Calls(
    begins=NONE, ends=NONE, threads=NONE, contexts=NONE, correlations=NONE, functions=NONE, kinds=NONE, holds=NONE
)


class CoveredTime:
    """Time that some spans cover, for many questions: int64[n], ns."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._sums = np.concatenate(([0], np.cumsum(spans.ends - spans.begins)))

    @property
    def whole_ns(self) -> int:
        """The time that all spans cover."""
        return int(self._sums[-1])

    def before(self, times: Int64s) -> Int64s:
        """The time (ns) that the spans cover before each time."""
        return self._before(times, np.searchsorted(self._spans.begins, times, "right") - 1)

    def before_ascending(self, times: Int64s) -> Int64s:
        """As ``before`` for times that ascend, in less time where there are more of them than spans."""
        return self._before(times, count_until(self._spans.begins, times) - 1)

    def during(self, begins: Int64s, ends: Int64s) -> Int64s:
        """The time (ns) that the spans cover from each of ``begins`` to the end; 0 where that is before."""
        return self.before(np.maximum(begins, ends)) - self.before(begins)

    def _before(self, times: Int64s, places: Int64s) -> Int64s:
        begins, ends = self._spans
        if not len(begins):
            return np.zeros(len(times), dtype=np.int64)
        inside = np.minimum(times, ends[places]) - begins[places]
        return np.where(places >= 0, self._sums[np.maximum(places, 0)] + inside, 0)


class LastEnd(NamedTuple):
    """Latest end of GPU work before a moment: ``at_ns`` (0 without work), and the number of its stream (-1: none).

    ``kernel`` is the place of the kernel's name, -1 if the work is no kernel.
    """

    at_ns: int = 0
    stream: int = -1
    kernel: int = -1


# Value of ``last_end`` before any GPU work has ended.
NO_END = LastEnd()


@dataclass(frozen=True, eq=False, kw_only=True)
class Operations(OfCalls):
    """Operations of the GPU in the order of their starts: int64[n] each, times in ns, but for flags.

    - ``returned`` and ``threads``: when the call returned that submitted each, and its thread; -1 while that is not
      known.
    - ``streams``: numbers, one for each stream of each context.
    - ``names``: the places of kernels' names.
    - ``blocks``: the number of blocks of a kernel, 0 while unknown.
    - ``kinds``: KERNEL, COMMUNICATION or COPY.
    - ``engine``: it needs the graphics engine.
    - ``few``: a kernel of few blocks (see FEW_BLOCKS).
    - ``pageable``: a copy from or to pageable memory.
    - ``seen``: it was known when its slice of time was divided.
    """

    starts: Int64s
    returned: Int64s
    devices: Int64s
    streams: Int64s
    names: Int64s
    blocks: Int64s
    kinds: Int64s
    engine: Flags
    few: Flags
    pageable: Flags
    seen: Flags

    def before(self, last: LastEnd) -> Int64s:
        """The latest end of the operations in front of each one in its stream, and ``last``; -1 without one."""
        order = np.argsort(self.streams, kind="stable")
        ends, streams = self.ends[order], self.streams[order]
        before = np.where(self.streams == last.stream, last.at_ns, -1)
        same = streams[1:] == streams[:-1]
        latest = running_maximum(np.cumsum(np.append(False, ~same)[: len(ends)]), ends)
        before[order[1:]] = np.maximum(before[order[1:]], np.where(same, latest[:-1], -1))
        return before

    def behind_kernels(self, streams: Int64s) -> Flags:
        """Flags of the operations in one of ``streams``, or after a kernel of the same stream: bool[operations]."""
        behind = np.isin(self.streams, streams)
        kernels = self.kinds != COPY
        present, first = np.unique(self.streams.compress(kernels), return_index=True)
        if len(present):
            places = np.minimum(present.searchsorted(self.streams), len(present) - 1)
            started = self.starts.compress(kernels)[first][places]
            behind |= (present[places] == self.streams) & (started <= self.starts)
        return behind

    def latest_end(self, last: LastEnd, until_ns: int) -> LastEnd:
        """The latest end until ``until_ns``: ``last``, or that of an operation."""
        ends = self.ends[: int(self.starts.searchsorted(until_ns, "right"))]
        ends = np.where(ends <= until_ns, ends, -1)
        place = int(ends.argmax()) if len(ends) else -1
        if place < 0 or ends[place] < last.at_ns:
            return last
        name = -1 if self.kinds[place] == COPY else int(self.names[place])
        return LastEnd(int(ends[place]), int(self.streams[place]), name)

    def union(self, chosen: Flags) -> Spans:
        """The times in which the chosen operations run."""
        return Spans.united(self.starts.compress(chosen), self.ends.compress(chosen))


# Operations of a GPU that does nothing.
NO_OPERATIONS = Operations(
    starts=NONE, ends=NONE, returned=NONE, threads=NONE, correlations=NONE, devices=NONE, contexts=NONE, streams=NONE,
    names=NONE, blocks=NONE, kinds=NONE, engine=NO_FLAGS, few=NO_FLAGS, pageable=NO_FLAGS, seen=NO_FLAGS,
)  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceTimes:
    """What is known of one sequence on one GPU, in any span of time.

    - ``threads``: the calls by thread id.
    - ``work``: the sequence's own.
    - ``recorded``: all work is recorded.
    - ``other_work``: the times in which the GPU works for other threads of the process; ``others`` says by thread.
    - ``holding``: the calls of other threads that may hold a lock.
    - ``elsewhere``: the times in which its work runs on other GPUs: kernels, and all work.
    - ``away``: none of the sequence's contexts has the graphics engine.
    - ``lost``: records or calls are missing.
    - ``last_end``: the latest end of work before the first operation.
    - ``kernel_streams``: sorted numbers of the streams in which kernels started before the first operation.
    - ``ended``: no operation follows the last one, else that is not known.
    """

    threads: Mapping[int, Calls]
    work: Operations
    recorded: Spans
    other_work: Spans = NO_SPANS
    others: Callable[[], Mapping[int, Spans]] = dict
    holding: Calls = NO_CALLS
    elsewhere: tuple[Spans, Spans] = (NO_SPANS, NO_SPANS)
    away: Spans = NO_SPANS
    lost: Spans = NO_SPANS
    last_end: LastEnd = NO_END
    kernel_streams: Int64s = field(default_factory=lambda: NONE)
    ended: bool = False
    limits: Limits = field(default=LIMITS)


class Instants(NamedTuple):
    """Spans of time with what they are: ``parts`` are numbers of parts, ``flags`` those of the last columns."""

    begins: Int64s
    ends: Int64s
    parts: NDArray[np.int8]
    flags: Sequence[Flags]


class _CallTable(NamedTuple):
    """The calls of all threads of a sequence, and a last row for no call: ``kinds`` is -1 there.

    ``long``: the call submits, and blocked. ``late``: it allocates or frees, and the thread waits next, or submits
    and then waits: without it, that wait would be as much longer. ``started`` (ns): when its own work starts; when it
    returns without any. ``holding``: when others may hold up the long ones of each context.
    """

    begins: Int64s
    ends: Int64s
    kinds: NDArray[np.int8]
    long: Flags
    late: Flags
    started: Int64s
    threads: Int64s
    contexts: Int64s
    holding: Mapping[int, Spans]

    @classmethod
    def of(cls, times: SequenceTimes) -> _CallTable:
        calls = Calls.joined(times.threads.values())
        begins, ends, contexts = (np.append(column, 0) for column in (calls.begins, calls.ends, calls.contexts))
        owners, kinds = np.append(calls.threads, -1), np.append(calls.kinds, -1).astype(np.int8)
        long = (kinds == int(CallKind.SUBMITS)) & (ends - begins >= times.limits.blocked_ns)
        long |= kinds == int(CallKind.QUEUES)
        late = ALLOCATES_BY_KIND[kinds]
        if late.any():
            # The next call of its thread that does not only submit. A copy that blocks would wait as long, too.
            submits = kinds == int(CallKind.SUBMITS)
            passed = late | submits
            following = np.minimum.accumulate(np.where(passed, len(kinds), np.arange(len(kinds)))[::-1])[::-1]
            following = np.minimum(following, len(kinds) - 1)
            # Without the call, the thread would do its work between the call and the wait beside the GPU's work.
            between, own = begins[following] - ends, ends - begins
            launches = np.cumsum(submits)
            soon = between < np.where(launches[following] > launches, MOST_BEHIND * own, own)
            late &= AWAITS_WORK[kinds[following]] & (owners[following] == owners) & soon
        blocked = distinct(contexts[long]).tolist() if len(times.holding) else ()
        holding = {context: times.holding.held_up(context) for context in blocked}
        started = _started(times.work, ends, owners, kinds == int(CallKind.COPIES))
        return cls(begins, ends, kinds, long, late, started, owners, contexts, holding)

    def spans(self, chosen: Flags) -> Spans:
        """The times in which a thread is in a chosen call."""
        return Spans.united(self.begins.compress(chosen), self.ends.compress(chosen))

    def held(self, at: Int64s, rows: Int64s) -> Flags:
        """Flags of the calls in ``rows`` that wait for calls of other threads, at ascending times."""
        held = np.zeros(rows.shape, dtype=np.bool_)
        for context, spans in self.holding.items():
            held |= self.long[rows] & (self.contexts[rows] == context) & spans.contain_ascending(at)
        return held

    def active(self, times: SequenceTimes, at: Int64s) -> Int64s:
        """The row of the call that each thread is in at each time: int64[threads][n]."""
        rows, first, none = np.empty((len(times.threads), len(at)), dtype=np.int64), 0, len(self.kinds) - 1
        for row, calls in enumerate(times.threads.values()):
            places, inside = calls.spans.located(at)
            rows[row] = (places + (first - none)) * inside + none
            first += len(calls)
        return rows


def _started(work: Operations, ends: Int64s, threads: Int64s, copies: Flags) -> Int64s:
    """When the first operation starts that each of the ``copies`` of a thread submitted; when the call ends without."""
    started, rows = ends, np.flatnonzero(copies)
    if len(rows):
        started = ends.copy()
        order = np.argsort(work.returned, kind="stable")
        returned = np.append(work.returned[order], -1)
        places = np.searchsorted(returned[:-1], ends[rows])
        owned = (returned[places] == ends[rows]) & (np.append(work.threads[order], -1)[places] == threads[rows])
        started[rows[owned]] = work.starts[order[places[owned]]]
    return started


def instants_of(times: SequenceTimes, begin_ns: int, end_ns: int, borders: Int64s = NONE) -> Instants:
    """The spans from ``begin_ns`` to ``end_ns`` that were recorded, in order; none contains one of ``borders``."""
    work = times.work
    unions = [(part, work.union(work.kinds == kind)) for kind, part in _PART_OF_WORK]
    copied = work.union(~work.engine) if len(times.away.begins) else NO_SPANS
    calls, apart = _CallTable.of(times), NO_SPANS
    if (copies := work.kinds == COPY).any():
        apart = work.union(copies & ~work.behind_kernels(times.kernel_streams))
    others = [union for _, union in unions], (copied, apart), borders
    begins, ends = _elementary(times, begin_ns, end_ns, calls, others)
    covering = times.recorded.place_ascending(begins)
    kept = covering >= 0
    if not kept.all():
        begins, ends, covering = begins.compress(kept), ends.compress(kept), covering.compress(kept)
    parts = np.full(len(begins), -1, dtype=np.int8)
    # The GPU works.
    for part, union in unions:
        if len(union.begins):
            _set(parts, (parts < 0) & union.contain_ascending(begins), part)
    works = parts >= 0
    away = times.away.contain_ascending(begins)
    if away.any():
        _set(parts, works & away & ~copied.contain_ascending(begins), Part.SHARED)
    active = calls.active(times, begins)
    kinds, long = calls.kinds[active], calls.long[active]
    gap = np.flatnonzero(~works)
    if len(gap):
        parts[gap] = _gaps(times, begins[gap], covering[gap], away[gap], calls, active.take(gap, axis=1))
    waits = kinds == int(CallKind.WAITS)
    blocks = calls.kinds > int(CallKind.WAITS)
    if blocks.any():
        # A copy that blocks waits until its own work starts, while the GPU does something else, and takes the host's
        # time else: the host stages the data, and nothing but a smaller copy makes that shorter.
        waits |= (kinds == int(CallKind.COPIES)) & (parts != NUMBERS[Part.COPY]) & (begins < calls.started[active])
    # Between two kernels of a full queue, it is still full.
    full = (long & works) | ((kinds == int(CallKind.QUEUES)) & (parts == NUMBERS[Part.BETWEEN]))
    if calls.holding:
        full &= ~calls.held(begins, active)
    waits |= full
    # The end is apart.
    counts = parts != NUMBERS[Part.END]
    waiting = counts & waits.any(axis=0) & ~((kinds >= 0) & ~waits).any(axis=0)
    submits = (kinds == int(CallKind.SUBMITS)) | (kinds == int(CallKind.QUEUES))
    allocates = free_waits = late_frees = copying = np.zeros(len(begins), dtype=np.bool_)
    if blocks.any():
        late = calls.late[active]
        frees = counts & works & ((kinds == int(CallKind.FREES)) | late)
        free_waits, late_frees = frees.any(axis=0), (frees & late).any(axis=0)
        allocates = counts & ALLOCATES_BY_KIND[kinds].any(axis=0)
        copying = counts & ((kinds == int(CallKind.COPIES)) & ~waits).any(axis=0)
    only_copies = parts == NUMBERS[Part.COPIES]
    beside = only_copies & apart.contain_ascending(begins)
    submitting = submits.any(axis=0) & ~waiting & counts
    overlapping = dict(unions)[Part.COPIES].contain_ascending(begins) & ~only_copies
    of_copies = copying, copying & only_copies, waiting & only_copies, beside, overlapping
    elsewhere = times.elsewhere[0].contain_ascending(begins) & counts
    ordered = parts == NUMBERS[Part.OTHER_GPU]
    if ordered.any():
        returned = np.append(work.returned, _NEVER)[count_until(work.starts, begins)]
        ordered &= (returned >= 0) & (returned <= begins)
    flags = (
        waiting,
        submitting,
        full.any(axis=0) & waiting,
        allocates,
        free_waits,
        late_frees,
        *of_copies,
        elsewhere,
        ordered,
    )
    return Instants(begins, ends, parts, flags)


def sums_of(instants: Instants, origin_ns: int, width_ns: int) -> tuple[int, Int64s]:
    """The time (ns) of each column in bins of ``width_ns`` since ``origin_ns``: the first bin, int64[bins][COLUMNS].

    No span may reach over the border of a bin.
    """
    if not len(instants.begins):
        return 0, np.zeros((0, COLUMNS), dtype=np.int64)
    first, last = ((int(instants.begins[at]) - origin_ns) // width_ns for at in (0, -1))
    lengths, sums = instants.ends - instants.begins, np.zeros((last + 1 - first, COLUMNS), dtype=np.int64)
    borders = instants.begins.searchsorted(origin_ns + width_ns * np.arange(first + 1, last + 1)).tolist()
    flags = [(column, flag) for column, flag in enumerate(instants.flags, WAITING) if flag.any()]
    for row, (begin, end) in zip(sums, pairwise([0, *borders, len(lengths)]), strict=True):
        # Sums in float64 are exact: the times of a bin are far below 2**53 ns.
        row[:_PARTS] = np.bincount(instants.parts[begin:end], lengths[begin:end], _PARTS)
        for column, flag in flags:
            row[column] = lengths[begin:end] @ flag[begin:end]
    return first, sums


def _elementary(
    times: SequenceTimes,
    begin_ns: int,
    end_ns: int,
    calls: _CallTable,
    others: tuple[list[Spans], tuple[Spans, Spans], Int64s],
) -> Spans:
    """Spans between neighbouring times at which the part of an instant, or a flag of it, may change.

    ``others`` are the times in which each kind of work runs, those of two kinds of copies, and further borders. What
    other threads do, and wake-ups, have borders only inside calls that wait or block: elsewhere they change nothing.
    """
    (unions, of_copies, borders), work, limits = others, times.work, times.limits
    working = [union for union in unions if len(union.begins)]
    # Only an operation that ends a gap shows in the gap when it was submitted.
    whole = working[0] if len(working) == 1 else work.union(work.ends > work.starts)
    returned = work.returned
    if len(whole.begins) < len(work):
        returned = returned[np.searchsorted(work.starts, whole.begins)]
    returned = returned[returned > np.append(-1, whole.ends[:-1])[: len(returned)]]
    waiting, copying = (calls.kinds == int(kind) for kind in (CallKind.WAITS, CallKind.COPIES))
    waits = calls.spans(waiting)
    blocking = calls.spans(waiting | copying) if copying.any() else waits
    edges = [borders, returned, *whole, int64s([begin_ns, end_ns, times.last_end.at_ns + limits.wake_up_ns])]
    edges += [side for union in (*(working if len(working) > 1 else ()), *of_copies) for side in union]
    edges += [side for span in (times.recorded, times.away, times.lost, *times.elsewhere) for side in span]
    edges += [side for own in times.threads.values() for side in own.spans]
    edges += [blocking.inside(whole.ends + limits.wake_up_ns), calls.started[copying]]
    edges += [waits.inside(side) for side in times.other_work]
    if calls.holding:
        blocked = calls.spans(calls.long)
        edges += [blocked.inside(side) for spans in calls.holding.values() for side in spans]
    instant = work.starts == work.ends
    if instant.any():
        edges += [work.starts[instant], work.starts[instant] + limits.wake_up_ns, work.returned[instant]]
    every = np.concatenate(edges)
    # A stable sort uses that each part is in order; NumPy's function for unique values does not.
    every.sort(kind="stable")
    every = every[every.searchsorted(begin_ns) : every.searchsorted(end_ns, "right")]
    kept = every[1:] > every[:-1]
    every = every if kept.all() else every.compress(np.append(True, kept))
    return Spans(every[:-1], every[1:])


def _set(parts: NDArray[np.int8], chosen: Flags, part: Part) -> None:
    """Set the chosen instants to a part: by their places, since flags that alternate take several times as long."""
    parts[chosen.nonzero()[0]] = NUMBERS[part]


def _gaps(
    times: SequenceTimes, at: Int64s, covering: Int64s, away: Flags, calls: _CallTable, active: Int64s
) -> NDArray[np.int8]:
    """The parts of instants in which the GPU does not work for the sequence; ``active`` are rows of ``calls``."""
    work, limits, none = times.work, times.limits, len(times.work)
    # The operation with which the gap ends, and the end of the work with which it began.
    following = count_until(work.starts, at)
    starts = np.append(work.starts, _NEVER)[following]
    ends = np.maximum.accumulate(np.concatenate(([times.last_end.at_ns], work.ends)))
    # An operation after a time without records need not be the next one.
    until = times.recorded.ends[covering]
    open_ = (starts > until) | (following == none)
    submitted, threads = np.append(work.returned, -1), np.append(work.threads, -1)
    returned = submitted[following]
    # The call of the thread that submits it, else the call of another thread of the sequence.
    call = active[0]
    if len(active) > 1:
        own = ~open_ & (calls.threads[active] == threads[following])
        call = active[np.argmax((calls.kinds[active] >= 0) * (1 + own), axis=0), np.arange(len(at))]
    parts_of_calls = _PART_OF_KIND[calls.kinds]
    _set(parts_of_calls, calls.long, Part.BLOCKED)
    parts: NDArray[np.int8] = parts_of_calls[call]
    if calls.holding:
        _set(parts, calls.held(at, call), Part.LOCK)
    asking = AWAITS_WORK[calls.kinds]
    asks = np.flatnonzero(asking[call]) if asking.any() else NONE
    if len(asks):
        # The instants in calls that wait.
        rows, at_end, found, open_asks = call[asks], ends[following[asks]], parts[asks], open_[asks]
        waits, begins, returns = calls.kinds[rows] == int(CallKind.WAITS), calls.begins[rows], calls.ends[rows]
        # A wait with nothing to wait for is a call like others.
        _set(found, waits & (begins > at_end) & (returns - begins < limits.blocked_ns), Part.SUBMITTING)
        blocked = waits & (found == NUMBERS[Part.BLOCKED])
        _set(found, blocked & times.other_work.contain_ascending(at[asks]), Part.OTHER_WORK)
        # The call of the next operation waits for that operation, not for work that has ended.
        own = ~open_asks & (threads[following[asks]] == calls.threads[rows]) & (returns == returned[asks])
        woken = (waits | ~own) & (begins <= at_end) & (at[asks] < at_end + limits.wake_up_ns)
        _set(found, woken, Part.WAKE_UP)
        unrecorded = open_asks & ~woken
        _set(found, unrecorded, Part.UNKNOWN)
        # A wait behind a call that submits: its work still ran when recording ended, or runs, and so has no record.
        runs = (calls.kinds[rows - 1] == int(CallKind.SUBMITS)) & (calls.threads[rows - 1] == calls.threads[rows])
        _set(found, unrecorded & runs & (calls.ends[rows - 1] > at_end), Part.KERNELS)
        parts[asks] = found
    queued = ~open_ & (returned >= 0) & (at >= returned)
    _set(parts, queued, Part.QUEUED)
    # What it waits for has just ended: nothing but the GPU's own work is between the two.
    ready = (submitted <= ends - limits.launch_ns) & (np.append(work.before(times.last_end), -1) == ends)
    _set(parts, queued & ready[following], Part.BETWEEN)
    if away.any():
        _set(parts, queued & away & np.append(work.engine, False)[following], Part.SHARED)
    if len(times.elsewhere[1].begins):
        # Whatever the host waits in is a wait for the other GPU.
        turns = _TURNS[parts] & times.elsewhere[1].contain_ascending(at)
        _set(parts, turns, Part.COPIES)
        _set(parts, turns & times.elsewhere[0].contain_ascending(at), Part.OTHER_GPU)
    _set(parts, ~open_ & (returned < 0), Part.UNKNOWN)
    if times.ended:
        _set(parts, (following == none) & (until >= _NEVER), Part.END)
    _set(parts, times.lost.contain_ascending(at), Part.UNKNOWN)
    return parts
