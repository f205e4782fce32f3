"""Log-linear histograms of nanoseconds: 64 buckets an octave, so a bucket is at most 1/64 of its value wide.

Values below 128 ns are exact; the last bucket takes everything from about 2180 s on. Numpy only, so that a reader of
figures need not load a compiler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUB_BITS = 6
SUB = 1 << SUB_BITS
BUCKETS = 2304

Counts = NDArray[np.uint64]


def index(value: int) -> int:
    """The bucket of ``value`` ns. Negative values go to the first bucket, too large ones to the last.

    The bucket formula: with an exponent of the value's bit length less SUB_BITS + 1, exponent * SUB + (value >>
    exponent). The compiled loop and the simulated thread have copies of it that tests compare with this one.
    """
    if value < SUB:
        return max(value, 0)
    exponent = value.bit_length() - SUB_BITS - 1
    return min(exponent * SUB + (value >> exponent), BUCKETS - 1)


def indices(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The buckets of ``values`` ns: ``index`` of each, for values below 2**53."""
    exponents = np.maximum(np.frexp(values)[1] - SUB_BITS - 1, 0)
    return np.asarray(np.clip(exponents * SUB + (values >> exponents), 0, BUCKETS - 1))


def lower(bucket: int) -> int:
    """The least value of ``bucket`` in ns."""
    exponent = max(bucket // SUB - 1, 0)
    return (bucket - exponent * SUB) << exponent


def upper(bucket: int) -> int:
    """The first value in ns that is above ``bucket``; for the last bucket, where it would end were it like the rest."""
    exponent = max(bucket // SUB - 1, 0)
    return (bucket - exponent * SUB + 1) << exponent


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


LOWER: NDArray[np.int64] = _frozen(np.array([lower(i) for i in range(BUCKETS)], dtype=np.int64))
UPPER: NDArray[np.int64] = _frozen(np.array([upper(i) for i in range(BUCKETS)], dtype=np.int64))
MIDDLE: NDArray[np.float64] = _frozen((LOWER + UPPER - 1) / 2)


@lru_cache(maxsize=64)
def _share(q: float) -> Fraction:
    # Through the decimal text, since 99.9 as a binary fraction would put the rank of the 1000th value at 1000, not 999.
    return Fraction(repr(float(q))) / 100


def rank(q: float, count: int) -> int:
    """The nearest rank of percentile ``q`` (0 to 100) among ``count`` values, from 1. Raises ValueError outside it."""
    if not 0 <= q <= 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {q}")
    return max(1, math.ceil(_share(q) * count))


def waiting(age_ns: int, period_ns: int) -> Counts:
    """Counts of age, age - period, age - 2 period and so on while above 0: what each start due meanwhile has waited.

    With a period of 0 only the age itself counts. The cost does not grow with the age.
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


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts by bucket and the exact maximum (ns, 0 when empty). ``counts`` is uint64[BUCKETS] and read-only."""

    counts: Counts
    max_ns: int

    def __post_init__(self) -> None:
        if self.counts.shape != (BUCKETS,) or self.counts.dtype != np.uint64:
            raise ValueError(f"a histogram has {BUCKETS} counts of uint64")
        if self.counts.flags.writeable:
            object.__setattr__(self, "counts", _frozen(self.counts.copy()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.max_ns == other.max_ns and bool(np.array_equal(self.counts, other.counts))

    def __hash__(self) -> int:
        return hash((self.max_ns, self.counts.tobytes()))

    def __repr__(self) -> str:
        return f"Histogram(count={self.count}, max_ns={self.max_ns})"

    @classmethod
    def empty(cls) -> Histogram:
        """The histogram of no values."""
        return cls(_EMPTY, 0)

    @classmethod
    def of(cls, values_ns: Iterable[int]) -> Histogram:
        """The histogram of ``values_ns``, integers of nanoseconds; negative ones fall into the first bucket."""
        values = np.fromiter(values_ns, dtype=np.int64)
        if not len(values):
            return cls.empty()
        places = np.searchsorted(LOWER, np.maximum(values, 0), side="right") - 1
        counts = np.bincount(places, minlength=BUCKETS).astype(np.uint64)
        return cls(_frozen(counts), max(int(values.max()), 0))

    @classmethod
    def from_sparse(cls, pairs: Iterable[Sequence[int]], max_ns: int) -> Histogram:
        """The histogram of ``[[lower bound in ns, count], ...]``. Raises ValueError for a bound that is no bucket's
        or a count below 0."""
        counts = np.zeros(BUCKETS, dtype=np.uint64)
        for bound, count in pairs:
            place = index(bound)
            if lower(place) != bound or count < 0:
                raise ValueError(f"[{bound}, {count}] is not a bucket's lower bound with a count")
            counts[place] += np.uint64(count)
        return cls(_frozen(counts), max_ns)

    @property
    def count(self) -> int:
        """How many values it holds."""
        return int(self.counts.sum())

    def percentile(self, q: float) -> float | None:
        """The nearest-rank percentile ``q`` in ns: the middle of its bucket, never above the maximum. None if empty.

        Raises ValueError when ``q`` is not within 0 to 100.
        """
        total = np.cumsum(self.counts)
        wanted = rank(q, int(total[-1]))
        if total[-1] == 0:
            return None
        place = int(np.searchsorted(total, np.uint64(wanted), side="left"))
        return min(float(MIDDLE[place]), float(self.max_ns))

    def percentile_or_none(self, q: float, need: int) -> float | None:
        """The percentile ``q`` in ns, or None with fewer than ``need`` values (p99.9 of 10 values says nothing)."""
        return self.percentile(q) if self.count >= need else None

    def mean_ns(self) -> float | None:
        """The mean of the bucket middles in ns; None if empty."""
        count = self.count
        return float(self.counts @ MIDDLE) / count if count else None

    def share_above(self, ns: int) -> float:
        """The share (0 to 1) of values in buckets that lie above the bucket of ``ns``; 0 if empty."""
        count = self.count
        return float(self.counts[index(ns) + 1 :].sum()) / count if count else 0.0

    def merge(self, other: Histogram) -> Histogram:
        """Both together."""
        return Histogram(_frozen(self.counts + other.counts), max(self.max_ns, other.max_ns))

    def minus(self, earlier: Histogram) -> Histogram:
        """What was added since ``earlier``, a former state of the same recorder.

        The maximum is exact when the recorder's maximum falls into the top bucket of the difference; otherwise it is
        that bucket's last value. Raises ValueError when ``earlier`` holds more in some bucket.
        """
        if (self.counts < earlier.counts).any():
            raise ValueError("the earlier histogram holds more than the later one")
        counts = _frozen(self.counts - earlier.counts)
        used = np.flatnonzero(counts)
        if not len(used):
            return Histogram.empty()
        top = int(used[-1])
        return Histogram(counts, self.max_ns if index(self.max_ns) == top else int(UPPER[top]) - 1)

    def add_waiting(self, age_ns: int, period_ns: int) -> Histogram:
        """This and what a call in flight for ``age_ns`` has cost so far: the age, and for each start due since, every
        ``period_ns``, the time that one has waited (correction of coordinated omission)."""
        if age_ns <= 0:
            return self
        return Histogram(_frozen(self.counts + waiting(age_ns, period_ns)), max(self.max_ns, age_ns))

    def sparse(self) -> list[list[int]]:
        """``[[lower bound in ns, count], ...]`` of the buckets that are not empty, ascending."""
        return [[int(LOWER[i]), int(self.counts[i])] for i in np.flatnonzero(self.counts)]


_EMPTY: Counts = _frozen(np.zeros(BUCKETS, dtype=np.uint64))
