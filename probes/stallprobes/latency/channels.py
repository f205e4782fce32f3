"""Histograms by channel: sums and differences, those of many channels at once in a fraction of the time, and what is
judged."""

from __future__ import annotations

from collections.abc import Iterable

from stallprobes.latency.histogram import Histogram, HistogramBlock
from stallprobes.latency.window import ChannelMap
from stallprobes.model import Channel, Phase


def merged(parts: Iterable[ChannelMap]) -> dict[Channel, Histogram]:
    """The sum of the histograms of each channel."""
    (sums,) = merged_groups([parts])
    return sums


def merged_groups(groups: Iterable[Iterable[ChannelMap]]) -> list[dict[Channel, Histogram]]:
    """For each of ``groups`` the sum of the histograms of each channel."""
    histograms: list[Histogram] = []
    sum_of: list[int] = []
    sums: list[dict[Channel, int]] = []
    rows = 0
    for parts in groups:
        numbers: dict[Channel, int] = {}
        for part in parts:
            sum_of += [numbers.setdefault(channel, rows + len(numbers)) for channel in part]
            histograms += part.values()
        sums.append(numbers)
        rows += len(numbers)
    block = HistogramBlock.sums(histograms, sum_of, rows)
    return [{channel: Histogram(block, row) for channel, row in numbers.items()} for numbers in sums]


def difference(later: ChannelMap, earlier: ChannelMap) -> dict[Channel, Histogram]:
    """The values that each channel of ``later`` has got since ``earlier``, which may lack some of its channels.

    Raises ValueError if ``earlier`` has another channel, or more values in any bucket.
    """
    if not earlier.keys() <= later.keys():
        raise ValueError("the earlier histograms have another channel")
    before = [earlier.get(channel, Histogram.empty()) for channel in later]
    block = HistogramBlock.of(list(later.values())).minus(HistogramBlock.of(before))
    return dict(zip(later, block.histograms(), strict=True))


def judged_histogram(channels: ChannelMap, channel: Channel) -> Histogram | None:
    """The histogram of ``channel`` that is judged, None without one: that of a start with the early ones as 0 ns.

    The timeline keeps starts before the call's return apart, by magnitude. Those after it are then only a part of the
    calls, and their percentiles say nothing about all of them. So a start before the return counts as a delay of 0.
    """
    found = channels.get(channel)
    if channel.phase is not Phase.START:
        return found
    early = channels.get(Channel(Phase.EARLY, channel.label))
    if early is None or not early.count:
        return found
    return (found or Histogram.empty()).merge(Histogram.read([[0, early.count]], 0))
