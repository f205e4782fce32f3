"""Log-linear histograms of nanoseconds: 64 buckets per octave, a relative width of at most 1/64.

Values below 128 ns are exact; the last bucket contains all values from about 2180 s on. The module needs numpy only, so
that reading results does not load a compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUB_BITS = 6
SUB = 1 << SUB_BITS
BUCKETS = 2304

Counts = NDArray[np.uint64]


def index(value: int) -> int:
    """The bucket of ``value`` ns. Negative values belong to the first bucket, too large ones to the last.

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
    """The smallest value (ns) above ``bucket``; the last bucket has the width of its octave."""
    exponent = max(bucket // SUB - 1, 0)
    return (bucket - exponent * SUB + 1) << exponent


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


LOWER: NDArray[np.int64] = _frozen(np.array([lower(i) for i in range(BUCKETS)], dtype=np.int64))
UPPER: NDArray[np.int64] = _frozen(np.array([upper(i) for i in range(BUCKETS)], dtype=np.int64))
MIDDLE: NDArray[np.float64] = _frozen((LOWER + UPPER - 1) / 2)


@lru_cache(maxsize=64)
def _share(q: float) -> tuple[int, int]:
    """Numerator and denominator of ``q`` / 100."""
    # The decimal text is exact: as a binary fraction, 99.9 would give rank 1000 of 1000 values, not 999.
    return (Fraction(repr(float(q))) / 100).as_integer_ratio()


def rank(q: float, count: int) -> int:
    """The nearest rank of percentile ``q`` (0 to 100) among ``count`` values, from 1. Raises ValueError outside it."""
    if not 0 <= q <= 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {q}")
    numerator, denominator = _share(q)
    # Rounded up.
    return max(1, -(-numerator * count // denominator))


def ranks(q: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """``rank`` of each of ``counts``. Raises ValueError outside it."""
    most = int(counts.max(initial=0))
    # A product that exceeds 64 bits.
    if rank(q, most) and _share(q)[0] * most >= 1 << 63:
        return np.array([rank(q, count) for count in counts.tolist()], dtype=np.int64)
    numerator, denominator = _share(q)
    return np.asarray(np.maximum(-(-numerator * counts // denominator), 1))


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
    def of(cls, values_ns: Iterable[int] | NDArray[np.int64]) -> Histogram:
        """The histogram of ``values_ns``, integers of nanoseconds; negative ones fall into the first bucket."""
        values = values_ns if isinstance(values_ns, np.ndarray) else np.fromiter(values_ns, dtype=np.int64)
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

    @cached_property
    def count(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    def percentile(self, q: float) -> float | None:
        """The nearest-rank percentile ``q`` in ns: the middle of its bucket, never above the maximum. None if empty.

        Raises ValueError when ``q`` is not within 0 to 100.
        """
        # Reports and comparisons ask for the same percentile of a cell several times.
        known: dict[float, float | None] = self.__dict__.setdefault("_percentiles", {})
        if q not in known:
            known[q] = self._percentile(q)
        return known[q]

    def _percentile(self, q: float) -> float | None:
        total = self.counts.cumsum()
        count = int(total[-1])
        wanted = rank(q, count)
        if count == 0:
            return None
        place = int(total.searchsorted(np.uint64(wanted), side="left"))
        return min(float(MIDDLE[place]), float(self.max_ns))

    def percentile_or_none(self, q: float, need: int) -> float | None:
        """The percentile ``q`` in ns, or None with fewer than ``need`` values."""
        return self.percentile(q) if self.count >= need else None

    def share_above(self, ns: int) -> float:
        """The share (0 to 1) of values in buckets that lie above the bucket of ``ns``; 0 if empty."""
        count = self.count
        return float(self.counts[index(ns) + 1 :].sum()) / count if count else 0.0

    def with_values(self, buckets: Sequence[int], counts: Sequence[int], max_ns: int) -> Histogram:
        """This histogram with ``counts`` more values in ``buckets``, all different; ``max_ns`` is the new maximum."""
        total = self.counts.copy()
        total[buckets] += np.array(counts, dtype=np.uint64)
        found = Histogram(_frozen(total), max_ns)
        # ``count`` without a sum over all buckets.
        found.__dict__["count"] = self.count + sum(counts)
        return found

    def merge(self, other: Histogram) -> Histogram:
        """The sum of both histograms."""
        return Histogram(_frozen(self.counts + other.counts), max(self.max_ns, other.max_ns))

    def minus(self, earlier: Histogram) -> Histogram:
        """The values added since ``earlier``, a previous state of the same histogram.

        The maximum is exact if the present one lies in the top bucket of the difference, else the last value of that
        bucket. Raises ValueError if ``earlier`` has more values in any bucket.
        """
        if (self.counts < earlier.counts).any():
            raise ValueError("the earlier histogram has more values than the later one")
        counts = _frozen(self.counts - earlier.counts)
        used = np.flatnonzero(counts)
        if not len(used):
            return Histogram.empty()
        top = int(used[-1])
        return Histogram(counts, self.max_ns if index(self.max_ns) == top else int(UPPER[top]) - 1)

    def add_waiting(self, age_ns: int, period_ns: int) -> Histogram:
        """This histogram with a call in flight for ``age_ns``: its age, and the delay of each iteration due since.

        The iterations are due every ``period_ns`` (correction of coordinated omission).
        """
        if age_ns <= 0:
            return self
        return Histogram(_frozen(self.counts + waiting(age_ns, period_ns)), max(self.max_ns, age_ns))

    def sparse(self) -> list[list[int]]:
        """``[[lower bound in ns, count], ...]`` of the buckets that are not empty, ascending."""
        return [[int(LOWER[i]), int(self.counts[i])] for i in np.flatnonzero(self.counts)]


_EMPTY: Counts = _frozen(np.zeros(BUCKETS, dtype=np.uint64))
