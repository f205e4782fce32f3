"""The last minutes in coarse bins: how many calls took how long in each tenth of a second, probe by probe.

The axis is fixed and shared by all that is drawn over latency: 100 ns to 10 s, so pictures can be compared at a glance.
Beside the counts stands for how long each tenth of a second was looked at, so that rates can be drawn: a look that
comes late must not make calls look rarer or more frequent than they were.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import BUCKETS, LOWER, index

LOW_NS = 100
DECADES = 8
PER_DECADE = 8
BINS = DECADES * PER_DECADE
SLOT_NS = 100_000_000

# A look this late or less fills the slots that it passed over; after a longer gap nobody knows where the calls were.
MOST_LATE = 10

Bins = NDArray[np.uint32]
Nanoseconds = NDArray[np.int64]
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
        self._looked_ns: Nanoseconds = np.zeros(slots, dtype=np.int64)
        self._first = -1
        self._at_ns = 0
        self._span = 1

    def copy(self) -> History:
        """The same, to be kept while this one goes on."""
        other = History(0, self.slots)
        other.last, other._first = self.last, self._first
        other._at_ns, other._span = self._at_ns, self._span
        other._counts, other._ages, other._looked_ns = self._counts.copy(), self._ages.copy(), self._looked_ns.copy()
        return other

    def move_to(self, at_ns: int, since_ns: int | None = None) -> int:
        """Make ``at_ns`` (ns) the present and return its slot number.

        What is added next was counted from ``since_ns`` (ns) on, None for nothing to add. Where that is more than a
        slot ago it is spread over the slots in between; where it is more than a second ago they stay empty.
        """
        now = at_ns // SLOT_NS
        passed = now - self.last
        if self.last < 0:
            self._first, passed = now, 1
        elif passed > 0:
            new = np.arange(max(self.last + 1, now - self.slots + 1), now + 1) % self.slots
            self._counts[:, new] = 0
            self._ages[:, new] = _NO_AGE
            self._looked_ns[new] = 0
        self.last, self._at_ns = max(now, self.last), at_ns
        self._span = passed if since_ns is not None and 1 <= passed <= min(MOST_LATE, self.slots) else 1
        if since_ns is not None:
            self._looked_ns[self._slots_of_this_look()] += max(at_ns - since_ns, 0) // self._span
        return self.last

    def add(self, probe: int, counts: NDArray[np.uint64], age_ns: int | None) -> None:
        """Put bucket ``counts``, and the age of a call in flight (ns), into the slots of this look of ``probe``."""
        new = binned(counts, BINS).astype(np.uint32)
        whole, rest = np.divmod(new, self._span)
        slots = self._slots_of_this_look()
        # No call is drawn twice: what cannot be divided goes to the last slots.
        self._counts[probe, slots] += whole + (np.arange(self._span, 0, -1)[:, None] <= rest)
        if age_ns is None:
            return
        for number in range(self.last - self._span + 1, self.last + 1):
            then = min(age_ns, age_ns - (self._at_ns - (number + 1) * SLOT_NS))
            if then > 0:
                slot = number % self.slots
                self._ages[probe, slot] = max(int(self._ages[probe, slot]), index(then))

    def _slots_of_this_look(self) -> NDArray[np.int64]:
        return np.arange(self.last - self._span + 1, self.last + 1) % self.slots

    def columns(
        self, probe: int, count: int, slots_each: int
    ) -> tuple[Bins, NDArray[np.int64], NDArray[np.float64], int]:
        """The last ``count`` columns of ``slots_each`` slots: counts [count][BINS], the highest age in flight of each
        (ns, 0 for none), for how many seconds each was looked at, and the number of the first column. A slot always
        falls into the same column."""
        last = self.last // slots_each
        first = last - count + 1
        wanted = np.arange(first * slots_each, (last + 1) * slots_each)
        known = (wanted >= self._first) & (wanted > self.last - self.slots) & (wanted <= self.last) & (wanted >= 0)
        counts = np.where(known[:, None], self._counts[probe, wanted % self.slots], 0)
        ages = np.where(known, self._ages[probe, wanted % self.slots], _NO_AGE).reshape(count, slots_each).max(axis=1)
        in_ns = np.where(ages >= 0, LOWER[np.maximum(ages, 0)], 0)
        looked = np.where(known, self._looked_ns[wanted % self.slots], 0).reshape(count, slots_each).sum(axis=1) / 1e9
        return counts.reshape(count, slots_each, BINS).sum(axis=1, dtype=np.uint32), in_ns, looked, first

    def strip(self, probe: int, count: int, slots_each: int) -> tuple[int, ...]:
        """For each of the last columns the bin (0 to BINS - 1) of its p99 or of the oldest call in flight, -1 for no
        call."""
        counts, ages, _, _ = self.columns(probe, count, slots_each)
        from_top = np.cumsum(counts[:, ::-1], axis=1)
        total = from_top[:, -1]
        # The highest bin that is not within the top 1 %.
        above = (from_top <= total[:, None] // 100).sum(axis=1)
        level = np.where(total > 0, BINS - 1 - above, -1)
        aged = np.array([position(float(age), BINS) if age else -1 for age in ages], dtype=np.int64)
        return tuple(int(value) for value in np.maximum(level, aged))
