"""Intervals of time in groups: how much of a span the intervals of one group cover, for many spans at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
NONE: Int64s = np.zeros(0, dtype=np.int64)


def int64s(values: Any) -> Int64s:
    """``values`` as int64, without a copy where they are."""
    return np.asarray(values, dtype=np.int64)


class IntervalGroups:
    """Intervals by the number of their group (from 0), overlapping ones of a group united.

    ``starts`` and ``ends`` are in ns, below 2**62. Intervals without a length are left out.
    """

    def __init__(self, groups: Int64s, starts: Int64s, ends: Int64s) -> None:
        kept = ends > starts
        groups, starts, ends = groups[kept], starts[kept], ends[kept]
        order = np.lexsort((starts, groups))
        groups, starts, ends = groups[order], starts[order], ends[order]
        if len(groups):
            # The largest end so far in each group: groups ascend, so one running maximum of (group, rank) does it.
            known, ranks = np.unique(ends, return_inverse=True)
            width = len(known)
            ends = known[np.maximum.accumulate(groups * width + ranks.reshape(-1)) - groups * width]
            new = np.concatenate(([True], (groups[1:] != groups[:-1]) | (starts[1:] > ends[:-1])))
            first = np.flatnonzero(new)
            last = np.concatenate((first[1:], [len(groups)])) - 1
            groups, starts, ends = groups[first], starts[first], ends[last]
        self.groups, self.starts, self.ends = groups, starts, ends
        # The total length before each interval.
        self._before = np.concatenate(([0], np.cumsum(ends - starts)))
        self._known = np.unique(starts)
        self._keys = groups * (len(self._known) + 1) + np.searchsorted(self._known, starts, "right")

    def covered(self, groups: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
        """The time (ns) of each span from ``starts`` to ``ends`` that intervals of its group cover.

        0 for a span that ends before it starts, and for an unknown group, such as -1.
        """
        found = self._until(groups, np.maximum(starts, ends)) - self._until(groups, starts)
        return np.where(groups >= 0, found, 0)

    def last(self, groups: Int64s, times: Int64s) -> Int64s:
        """The place of the last interval of each group that starts at or before the time; -1 without one."""
        if not len(self.groups):
            return np.full(len(groups), -1, dtype=np.int64)
        keys = groups * (len(self._known) + 1) + np.searchsorted(self._known, times, "right")
        places = np.searchsorted(self._keys, keys, "right") - 1
        return np.where((places >= 0) & (self.groups[places] == groups), places, -1)

    def _until(self, groups: Int64s, times: Int64s) -> Int64s:
        """The covered time before ``times``, up to a constant of each group."""
        places = self.last(groups, times)
        found = np.zeros(len(groups), dtype=np.int64)
        inside = places >= 0
        at = places[inside]
        found[inside] = self._before[at] + np.minimum(times[inside], self.ends[at]) - self.starts[at]
        outside = ~inside
        if outside.any() and len(self.groups):
            # Before the first interval of the group.
            found[outside] = self._before[np.searchsorted(self.groups, groups[outside], "left")]
        return found


def expanded(first: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """The pairs (number of the range, place) of the ranges of places from ``first`` to ``end``, which is outside."""
    sizes = np.maximum(end - first, 0)
    owners = np.repeat(np.arange(len(first)), sizes)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return owners, first[owners] + within
