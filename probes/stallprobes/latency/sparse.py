"""Sparse histograms: they store only the buckets in use and convert to dense ones on request.

A dense histogram takes 18 KiB. The check of a hundred hosts has about 250 000 histograms, each with a few dozen buckets
in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import BUCKETS, LOWER, MIDDLE, Histogram, rank
from stallprobes.latency.window import ChannelMap
from stallprobes.model import Channel

# The largest integer that every JSON parser represents exactly.
MOST = 2**53


@dataclass(frozen=True, eq=False)
class SparseHistogram:
    """The buckets in use of one histogram, int64[2, n]: their numbers, ascending, and their counts, all above 0.

    ``max_ns`` is the exact maximum in nanoseconds.
    """

    used: NDArray[np.int64]
    max_ns: int

    @classmethod
    def of(cls, histogram: Histogram) -> SparseHistogram:
        """``histogram`` without its empty buckets."""
        places = np.flatnonzero(histogram.counts)
        return cls(np.stack((places, histogram.counts[places].astype(np.int64))), histogram.max_ns)

    @classmethod
    def read(cls, pairs: Any, max_ns: Any) -> SparseHistogram:
        """The histogram of ``[[lower bound in ns, count], ...]``.

        Raises ValueError, with a message without its subject, unless the bounds are ascending lower bounds of
        buckets, the counts and their sum are 1 to 2**53, and the maximum is not below the highest bucket.
        """
        if type(max_ns) is not int or not 0 <= max_ns <= MOST:
            raise ValueError("has a max_ns that is not a whole number of nanoseconds from 0 to 2**53")
        if type(pairs) is not list or not set(map(type, pairs)) <= {list} or not set(map(len, pairs)) <= {2}:
            raise ValueError("has a histogram that is not a list of pairs")
        if not pairs:
            return cls(np.zeros((2, 0), dtype=np.int64), max_ns)
        flat = list(chain.from_iterable(pairs))
        if set(map(type, flat)) != {int} or min(flat) < 0 or max(flat) > MOST:
            raise ValueError("has a bound or count that is not a whole number from 0 to 2**53")
        used = np.array(flat, dtype=np.int64).reshape(-1, 2).T.copy()
        if not used[1].all() or sum(flat[1::2]) > MOST:
            raise ValueError("has a count of 0, or counts above 2**53 in total")
        places = np.searchsorted(LOWER, used[0], side="right") - 1
        if (LOWER[places] != used[0]).any():
            raise ValueError("has a bound that is not a bucket's lower bound")
        if (places[1:] <= places[:-1]).any():
            raise ValueError("has buckets that do not ascend")
        if max_ns < pairs[-1][0]:
            raise ValueError("has a max_ns below its highest bucket")
        used[0] = places
        return cls(used, max_ns)

    @classmethod
    def part(cls, used: NDArray[np.int64], start: int, end: int, max_ns: int, count: int) -> SparseHistogram:
        """The histogram of ``count`` values whose buckets are those of ``used`` from ``start`` to ``end``."""
        # What the constructor and ``count`` do, at a third of their cost: a check has 13 000 histograms.
        found = cls.__new__(cls)
        found.__dict__.update(used=used[:, start:end], max_ns=max_ns, count=count)
        return found

    @cached_property
    def count(self) -> int:
        """Number of values."""
        return int(self.used[1].sum())

    def percentile(self, q: float) -> float | None:
        """The percentile ``q`` of the dense histogram, exactly as it computes it."""
        # Reports and comparisons ask for the same percentile several times.
        known: dict[float, float | None] = self.__dict__.setdefault("_percentiles", {})
        if q not in known:
            known[q] = self._percentile(q)
        return known[q]

    def _percentile(self, q: float) -> float | None:
        places, counts = self.used
        if not len(places):
            return None
        place = places[counts.cumsum().searchsorted(rank(q, self.count), side="left")]
        return min(float(MIDDLE[place]), float(self.max_ns))

    def pairs(self) -> list[list[int]]:
        """``[[lower bound in ns, count], ...]``, ascending."""
        found = self.used.T.copy()
        found[:, 0] = LOWER[self.used[0]]
        return found.tolist()  # type: ignore[no-any-return]

    def dense(self) -> Histogram:
        """The same histogram with all its buckets."""
        counts = np.zeros(BUCKETS, dtype=np.uint64)
        counts[self.used[0]] = self.used[1]
        counts.flags.writeable = False
        return Histogram(counts, self.max_ns)


@dataclass(frozen=True, eq=False)
class HistogramSum:
    """The sum of several sparse histograms: ``counts`` by bucket up to the last one in use, ``count`` in total.

    ``counts`` are integers, or floats below 2**53, which are exact. Finding the buckets in use again, or a dense
    histogram, would take longer than the sum.
    """

    counts: NDArray[Any]
    count: int
    max_ns: int

    def percentile(self, q: float) -> float | None:
        """The percentile ``q`` of the dense histogram, exactly as it computes it."""
        # Reports and comparisons ask for the same percentile several times.
        known: dict[float, float | None] = self.__dict__.setdefault("_percentiles", {})
        if q not in known:
            place = self.counts.cumsum().searchsorted(rank(q, self.count), side="left") if self.count else None
            known[q] = None if place is None else min(float(MIDDLE[place]), float(self.max_ns))
        return known[q]

    def percentile_or_none(self, q: float, need: int) -> float | None:
        """The percentile ``q`` in ns, or None with fewer than ``need`` values."""
        return self.percentile(q) if self.count >= need else None

    def dense(self) -> Histogram:
        """The sum as a histogram with all buckets."""
        counts = np.zeros(BUCKETS, dtype=np.uint64)
        counts[: len(self.counts)] = self.counts
        counts.flags.writeable = False
        return Histogram(counts, self.max_ns)


class SparseChannels(Mapping[Channel, Histogram]):
    """Histograms by channel, stored sparse. Each access creates a dense histogram."""

    __slots__ = ("_held",)

    def __init__(self, held: Mapping[Channel, SparseHistogram]) -> None:
        self._held = dict(held)

    @classmethod
    def of(cls, channels: ChannelMap) -> SparseChannels:
        """``channels`` in sparse form; the same object if it is sparse already."""
        return channels if isinstance(channels, cls) else cls({one: sparse(channels, one) for one in channels})

    def __getitem__(self, channel: Channel) -> Histogram:
        return self._held[channel].dense()

    def __iter__(self) -> Iterator[Channel]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, channel: object) -> bool:
        return channel in self._held

    @property
    def count(self) -> int:
        """Number of values in all histograms."""
        return sum([one.count for one in self._held.values()])

    def histograms(self) -> Iterable[tuple[Channel, SparseHistogram]]:
        """Each channel with its buckets in use."""
        return self._held.items()

    def sparse(self, channel: Channel) -> SparseHistogram:
        """The buckets in use of ``channel``. Raises KeyError."""
        return self._held[channel]

    def figure(self, channel: Channel, q: float) -> tuple[int, float | None]:
        """Number of values and percentile ``q`` of ``channel``; 0 and None without it."""
        found = self._held.get(channel)
        return (0, None) if found is None else (found.count, found.percentile(q))


def sparse(channels: ChannelMap, channel: Channel) -> SparseHistogram:
    """The buckets in use of one of ``channels``, which need not be ``SparseChannels``. Raises KeyError."""
    return channels.sparse(channel) if isinstance(channels, SparseChannels) else SparseHistogram.of(channels[channel])


def figure(channels: ChannelMap, channel: Channel, q: float) -> tuple[int, float | None]:
    """Number of values and percentile ``q`` of one of ``channels``; 0 and None without it."""
    if not isinstance(channels, SparseChannels):
        channels = SparseChannels({channel: sparse(channels, channel)} if channel in channels else {})
    return channels.figure(channel, q)


def value_count(channels: ChannelMap) -> int:
    """Number of values in all histograms of ``channels``."""
    if isinstance(channels, SparseChannels):
        return channels.count
    return sum(histogram.count for histogram in channels.values())


def merged(parts: Iterable[ChannelMap]) -> dict[Channel, Histogram]:
    """The sum of the histograms of each channel, dense."""
    return {channel: one.dense() for channel, one in summed(parts).items()}


def summed(parts: Iterable[ChannelMap]) -> dict[Channel, HistogramSum]:
    """The sum of the histograms of each channel, for percentiles and counts."""
    return {channel: _summed(held) for channel, held in _by_channel(parts).items()}


def _by_channel(parts: Iterable[ChannelMap]) -> dict[Channel, list[SparseHistogram]]:
    held: dict[Channel, list[SparseHistogram]] = {}
    for part in parts:
        for channel, one in SparseChannels.of(part).histograms():
            held.setdefault(channel, []).append(one)
    return held


def _summed(parts: list[SparseHistogram]) -> HistogramSum:
    used = np.concatenate([one.used for one in parts], axis=1)
    count, max_ns = sum([one.count for one in parts]), max([one.max_ns for one in parts])
    if count <= MOST:
        return HistogramSum(np.bincount(used[0], used[1]), count, max_ns)
    counts = np.zeros(BUCKETS, dtype=np.int64)
    np.add.at(counts, used[0], used[1])
    return HistogramSum(counts, count, max_ns)
