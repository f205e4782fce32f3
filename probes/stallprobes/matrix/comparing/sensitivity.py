"""Smallest ratio between two checks that a comparison reports as a change with a probability of 90 %.

The ratio follows from the tests that the comparison applies: size, calls, repeats, and no single repeat as the cause.
A change at p50 makes every call longer by the ratio, a change at p99 one call in 20 as long as the ratio times the p99.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

import numpy as np

from stallprobes.latency.ratio import Quantile
from stallprobes.latency.statistics import student_t_two_sided
from stallprobes.matrix.comparing.quantile_comparison import DIFFERENCE_NS, QuantileTest

# Probability that a comparison misses a change that it states as detectable.
_MISSED = 0.1
# Assumed share of calls that a change of a p99 makes slow, for computing the detectable change.
_SLOW = 0.05
# Share of calls that are slow without a change of a p99, for computing the detectable change.
_TAIL = 0.01
# Largest ratio that is stated as detectable.
_LARGEST = 1e6
# Number of buckets of a histogram per octave (a factor of two).
_BUCKETS_PER_OCTAVE = 64
# Number of histogram buckets that the largest considered change spans: 20 octaves (factors of two).
_REACH = 20 * _BUCKETS_PER_OCTAVE
# Extensions of an array that has, for each bucket, the share of calls in this bucket and above. _BELOW: extension
# before the first bucket; the share is 1, as all calls are above. _ABOVE: extension after the last bucket; the share is
# 0, as no calls are above.
_BELOW, _ABOVE = np.ones(_REACH), np.zeros(_REACH)


def power_sd(freedom: int) -> float:
    """Number of estimated standard deviations below its mean that a variable exceeds with a probability of 90 %.

    ``freedom`` is the degrees of freedom of the estimate.
    """
    return student_t_limit(2 * _MISSED, freedom)


def detectable(test: QuantileTest, p_value: float, margin: float, limits: Iterable[float]) -> float | None:
    """Smallest ratio that ``test`` detects; None without one, or with too few repeats.

    ``p_value`` is the largest one of a change that counts, ``margin`` the loss of the log ratio by chance in 1 case of
    10, ``limits`` are the log ratios that suffice by the tests of the repeats.
    """
    if test.single_repeat or not test.has_calls:
        return None
    size = math.log(max(test.limit, 1 + DIFFERENCE_NS[test.quantile] / test.values_ns[0])) + margin
    calls = _calls_limit(test, p_value) if test.quantile is Quantile.P50 else _tail_limit(test, p_value)
    log_ratio = max(size, calls, test.steady_limit, min(limits, default=math.inf))
    return math.exp(log_ratio) if log_ratio < math.log(_LARGEST) else None


@lru_cache(maxsize=4096)
def student_t_limit(p_value: float, freedom: int) -> float:
    """Student's t with the two-sided ``p_value``; infinite below 2 degrees of freedom."""
    if freedom < 2:
        return math.inf
    low, high = 0.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_t_two_sided(middle, freedom) > p_value else (low, middle)
    return high


def tail_distance(test: QuantileTest) -> float:
    """Expected arcsine distance of the tail fractions of a change at p99."""
    slow = 2 * (math.asin(math.sqrt(_SLOW + (1 - _SLOW) * _TAIL)) - math.asin(math.sqrt(_TAIL)))
    return slow * math.sqrt(test.weight)


def _normal_limit(p_value: float) -> float:
    return student_t_limit(p_value, 1_000_000)


def _tail_limit(test: QuantileTest, p_value: float) -> float:
    enough = tail_distance(test) >= _normal_limit(p_value / test.cuts) + _normal_limit(2 * _MISSED)
    return 0.0 if enough else math.inf


def _calls_limit(test: QuantileTest, p_value: float) -> float:
    """Logarithm of the smallest ratio that moves enough calls beyond the median of both checks for the exact test."""
    cuts = test.cuts + 1
    if 2 * cuts / math.comb(*_smallest(test.old.calls, test.new.calls)) > p_value:
        return math.inf
    counts = test.old.total + test.new.total
    share = np.concatenate((_BELOW, counts[::-1].cumsum()[::-1] / counts.sum(), _ABOVE))
    beyond_half = np.flatnonzero(share[_REACH:-_REACH] <= 0.5)
    middle = _REACH + (int(beyond_half[0]) if len(beyond_half) else len(counts) - 1)
    wanted = (_normal_limit(p_value / cuts) + _normal_limit(2 * _MISSED)) / (2 * math.sqrt(test.weight))
    # With few calls the arcsine of a share has its largest distance below that of all calls.
    wanted = min(wanted, math.pi / 2)
    # Half of the ratio lies on each side of the cut. The distance grows with the ratio, which mostly is small.
    for first, end in pairwise((0, _BUCKETS_PER_OCTAVE, _REACH)):
        below = share[middle - end + 1 : middle - first + 1][::-1]
        angles = np.arcsin(np.sqrt(below)) - np.arcsin(np.sqrt(share[middle + first : middle + end]))
        places = np.flatnonzero(angles >= wanted)
        if len(places):
            return 2 * float(first + places[0]) * math.log(2) / _BUCKETS_PER_OCTAVE
    return math.inf


def _smallest(old: int, new: int) -> tuple[int, int]:
    """Arguments of the binomial coefficient of two groups, limited so that the result stays small."""
    return min(old, 40) + min(new, 40), min(old, 40)
