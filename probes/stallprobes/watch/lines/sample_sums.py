"""Sums of the samples of a process by thread, stack, function and what was done, for the time since any second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.watch_file import CallFlag, SampledTime
from stallprobes.records.rows import Rows, rows_at, rows_where
from stallprobes.watch.division.call_kinds import CallKind, kind_of, kinds_of
from stallprobes.watch.division.instants import LIMITS
from stallprobes.watch.division.start_up import MOST_SECONDS, SECOND_NS
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.reading.process import CallBatch, SampleBatch

# In place of a CallKind: the time passed between calls.
BETWEEN = -1
# Different keys of a second, and of the time after the last second in which a steady state may begin; further samples
# are summed up without a stack, and beyond twice as many left out.
_MOST_OF_SECOND, _MOST_KEYS = 1024, 8192
# Threads whose last calls are known, the last ones that made calls.
_MOST_THREADS = 1024


class SampleKey(NamedTuple):
    """What samples have in common: ``kind`` is a CallKind, or BETWEEN; ``stack`` and ``function`` are numbers of the
    file, of which ``stack`` is 0 without one."""

    thread: int
    stack: int
    function: int
    kind: int


class SampleSum(NamedTuple):
    """Samples: their number, the time (ns) that they stand for, and the sum of the squares of these times."""

    samples: int = 0
    ns: int = 0
    squares: float = 0.0

    def plus(self, other: SampleSum) -> SampleSum:
        """Both together."""
        return SampleSum(self.samples + other.samples, self.ns + other.ns, self.squares + other.squares)


NO_SUM = SampleSum()


class SampleSums:
    """The samples of a process that began at ``began_ns``, in the seconds in which its steady state may begin.

    What passes for a thread between its calls while another thread of its sequence makes calls is not the sequence's:
    of such a sample, the part after the last call of the others counts. ``functions`` are the names of functions by
    their numbers; ``samples`` were added, and ``missed`` ones overwritten before they were read.
    """

    def __init__(self, began_ns: int) -> None:
        self.functions: dict[int, str] = {}
        self.samples = self.missed = 0
        self._began_ns = began_ns
        self._seconds: list[dict[SampleKey, SampleSum]] = []
        # Until it is known who is in a sequence with whom.
        self._held: list[tuple[SampleBatch, CallBatch]] = []
        # When the last call of each thread returned.
        self._returned: dict[int, int] = {}

    def add(self, samples: SampleBatch, calls: CallBatch, leader: Callable[[int], int] | None) -> None:
        """Add the samples of a reading, with the calls that finished since the reading before.

        ``leader`` gives the thread by which the sequence of a thread is named; None while that is not known.
        """
        self.functions.update(samples.functions)
        self.samples += len(samples)
        self.missed += samples.missed
        self._held.append((samples, calls))
        if leader is None:
            return
        for batch, made in self._held:
            self._add(batch.rows, made, leader)
        self._held = []

    def since(self, begin_ns: int) -> Mapping[SampleKey, SampleSum]:
        """The sums since a time of the start-up, to the second."""
        first = max(-((self._began_ns - begin_ns) // SECOND_NS), 0)
        found: dict[SampleKey, list[Any]] = {}
        for second in self._seconds[min(first, MOST_SECONDS) :]:
            for key, each in second.items():
                known = found.get(key)
                if known is None:
                    found[key] = list(each)
                else:
                    for place, value in enumerate(each):
                        known[place] += value
        return {key: SampleSum(*values) for key, values in found.items()}

    def _add(self, rows: NDArray[Any], calls: CallBatch, leader: Callable[[int], int]) -> None:
        own = _by_thread(rows_where(calls.rows, (calls.rows["flags"] & int(CallFlag.NESTED)) == 0))
        nothing = calls.rows[:0]
        sequences: dict[int, list[int]] = {}
        for thread in {**self._returned, **own} if len(rows) else ():
            sequences.setdefault(leader(thread), []).append(thread)
        for thread in np.unique(rows["thread"]).tolist():
            mine = rows_where(rows, rows["thread"] == thread)
            inside = mine[mine["sampled"] == int(SampledTime.INSIDE)]
            kinds = self._kinds(inside, own.get(thread, nothing), calls.functions)
            self._sum(inside, kinds, int64s(inside["ns"]), leader)
            between = mine[mine["sampled"] == int(SampledTime.BETWEEN)]
            others = [
                (self._returned.get(other, 0), own.get(other, nothing))
                for other in sequences.get(leader(thread), ())
                if other != thread and len(between)
            ]
            times = _alone(between, others)
            self._sum(between, np.full(len(between), BETWEEN, dtype=np.int64), times, leader)
        self._returned.update({thread: int(made["returned_ns"][-1]) for thread, made in own.items()})
        if len(self._returned) > _MOST_THREADS:
            last = sorted(self._returned, key=lambda thread: self._returned[thread])[-_MOST_THREADS:]
            self._returned = {thread: self._returned[thread] for thread in last}

    def _kinds(self, rows: NDArray[Any], calls: Rows, functions: Mapping[int, str]) -> Int64s:
        """The kind of the call of each sample: by its arguments where the log has it. A short copy did not block."""
        names = (self.functions.get(number, "") for number in rows["api"].tolist())
        kinds = int64s([int(kind_of(name, False)) for name in names])
        places = np.searchsorted(calls["returned_ns"], rows["at_ns"])
        logged = places < len(calls)
        logged[logged] = calls["returned_ns"][places[logged]] == rows["at_ns"][logged]
        kinds[logged] = kinds_of(calls[places[logged]], functions)
        short = int64s(rows["at_ns"]) - int64s(rows["since_ns"]) < LIMITS.blocked_ns
        kinds[(kinds == int(CallKind.COPIES)) & short] = int(CallKind.SUBMITS)
        return kinds

    def _sum(self, rows: NDArray[Any], kinds: Int64s, times: Int64s, leader: Callable[[int], int]) -> None:
        seconds = np.clip((int64s(rows["at_ns"]) - self._began_ns) // SECOND_NS, 0, MOST_SECONDS)
        columns = (rows["thread"], rows["stack"], rows["api"], kinds, times, seconds)
        for *found, ns, second in zip(*(column.tolist() for column in columns), strict=True):
            if not ns:
                continue
            while len(self._seconds) <= second:
                self._seconds.append({})
            sums = self._seconds[second]
            most = _MOST_KEYS if second == MOST_SECONDS else _MOST_OF_SECOND
            key = SampleKey(*found)
            if key not in sums and len(sums) >= most:
                key = key._replace(thread=leader(key.thread), stack=0)
            if key in sums or len(sums) < 2 * most:
                sums[key] = sums.get(key, NO_SUM).plus(SampleSum(1, ns, float(ns) ** 2))


def _by_thread(calls: Rows) -> dict[int, Rows]:
    """The calls of each thread, in their order."""
    threads = np.ascontiguousarray(calls["thread"])
    order = np.argsort(threads, kind="stable")
    borders = np.flatnonzero(np.diff(threads[order])) + 1
    parts = np.split(order, borders) if len(order) else []
    return {int(threads[part[0]]): rows_at(calls, part) for part in parts}


def _alone(rows: NDArray[Any], others: list[tuple[int, Rows]]) -> Int64s:
    """The part of the time (ns) of each sample between calls that follows the last call of ``others``.

    Each of these has when its last call before ``calls`` returned, and its calls.
    """
    since, at = int64s(rows["since_ns"]), int64s(rows["at_ns"])
    first = since.copy()
    for before_ns, calls in others:
        returned = np.concatenate(([before_ns], int64s(calls["returned_ns"])))
        first = np.maximum(first, returned[np.maximum(np.searchsorted(returned, at, "right") - 1, 0)])
    left, whole = np.clip(at - first, 0, None), np.maximum(at - since, 1)
    return int64s(int64s(rows["ns"]) * (left / whole))
