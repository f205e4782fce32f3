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
from stallprobes.watch.lines.second_sums import KeyedTimes, SampleKey, SampleSum, SecondSums
from stallprobes.watch.reading.process import CallBatch, SampleBatch


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
        # Until it is known who is in a sequence with whom.
        self._held: deque[Reading] = deque()
        self._log = CallLog(began_ns)

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
        while self._held and all(sequences.knows(one, self._held[0].until_ns) for one in self._held[0].threads):
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

    def _add(self, reading: Reading, sequences: Sequences) -> None:
        rows, calls = reading.rows, reading.calls
        self._log.read(reading, sequences)
        for leader in self._log.resumed:
            self._sums.settle(leader)
            self._times.settle(leader)
        for thread, made in self._log.times():
            self._times.add(sequences.leader(thread), self._log.worked_ns(thread), thread, made)
        for thread in np.unique(rows["thread"]).tolist():
            mine = rows[rows["thread"] == thread]
            inside = mine[mine["sampled"] == int(SampledTime.INSIDE)]
            kinds = self._kinds(inside, self._log.own(thread, calls.rows[:0]), calls)
            times = int64s(inside["ns"]).copy()
            waits = np.isin(kinds, WAITING)
            times[waits] = self._log.without_others(thread, inside[waits])
            between = mine[mine["sampled"] == int(SampledTime.BETWEEN)]
            kinds = np.append(kinds, np.full(len(between), BETWEEN, dtype=np.int64))
            times = np.append(times, self._log.alone(thread, between))
            every = np.concatenate((inside, between))
            made = KeyedTimes(int64s(every["stack"]), int64s(every["api"]), kinds, times, int64s(every["at_ns"]))
            self._sums.add(sequences.leader(thread), self._log.worked_ns(thread), thread, made)

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
