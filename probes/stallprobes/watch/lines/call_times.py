"""Time of the threads by the log of calls, exactly, by thread and function: to which thread each instant of a sequence
belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from types import MappingProxyType

import numpy as np

from stallprobes.records.rows import Rows
from stallprobes.watch.division.call_columns import AWAITS_OR_FREES
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.instants import NO_SPANS, Calls, CoveredTime, Flags, Spans
from stallprobes.watch.intervals import FOREVER, NONE, Int64s, int64s, numbered
from stallprobes.watch.lines.logged_calls import NO_READING, Reading
from stallprobes.watch.lines.second_sums import KeyedTimes, Owner

# Number in place of a CallKind for the time between calls.
BETWEEN = -1
# If a thread is off the CPU for more than this share of the time between calls, the thread counts as asleep. The time
# off the CPU is then assigned to threads of the same sequence that worked meanwhile.
_MOST_ASLEEP = 0.5
# No calls in flight: an empty map from threads to the begins (ns) of their calls.
NOTHING_IN_FLIGHT: Mapping[int, int] = MappingProxyType({})
# Largest number of threads for which the end of the last call is kept: the threads whose last call ended latest. The
# same limit holds for the threads whose last sample of CPU time is kept.
_MOST_THREADS = 1024


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
        self._reading = NO_READING
        # By leader: the calls of its threads, in the order of their begins.
        self._calls: dict[int, Calls] = {}
        # By leader: the times in which a thread is in a call, and inside one that does not wait.
        self._active: dict[int, Spans] = {}
        self._working: dict[int, CoveredTime] = {}
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

    def read(self, reading: Reading, divider: ProcessDivider) -> None:
        """Take the calls of the next reading."""
        self._leader = leader = divider.leader
        self._reading, calls = reading, reading.calls
        self._note_clocks(reading.samples)
        threads = {**self._returned, **reading.in_flight, **reading.places}
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
            self._ends[first] = max((before.get(first, 0), divider.last_end_ns(first), *worked))
            if self._ends[first] > max(self._read_ns, before.get(first, 0)):
                self.resumed.append(first)
        self._before_ns = self._read_ns
        self._returned.update({thread: int(calls.ends[places[-1]]) for thread, places in reading.places.items()})
        self._read_ns = max((self._read_ns, *self._returned.values()))
        if len(self._returned) > _MOST_THREADS:
            last = sorted(self._returned, key=lambda thread: self._returned[thread])[-_MOST_THREADS:]
            self._returned = {thread: self._returned[thread] for thread in last}
            self._worked = {thread: self._worked[thread] for thread in last if thread in self._worked}

    def _note_clocks(self, samples: Mapping[int, Rows]) -> None:
        """Note the part of the time that each thread was on a CPU between its last samples of two readings."""
        self._on_cpu = {}
        for thread, mine in samples.items():
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
        """Time at which the last of all calls returned."""
        return self._read_ns

    def worked_ns(self, thread: int) -> int:
        """Known end of the work of a thread's sequence."""
        return self._ends.get(self._leader(thread), 0)

    def _sequence(self, leader: int, members: list[int], reading: Reading) -> None:
        before = int64s([self._returned[thread] for thread in members if thread in self._returned])
        open_ = int64s([reading.in_flight[thread] for thread in members if thread in reading.in_flight])
        calls = reading.calls.at(np.concatenate([NONE, *(reading.places_of(thread) for thread in members)]))
        if (calls.begins[1:] < calls.begins[:-1]).any():
            calls = calls.at(np.argsort(calls.begins, kind="stable"))
        self._calls[leader], begins, ends = calls, calls.begins, calls.ends
        self._last[leader] = int(before.max(initial=0)) or int(begins.min(initial=FOREVER))
        # In order, or nearly.
        self._active[leader] = Spans.united(
            np.concatenate([before - 1, begins, open_]), np.concatenate([before, ends, np.full_like(open_, FOREVER)])
        )
        for thread in members:
            own = reading.places_of(thread)
            end = int(reading.calls.ends[own[reading.ending[own]]].max(initial=0))
            self._worked[thread] = max(self._worked.get(thread, 0), end)
        if len(members) > 1:
            works = ~AWAITS_OR_FREES[calls.kinds]
            self._working[leader] = CoveredTime(Spans.united(begins[works], ends[works]))

    def times(self) -> Iterator[tuple[list[Owner], KeyedTimes]]:
        """The times of the threads of each sequence inside their calls and before them, with no stack."""
        for leader, calls in self._calls.items():
            begins, ends, kinds = calls.begins, calls.ends, calls.kinds
            inside, (members, numbers) = calls.lengths, numbered(calls.threads)
            if leader in self._working:
                waits = AWAITS_OR_FREES[kinds]
                works = self._working[leader]
                inside[waits] -= works.during(begins[waits], ends[waits])
            last = np.maximum.accumulate(np.append(self._last[leader], ends))[:-1]
            last = np.maximum(last, self._followed_since(begins))
            gaps = np.where(self._is_first(leader, begins), np.maximum(begins - last, 0), 0)
            gaps = self._of_those_who_work(calls, members.tolist(), inside, gaps)
            yield (
                [self.owner(thread) for thread in members.tolist()],
                KeyedTimes(
                    owners=np.tile(numbers, 2),
                    stacks=np.zeros(2 * len(kinds), dtype=np.int64),
                    functions=np.tile(calls.functions, 2),
                    kinds=np.concatenate((kinds, np.full(len(kinds), BETWEEN, dtype=np.int64))),
                    times=np.concatenate((inside, gaps)),
                    ends=np.concatenate((ends, begins)),
                ),
            )

    def _followed_since(self, times: Int64s) -> Int64s:
        """Since when all calls are followed at each time; 0 for always."""
        spans = self._reading.unfollowed
        return np.append(0, spans.ends)[np.searchsorted(spans.begins, times, "right")]

    def _of_those_who_work(self, calls: Calls, members: list[int], inside: Int64s, gaps: Int64s) -> Int64s:
        """Times before calls; those of threads that slept go to the threads that worked meanwhile: between their own
        calls, however many calls of others came in between."""
        if len(members) < 2:
            return gaps
        places_of = {thread: np.flatnonzero(calls.threads == thread) for thread in members}
        owned = {thread: int(gaps[places].sum()) for thread, places in places_of.items()}
        slept: dict[int, float] = {}
        worked: dict[int, float] = {}
        for thread, own_ns in owned.items():
            if thread in self._on_cpu and own_ns:
                on_cpu = self._on_cpu[thread] * (self._read_ns - self._before_ns)
                # The thread may have spent all of its CPU time in its calls.
                if own_ns - on_cpu > _MOST_ASLEEP * own_ns:
                    slept[thread] = own_ns - on_cpu
                worked[thread] = max(on_cpu - own_ns - int(inside[places_of[thread]].sum()), 0.0)
        moved = min(sum(slept.values()), sum(worked.values()))
        times = gaps.astype(np.float64)
        for thread in owned if moved else ():
            added = moved * (
                worked.get(thread, 0.0) / sum(worked.values()) - slept.get(thread, 0.0) / sum(slept.values())
            )
            places = places_of[thread]
            between = np.zeros(len(places))
            between[1:] = np.maximum(calls.begins[places[1:]] - calls.ends[places[:-1]], 0)
            if added > 0 and between.any():
                times[places] += added * between / between.sum()
            elif owned[thread]:
                times[places] *= 1 + added / owned[thread]
        return int64s(times)

    def _is_first(self, leader: int, begins: Int64s) -> Flags:
        """Flags of the times before which no call of the sequence had begun that is still open."""
        spans = self._active[leader]
        open_ = spans.begins[spans.ends >= FOREVER]
        return np.asarray(begins <= (int(open_[0]) if len(open_) else FOREVER), dtype=np.bool_)

    def owner(self, thread: int) -> Owner:
        """Owner of the times of a thread."""
        return Owner(self._leader(thread), self.worked_ns(thread), thread)

    def logged(self, thread: int, at: Int64s) -> tuple[Flags, Int64s]:
        """Flags of the times that are ends of outermost calls of a thread in the reading, and the kinds of these
        calls."""
        places, calls = self._reading.places_of(thread), self._reading.calls
        if not len(places):
            return np.zeros(len(at), dtype=np.bool_), NONE
        ends = calls.ends[places]
        at_end = np.searchsorted(ends, at)
        logged = at_end < len(ends)
        logged[logged] = ends[at_end[logged]] == at[logged]
        return logged, calls.kinds[places[at_end[logged]]]

    def polled(self, thread: int, at: Int64s) -> tuple[Flags, Int64s]:
        """Flags of the times at which a thread asks again and again whether work has ended, and the places of these
        waits among the calls of the reading."""
        places, calls = self._reading.places_of(thread), self._reading.calls
        places = places[self._reading.polls[places]]
        if not len(places):
            return np.zeros(len(at), dtype=np.bool_), NONE
        last = places[np.maximum(np.searchsorted(calls.begins[places], at, "left") - 1, 0)]
        inside = (calls.begins[last] < at) & (at <= calls.ends[last])
        return inside, last[inside]

    def alone(self, thread: int, since: Int64s, at: Int64s, times: Int64s) -> Int64s:
        """The part of ``times`` (ns), samples between calls, that follows the last call of the thread's sequence.

        A call of another thread that lasts until the end of the sample leaves nothing.
        """
        others = self._active.get(self._leader(thread), NO_SPANS)
        places = np.searchsorted(others.begins, at, "left")
        # 0 without one.
        last = np.where(places > 0, others.ends[places - 1], 0) if len(others.ends) else np.zeros(len(at), np.int64)
        left, whole = np.clip(at - np.maximum(since, last), 0, None), np.maximum(at - since, 1)
        return int64s(times * (left / whole))

    def without_others(self, thread: int, since: Int64s, at: Int64s, times: Int64s) -> Int64s:
        """Part of ``times`` (ns), samples inside waits, in which no other thread works inside a call.

        The part of a call that began before the reading stands for all of the call.
        """
        working = self._working.get(self._leader(thread))
        if working is None:
            return times
        since = np.minimum(np.maximum(since, self._before_ns), at)
        return int64s(times * (1 - working.during(since, at) / np.maximum(at - since, 1)))
