"""Sums of a process's time by thread, stack, function and what was done, in the seconds in which a steady state may
begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from stallprobes.watch.division.start_up import MOST_SECONDS, SECOND_NS
from stallprobes.watch.intervals import Int64s

# Different keys of a second, and of the time after the last second in which a steady state may begin; further samples
# are summed up without a stack, and beyond twice as many left out.
_MOST_OF_SECOND, _MOST_KEYS = 1024, 8192
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


NO_SUM = SampleSum()
_Sums = dict[SampleKey, SampleSum]


class SecondSums:
    """The sums of a process that began at ``began_ns``."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._seconds: list[_Sums] = []

    def add(self, thread: int, stacks: Int64s, functions: Int64s, kinds: Int64s, times: Int64s, ends: Int64s) -> None:
        """Add times (ns) of a thread that ended at ``ends`` (ns); those that are 0 are left out."""
        _add(self._seconds, self._began_ns, thread, (stacks, functions, kinds), times, ends)

    def since(self, begin_ns: int) -> Mapping[SampleKey, SampleSum]:
        """The sums since a time of the start-up, to the second."""
        first = max(-((self._began_ns - begin_ns) // SECOND_NS), 0)
        found: _Sums = {}
        for second in self._seconds[min(first, MOST_SECONDS) :]:
            for key, one in second.items():
                found[key] = found.get(key, NO_SUM).plus(one)
        return found


def _add(
    seconds: list[_Sums], began_ns: int, thread: int, keys: tuple[Int64s, ...], times: Int64s, ends: Int64s
) -> None:
    numbers = np.clip((ends - began_ns) // SECOND_NS, 0, MOST_SECONDS)
    stacks, functions, kinds = keys
    # As one number, whose different values NumPy finds a hundred times as fast.
    codes = ((numbers * _FUNCTIONS + functions) * 2 * _KINDS + kinds + _KINDS)[times > 0]
    stacks, times = stacks[times > 0], times[times > 0]
    distinct, places = np.unique(codes, return_inverse=True)
    for place, code in enumerate(distinct.tolist()):
        second, rest = divmod(code, _FUNCTIONS * 2 * _KINDS)
        function, kind = divmod(rest, 2 * _KINDS)
        while len(seconds) <= second:
            seconds.append({})
        chosen = places == place
        of_stacks, inverse = np.unique(stacks[chosen], return_inverse=True)
        counts = np.bincount(inverse)
        totals = np.bincount(inverse, times[chosen])
        squares = np.bincount(inverse, np.square(times[chosen].astype(np.float64)))
        for stack, *of in zip(*(one.tolist() for one in (of_stacks, counts, totals, squares)), strict=True):
            _sum(seconds[second], second, SampleKey(thread, stack, function, kind - _KINDS), SampleSum(*of))


def _sum(sums: _Sums, second: int, key: SampleKey, one: SampleSum) -> None:
    most = _MOST_KEYS if second == MOST_SECONDS else _MOST_OF_SECOND
    if key not in sums and len(sums) >= most:
        key = key.without_stack
    if key in sums or len(sums) < 2 * most:
        sums[key] = sums.get(key, NO_SUM).plus(one._replace(ns=int(one.ns)))
