"""Writes samples to a probe's section of the board, as the compiled loop does: histograms, statistics, ring."""

from __future__ import annotations

from collections.abc import Iterable

from stallprobes.engine.board import ProbeSection
from stallprobes.latency.histogram import index, waiting
from stallprobes.native.layouts.board import SAMPLES, ChannelStats, Sample
from stallprobes.native.layouts.histogram import BUCKETS


class HistogramWriter:
    """Writes one probe's section of the board, word by word. An element of an array of NumPy's takes three times as
    long as one of a memoryview or a field of a structure."""

    def __init__(self, part: ProbeSection) -> None:
        self._part = part
        self.words = part.words
        self._hist = part.hist.reshape(-1).data
        self._stats = list((ChannelStats * len(part.stats)).from_buffer(part.stats.data))
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

    def count_list(self, channels: Iterable[int], values: list[int]) -> None:
        """Add ``values`` ns, at least one, to each of ``channels``."""
        for channel in channels:
            stats = self._stats[channel]
            stats.max_ns = max(stats.max_ns, max(values))
            stats.count += len(values)
            stats.sum_ns += sum(values)
        hist = self._hist
        starts = [channel * BUCKETS for channel in channels]
        for value in values:
            bucket = index(value)
            for start in starts:
                hist[start + bucket] += 1

    def passed(self, channel: int, value: int, period: int) -> None:
        """Count value - period, value - 2 period and so on while above 0."""
        number = (value - 1) // period
        if number <= 0:
            return
        stats = self._stats[channel]
        stats.count += number
        stats.sum_ns += number * value - period * (number * (number + 1) // 2)
        self._part.hist[channel] += waiting(value - period, period)
