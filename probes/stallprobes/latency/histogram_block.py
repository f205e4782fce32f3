"""Block of sparse histograms: many of them in few arrays, each made as an object only when it is used.

A check has 13 000 histograms. Sums and percentiles of all of them by numpy take a fraction of the time of one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.dense import DenseChannels
from stallprobes.latency.histogram import BUCKETS, MIDDLE, ranks
from stallprobes.latency.sparse import MOST, SparseChannels, SparseHistogram, summed
from stallprobes.latency.window import ChannelMap
from stallprobes.model import Channel


@dataclass(frozen=True, eq=False, slots=True)
class HistogramBlock:
    """Histograms one after the other.

    The buckets in use of histogram i and their counts are ``used`` (int64[2, n]) from ``borders[i]`` to
    ``borders[i + 1]``, ``maxima[i]`` is its exact maximum in ns and ``totals[i]`` the number of its values.
    """

    used: NDArray[np.int64]
    borders: list[int]
    maxima: list[int]
    totals: list[int]
    # Those that are known, by percentile.
    known: dict[float, list[float | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, histograms: Sequence[SparseHistogram]) -> HistogramBlock:
        """A block with a copy of ``histograms``."""
        used = [one.used for one in histograms]
        return cls(
            used=np.concatenate(used, axis=1) if used else np.zeros((2, 0), dtype=np.int64),
            borders=[0, *accumulate(one.shape[1] for one in used)],
            maxima=[one.max_ns for one in histograms],
            totals=[one.count for one in histograms],
        )

    @classmethod
    def of_dense(cls, channels: ChannelMap) -> HistogramBlock:
        """A block with the buckets in use of the histograms of ``channels``, at least one."""
        if not isinstance(channels, DenseChannels):
            counts = np.stack([one.counts for one in channels.values()])
            channels = DenseChannels(tuple(channels), counts, [one.max_ns for one in channels.values()])
        lines, places, borders = channels.in_use
        used = np.empty((2, len(places)), dtype=np.int64)
        used[0], used[1] = places, channels.counts[lines, places]
        sums = np.zeros(len(places) + 1, dtype=np.int64)
        used[1].cumsum(out=sums[1:])
        ends = sums[borders]
        return cls(used, borders.tolist(), channels.maxima, (ends[1:] - ends[:-1]).tolist())

    def histogram(self, number: int) -> SparseHistogram:
        """Histogram ``number``."""
        begin, end = self.borders[number : number + 2]
        return SparseHistogram.part(self.used, begin, end, self.maxima[number], self.totals[number])

    def percentiles(self, q: float) -> list[float | None]:
        """The percentile ``q`` of each histogram, as it computes it."""
        found = self.known.get(q)
        if found is None:
            found = self.known[q] = self._computed(q)
        return found

    def _computed(self, q: float) -> list[float | None]:
        if not self.used.shape[1]:
            return [None] * len(self.totals)
        sums = np.concatenate(([0], np.cumsum(self.used[1])))
        wanted = sums[self.borders[:-1]] + ranks(q, np.array(self.totals, dtype=np.int64))
        # The counts are above 0, so that the sums ascend over all histograms. An empty one may be the last.
        places = np.minimum(sums.searchsorted(wanted), len(sums) - 1) - 1
        middles = np.minimum(MIDDLE[self.used[0, places]], np.array(self.maxima, dtype=np.float64)).tolist()
        return [middle if total else None for middle, total in zip(middles, self.totals, strict=True)]


class BlockChannels(SparseChannels):
    """Histograms by channel in a block: those of ``channels`` are its histograms from number ``first`` on."""

    __slots__ = ("_made", "block", "channels", "first")

    def __init__(self, block: HistogramBlock, first: int, channels: tuple[Channel, ...]) -> None:
        self.block = block
        self.first = first
        self.channels = channels
        self._made: dict[Channel, SparseHistogram] | None = None

    def __reduce__(self) -> tuple[type[BlockChannels], tuple[HistogramBlock, int, tuple[Channel, ...]]]:
        # Without the histograms that were made.
        return BlockChannels, (self.block, self.first, self.channels)

    @classmethod
    def copied(cls, channels: ChannelMap) -> BlockChannels:
        """``channels`` in a block of their own; the same object if they are in one already."""
        if isinstance(channels, cls):
            return channels
        held = dict(SparseChannels.of(channels).histograms())
        if not held:
            return NO_CHANNELS
        return cls(HistogramBlock.of(list(held.values())), 0, tuple(held))

    @classmethod
    def of_dense(cls, channels: ChannelMap) -> SparseChannels:
        """``channels`` in a block of their own; the same object if they are sparse already."""
        if isinstance(channels, SparseChannels):
            return channels
        return cls(HistogramBlock.of_dense(channels), 0, tuple(channels)) if channels else NO_CHANNELS

    @property
    # The base class has an attribute that is filled at once.
    def _held(self) -> dict[Channel, SparseHistogram]:  # type: ignore[override]
        if self._made is None:
            block, first = self.block, self.first
            self._made = {channel: block.histogram(first + place) for place, channel in enumerate(self.channels)}
        return self._made

    def __iter__(self) -> Iterator[Channel]:
        return iter(self.channels)

    def __len__(self) -> int:
        return len(self.channels)

    def __contains__(self, channel: object) -> bool:
        return channel in self.channels

    def figure(self, channel: Channel, q: float) -> tuple[int, float | None]:
        """Number of values and percentile ``q`` of ``channel``; 0 and None without it."""
        if channel not in self.channels:
            return 0, None
        number = self.first + self.channels.index(channel)
        return self.block.totals[number], self.block.percentiles(q)[number]

    @property
    def count(self) -> int:
        """Number of values in all histograms."""
        return sum(self.block.totals[self.first : self.first + len(self.channels)])


NO_CHANNELS = BlockChannels(HistogramBlock.of([]), 0, ())


def merged_sparse(groups: Iterable[Iterable[ChannelMap]]) -> list[SparseChannels]:
    """For each of ``groups`` the sum of the histograms of each channel, sparse.

    Many groups at once take a fraction of the time of one by one.
    """
    listed = [[BlockChannels.copied(part) for part in parts] for parts in groups]
    histograms = _Histograms()
    channels_of = [histograms.add_group(parts) for parts in listed]
    if sum(histograms.totals) > MOST:
        return [SparseChannels({channel: SparseHistogram.of(one.dense()) for channel, one in summed(parts).items()})
                for parts in listed]  # fmt: skip
    block = histograms.sums()
    found: list[SparseChannels] = []
    first = 0
    for channels in channels_of:
        found.append(BlockChannels(block, first, channels))
        first += len(channels)
    return found


class _Histograms:
    """Histograms of several blocks, each with the number of the sum that it belongs to."""

    def __init__(self) -> None:
        self.totals: list[int] = []
        self._maxima: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._sum_of: list[int] = []
        self._sums = 0
        # The blocks with the place of each in all of them, and for each of the parts its block's place and its size.
        self._blocks: dict[int, tuple[HistogramBlock, int]] = {}
        self._length = 0
        self._places: list[int] = []
        self._sizes: list[int] = []

    def add_group(self, parts: Iterable[BlockChannels]) -> tuple[Channel, ...]:
        """Add the histograms of ``parts``, of which those of one channel have a common sum. Returns the channels."""
        numbers: dict[Channel, int] = {}
        last: tuple[Channel, ...] = ()
        mine: list[int] = []
        for part in parts:
            block, first, channels = part.block, part.first, part.channels
            if channels is not last:
                for channel in channels:
                    numbers.setdefault(channel, self._sums + len(numbers))
                last, mine = channels, [numbers[channel] for channel in channels]
            end = first + len(channels)
            self._starts += block.borders[first:end]
            self._ends += block.borders[first + 1 : end + 1]
            self._maxima += block.maxima[first:end]
            self.totals += block.totals[first:end]
            self._sum_of += mine
            known = self._blocks.get(id(block))
            if known is None:
                known = self._blocks[id(block)] = block, self._length
                self._length += block.used.shape[1]
            self._places.append(known[1])
            self._sizes.append(len(channels))
        self._sums += len(numbers)
        return tuple(numbers)

    def sums(self) -> HistogramBlock:
        """The sums, by their numbers."""
        blocks = [block.used for block, _ in self._blocks.values()]
        used = np.concatenate(blocks, axis=1) if blocks else np.zeros((2, 0), dtype=np.int64)
        starts, ends = np.array(self._starts, dtype=np.int64), np.array(self._ends, dtype=np.int64)
        sum_of, sizes = np.array(self._sum_of, dtype=np.int64), ends - starts
        starts += np.repeat(np.array(self._places, dtype=np.int64), self._sizes)
        maxima, totals = np.zeros(self._sums, dtype=np.int64), np.zeros(self._sums, dtype=np.int64)
        np.maximum.at(maxima, sum_of, np.array(self._maxima, dtype=np.int64))
        np.add.at(totals, sum_of, np.array(self.totals, dtype=np.int64))
        # The dense sums have only the buckets from the first to the last one in use.
        low, high = np.full(self._sums, BUCKETS, dtype=np.int64), np.zeros(self._sums, dtype=np.int64)
        filled = sizes > 0
        np.minimum.at(low, sum_of[filled], used[0, starts[filled]])
        np.maximum.at(high, sum_of[filled], used[0, starts[filled] + sizes[filled] - 1] + 1)
        borders = np.concatenate(([0], np.cumsum(np.maximum(high - low, 0))))
        shifts = borders[:-1] - low
        # The places in ``used`` of the buckets of all histograms, in their order.
        gathered = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        gathered += np.arange(len(gathered))
        buckets, counts = used[:, gathered]
        dense = np.bincount(buckets + np.repeat(shifts[sum_of], sizes), counts, minlength=int(borders[-1]))
        places = dense.nonzero()[0]
        limits = places.searchsorted(borders)
        found = np.empty((2, len(places)), dtype=np.int64)
        np.subtract(places, np.repeat(shifts, np.diff(limits)), out=found[0])
        found[1] = dense[places]
        return HistogramBlock(found, limits.tolist(), maxima.tolist(), totals.tolist())
