"""Sums of a process's time by thread, stack, function and what was done, in the seconds in which a steady state may
begin."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

import numpy as np

from stallprobes.watch.division.start_up import MOST_SECONDS, SECOND_NS
from stallprobes.watch.intervals import Int64s

# Different keys of a second, and of the time after the last second in which a steady state may begin; further samples
# are summed up without a stack, and beyond twice as many left out.
_MOST_OF_SECOND, _MOST_KEYS = 1024, 8192
# Sequences whose tails are apart.
_MOST_TAILS = 256
# Numbers of functions and kinds are smaller; those of kinds begin at -_KINDS.
_FUNCTIONS, _KINDS = 1 << 16, 16


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
        """Both together."""
        return SampleSum(self.samples + other.samples, self.ns + other.ns, self.squares + other.squares)

    def times(self, factor: float) -> SampleSum:
        """As many samples that stand for ``factor`` times as long."""
        return SampleSum(self.samples, round(self.ns * factor), self.squares * factor**2)


class KeyedTimes(NamedTuple):
    """Times (ns) of a thread with what their keys have, and when each ended: int64[n] each."""

    stacks: Int64s
    functions: Int64s
    kinds: Int64s
    times: Int64s
    ends: Int64s


NO_SUM = SampleSum()
_Sums = dict[SampleKey, SampleSum]


class SecondSums:
    """The sums of a process that began at ``began_ns``. What follows the last work of a sequence is its tail, apart."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._seconds: list[_Sums] = []
        # By sequence: what follows the last work that is known.
        self._tails: dict[int, list[_Sums]] = {}

    def add(self, sequence: int, worked_ns: int, thread: int, times: KeyedTimes) -> None:
        """Add times of a thread of ``sequence``, whose last work that is known ended at ``worked_ns``."""
        follows = times.ends > worked_ns
        # A sequence that comes to its end first is one of threads that have ended.
        while len(self._tails) > _MOST_TAILS:
            self.settle(next(iter(self._tails)))
        for of, chosen in ((self._seconds, ~follows), (self._tails.setdefault(sequence, []), follows)):
            _add(of, self._began_ns, thread, KeyedTimes(*(column[chosen] for column in times)))

    def settle(self, sequence: int) -> None:
        """Note that work of a sequence followed all times that were added."""
        for number, sums in enumerate(self._tails.pop(sequence, ())):
            for key, one in sums.items():
                _sum(_second(self._seconds, number), number, key, one)

    def since(self, begin_ns: int, without_tails: Set[int] = frozenset()) -> Mapping[SampleKey, SampleSum]:
        """The sums since a time of the start-up, to the second, without the tails of some sequences."""
        first = min(max(-((self._began_ns - begin_ns) // SECOND_NS), 0), MOST_SECONDS)
        found: _Sums = {}
        tails = (tail for sequence, tail in self._tails.items() if sequence not in without_tails)
        for seconds in (self._seconds, *tails):
            for second in seconds[first:]:
                for key, one in second.items():
                    found[key] = found.get(key, NO_SUM).plus(one)
        return found


def _add(seconds: list[_Sums], began_ns: int, thread: int, made: KeyedTimes) -> None:
    made = KeyedTimes(*(column[made.times > 0] for column in made))
    numbers = np.clip((made.ends - began_ns) // SECOND_NS, 0, MOST_SECONDS)
    # As one number: NumPy finds the different ones of pairs a hundred times as slowly.
    codes = (numbers * _FUNCTIONS + made.functions) * 2 * _KINDS + made.kinds + _KINDS
    distinct, places = np.unique(codes, return_inverse=True)
    for place, code in enumerate(distinct.tolist()):
        second, rest = divmod(code, _FUNCTIONS * 2 * _KINDS)
        function, kind = divmod(rest, 2 * _KINDS)
        stacks, times = made.stacks[places == place], made.times[places == place]
        of_stacks, inverse = np.unique(stacks, return_inverse=True)
        sums = (of_stacks, *(np.bincount(inverse, of) for of in (None, times, np.square(times.astype(np.float64)))))
        for stack, samples, ns, squares in zip(*(one.tolist() for one in sums), strict=True):
            key = SampleKey(thread, stack, function, kind - _KINDS)
            _sum(_second(seconds, second), second, key, SampleSum(samples, int(ns), squares))


def _second(seconds: list[_Sums], number: int) -> _Sums:
    while len(seconds) <= number:
        seconds.append({})
    return seconds[number]


def _sum(sums: _Sums, second: int, key: SampleKey, one: SampleSum) -> None:
    most = _MOST_KEYS if second == MOST_SECONDS else _MOST_OF_SECOND
    if key not in sums and len(sums) >= most:
        key = key.without_stack
    if key in sums or len(sums) < 2 * most:
        sums[key] = sums.get(key, NO_SUM).plus(one)
