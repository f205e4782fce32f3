"""Sums of a process's time by thread, stack, function and what was done, in the periods with which a steady state may
begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.watch.division.start_up import FIRST_SECONDS, SECOND_NS, period_of
from stallprobes.watch.intervals import Int64s, coded, int64s, numbered

# Largest number of keys (thread, stack, function and kind of call) with sums in each second of a program's first
# minute. From this number on, samples with new keys are added without their stack. From twice this number on, samples
# that would need a new key are dropped.
_MOST_OF_SECOND = 1024
# Largest number of keys with sums in each period after the first minute. The effects are the same as for
# _MOST_OF_SECOND.
_MOST_KEYS = 8192
# Largest number of sequences (threads that call by turns) whose tail has sums of its own. The tail is the time after a
# sequence's last work. With more tails, the oldest tails are added to the sums of all other time.
_MOST_TAILS = 256
# Base of the digit for the kind of call in a number that combines fields of a sample for sorting. The base is larger
# than the number of kinds (CallKind), since the digit also stands for the time between calls (BETWEEN).
_KIND_BASE = 16


class SampleKey(NamedTuple):
    """What samples have in common: ``kind`` is a CallKind, or BETWEEN; ``stack`` and ``function`` are numbers of the
    file, of which ``stack`` is 0 without one."""

    thread: int
    stack: int
    function: int
    kind: int

    @property
    def without_stack(self) -> SampleKey:
        """The key of all stacks together."""
        return self._replace(stack=0)


class SampleSum(NamedTuple):
    """Samples: their number, the time (ns) that they stand for, and the sum of the squares of these times."""

    samples: int = 0
    ns: int = 0
    squares: float = 0.0

    def plus(self, other: SampleSum) -> SampleSum:
        """Sum of both."""
        return SampleSum(self.samples + other.samples, self.ns + other.ns, self.squares + other.squares)

    def times(self, factor: float) -> SampleSum:
        """As many samples, for ``factor`` times as much time."""
        return SampleSum(self.samples, round(self.ns * factor), self.squares * factor**2)


class Owner(NamedTuple):
    """A thread of ``sequence``, whose last work that is known ended at ``worked_ns``."""

    sequence: int
    worked_ns: int
    thread: int


class KeyedTimes(NamedTuple):
    """Times (ns) with what their keys have, and when each ended: int64[n] each. ``owners`` are numbers of Owners."""

    owners: Int64s
    stacks: Int64s
    functions: Int64s
    kinds: Int64s
    times: Int64s
    ends: Int64s

    def where(self, chosen: NDArray[np.bool_]) -> KeyedTimes:
        """The chosen times."""
        return KeyedTimes(*(column[chosen] for column in self))


# Sum of no samples.
NO_SUM = SampleSum()
# Sums of samples by their keys.
_Sums = dict[SampleKey, SampleSum]
# Sum that is added: whether it follows the last work of its sequence, its second, key and value.
_Made = tuple[bool, int, SampleKey, SampleSum]


class SecondSums:
    """Sums of a process that began at ``began_ns``. The time after the last work of a sequence is its tail, kept
    apart."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._seconds: list[_Sums] = []
        # By sequence: what follows the last work that is known.
        self._tails: dict[int, list[_Sums]] = {}

    def add(self, owners: Sequence[Owner], times: KeyedTimes) -> None:
        """Add times of some threads."""
        made: list[list[_Made]] = [[] for _ in owners]
        if len(times.times):
            for number, sums in _summed(owners, times, self._began_ns):
                made[number].append(sums)
        for owner, entries in zip(owners, made, strict=True):
            # A sequence that comes to its end first is one of threads that have ended.
            while len(self._tails) > _MOST_TAILS:
                self.settle(next(iter(self._tails)))
            tail = self._tails.setdefault(owner.sequence, [])
            for follows, second, key, total in entries:
                _sum(_second(tail if follows else self._seconds, second), second, key, total)

    def settle(self, sequence: int) -> None:
        """Note that work of a sequence followed all times that were added."""
        for number, sums in enumerate(self._tails.pop(sequence, ())):
            for key, total in sums.items():
                _sum(_second(self._seconds, number), number, key, total)

    def since(
        self, begin_ns: int, without_tails: Set[int] = frozenset(), within: Set[int] | None = None
    ) -> Mapping[SampleKey, SampleSum]:
        """The sums since a time of the start-up, to the second, without the tails of some sequences; only of the
        periods ``within``, unless that is None."""
        first = int(period_of(int64s(begin_ns + SECOND_NS - 1 - self._began_ns)))
        sums: _Sums = {}
        tails = (tail for sequence, tail in self._tails.items() if sequence not in without_tails)
        for seconds in (self._seconds, *tails):
            for number, second in enumerate(seconds[first:], first):
                for key, total in second.items() if within is None or number in within else ():
                    sums[key] = sums.get(key, NO_SUM).plus(total)
        return sums


def _summed(owners: Sequence[Owner], made: KeyedTimes, began_ns: int) -> Iterator[tuple[int, _Made]]:
    """The sums of the times of each key, with the number of its owner, in order."""
    stacks, of_stacks = numbered(made.stacks)
    follows = made.ends > int64s([owner.worked_ns for owner in owners])[made.owners]
    seconds = period_of(made.ends - began_ns)
    first = int(seconds.min())
    # As one number, which is small where possible: NumPy finds the different ones of pairs a hundred times as slowly.
    bases = (2, int(seconds.max()) - first + 1, int(made.functions.max()) + 1, _KIND_BASE, len(stacks))
    codes: Int64s = made.owners
    parts: tuple[Int64s, ...] = (int64s(follows), seconds - first, made.functions, made.kinds + 1, of_stacks)
    for base, part in zip(bases, parts, strict=True):
        codes = codes * base + part if base > 1 else codes
    distinct, places = coded(codes)
    times = np.maximum(made.times, 0)
    sums = [np.bincount(places, weights) for weights in (times > 0, times, np.square(times.astype(np.float64)))]
    columns = []
    for base in reversed(bases):
        distinct, rest = np.divmod(distinct, base)
        columns.append(rest)
    of_key = (distinct, columns[4], columns[3] + first, stacks[columns[0]], columns[2], columns[1] - 1, *sums)
    for number, tail, second, stack, function, kind, samples, ns, squares in zip(
        *(column.tolist() for column in of_key), strict=True
    ):
        if samples:
            key = SampleKey(owners[number].thread, stack, function, kind)
            yield number, (bool(tail), second, key, SampleSum(int(samples), int(ns), squares))


def _second(seconds: list[_Sums], number: int) -> _Sums:
    while len(seconds) <= number:
        seconds.append({})
    return seconds[number]


def _sum(sums: _Sums, second: int, key: SampleKey, added: SampleSum) -> None:
    most = _MOST_KEYS if second >= FIRST_SECONDS else _MOST_OF_SECOND
    if key not in sums and len(sums) >= most:
        key = key.without_stack
    if key in sums or len(sums) < 2 * most:
        sums[key] = sums.get(key, NO_SUM).plus(added)
