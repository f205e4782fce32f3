"""Time of a sequence's kernels by name: which of them take the GPU's time, and how long each runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stallprobes.watch.division.binned_sums import BinnedSums, Times, add_at
from stallprobes.watch.division.instants import COPY, LastEnd, Operations
from stallprobes.watch.division.result import KernelTime
from stallprobes.watch.intervals import NONE, Int64s, distinct
from stallprobes.watch.reading.kernel_names import demangle_all

# Largest number of kernel names of a sequence that have sums of their own. The first names have sums; kernels of all
# other names are left out, except in the time of all kernels.
_MOST_NAMES = 256
# Largest number of bins of time for the sums of a sequence. With more bins, neighbouring bins are merged.
_MOST_BINS = 256
# The squares of the differences between durations and a name's first duration are summed up in units of that duration
# divided by _UNITS. _MOST_UNITS: largest difference (units) in these sums. Reason: the sums must fit into 64 bits.
_UNITS, _MOST_UNITS = 8192, 10**6
# Number of names for which a sequence's sums have room at first. The room doubles when there are more names.
_FIRST_NAMES = 16
# Number of sums of each name: of its kernels, of their time, of the squares of the differences, and of the time after
# them that only the GPU's own work takes (Part.BETWEEN).
_SUMS = 4


class KernelSums:
    """Sums of the kernels of a sequence since ``origin_ns``, by name."""

    def __init__(self, origin_ns: int) -> None:
        # The places of the names in order, and the number of each: the order in which they came.
        self._places = NONE
        self._numbers = NONE
        # The smallest and largest number of blocks of the kernels of each name.
        self._blocks = np.zeros((2, _MOST_NAMES), dtype=np.int64)
        self._blocks[0] = np.iinfo(np.int64).max
        # The first duration (ns) of each name, 0 before it.
        self._firsts = np.zeros(_MOST_NAMES, dtype=np.int64)
        # Of each name their number, their time (ns), the squares of the differences of their durations, and the time
        # (ns) after them.
        self._sums = BinnedSums(origin_ns, most=_MOST_BINS, columns=_SUMS * _FIRST_NAMES)

    def add(self, work: Operations) -> None:
        """Add the kernels among operations, at their ends."""
        kernels = work.where(work.kinds != COPY)
        numbers = self._numbers_of(kernels.names)
        if (unknown := numbers < 0).any():
            kernels, numbers = kernels.where(~unknown), numbers[~unknown]
        if not len(kernels):
            return
        ends = kernels.ends
        lasted = ends - kernels.starts
        self._note_blocks(numbers, kernels.blocks)
        if (new := self._firsts[numbers] == 0).any():
            present, at = np.unique(numbers[new], return_index=True)
            self._firsts[present] = np.maximum(lasted[new][at], 1)
        first_ns = self._firsts[numbers]
        units = np.minimum(np.abs(lasted - first_ns) * (_UNITS / first_ns), _MOST_UNITS)
        self._sums.widen(_SUMS * len(self._places))
        add_at(self._sums, ends - 1, _SUMS * numbers, None, lasted, units**2)

    def add_between(self, work: Operations, last_end: LastEnd, begins: Int64s, times: Int64s) -> None:
        """Add the times (ns) of gaps between operations, each to the kernel that ended last before the gap.

        ``begins`` are the begins (ns) of the gaps. ``last_end`` has the kernel before the first operation.
        """
        ends = work.ends
        last = np.maximum.accumulate(np.where(ends >= np.maximum.accumulate(ends), np.arange(len(ends)), 0))
        before = work.starts.searchsorted(begins, "right") - 1
        places = last[np.maximum(before, 0)]
        names = np.where(work.kinds[places] != COPY, work.names[places], -1)
        names = np.where((before >= 0) & (ends[places] >= last_end.at_ns), names, last_end.kernel)
        numbers = self._known(names)
        known = numbers >= 0
        add_at(self._sums, begins[known], _SUMS * numbers[known] + _SUMS - 1, times[known])

    def during(self, times: Times, names: Mapping[int, str]) -> tuple[KernelTime, ...]:
        """The kernels that ended in ``times``, those with most time first; ``names`` are by their places."""
        counts, totals, squares, between = self._sums.during(times).sum(axis=0).reshape(-1, _SUMS).T
        whole = int(totals.sum())
        pairs = zip(self._places.tolist(), self._numbers.tolist(), strict=True)
        ran = [(place, number) for place, number in pairs if totals[number]]
        ran.sort(key=lambda item: -int(totals[item[1]]))
        functions = demangle_all({names.get(place, "") for place, _ in ran} - {""})
        kernels = []
        for place, number in ran:
            count, ns = int(counts[number]), int(totals[number])
            mean = ns / count
            first_ns = int(self._firsts[number])
            variance = max(int(squares[number]) * (first_ns / _UNITS) ** 2 / count - (mean - first_ns) ** 2, 0.0)
            least, most = self._blocks[:, number].tolist()
            kernels.append(
                KernelTime(
                    name=functions.get(names.get(place, ""), ""),
                    share=ns / whole,
                    count=count,
                    mean_ns=round(mean),
                    deviation_ns=round(variance**0.5),
                    between_ns=round(int(between[number]) / count),
                    least_blocks=least if most else 0,
                    most_blocks=most,
                )
            )
        return tuple(kernels)

    def _numbers_of(self, names: Int64s) -> Int64s:
        """The number of each name by its place; -1 for those beyond the limit. New names get numbers."""
        numbers = self._known(names)
        if (new := numbers < 0).any() and len(self._places) < _MOST_NAMES:
            added = distinct(names[new])[: _MOST_NAMES - len(self._places)]
            places = np.concatenate((self._places, added))
            given = np.concatenate((self._numbers, len(self._places) + np.arange(len(added), dtype=np.int64)))
            order = np.argsort(places)
            self._places, self._numbers = places[order], given[order]
            numbers = self._known(names)
        return numbers

    def _known(self, names: Int64s) -> Int64s:
        if not len(self._places):
            return np.full(len(names), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._places, names), len(self._places) - 1)
        return np.where(self._places[at] == names, self._numbers[at], -1)

    def _note_blocks(self, numbers: Int64s, blocks: Int64s) -> None:
        least, most = self._blocks
        other = ((blocks < least[numbers]) | (blocks > most[numbers])) & (blocks > 0)
        if other.any():
            numbers, blocks = numbers[other], blocks[other]
            np.minimum.at(least, numbers, blocks)
            np.maximum.at(most, numbers, blocks)
