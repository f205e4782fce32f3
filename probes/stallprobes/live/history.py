"""History of the last minutes: one coarse latency histogram per probe and slot of 0.1 s.

The logarithmic axis is fixed, 100 ns to 10 s, in all plots. Each slot also has its observed time, so that a late
observation does not change the call rate in a plot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import LOWER, Histogram, HistogramBlock, index
from stallprobes.native.layouts.histogram import BUCKETS

# Lowest latency (ns) on the latency axis of the screen's plots. Shorter latencies count in the first bin.
LOW_NS = 100
# Length of the latency axis of the screen's plots, in decades (factors of ten).
DECADES = 8
# Number of bins in a decade of the latency axis of the screen's plots.
PER_DECADE = 8
# Number of bins of the latency axis of the screen's plots.
BINS = DECADES * PER_DECADE
# Length (ns) of a time slot of the latency history. The history counts all calls of a slot together.
SLOT_NS = 100_000_000

# Largest number of history slots that one observation fills. After a longer time without an observation, all calls and
# the GPU's values count in the last slot, since the slots in which the calls ended are unknown.
MOST_SLOTS = 10

Bins = NDArray[np.uint32]
Nanoseconds = NDArray[np.int64]
# Value in the history's table of ages for a slot in which no call was in flight.
_NO_AGE = -1


@lru_cache(maxsize=32)
def _steps(columns: int) -> NDArray[np.intp]:
    """The step of each bucket among ``columns`` equal ones of the axis; the first step includes everything below."""
    begins = LOW_NS * 10.0 ** (np.arange(columns) * DECADES / columns)
    first = np.minimum(LOWER.searchsorted(begins), BUCKETS - 1)
    first[0] = 0
    # Where two steps begin in one bucket the earlier one is empty, so that no call counts twice.
    return first.searchsorted(np.arange(BUCKETS), side="right") - 1


def binned(histograms: Sequence[Histogram], columns: int) -> NDArray[np.float64]:
    """The counts of ``histograms`` in ``columns`` steps of the axis, [histograms][columns]."""
    rows = len(histograms)
    return _binned(histograms, [1] * rows, range(rows), rows, columns)


def binned_sums(histograms: Sequence[Histogram], signs: Sequence[int], sum_of: Sequence[int], rows: int) -> Bins:
    """``rows`` sums of counts in steps of the axis, [rows][BINS]: histogram i, with its sign, is part of sum_of[i]."""
    return _binned(histograms, signs, sum_of, rows, BINS).astype(np.uint32)


def _binned(
    histograms: Sequence[Histogram], signs: Sequence[int], sum_of: Sequence[int], rows: int, columns: int
) -> NDArray[np.float64]:
    block = HistogramBlock.of(histograms)
    sizes = np.diff(block.borders)
    buckets, counts = block.used
    places = _steps(columns)[buckets] + (np.array(sum_of, dtype=np.int64) * columns).repeat(sizes)
    sums = np.bincount(places, counts * np.array(signs, dtype=np.int64).repeat(sizes), rows * columns)
    return np.asarray(sums, dtype=np.float64).reshape(rows, columns)


def position(ns: float, columns: int) -> int:
    """The step of the axis that contains ``ns``, clamped to the axis."""
    if ns <= LOW_NS:
        return 0
    return min(int(np.log10(ns / LOW_NS) * columns / DECADES), columns - 1)


class History:
    """Coarse counts of ``probes`` probes for the last ``slots`` tenths of a second, in memory of constant size."""

    def __init__(self, probes: int, slots: int) -> None:
        self.slots = slots
        self.last = -1
        self._counts: Bins = np.zeros((probes, slots, BINS), dtype=np.uint32)
        self._ages: NDArray[np.int16] = np.full((probes, slots), _NO_AGE, dtype=np.int16)
        self._observed_ns: Nanoseconds = np.zeros(slots, dtype=np.int64)
        # The part of the observed time in which a probe was not allowed to run.
        self._closed_ns: Nanoseconds = np.zeros((probes, slots), dtype=np.int64)
        self._first = -1
        self._at_ns = 0
        self._span = 1

    def move_to(self, at_ns: int, since_ns: int | None = None) -> int:
        """Make ``at_ns`` (ns) the current time and return its slot number.

        The counts added next were collected from ``since_ns`` (ns) on, None for nothing to add. They are spread over
        the slots in between; where that is more than a second, these slots stay empty.
        """
        now = at_ns // SLOT_NS
        passed = now - self.last
        if self.last < 0:
            self._first, passed = now, 1
        elif passed > 0:
            new = np.arange(max(self.last + 1, now - self.slots + 1), now + 1) % self.slots
            self._counts[:, new] = 0
            self._ages[:, new] = _NO_AGE
            self._observed_ns[new] = 0
            self._closed_ns[:, new] = 0
        self.last, self._at_ns = max(now, self.last), at_ns
        self._span = passed if since_ns is not None and 1 <= passed <= min(MOST_SLOTS, self.slots) else 1
        if since_ns is not None:
            self._observed_ns[self._current_slots()] += max(at_ns - since_ns, 0) // self._span
        return self.last

    def add(self, probe: int, new: Bins, age_ns: int | None, closed_ns: int = 0) -> None:
        """Add ``new`` counts [BINS] of ``probe`` and the age of a call in flight (ns) to the slots of this observation.

        ``closed_ns`` is the part of the time in which the probe was not allowed to run.
        """
        if self._span == 1:
            slot = self.last % self.slots
            self._counts[probe, slot] += new
            self._closed_ns[probe, slot] += closed_ns
        else:
            whole, rest = np.divmod(new, self._span)
            slots = self._current_slots()
            # No call counts twice: the remainder goes to the last slots.
            self._counts[probe, slots] += whole + (np.arange(self._span, 0, -1)[:, None] <= rest)
            self._closed_ns[probe, slots] += closed_ns // self._span
        if age_ns is None:
            return
        for number in range(self.last - self._span + 1, self.last + 1):
            then = min(age_ns, age_ns - (self._at_ns - (number + 1) * SLOT_NS))
            if then > 0:
                slot = number % self.slots
                self._ages[probe, slot] = max(int(self._ages[probe, slot]), index(then))

    def _current_slots(self) -> NDArray[np.int64]:
        return np.arange(self.last - self._span + 1, self.last + 1) % self.slots

    def columns(
        self, probe: int, count: int, slots_each: int
    ) -> tuple[Bins, NDArray[np.int64], NDArray[np.float64], int]:
        """The last ``count`` columns of ``slots_each`` slots: counts [count][BINS], the largest age in flight of each
        (ns, 0 for none), the observed time of each (s), and the number of the first column. A slot always belongs to
        the same column."""
        last = self.last // slots_each
        first = last - count + 1
        wanted = np.arange(first * slots_each, (last + 1) * slots_each)
        known = (wanted >= self._first) & (wanted > self.last - self.slots) & (wanted <= self.last) & (wanted >= 0)
        counts = np.where(known[:, None], self._counts[probe, wanted % self.slots], 0)
        ages = np.where(known, self._ages[probe, wanted % self.slots], _NO_AGE).reshape(count, slots_each).max(axis=1)
        in_ns = np.where(ages >= 0, LOWER[np.maximum(ages, 0)], 0)
        allowed = np.maximum(self._observed_ns - self._closed_ns[probe], 0)[wanted % self.slots]
        observed = np.where(known, allowed, 0).reshape(count, slots_each).sum(axis=1) / 1e9
        return counts.reshape(count, slots_each, BINS).sum(axis=1, dtype=np.uint32), in_ns, observed, first

    def strip(self, probe: int, count: int, slots_each: int) -> tuple[int, ...]:
        """The bin (0 to BINS - 1) of each of the last columns: of its p99 or of the oldest call in flight, whichever is
        larger; -1 for no call."""
        counts, ages, _, _ = self.columns(probe, count, slots_each)
        from_top = np.cumsum(counts[:, ::-1], axis=1)
        total = from_top[:, -1]
        # The number of bins that lie wholly within the slowest 1 %.
        above = (from_top <= total[:, None] // 100).sum(axis=1)
        level = np.where(total > 0, BINS - 1 - above, -1)
        aged = np.array([position(float(age), BINS) if age else -1 for age in ages], dtype=np.int64)
        return tuple(int(value) for value in np.maximum(level, aged))
