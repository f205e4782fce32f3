"""Many histograms in little memory: only the buckets in use are held, a whole histogram is made when one is asked for.

A whole histogram takes 18 KiB whatever is in it. A check of a hundred hosts has some 250 000 of them, each with a few
dozen buckets in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import BUCKETS, LOWER, Histogram
from stallprobes.model import Channel

# The largest whole number that every reader of JSON keeps exactly.
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
    def read(cls, told: Any, max_ns: Any) -> SparseHistogram:
        """The histogram told as ``[[lower bound in ns, count], ...]``.

        Raises ValueError, with what is wrong in words, for anything but ascending lower bounds of buckets with
        counts of 1 to 2**53, also taken together, and a maximum that is not below the highest bucket.
        """
        if type(max_ns) is not int or not 0 <= max_ns <= MOST:
            raise ValueError("has a max_ns that is no whole number of nanoseconds from 0 to 2**53")
        if type(told) is not list or not set(map(type, told)) <= {list} or not set(map(len, told)) <= {2}:
            raise ValueError("has a histogram that is no list of pairs")
        if not told:
            return cls(np.zeros((2, 0), dtype=np.int64), max_ns)
        flat = list(chain.from_iterable(told))
        if set(map(type, flat)) != {int} or min(flat) < 0 or max(flat) > MOST:
            raise ValueError("has a bound or count that is no whole number from 0 to 2**53")
        pairs = np.array(flat, dtype=np.int64).reshape(-1, 2).T.copy()
        if not pairs[1].all() or sum(flat[1::2]) > MOST:
            raise ValueError("has a count of 0, or counts above 2**53 taken together")
        places = np.searchsorted(LOWER, pairs[0], side="right") - 1
        if (LOWER[places] != pairs[0]).any():
            raise ValueError("has a bound that is no bucket's lower bound")
        if (places[1:] <= places[:-1]).any():
            raise ValueError("has buckets that do not ascend")
        if max_ns < told[-1][0]:
            raise ValueError("has a max_ns below its highest bucket")
        pairs[0] = places
        return cls(pairs, max_ns)

    @property
    def count(self) -> int:
        """How many values it holds."""
        return int(self.used[1].sum())

    def pairs(self) -> list[list[int]]:
        """``[[lower bound in ns, count], ...]``, ascending."""
        return np.stack((LOWER[self.used[0]], self.used[1]), axis=1).tolist()  # type: ignore[no-any-return]

    def whole(self) -> Histogram:
        """The histogram itself."""
        counts = np.zeros(BUCKETS, dtype=np.uint64)
        counts[self.used[0]] = self.used[1]
        counts.flags.writeable = False
        return Histogram(counts, self.max_ns)


class SparseChannels(Mapping[Channel, Histogram]):
    """Histograms by channel, each made anew when it is asked for."""

    __slots__ = ("_held",)

    def __init__(self, held: Mapping[Channel, SparseHistogram]) -> None:
        self._held = dict(held)

    @classmethod
    def of(cls, histograms: Mapping[Channel, Histogram]) -> SparseChannels:
        """``histograms`` without their empty buckets."""
        return cls({channel: sparse(histograms, channel) for channel in histograms})

    def __getitem__(self, channel: Channel) -> Histogram:
        return self._held[channel].whole()

    def __iter__(self) -> Iterator[Channel]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, channel: object) -> bool:
        return channel in self._held

    def sparse(self, channel: Channel) -> SparseHistogram:
        """The buckets in use of ``channel``. Raises KeyError."""
        return self._held[channel]


def sparse(histograms: Mapping[Channel, Histogram], channel: Channel) -> SparseHistogram:
    """The buckets in use of one of ``histograms``, which need not be ``SparseChannels``. Raises KeyError."""
    return (
        histograms.sparse(channel)
        if isinstance(histograms, SparseChannels)
        else SparseHistogram.of(histograms[channel])
    )


def counted(histograms: Mapping[Channel, Histogram]) -> int:
    """How many values all of ``histograms`` hold."""
    return sum(sparse(histograms, channel).count for channel in histograms)
