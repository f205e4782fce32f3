"""Writes samples to a probe's section of the board, as the compiled loop does: histograms, statistics, ring."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.board import ProbeSection
from stallprobes.engine.layout import COUNT, FIRST_NS, MAX_NS, RING, RING_HEAD, SUM_NS
from stallprobes.latency.histogram import BUCKETS, LOWER, SUB, SUB_BITS, index, indices

_LAST = BUCKETS - 1
_STATS = 4
# From so many values on, numpy adds them faster than a loop: periods that passed, and counts of any values.
_MANY, _MANY_COUNTS = 16, 48


class HistogramWriter:
    """Writes one probe's section of the board. Access to a memoryview's element takes a third of numpy's time."""

    def __init__(self, part: ProbeSection) -> None:
        self._part = part
        self.words = part.words.data
        self._hist = part.hist.reshape(-1).data
        self._stats = part.stats.reshape(-1).data
        self._ring = part.ring.reshape(-1).data

    def count(self, channel: int, value: int) -> None:
        """Add ``value`` ns to a channel."""
        self.count_list((channel,), [value])

    def first(self, channel: int, value: int) -> None:
        """Store a value of the first iteration, which no histogram counts; the channel's first one is kept."""
        at = channel * _STATS + FIRST_NS
        if self._stats[at] < 0:
            self._stats[at] = max(value, 0)

    def push(self, end: int, channel: int, value: int) -> None:
        """Append a call to the ring."""
        words, ring = self.words, self._ring
        head = words[RING_HEAD]
        at = head % RING * 3
        ring[at] = end
        ring[at + 1] = channel
        ring[at + 2] = value
        words[RING_HEAD] = head + 1

    def count_all(self, channels: Iterable[int], values: NDArray[np.int64]) -> None:
        """Add all ``values`` ns to each of ``channels``."""
        counts = np.bincount(indices(values), minlength=BUCKETS).astype(np.uint64)
        self._add_statistics(channels, len(values), int(values.sum()), int(values.max()))
        for channel in channels:
            self._part.hist[channel] += counts

    def count_list(self, channels: Iterable[int], values: list[int]) -> None:
        """Add ``values`` ns, at least one, to each of ``channels``; with few of them faster than ``count_all``."""
        if len(values) >= _MANY_COUNTS:
            self.count_all(channels, np.array(values, dtype=np.int64))
            return
        self._add_statistics(channels, len(values), sum(values), max(values))
        hist = self._hist
        starts = [channel * BUCKETS for channel in channels]
        for value in values:
            if value >= SUB:
                # ``histogram.index``, inlined for speed.
                exponent = value.bit_length() - SUB_BITS - 1
                bucket = exponent * SUB + (value >> exponent)
                if bucket > _LAST:
                    bucket = _LAST
            else:
                bucket = max(value, 0)
            for start in starts:
                hist[start + bucket] += 1

    def _add_statistics(self, channels: Iterable[int], number: int, sum_ns: int, max_ns: int) -> None:
        stats = self._stats
        for channel in channels:
            at = channel * _STATS
            stats[at + MAX_NS] = max(stats[at + MAX_NS], max_ns)
            stats[at + COUNT] += number
            stats[at + SUM_NS] += sum_ns

    def push_all(self, ends: NDArray[np.int64], channels: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        """Append calls to the ring, which keeps the last RING of them."""
        head = self.words[RING_HEAD]
        kept = min(len(ends), RING)
        places = (head + np.arange(len(ends) - kept, len(ends))) % RING
        self._part.ring[places] = np.stack((ends[-kept:], channels[-kept:], values[-kept:]), axis=1)
        self.words[RING_HEAD] = head + len(ends)

    def passed(self, channel: int, value: int, period: int) -> None:
        """Count value - period, value - 2 period and so on while above 0."""
        number = (value - 1) // period
        if number <= 0:
            return
        at = channel * _STATS
        self._stats[at + COUNT] += number
        self._stats[at + SUM_NS] += number * value - period * (number * (number + 1) // 2)
        if number < _MANY:
            for rest in range(value - period, 0, -period):
                self._hist[channel * BUCKETS + index(rest)] += 1
            return
        first, last = index(value - number * period), index(value - period)
        # How many values are at least as large as the lower limit of each bucket, and so in it or above.
        above = (value - LOWER[first : last + 1]) // period
        above[0] = number
        counts = above - np.append(above[1:], 0)
        self._part.hist[channel, first : last + 1] += counts.astype(np.uint64)
