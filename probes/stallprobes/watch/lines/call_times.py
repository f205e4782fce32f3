"""Time of the threads by the log of calls: whose each instant of a sequence is, exactly, by thread and function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import CallFamily, family_of
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import Rows
from stallprobes.watch.division.call_kinds import CallKind, kinds_of
from stallprobes.watch.division.instants import LIMITS, NO_SPANS, Flags, Spans
from stallprobes.watch.division.recorded_times import FOREVER
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.lines.second_sums import KeyedTimes
from stallprobes.watch.reading.process import CallBatch

# In place of a CallKind: the time passed between calls.
BETWEEN = -1
WAITING = (int(CallKind.WAITS), int(CallKind.COPIES), int(CallKind.FREES))
_SUBMITTING = (CallFamily.LAUNCH, CallFamily.COPY, CallFamily.FILL)
# A thread has slept if it was off the CPU for more of its time.
_MOST_ASLEEP = 0.5
NOTHING_IN_FLIGHT: Mapping[int, int] = MappingProxyType({})
# Threads whose last calls are known, the last ones that made calls.
_MOST_THREADS = 1024


class Sequences(Protocol):
    """Who is in a sequence with whom."""

    def leader(self, thread: int) -> int:
        """The thread by which the sequence of a thread is named."""

    def knows(self, thread: int, until_ns: int) -> bool:
        """Whether the sequence of a thread is known that made calls until ``until_ns``."""

    def last_end_ns(self, leader: int) -> int:
        """The latest end of work on the GPU of a sequence that is known; 0 without any."""


@dataclass(frozen=True, eq=False)
class Reading:
    """The samples (TimeSample) and calls of a reading, and when calls began that have not returned, by thread."""

    rows: NDArray[Any]
    calls: CallBatch
    in_flight: Mapping[int, int]

    @property
    def outermost(self) -> Rows:
        """The calls that no other call of their thread contains."""
        rows: Rows = self.calls.rows[(self.calls.rows["flags"] & int(CallFlag.NESTED)) == 0]
        return rows

    @property
    def until_ns(self) -> int:
        """When the last call of the reading returned, or the last sample was taken."""
        return max(int(self.rows["at_ns"].max(initial=0)), int(self.calls.rows["returned_ns"].max(initial=0)))

    @property
    def thread_ids(self) -> list[int]:
        """The threads with samples or calls."""
        threads: list[int] = np.union1d(self.rows["thread"], self.calls.rows["thread"]).tolist()
        return threads


class _Calls(NamedTuple):
    """The outermost calls of the threads of a sequence, in the order of their begins."""

    threads: Int64s
    functions: Int64s
    kinds: Int64s
    spans: Spans


class CallLog:
    """The calls of a process that began at ``began_ns``, reading after reading.

    An instant at which no thread of a sequence is in a call belongs to the thread that makes the next call. An instant
    inside a wait does not count while another thread of the sequence is inside a call that does not wait.

    A thread that is woken for its next call, as of a library's pool, sleeps in that time, and the one that wakes it
    works: where a thread was off the CPU for most of what would be its own, as much goes to others of the sequence as
    they spent on a CPU beyond what they have.

    The work of a sequence ends with its last operation on the GPU, by its record and by the last call that submitted
    one or waited for one. ``ended`` are the sequences that had work, ``resumed`` those that have more in the reading.
    """

    def __init__(self, began_ns: int) -> None:
        # When the last call of each thread returned, and the last one of the readings before this one.
        self._returned: dict[int, int] = {}
        self._before_ns = self._read_ns = began_ns
        self._leader: Callable[[int], int] = int
        self._own: dict[int, Rows] = {}
        self._calls: dict[int, _Calls] = {}
        # By leader: the times in which a thread is in a call, and inside one that does not wait.
        self._active: dict[int, Spans] = {}
        self._working: dict[int, Spans] = {}
        self._last: dict[int, int] = {}
        # When the last call returned with which the work of each thread may have ended, and that of each sequence.
        self._worked: dict[int, int] = {}
        # When the last sample of each thread was taken, and its time on a CPU then; and its part on a CPU until then.
        self._clocks: dict[int, tuple[int, int]] = {}
        self._on_cpu: dict[int, float] = {}
        self._ends: dict[int, int] = {}
        self.resumed: list[int] = []

    @property
    def ended(self) -> Set[int]:
        """The sequences whose work has ended, unless more follows."""
        return {leader for leader, end_ns in self._ends.items() if end_ns}

    def read(self, reading: Reading, sequences: Sequences) -> None:
        """Take the calls of the next reading."""
        self._leader = leader = sequences.leader
        self._own = _by_thread(reading.outermost)
        self._note_clocks(reading.rows)
        threads = {**self._returned, **reading.in_flight, **self._own}
        groups: dict[int, list[int]] = {}
        for thread in threads:
            groups.setdefault(leader(thread), []).append(thread)
        self._last, self._calls, self._active, self._working = {}, {}, {}, {}
        before, self._ends, self.resumed = self._ends, {}, []
        active = {leader(thread) for thread in reading.thread_ids}
        for first, members in groups.items():
            if first not in active:
                self._ends[first] = before.get(first, 0)
                continue
            self._sequence(first, members, reading)
            worked = (self._worked.get(thread, 0) for thread in members)
            self._ends[first] = max((before.get(first, 0), sequences.last_end_ns(first), *worked))
            if self._ends[first] > max(self._read_ns, before.get(first, 0)):
                self.resumed.append(first)
        self._before_ns = self._read_ns
        self._returned.update({thread: int(made["returned_ns"][-1]) for thread, made in self._own.items()})
        self._read_ns = max((self._read_ns, *self._returned.values()))
        if len(self._returned) > _MOST_THREADS:
            last = sorted(self._returned, key=lambda thread: self._returned[thread])[-_MOST_THREADS:]
            self._returned = {thread: self._returned[thread] for thread in last}
            self._worked = {thread: self._worked[thread] for thread in last if thread in self._worked}

    def _note_clocks(self, rows: NDArray[Any]) -> None:
        """Note the part of the time that each thread was on a CPU between its last samples of two readings."""
        self._on_cpu = {}
        for thread in np.unique(rows["thread"]).tolist():
            mine = rows[rows["thread"] == thread]
            times = [(int(mine["at_ns"][place]), int(mine["cpu_ns"][place])) for place in (0, -1)]
            (begin, before), (end, after) = self._clocks.get(thread, times[0]), times[1]
            if end > begin:
                self._on_cpu[thread] = min(max((after - before) / (end - begin), 0.0), 1.0)
            self._clocks[thread] = times[1]
        if len(self._clocks) > _MOST_THREADS:
            last = sorted(self._clocks, key=lambda thread: self._clocks[thread])[-_MOST_THREADS:]
            self._clocks = {thread: self._clocks[thread] for thread in last}

    @property
    def until_ns(self) -> int:
        """When the last call of all returned."""
        return self._read_ns

    def worked_ns(self, thread: int) -> int:
        """When the work of a thread's sequence ended, as far as it is known."""
        return self._ends.get(self._leader(thread), 0)

    def _sequence(self, leader: int, members: list[int], reading: Reading) -> None:
        made = [self._own[thread] for thread in members if thread in self._own]
        before = int64s([self._returned[thread] for thread in members if thread in self._returned])
        open_ = int64s([reading.in_flight[thread] for thread in members if thread in reading.in_flight])
        rows = np.concatenate([reading.calls.rows[:0], *made])
        rows = rows[np.argsort(rows["began_ns"], kind="stable")]
        begins, ends, kinds = int64s(rows["began_ns"]), int64s(rows["returned_ns"]), logged_kinds(rows, reading.calls)
        self._calls[leader] = _Calls(int64s(rows["thread"]), int64s(rows["function"]), kinds, Spans(begins, ends))
        self._last[leader] = int(before.max(initial=0)) or int(begins.min(initial=FOREVER))
        self._active[leader] = Spans.united(
            np.concatenate([before - 1, open_, begins]), np.concatenate([before, np.full_like(open_, FOREVER), ends])
        )
        works = ~np.isin(kinds, WAITING)
        ending = np.isin(rows["function"], _submitting(reading.calls.functions))
        ending |= np.isin(kinds, (int(CallKind.WAITS), int(CallKind.COPIES))) & (ends - begins >= LIMITS.blocked_ns)
        for thread in members:
            end = int(ends[ending & (rows["thread"] == thread)].max(initial=0)) if thread in self._own else 0
            self._worked[thread] = max(self._worked.get(thread, 0), end)
        several = len(members) > 1
        self._working[leader] = Spans.united(begins[works], ends[works]) if several else NO_SPANS

    def own(self, thread: int, nothing: Rows) -> Rows:
        """The outermost calls of a thread in the reading, in the order of their ends; ``nothing`` without any."""
        return self._own.get(thread, nothing)

    def times(self) -> Iterator[tuple[int, KeyedTimes]]:
        """The times of each thread inside its calls and before them, with the function of each, and no stack."""
        for leader, calls in self._calls.items():
            (begins, ends), kinds = calls.spans, calls.kinds
            inside = ends - begins
            waits = np.isin(kinds, WAITING)
            inside[waits] -= self._covered(leader, begins[waits], ends[waits])
            last = np.maximum.accumulate(np.append(self._last[leader], ends))[:-1]
            gaps = np.where(self._is_first(leader, begins), np.maximum(begins - last, 0), 0)
            gaps = self._of_those_who_work(calls.threads, inside, gaps)
            for thread in np.unique(calls.threads).tolist():
                mine = calls.threads == thread
                count = int(mine.sum())
                yield (
                    thread,
                    KeyedTimes(
                        stacks=np.zeros(2 * count, dtype=np.int64),
                        functions=np.tile(calls.functions[mine], 2),
                        kinds=np.concatenate((kinds[mine], np.full(count, BETWEEN, dtype=np.int64))),
                        times=np.concatenate((inside[mine], gaps[mine])),
                        ends=np.concatenate((ends[mine], begins[mine])),
                    ),
                )

    def _of_those_who_work(self, threads: Int64s, inside: Int64s, gaps: Int64s) -> Int64s:
        """The times before calls, of which those of threads that slept are others' that worked meanwhile."""
        owned = {thread: int(gaps[threads == thread].sum()) for thread in np.unique(threads).tolist()}
        if len(owned) < 2:
            return gaps
        slept: dict[int, float] = {}
        worked: dict[int, float] = {}
        for thread, own_ns in owned.items():
            if thread in self._on_cpu and own_ns:
                on_cpu = self._on_cpu[thread] * (self._read_ns - self._before_ns)
                # It may have spent all of it in its calls.
                if own_ns - on_cpu > _MOST_ASLEEP * own_ns:
                    slept[thread] = own_ns - on_cpu
                worked[thread] = max(on_cpu - own_ns - int(inside[threads == thread].sum()), 0.0)
        moved = min(sum(slept.values()), sum(worked.values()))
        factors = np.ones(len(gaps))
        for thread in owned if moved else ():
            more = moved * (
                worked.get(thread, 0.0) / sum(worked.values()) - slept.get(thread, 0.0) / sum(slept.values())
            )
            factors[threads == thread] = 1 + more / owned[thread] if owned[thread] else 1.0
        return int64s(gaps * factors)

    def _is_first(self, leader: int, begins: Int64s) -> Flags:
        """Whether no call of the sequence that is still open began before each time."""
        spans = self._active[leader]
        open_ = spans.begins[spans.ends >= FOREVER]
        return np.asarray(begins <= (int(open_[0]) if len(open_) else FOREVER), dtype=np.bool_)

    def alone(self, thread: int, rows: NDArray[Any]) -> Int64s:
        """The part of the time (ns) of each sample between calls that follows the last call of the thread's sequence.

        A call of another thread that lasts until the end of the sample leaves nothing.
        """
        others = self._active.get(self._leader(thread), NO_SPANS)
        since, at = int64s(rows["since_ns"]), int64s(rows["at_ns"])
        # 0 without one.
        last = np.append(others.ends, 0)[np.searchsorted(others.begins, at, "left") - 1]
        left, whole = np.clip(at - np.maximum(since, last), 0, None), np.maximum(at - since, 1)
        return int64s(int64s(rows["ns"]) * (left / whole))

    def without_others(self, thread: int, rows: NDArray[Any], times: Int64s) -> Int64s:
        """The part of ``times`` (ns) of each sample inside a wait in which no other thread works inside a call.

        Of a call that began before the reading, what is in it stands for all of it.
        """
        at = int64s(rows["at_ns"])
        since = np.minimum(np.maximum(int64s(rows["since_ns"]), self._before_ns), at)
        covered = self._covered(self._leader(thread), since, at)
        return int64s(times * (1 - covered / np.maximum(at - since, 1)))

    def _covered(self, leader: int, begins: Int64s, ends: Int64s) -> Int64s:
        working = self._working.get(leader, NO_SPANS)
        return working.before(ends) - working.before(begins)


def logged_kinds(rows: Rows, calls: CallBatch) -> Int64s:
    """The kind of each of some ``calls``. A short copy from pageable memory did not block: it was staged.

    One to pageable memory returns only when it is done.
    """
    kinds = kinds_of(rows, calls.functions)
    staged = rows["target"] != int(MemoryKind.PAGEABLE)
    staged &= rows["returned_ns"] - rows["began_ns"] < LIMITS.blocked_ns
    kinds[(kinds == int(CallKind.COPIES)) & staged] = int(CallKind.SUBMITS)
    return kinds


def _submitting(functions: Mapping[int, str]) -> list[int]:
    """The numbers of functions that submit work to the GPU."""
    return [number for number, name in functions.items() if family_of(name) in _SUBMITTING]


def _by_thread(calls: Rows) -> dict[int, Rows]:
    """The calls of each thread, in their order."""
    threads = np.ascontiguousarray(calls["thread"])
    order = np.argsort(threads, kind="stable")
    borders = np.flatnonzero(np.diff(threads[order])) + 1
    parts = np.split(order, borders) if len(order) else []
    return {int(threads[part[0]]): calls[part] for part in parts}
