"""Intervals of time in groups: how much of a span the intervals of one group cover, for many spans at once."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.integer[Any])
# Largest int64 code that combines a group number with a time. If a code would be larger, the rank of the time replaces
# the time. Reason: the code must stay within 64 bits.
_MOST_CODE = 2**62
# Largest number of groups whose numbers fit into 16-bit integers, which NumPy sorts faster.
_SHORT = 2**15
# Limits of the lookup table with which the distinct numbers in an array are found. Above a limit, sorting finds the
# numbers, which takes longer. _ENTRIES_EACH: largest number of table entries per number in the array. _MOST_ENTRIES:
# largest number of table entries in all, in ``distinct`` only.
_ENTRIES_EACH, _MOST_ENTRIES = 16, 1 << 23
# Time (ns) that stands for an end that has not happened yet.
FOREVER = 2**62
# Empty array of 64-bit integers.
NONE: Int64s = np.zeros(0, dtype=np.int64)


def int64s(values: Any) -> Int64s:
    """``values`` as int64, without a copy where they are."""
    return np.asarray(values, dtype=np.int64)


def distinct(values: NDArray[_Number]) -> NDArray[_Number]:
    """Different values in order. Most values equal the one before, or lie close together, which NumPy's function does
    not use."""
    if not len(values):
        return values
    values = values.compress(np.append(True, values[1:] != values[:-1]))
    if len(values) == 1:
        return values
    least, most = int(values.min()), int(values.max())
    if most - least > min(_ENTRIES_EACH * len(values), _MOST_ENTRIES):
        ordered: NDArray[_Number] = np.sort(values)
        return ordered.compress(np.append(True, ordered[1:] != ordered[:-1]))
    present = np.zeros(most - least + 1, dtype=np.bool_)
    present[values - values.min()] = True
    ordered = np.flatnonzero(present).astype(values.dtype) + values.min()
    return ordered


def numbered(values: NDArray[_Number]) -> tuple[NDArray[_Number], Int64s]:
    """The different values in order, and the place of each value among them."""
    ordered = distinct(values)
    return ordered, int64s(np.searchsorted(ordered, values))


def coded(codes: Int64s) -> tuple[Int64s, Int64s]:
    """As ``numbered`` for codes that are not negative, most of which may be small."""
    most = int(codes.max(initial=0))
    if most > _ENTRIES_EACH * len(codes):
        return numbered(codes)
    present = np.flatnonzero(np.bincount(codes))
    table = np.zeros(most + 1, dtype=np.int64)
    table[present] = np.arange(len(present))
    return present, table[codes]


def count_until(values: Int64s, times: Int64s) -> Int64s:
    """Number of ``values`` at or before each of ``times``; both ascend.

    Equals ``np.searchsorted(values, times, "right")``, which searches every time; this searches every value.
    """
    borders = np.concatenate(([0], times.searchsorted(values), [len(times)]))
    return np.arange(len(values) + 1).repeat(borders[1:] - borders[:-1])


def grouped_order(groups: Int64s, values: Int64s) -> Int64s:
    """The places in the order (group, value); groups are numbered from 0."""
    if not len(values) or int(groups.max()) >= _SHORT:
        return np.lexsort((values, groups))
    # In time that does not depend on the order: NumPy sorts short numbers digit by digit.
    short = groups.astype(np.int16)
    if (values[1:] >= values[:-1]).all():
        return np.argsort(short, kind="stable")
    order = np.argsort(values, kind="stable")
    return order[np.argsort(short[order], kind="stable")]


def running_maximum(groups: Int64s, values: Int64s) -> Int64s:
    """The largest of ``values`` so far in each group; the numbers of the groups ascend."""
    if not len(values):
        return values
    if groups[0] == groups[-1]:
        return np.maximum.accumulate(values)
    # With each value as the lower digits of a number, one running maximum does it for all groups.
    least = int(values.min())
    digits = int(values.max()) - least + 1
    if int(groups[-1] + 1) * digits <= _MOST_CODE:
        offsets = groups * digits - least
        return np.maximum.accumulate(offsets + values) - offsets
    # Too large for a number: their ranks are not.
    ordered, ranks = np.unique(values, return_inverse=True)
    offsets = groups * len(ordered)
    return ordered[np.maximum.accumulate(offsets + ranks.reshape(-1)) - offsets]


class GroupedTimes:
    """Times by the number of their group, in the order (group, time). Groups and times are not negative."""

    def __init__(self, groups: Int64s, times: Int64s) -> None:
        self._groups = groups
        self._least, most = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        self._digits = most - self._least + 2
        # Ranks where the times are too large to be the lower digits of a number.
        self._known = None
        if len(groups) and int(groups.max() + 1) * self._digits > _MOST_CODE:
            self._known = np.unique(times)
            self._digits = len(self._known) + 1
        self._keys = self._key(groups, times)

    def last(self, groups: Int64s, times: Int64s) -> Int64s:
        """The place of the last time of each group at or before ``times``; -1 without one, as for the group -1."""
        places = np.searchsorted(self._keys, self._key(groups, times), "right") - 1
        return np.where((places >= 0) & (self._groups[places] == groups), places, -1) if len(self._keys) else places

    def _key(self, groups: Int64s, times: Int64s) -> Int64s:
        if self._known is not None:
            return groups * self._digits + np.searchsorted(self._known, times, "right")
        return groups * self._digits + np.clip(times - self._least + 1, 0, self._digits - 1)


class GroupMembers:
    """Rows by the number of their group (from 0), each with its span, in the order of their starts."""

    def __init__(self, groups: Int64s, starts: Int64s, ends: Int64s) -> None:
        self._rows = grouped_order(groups, starts)
        groups = self._groups = groups[self._rows]
        self._firsts = np.searchsorted(groups, np.arange(int(groups.max(initial=-1)) + 2))
        self._starts, self._ends = starts[self._rows], ends[self._rows]
        self._latest = running_maximum(groups, self._ends)

    def during(self, group: int, begin_ns: int, end_ns: int, most: int | None = None) -> Int64s:
        """The rows of ``group`` that overlap a span; with ``most``, the last of them alone."""
        first, end = int(self._firsts[group]), int(self._firsts[group + 1])
        end = first + int(self._starts[first:end].searchsorted(end_ns, "left"))
        first += int(self._latest[first:end].searchsorted(begin_ns, "right"))
        first = first if most is None else max(first, end - most)
        return self._rows[first:end][self._ends[first:end] > begin_ns]

    def during_each(self, groups: Int64s, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
        """Pairs (number of the span, row): each span with the rows of its group that overlap it, in order."""
        first = GroupedTimes(self._groups, self._latest).last(groups, begins) + 1
        first = np.where(first > 0, first, self._firsts[groups])
        owners, places = expanded(first, GroupedTimes(self._groups, self._starts).last(groups, ends - 1) + 1)
        kept = self._ends[places] > begins[owners]
        return owners[kept], self._rows[places[kept]]


class IntervalGroups:
    """Intervals by the number of their group (from 0), overlapping ones of a group united.

    ``starts`` and ``ends`` are in ns, below 2**62. Intervals without a length are left out.
    """

    def __init__(self, groups: Int64s, starts: Int64s, ends: Int64s) -> None:
        kept = ends > starts
        if not kept.all():
            groups, starts, ends = groups[kept], starts[kept], ends[kept]
        order = grouped_order(groups, starts)
        groups, starts = groups[order], starts[order]
        ends = running_maximum(groups, ends[order])
        new = np.append(True, (groups[1:] != groups[:-1]) | (starts[1:] > ends[:-1]))[: len(groups)]
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(groups))[: len(first)] - 1
        self.groups, self.starts, self.ends = groups[first], starts[first], ends[last]
        # The total length before each interval.
        self._before = np.concatenate(([0], np.cumsum(self.ends - self.starts)))
        self._begins = GroupedTimes(self.groups, self.starts)

    def covered(self, groups: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
        """Time (ns) of each span from ``starts`` to ``ends`` that intervals of its group cover.

        0 for a span that ends before it starts, and for an unknown group, such as -1.
        """
        times = self._until(groups, np.maximum(starts, ends)) - self._until(groups, starts)
        return np.where(groups >= 0, times, 0)

    def _until(self, groups: Int64s, times: Int64s) -> Int64s:
        """Covered time before ``times``, up to a constant of each group."""
        places = self._begins.last(groups, times)
        covered_ns = np.zeros(len(groups), dtype=np.int64)
        inside = places >= 0
        at = places[inside]
        covered_ns[inside] = self._before[at] + np.minimum(times[inside], self.ends[at]) - self.starts[at]
        outside = ~inside
        if outside.any() and len(self.groups):
            # Before the first interval of the group.
            covered_ns[outside] = self._before[np.searchsorted(self.groups, groups[outside], "left")]
        return covered_ns


def expanded(first: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """The pairs (number of the range, place) of the ranges of places from ``first`` to ``end``, which is outside."""
    sizes = np.maximum(end - first, 0)
    owners = np.arange(len(first)).repeat(sizes)
    within = np.arange(len(owners)) - (sizes.cumsum() - sizes).repeat(sizes)
    return owners, first[owners] + within


def distinct_pairs(first: Int64s, second: Int64s) -> tuple[Int64s, Int64s]:
    """The different pairs of numbers from 0 to 2**31, in their order."""
    # As one number: NumPy sorts pairs a hundred times as slowly.
    pairs = np.unique(first << 32 | second)
    return pairs >> 32, pairs & 0xFFFFFFFF
