"""Writes samples to a probe's section of the board, as the compiled loop does: histograms, statistics, ring."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.board import ProbeSection
from stallprobes.latency.histogram import index, indices, waiting
from stallprobes.native.layouts.board import SAMPLES, ChannelStats, Sample
from stallprobes.native.layouts.histogram import BUCKETS

# Smallest number of a call's delays that numpy adds to a histogram. For fewer delays, a loop is faster. Each iteration
# that became due during the call has a delay, from the due time to the call's return.
_MANY_DELAYS = 16
# Smallest number of values other than delays that numpy adds to a histogram. For fewer values, a loop is faster.
_MANY_VALUES = 48


class HistogramWriter:
    """Writes one probe's section of the board, word by word. An element of an array of NumPy's takes three times as
    long as one of a memoryview or a field of a structure."""

    def __init__(self, part: ProbeSection) -> None:
        self._part = part
        self.words = part.words
        self._hist = part.hist.reshape(-1).data
        rows = len(part.stats)
        self._stats = list((ChannelStats * rows).from_buffer(part.stats.data))
        self._samples = (Sample * SAMPLES).from_buffer(part.samples.data)

    def count(self, channel: int, value: int) -> None:
        """Add ``value`` ns to a channel."""
        self.count_list((channel,), [value])

    def first(self, channel: int, value: int) -> None:
        """Store a value of the first iteration, which no histogram counts; the channel's first one is kept."""
        stats = self._stats[channel]
        if stats.first_ns < 0:
            stats.first_ns = max(value, 0)

    def push(self, end: int, channel: int, value: int) -> None:
        """Append a measured call to the ring."""
        words = self.words
        number = words.samples
        sample = self._samples[number % SAMPLES]
        sample.end_ns = end
        sample.channel = channel
        sample.value_ns = value
        words.samples = number + 1

    def count_all(self, channels: Iterable[int], values: NDArray[np.int64]) -> None:
        """Add all ``values`` ns to each of ``channels``."""
        counts = np.bincount(indices(values), minlength=BUCKETS).astype(np.uint64)
        self._add_statistics(channels, len(values), int(values.sum()), int(values.max()))
        for channel in channels:
            self._part.hist[channel] += counts

    def count_list(self, channels: Iterable[int], values: list[int]) -> None:
        """Add ``values`` ns, at least one, to each of ``channels``; with few of them faster than ``count_all``."""
        if len(values) >= _MANY_VALUES:
            self.count_all(channels, np.array(values, dtype=np.int64))
            return
        self._add_statistics(channels, len(values), sum(values), max(values))
        hist = self._hist
        starts = [channel * BUCKETS for channel in channels]
        for value in values:
            bucket = index(value)
            for start in starts:
                hist[start + bucket] += 1

    def _add_statistics(self, channels: Iterable[int], number: int, sum_ns: int, max_ns: int) -> None:
        for channel in channels:
            stats = self._stats[channel]
            if max_ns > stats.max_ns:
                stats.max_ns = max_ns
            stats.count += number
            stats.sum_ns += sum_ns

    def passed(self, channel: int, value: int, period: int) -> None:
        """Count value - period, value - 2 period and so on while above 0."""
        number = (value - 1) // period
        if number <= 0:
            return
        stats = self._stats[channel]
        stats.count += number
        stats.sum_ns += number * value - period * (number * (number + 1) // 2)
        if number < _MANY_DELAYS:
            for rest in range(value - period, 0, -period):
                self._hist[channel * BUCKETS + index(rest)] += 1
            return
        self._part.hist[channel] += waiting(value - period, period)
