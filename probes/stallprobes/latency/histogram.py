"""Log-linear histograms of nanoseconds: 64 buckets per octave, a relative width of at most 1/64.

Values below 128 ns are exact; the last bucket contains all values from about 2180 s on. A histogram stores only its
buckets in use: with all of them it would take 18 KiB, and the checks of a hundred hosts have 250 000 histograms with a
few dozen buckets each. Several are rows of one block, whose percentiles and sums numpy computes at once. The module
needs numpy only, so that reading results does not load a compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, chain
from operator import ge
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.histogram import BUCKETS, SUB, SUB_BITS

# Largest number of calls in a histogram. Reason: every JSON parser represents integers up to this number exactly.
MOST = 2**53
# Largest latency (ns) that a histogram may have as its maximum.
LARGEST = 2**62

Counts = NDArray[np.uint64]
Int64s = NDArray[np.int64]
# Numbers of buckets with their counts, as in a document.
Pairs = Sequence[Sequence[int]]


def index(value: int) -> int:
    """The bucket of ``value`` ns. Negative values belong to the first bucket, too large ones to the last.

    With an exponent of the value's bit length less SUB_BITS + 1, the bucket is exponent * SUB + (value >> exponent).
    The compiled loop has a copy of this formula; a test compares the two.
    """
    if value < SUB:
        return max(value, 0)
    exponent = value.bit_length() - SUB_BITS - 1
    return min(exponent * SUB + (value >> exponent), BUCKETS - 1)


def indices(values: Int64s) -> Int64s:
    """The buckets of ``values`` ns: ``index`` of each, for values below 2**53."""
    exponents = np.maximum(np.frexp(values)[1] - SUB_BITS - 1, 0)
    return np.asarray(np.clip(exponents * SUB + (values >> exponents), 0, BUCKETS - 1))


def lower(bucket: int) -> int:
    """The least value of ``bucket`` in ns."""
    exponent = max(bucket // SUB - 1, 0)
    return (bucket - exponent * SUB) << exponent


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


# Borders (ns) of the histogram's buckets: the lower bound of each bucket, then the upper bound of the last bucket. The
# last bucket is as wide as the other buckets of its octave (a factor of two).
_BOUNDS = _frozen(np.array([lower(i) for i in range(BUCKETS + 1)], dtype=np.int64))
# Lower bound (ns) of each histogram bucket; a value equal to it is in the bucket.
LOWER: Int64s = _BOUNDS[:-1]
# Upper bound (ns) of each histogram bucket. A value equal to the bound is in the next bucket. Exception: the last
# bucket also has all larger values.
UPPER: Int64s = _BOUNDS[1:]
# Middle (ns) of each histogram bucket. Means and percentiles use it in place of the values in the bucket.
MIDDLE: NDArray[np.float64] = _frozen((LOWER + UPPER - 1) / 2)


@lru_cache(maxsize=64)
def _share(q: float) -> tuple[int, int]:
    """Numerator and denominator of ``q`` / 100. Raises ValueError when ``q`` is not within 0 to 100."""
    if not 0 <= q <= 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {q}")
    # The decimal text is exact: as a binary fraction, 99.9 would give rank 1000 of 1000 values, not 999.
    return (Fraction(repr(float(q))) / 100).as_integer_ratio()


def ranks(q: float, counts: Int64s) -> Int64s:
    """The nearest rank, from 1, of percentile ``q`` (0 to 100) among each of ``counts`` values, rounded up.

    Raises ValueError when ``q`` is not within 0 to 100.
    """
    numerator, denominator = _share(q)
    # Python's integers for a product that exceeds 64 bits.
    whole = counts.astype(object) if numerator * int(counts.max(initial=0)) >= 1 << 63 else counts
    return np.asarray(np.maximum(-(-numerator * whole // denominator), 1), dtype=np.int64)


def waiting(age_ns: int, period_ns: int) -> Counts:
    """Counts (uint64[BUCKETS]) of age, age - period, age - 2 period, … above 0: the delays of all iterations due since.

    With a period of 0 only the age itself counts. The cost does not depend on the age.
    """
    counts = np.zeros(BUCKETS, dtype=np.uint64)
    if age_ns <= 0:
        return counts
    if period_ns <= 0:
        counts[index(age_ns)] = 1
        return counts
    floor = np.maximum(LOWER, 1)
    at_least = np.where(floor > age_ns, 0, (age_ns - floor) // period_ns + 1)
    counts[:] = at_least - np.append(at_least[1:], 0)
    counts[0] = 0
    return counts


@lru_cache(maxsize=256)
def _first_keys(rows: int) -> Int64s:
    """The key (row * BUCKETS + bucket) of the first bucket of each of so many rows, and of the one behind them."""
    return _frozen(np.arange(rows + 1) * BUCKETS)


@dataclass(frozen=True, eq=False, slots=True)
class HistogramBlock:
    """Histograms one after the other: the rows that ``Histogram`` refers to.

    The buckets in use of row i, ascending, and their counts, all above 0, are ``used`` (int64[2, n]) from
    ``borders[i]`` to ``borders[i + 1]``. ``maxima[i]`` is its exact maximum in ns (0 when empty) and ``totals[i]`` the
    number of its values. ``known`` holds the percentiles that were computed, by percent.
    """

    used: Int64s
    borders: list[int]
    maxima: list[int]
    totals: list[int]
    known: dict[float, list[float | None]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[HistogramBlock], tuple[Int64s, list[int], list[int], list[int]]]:
        return HistogramBlock, (self.used, self.borders, self.maxima, self.totals)

    @classmethod
    def of(cls, histograms: Sequence[Histogram]) -> HistogramBlock:
        """The block with ``histograms`` as its rows: their common block, a part of it, or a new block with copies."""
        if histograms:
            block, first = histograms[0].block, histograms[0].number
            if all(
                histogram.block is block and histogram.number == number
                for number, histogram in enumerate(histograms, first)
            ):
                return block._part(first, first + len(histograms))
        used = [histogram.used for histogram in histograms]
        return cls(
            used=np.concatenate(used, axis=1) if used else np.zeros((2, 0), dtype=np.int64),
            borders=[0, *accumulate([buckets.shape[1] for buckets in used])],
            maxima=[histogram.max_ns for histogram in histograms],
            totals=[histogram.count for histogram in histograms],
        )

    @classmethod
    def of_counts(cls, counts: Counts, maxima: list[int]) -> HistogramBlock:
        """The block of ``counts`` (uint64[rows, BUCKETS])."""
        # One dimension takes a fifth of the time of two, and truth values a sixth of the time of integers.
        flat = counts.reshape(-1)
        keys = (flat != 0).nonzero()[0]
        return cls.of_keys(keys, flat[keys].astype(np.int64), maxima)

    @classmethod
    def read(cls, pairs: Int64s, sizes: Sequence[int], maxima: list[int]) -> HistogramBlock:
        """The block of rows of ``pairs``, bounds in ns and counts in turn (0 to MOST), with ``sizes`` pairs each.

        Raises ValueError, with a clause without its subject, unless in each row the bounds are ascending lower bounds
        of buckets and the maximum is not below the highest one, and all counts are 1 to MOST in total.
        """
        used = pairs.reshape(-1, 2).T.copy()
        bounds, counts = used
        borders = np.array([0, *accumulate(sizes)])
        places = indices(bounds)
        first = np.zeros(len(bounds) + 1, dtype=bool)
        first[borders[:-1]] = True
        last = borders[1:][borders[1:] > borders[:-1]] - 1
        # The sum is of floats: integers could overflow.
        if (counts < 1).any() or counts.sum(dtype=np.float64) > MOST:
            raise ValueError("has a count of 0, or counts above 2**53 in total")
        if (LOWER[places] != bounds).any():
            raise ValueError("has a bound that is not a bucket's lower bound")
        if ((places[1:] <= places[:-1]) & ~first[1:-1]).any():
            raise ValueError("has buckets that do not ascend")
        if (np.array(maxima)[borders[1:] > borders[:-1]] < bounds[last]).any():
            raise ValueError("has a max_ns below its highest bucket")
        used[0] = places
        sums = np.concatenate(([0], np.cumsum(counts)))
        return cls(used, borders.tolist(), maxima, np.diff(sums[borders]).tolist())

    @classmethod
    def of_keys(cls, keys: Int64s, counts: Int64s, maxima: list[int]) -> HistogramBlock:
        """The block with ``counts`` of ``keys``, row * BUCKETS + bucket, ascending."""
        first = _first_keys(len(maxima))
        borders = keys.searchsorted(first)
        used = np.empty((2, len(keys)), dtype=np.int64)
        np.subtract(keys, first[:-1].repeat(borders[1:] - borders[:-1]), out=used[0])
        used[1] = counts
        sums = np.zeros(len(keys) + 1, dtype=np.int64)
        counts.cumsum(out=sums[1:])
        ends = sums[borders]
        return cls(used, borders.tolist(), maxima, (ends[1:] - ends[:-1]).tolist())

    def _part(self, first: int, end: int) -> HistogramBlock:
        """The rows from ``first`` to ``end``."""
        if end - first == len(self.totals):
            return self
        borders = self.borders[first : end + 1]
        return HistogramBlock(
            self.used[:, borders[0] : borders[-1]],
            [border - borders[0] for border in borders],
            self.maxima[first:end],
            self.totals[first:end],
        )

    def histograms(self) -> list[Histogram]:
        """The rows."""
        return [Histogram(self, number) for number in range(len(self.totals))]

    def percentiles(self, q: float) -> list[float | None]:
        """The percentile ``q`` of each row in ns, as ``Histogram.percentile`` describes it."""
        percentiles = self.known.get(q)
        if percentiles is None:
            percentiles = self.known[q] = self._percentiles(q)
        return percentiles

    def _percentiles(self, q: float) -> list[float | None]:
        numerator, denominator = _share(q)
        if not self.used.shape[1]:
            return [None] * len(self.totals)
        # The counts are above 0, so that the sums ascend over all rows. An empty one may be the last.
        sums = self.used[1].cumsum()
        before = [0, *accumulate(self.totals)]
        # Python's integers, which are faster for few rows, and exact.
        wanted = [
            begin + max(-(-numerator * total // denominator), 1)
            for begin, total in zip(before, self.totals, strict=False)
        ]
        places = np.minimum(sums.searchsorted(wanted), len(sums) - 1)
        middles = MIDDLE[self.used[0, places]].tolist()
        rows = zip(middles, self.maxima, self.totals, strict=True)
        return [min(middle, most) if total else None for middle, most, total in rows]

    def minus(self, earlier: HistogramBlock) -> HistogramBlock:
        """The values added to each row since ``earlier``, a previous state of the same rows.

        The maximum is exact if the present one lies in the top bucket of the difference, else the last value of that
        bucket. Raises ValueError if ``earlier`` has more values in any bucket.
        """
        keys, before = self._keys(), earlier._keys()
        # With all buckets of the few rows: to search the keys among each other takes ten times as long.
        dense = np.zeros(len(self.totals) * BUCKETS, dtype=np.int64)
        dense[keys] = self.used[1]
        dense[before] -= earlier.used[1]
        if dense[before].min(initial=0) < 0:
            raise ValueError("the earlier histogram has more values than the later one")
        added = dense[keys]
        kept = added.nonzero()[0]
        maxima = [0] * len(self.maxima)
        block = HistogramBlock.of_keys(keys[kept], added[kept], maxima)
        for row, (begin, end, most) in enumerate(zip(block.borders, block.borders[1:], self.maxima, strict=False)):
            if begin < end:
                top = int(block.used[0, end - 1])
                maxima[row] = most if index(most) == top else int(UPPER[top]) - 1
        return block

    def _keys(self) -> Int64s:
        borders = np.array(self.borders)
        return np.asarray(self.used[0] + _first_keys(len(self.totals))[:-1].repeat(borders[1:] - borders[:-1]))

    @classmethod
    def sums(cls, histograms: Sequence[Histogram], sum_of: Sequence[int], rows: int) -> HistogramBlock:
        """The block of ``rows`` sums; histogram i is added to histogram ``sum_of[i]``."""
        parts = cls.of(histograms)
        numbers = np.array(sum_of, dtype=np.int64)
        maxima, totals = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        np.maximum.at(maxima, numbers, np.array(parts.maxima, dtype=np.int64))
        np.add.at(totals, numbers, np.array(parts.totals, dtype=np.int64))
        # The dense sums have only the buckets from the first to the last one in use.
        borders = np.array(parts.borders)
        sizes = borders[1:] - borders[:-1]
        filled = sizes > 0
        low, high = np.full(rows, BUCKETS, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        np.minimum.at(low, numbers[filled], parts.used[0, borders[:-1][filled]])
        np.maximum.at(high, numbers[filled], parts.used[0, borders[1:][filled] - 1] + 1)
        limits = np.concatenate(([0], np.cumsum(np.maximum(high - low, 0))))
        shifts = limits[:-1] - low
        shifted, counts = parts.used[0] + np.repeat(shifts[numbers], sizes), parts.used[1]
        if sum(parts.totals) <= MOST:
            dense = np.bincount(shifted, counts, minlength=int(limits[-1]))
        else:
            # ``bincount`` adds floats, which are exact up to there.
            dense = np.zeros(int(limits[-1]), dtype=np.int64)
            np.add.at(dense, shifted, counts)
        places = dense.nonzero()[0]
        limits = places.searchsorted(limits)
        used = np.empty((2, len(places)), dtype=np.int64)
        np.subtract(places, np.repeat(shifts, np.diff(limits)), out=used[0])
        used[1] = dense[places]
        return cls(used, limits.tolist(), maxima.tolist(), totals.tolist())


class Histogram:
    """Counts by bucket with the exact maximum: row ``number`` of a block. It does not change."""

    __slots__ = ("block", "number")

    def __init__(self, block: HistogramBlock, number: int) -> None:
        self.block = block
        self.number = number

    def __reduce__(self) -> tuple[type[Histogram], tuple[HistogramBlock, int]]:
        return Histogram, (self.block, self.number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.max_ns == other.max_ns and np.array_equal(self.used, other.used)

    def __hash__(self) -> int:
        return hash((self.max_ns, self.used.tobytes()))

    def __repr__(self) -> str:
        return f"Histogram(count={self.count}, max_ns={self.max_ns})"

    @classmethod
    def empty(cls) -> Histogram:
        """The histogram of no values."""
        return _EMPTY

    @classmethod
    def of(cls, values_ns: Iterable[int] | Int64s) -> Histogram:
        """The histogram of ``values_ns``, integers of nanoseconds; negative ones fall into the first bucket."""
        values = values_ns if isinstance(values_ns, np.ndarray) else np.fromiter(values_ns, dtype=np.int64)
        if not len(values):
            return _EMPTY
        places = np.searchsorted(LOWER, np.maximum(values, 0), side="right") - 1
        counts = np.bincount(places, minlength=BUCKETS).astype(np.uint64)
        return cls.of_counts(counts, max(int(values.max()), 0))

    @classmethod
    def of_counts(cls, counts: Counts, max_ns: int) -> Histogram:
        """The histogram of ``counts`` (uint64[BUCKETS]). Raises ValueError for another shape or type."""
        if counts.shape != (BUCKETS,) or counts.dtype != np.uint64:
            raise ValueError(f"a histogram has {BUCKETS} counts of uint64")
        return cls(HistogramBlock.of_counts(counts, [max_ns]), 0)

    @classmethod
    def read(cls, pairs: Pairs, max_ns: int) -> Histogram:
        """The histogram of ``[(lower bound in ns, count), ...]``, as ``HistogramBlock.read`` describes it."""
        flat = np.array(list(chain.from_iterable(pairs)), dtype=np.int64)
        return cls(HistogramBlock.read(flat, [len(pairs)], [max_ns]), 0)

    @classmethod
    def of_json(cls, value: Any) -> Histogram:
        """The histogram that ``to_json`` wrote, or that of ``pairs``. Raises ValueError for what is none."""
        if type(value) is list and all(type(pair) is list for pair in value):
            return cls.of_json(_numbered(value))
        if type(value) is not list or not len(value) % 2 or not set(map(type, value)) <= {int}:
            raise ValueError("is not a list of a maximum and pairs of integers")
        max_ns, buckets, counts = value[0], value[1::2], value[2::2]
        if any(map(ge, buckets, buckets[1:])) or not 0 <= min(buckets, default=0) <= max(buckets, default=0) < BUCKETS:
            raise ValueError(f"has buckets that do not ascend from 0 to {BUCKETS - 1}")
        if min(counts, default=1) < 1 or sum(counts) > MOST:
            raise ValueError("has a count below 1, or counts above 2**53 in total")
        if not LOWER[max(buckets, default=0)] <= max_ns <= LARGEST:
            raise ValueError("has a maximum below its highest bucket, or above 2**62")
        used = np.array((buckets, counts), dtype=np.int64)
        return cls(HistogramBlock(used, [0, len(buckets)], [max_ns], [sum(counts)]), 0)

    def to_json(self) -> list[int]:
        """The maximum in ns, then the number and the count of each bucket in use."""
        return [self.max_ns, *self.used.T.ravel().tolist()]

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema of ``pairs``, as documents have them."""
        return {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}}

    @property
    def used(self) -> Int64s:
        """The buckets in use, ascending, and their counts: int64[2, n]."""
        begin, end = self.block.borders[self.number : self.number + 2]
        return self.block.used[:, begin:end]

    @property
    def counts(self) -> Counts:
        """The counts of all buckets, uint64[BUCKETS], a new array."""
        counts = np.zeros(BUCKETS, dtype=np.uint64)
        places, used = self.used
        counts[places] = used
        return counts

    @property
    def max_ns(self) -> int:
        """The exact maximum in ns, 0 when empty."""
        return self.block.maxima[self.number]

    @property
    def count(self) -> int:
        """Number of values."""
        return self.block.totals[self.number]

    def percentile(self, q: float) -> float | None:
        """The nearest-rank percentile ``q`` in ns: the middle of its bucket, never above the maximum. None if empty.

        Raises ValueError when ``q`` is not within 0 to 100.
        """
        return self.block.percentiles(q)[self.number]

    def percentile_or_none(self, q: float, need: int) -> float | None:
        """The percentile ``q`` in ns, or None with fewer than ``need`` values."""
        return self.percentile(q) if self.count >= need else None

    def share_above(self, ns: int) -> float:
        """The share (0 to 1) of values in buckets that lie above the bucket of ``ns``; 0 if empty."""
        places, counts = self.used
        return float(counts[places > index(ns)].sum()) / self.count if self.count else 0.0

    def merge(self, other: Histogram) -> Histogram:
        """The sum of both histograms."""
        return Histogram.of_counts(self.counts + other.counts, max(self.max_ns, other.max_ns))

    def minus(self, earlier: Histogram) -> Histogram:
        """The values added since ``earlier``, as ``HistogramBlock.minus`` has them."""
        return Histogram(HistogramBlock.of([self]).minus(HistogramBlock.of([earlier])), 0)

    def add_waiting(self, age_ns: int, period_ns: int) -> Histogram:
        """This histogram with a call in flight for ``age_ns``: its age, and the delay of each iteration due since.

        The iterations are due every ``period_ns`` (correction of coordinated omission).
        """
        if age_ns <= 0:
            return self
        return Histogram.of_counts(self.counts + waiting(age_ns, period_ns), max(self.max_ns, age_ns))

    def pairs(self) -> list[list[int]]:
        """``[[lower bound in ns, count], ...]`` of the buckets in use, ascending."""
        pairs = self.used.T.copy()
        pairs[:, 0] = LOWER[pairs[:, 0]]
        return pairs.tolist()  # type: ignore[no-any-return]


def _numbered(pairs: list[list[Any]]) -> list[Any]:
    """What ``to_json`` writes, of ``pairs``: the maximum is then the lower bound of its bucket."""
    if not all(len(pair) == 2 and type(pair[0]) is int and 0 <= pair[0] <= LARGEST for pair in pairs):
        raise ValueError("is not a list of pairs of integers")
    buckets = [index(pair[0]) for pair in pairs]
    rest = (number for bucket, (_, count) in zip(buckets, pairs, strict=True) for number in (bucket, count))
    return [lower(buckets[-1]) if buckets else 0, *rest]


# The histogram without values.
_EMPTY = Histogram(HistogramBlock(np.zeros((2, 0), dtype=np.int64), [0, 0], [0], [0]), 0)
