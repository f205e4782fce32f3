"""Sums of the samples of a process by thread, stack, function and what was done, for the time since any second."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.watch_file import SampledTime
from stallprobes.records.rows import Rows
from stallprobes.watch.division.call_kinds import CallKind, kind_of
from stallprobes.watch.division.instants import LIMITS
from stallprobes.watch.division.start_up import SECOND_NS
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.lines.call_times import (
    BETWEEN,
    NOTHING_IN_FLIGHT,
    WAITING,
    CallLog,
    Reading,
    Sequences,
    logged_kinds,
)
from stallprobes.watch.lines.held_calls import HeldCalls, HeldSum, HeldUp
from stallprobes.watch.lines.second_sums import KeyedTimes, SampleKey, SampleSum, SecondSums
from stallprobes.watch.reading.process import CallBatch, SampleBatch

# No sample stands for more.
_MOST_NS = 2.0**55


class SampleSums:
    """The samples of a process that began at ``began_ns``, in the seconds in which its steady state may begin.

    The log of calls says how long each thread was inside calls of each function and before them, and the samples at
    which places: that some points of a thread's time get a sample less often than others then moves no time from one
    thread or function to another. ``functions`` are the names of functions by their numbers; ``samples`` were added,
    and ``missed`` ones overwritten before they were read.
    """

    def __init__(self, began_ns: int) -> None:
        self.functions: dict[int, str] = {}
        self.samples = self.missed = 0
        self._sums, self._times = SecondSums(began_ns), SecondSums(began_ns)
        # Thousandths of waits in place of times: by their own samples, and by those of their time.
        self._counted, self._estimated = SecondSums(began_ns), SecondSums(began_ns)
        # Until it is known who is in a sequence with whom.
        self._held: deque[Reading] = deque()
        self._log = CallLog(began_ns)
        self._held_calls = HeldCalls(began_ns)

    def add(
        self,
        samples: SampleBatch,
        calls: CallBatch,
        sequences: Sequences,
        in_flight: Mapping[int, int] = NOTHING_IN_FLIGHT,
    ) -> None:
        """Add the samples of a reading, with the calls that finished since the reading before.

        ``in_flight`` is when calls began that have not returned, by thread.
        """
        self.functions.update(samples.functions)
        self.functions.update(calls.functions)
        self.samples += len(samples)
        self.missed += samples.missed
        self._held.append(Reading(samples.rows, calls, in_flight))
        while self._held and all(sequences.knows(one, self._held[0].until_ns) for one in self._held[0].thread_ids):
            self._add(self._held.popleft(), sequences)

    def since(self, begin_ns: int, ended: bool = False) -> Mapping[SampleKey, SampleSum]:
        """The sums since a time of the start-up, to the second; if the run has ``ended``, until the last work of each
        sequence."""
        apart = self._log.ended if ended else frozenset()
        found, times = self._sums.since(begin_ns, apart), self._times.since(begin_ns, apart)
        sampled: Counter[SampleKey] = Counter()
        for key, one in found.items():
            sampled[key.without_stack] += one.ns
        # Of each thread, what the log has, and what of it is of functions with samples.
        logged: Counter[int] = Counter()
        placed: Counter[int] = Counter()
        for key, one in times.items():
            logged[key.thread] += one.ns
            placed[key.thread] += one.ns if sampled[key] else 0
        factors = {
            key: times[key].ns / ns * (logged[key.thread] / placed[key.thread])
            for key, ns in sampled.items()
            if ns and key in times
        }
        return {key: one.times(factors.get(key.without_stack, 1.0)) for key, one in found.items()}

    def waits_since(self, begin_ns: int, ended: bool = False) -> Mapping[SampleKey, float]:
        """The number of waits of each key since a time, as ``since``; without a stack those that have no sample.

        Their number is that of the log. Where they were made is by the waits that were sampled, or else by the samples
        of their time: the shorter a sampled wait, the more of them it stands for.
        """
        apart = self._log.ended if ended else frozenset()
        counted, estimated = self._counted.since(begin_ns, apart), self._estimated.since(begin_ns, apart)
        made = {key: one for key, one in self._times.since(begin_ns, apart).items() if key.kind in WAITING}
        places: dict[SampleKey, dict[SampleKey, int]] = {}
        for sums in (estimated, counted):
            of: dict[SampleKey, dict[SampleKey, int]] = {}
            for key, one in sums.items():
                of.setdefault(key.without_stack, {})[key] = one.ns
            places.update(of)
        found: dict[SampleKey, float] = {}
        for key, one in made.items():
            parts = places.get(key, {key: 1})
            found.update({each: one.samples * part / sum(parts.values()) for each, part in parts.items()})
        return found

    def held_since(self, begin_ns: int) -> Mapping[HeldUp, HeldSum]:
        """The calls since a time that calls of other threads held up."""
        return self._held_calls.since(begin_ns)

    def seconds_since(self, begin_ns: int) -> float:
        """The seconds from a time to the last call."""
        return max((self._log.until_ns - begin_ns) / SECOND_NS, 0.0)

    def _add(self, reading: Reading, sequences: Sequences) -> None:
        rows, calls = reading.rows, reading.calls
        self._log.read(reading, sequences)
        self._held_calls.add(reading.outermost, calls)
        every = (self._sums, self._times, self._counted, self._estimated)
        for leader in self._log.resumed:
            for sums in every:
                sums.settle(leader)
        for thread, made in self._log.times():
            self._times.add(sequences.leader(thread), self._log.worked_ns(thread), thread, made)
        for thread in np.unique(rows["thread"]).tolist():
            mine = rows[rows["thread"] == thread]
            of = sequences.leader(thread), self._log.worked_ns(thread), thread
            between = mine[mine["sampled"] == int(SampledTime.BETWEEN)]
            kinds = np.full(len(between), BETWEEN, dtype=np.int64)
            self._sums.add(*of, _keyed(between, kinds, self._log.alone(thread, between)))
            inside = mine[mine["sampled"] != int(SampledTime.BETWEEN)]
            kinds = self._kinds(inside, self._log.own(thread, calls.rows[:0]), calls)
            counted = inside["sampled"] == int(SampledTime.WAITS)
            kept = ~counted | np.isin(kinds, WAITING)
            inside, kinds, counted = inside[kept], kinds[kept], counted[kept]
            lengths = np.maximum(int64s(inside["at_ns"]) - int64s(inside["since_ns"]), 1)
            # Waits stand for their number of times as long as the one that was sampled.
            whole = np.where(counted, np.minimum(inside["ns"] * lengths.astype(np.float64), _MOST_NS), inside["ns"])
            times, waits = int64s(whole), np.isin(kinds, WAITING)
            times[waits] = self._log.without_others(thread, inside[waits], times[waits])
            self._sums.add(*of, _keyed(inside, kinds, times))
            numbers = np.minimum(1000 * inside["ns"] / np.where(counted, 1.0, lengths), _MOST_NS)
            for sums, chosen in ((self._counted, counted), (self._estimated, waits & ~counted)):
                sums.add(*of, _keyed(inside[chosen], kinds[chosen], int64s(numbers[chosen])))

    def _kinds(self, rows: NDArray[Any], own: Rows, calls: CallBatch) -> Int64s:
        """The kind of the call of each sample: by its arguments where the log has it, among its thread's ``own``."""
        names = (self.functions.get(number, "") for number in rows["api"].tolist())
        kinds = int64s([int(kind_of(name, False)) for name in names])
        places = np.searchsorted(own["returned_ns"], rows["at_ns"])
        logged = places < len(own)
        logged[logged] = own["returned_ns"][places[logged]] == rows["at_ns"][logged]
        short = int64s(rows["at_ns"]) - int64s(rows["since_ns"]) < LIMITS.blocked_ns
        kinds[(kinds == int(CallKind.COPIES)) & short] = int(CallKind.SUBMITS)
        kinds[logged] = logged_kinds(own[places[logged]], calls)
        return kinds


def _keyed(rows: NDArray[Any], kinds: Int64s, times: Int64s) -> KeyedTimes:
    """Samples with their kinds and times (ns)."""
    return KeyedTimes(int64s(rows["stack"]), int64s(rows["api"]), kinds, times, int64s(rows["at_ns"]))
