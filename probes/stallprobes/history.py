"""The last minutes in coarse bins: how many calls took how long in each tenth of a second, probe by probe.

The axis is fixed and shared by all that is drawn over latency: 100 ns to 10 s, so pictures can be compared at a glance.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stallprobes.histogram import BUCKETS, LOWER, index

LOW_NS = 100
DECADES = 8
PER_DECADE = 8
BINS = DECADES * PER_DECADE
SLOT_NS = 100_000_000

Bins = NDArray[np.uint32]
_NO_AGE = -1


@lru_cache(maxsize=32)
def edges(columns: int) -> NDArray[np.intp]:
    """The first bucket of each of ``columns`` equal steps of the log axis; the first step takes all below it too."""
    steps = LOW_NS * 10.0 ** (np.arange(columns) * DECADES / columns)
    first = np.searchsorted(LOWER, steps, side="left").astype(np.intp)
    first[0] = 0
    return np.minimum(first, BUCKETS - 1)


def binned(counts: NDArray[np.uint64], columns: int) -> NDArray[np.uint64]:
    """``counts`` of histogram buckets summed into ``columns`` steps of the axis."""
    first = edges(columns)
    out = np.add.reduceat(counts, first)
    # Where two steps begin in one bucket (a narrow bucket, a wide screen) the earlier one is empty, not doubled.
    out[:-1][first[:-1] == first[1:]] = 0
    return out


def position(ns: float, columns: int) -> int:
    """The step of the axis on which ``ns`` lies, kept within it."""
    if ns <= LOW_NS:
        return 0
    return min(int(np.log10(ns / LOW_NS) * columns / DECADES), columns - 1)


class History:
    """Coarse counts of ``probes`` probes for the last ``slots`` tenths of a second, in memory that never grows."""

    def __init__(self, probes: int, slots: int) -> None:
        self.slots = slots
        self.last = -1
        self._counts: Bins = np.zeros((probes, slots, BINS), dtype=np.uint32)
        self._ages: NDArray[np.int16] = np.full((probes, slots), _NO_AGE, dtype=np.int16)
        self._first = -1
        self._late = False

    def copy(self) -> History:
        """The same, to be kept while this one goes on."""
        other = History(0, self.slots)
        other.last, other._first, other._late = self.last, self._first, self._late
        other._counts, other._ages = self._counts.copy(), self._ages.copy()
        return other

    def move_to(self, at_ns: int) -> int:
        """Make ``at_ns`` (ns) the present and return its slot number.

        Slots that were passed over are empty, but for a single one: who looks ten times a second is a little late now
        and then, and what is added next is of that slot too.
        """
        now = at_ns // SLOT_NS
        self._late = self.last >= 0 and now == self.last + 2
        if self.last < 0:
            self._first = now
        elif now > self.last:
            passed = np.arange(max(self.last + 1, now - self.slots + 1), now + 1) % self.slots
            self._counts[:, passed] = 0
            self._ages[:, passed] = _NO_AGE
        self.last = max(now, self.last)
        return self.last

    def add(self, probe: int, counts: NDArray[np.uint64], age_ns: int | None) -> None:
        """Put bucket ``counts``, and the age of a call in flight, into the present slot of ``probe``."""
        slot = self.last % self.slots
        new = binned(counts, BINS).astype(np.uint32)
        if self._late:
            before = (self.last - 1) % self.slots
            self._counts[probe, before] += new // 2
            new -= new // 2
            if age_ns is not None and age_ns > SLOT_NS:
                self._ages[probe, before] = index(age_ns - SLOT_NS)
        self._counts[probe, slot] += new
        if age_ns is not None:
            self._ages[probe, slot] = max(int(self._ages[probe, slot]), index(age_ns))

    def columns(self, probe: int, count: int, slots_each: int) -> tuple[Bins, NDArray[np.int64], int]:
        """The last ``count`` columns of ``slots_each`` slots: counts [count][BINS], the highest age in flight of each
        (ns, 0 for none), and the number of the first column. A slot always falls into the same column."""
        last = self.last // slots_each
        first = last - count + 1
        wanted = np.arange(first * slots_each, (last + 1) * slots_each)
        known = (wanted >= self._first) & (wanted > self.last - self.slots) & (wanted <= self.last) & (wanted >= 0)
        counts = np.where(known[:, None], self._counts[probe, wanted % self.slots], 0)
        ages = np.where(known, self._ages[probe, wanted % self.slots], _NO_AGE).reshape(count, slots_each).max(axis=1)
        in_ns = np.where(ages >= 0, LOWER[np.maximum(ages, 0)], 0)
        return counts.reshape(count, slots_each, BINS).sum(axis=1, dtype=np.uint32), in_ns, first

    def strip(self, probe: int, count: int, slots_each: int) -> tuple[int, ...]:
        """For each of the last columns the bin (0 to BINS - 1) of its p99 or of the oldest call in flight, -1 for no
        call."""
        counts, ages, _ = self.columns(probe, count, slots_each)
        from_top = np.cumsum(counts[:, ::-1], axis=1)
        total = from_top[:, -1]
        # The highest bin that is not within the top 1 %.
        above = (from_top <= total[:, None] // 100).sum(axis=1)
        level = np.where(total > 0, BINS - 1 - above, -1)
        aged = np.array([position(float(age), BINS) if age else -1 for age in ages], dtype=np.int64)
        return tuple(int(value) for value in np.maximum(level, aged))
