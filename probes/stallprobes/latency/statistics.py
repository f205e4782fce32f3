"""Statistics: exact tests of two histograms, and the variance of a quantity between repeats.

The module is independent of cells and verdicts, and deterministic: no test is based on random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

# Number of degrees of freedom that counts as unlimited. From this number on, the normal distribution replaces Student's
# t. A fitted prior has at most this number of degrees of freedom.
MANY = 200
# Number of rounds that remove high outliers from variances before the final fit of a prior. The first round finds
# outliers by the median of the variances. Each later round finds outliers by a fit to the variances that the previous
# round kept.
_ROUNDS = 4
# The summation of an exact test's probabilities stops at a term of at most this share of the sum. Further terms do not
# change the sum.
_NEGLIGIBLE = 1e-16
# 97.5th percentiles of Student's t with 1, 2, 3, ... degrees of freedom, for 95 % intervals. |t| exceeds each of these
# percentiles with a probability of 5 %.
_T_LIMITS = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Tails:
    """One-sided p-values (0 to 1): of at least as many, and of at most as many."""

    more: float
    fewer: float


def fisher_exact(above: int, calls: int, above_before: int, calls_before: int) -> Tails:
    """Fisher's exact test of ``above`` of ``calls`` against ``above_before`` of ``calls_before``.

    The p-values are tail probabilities of the hypergeometric distribution with the same margins.
    """
    marked, total = above + above_before, calls + calls_before
    least, most = max(0, marked - calls_before), min(marked, calls)
    if above * calls_before > above_before * calls:
        more = _hypergeometric_sum(above, most, marked, calls, total)
        return Tails(more, min(1.0, max(0.0, 1.0 - _hypergeometric_sum(above + 1, most, marked, calls, total))))
    fewer = _hypergeometric_sum(above, least, marked, calls, total)
    return Tails(min(1.0, max(0.0, 1.0 - _hypergeometric_sum(above - 1, least, marked, calls, total))), fewer)


def _hypergeometric_sum(first: int, last: int, marked: int, drawn: int, total: int) -> float:
    """Probability of ``first`` to ``last`` marked items among ``drawn`` of ``total``, summed away from the mean."""
    if not max(0, marked - (total - drawn)) <= first <= min(marked, drawn):
        return 0.0
    # Rounding of the logarithm can exceed 0 for very large counts.
    term = math.exp(
        min(0.0, _log_choose(marked, first) + _log_choose(total - marked, drawn - first) - _log_choose(total, drawn))
    )
    whole, step = term, 1 if last > first else -1
    for k in range(first, last, step):
        # The ratio of the next term to this one.
        if step > 0:
            term *= (marked - k) * (drawn - k) / ((k + 1) * (total - marked - drawn + k + 1))
        else:
            term *= k * (total - marked - drawn + k) / ((marked - k + 1) * (drawn - k + 1))
        whole += term
        if term <= _NEGLIGIBLE * whole:
            break
    return min(1.0, whole)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def sign_test(above: int, calls: int) -> float:
    """Probability that ``above`` or more of ``calls`` exceed a value that each exceeds with probability 1/2."""
    return math.fsum(math.exp(_log_choose(calls, k) - calls * math.log(2)) for k in range(above, calls + 1))


def fisher_exact_at_cut(old: Int64s, new: Int64s, share: float) -> Tails:
    """Fisher's exact test of the values of ``new`` and ``old`` (counts by bucket) above a cut.

    The sum of both has the same cut, so that the test is exact. Without a cut, both p-values are 1.
    """
    place = cut_bucket(old + new, share)
    if place is None:
        return Tails(1.0, 1.0)
    return fisher_exact(int(new[place:].sum()), int(new.sum()), int(old[place:].sum()), int(old.sum()))


def cut_bucket(counts: Int64s, share: float) -> int | None:
    """The first bucket of the top ``share`` (0 to 1) of ``counts``, as near as a border allows.

    None if all counts are in one bucket.
    """
    return _cut(np.add.accumulate(counts), share)


def _cut(sums: Int64s, share: float) -> int | None:
    """The result of ``cut_bucket`` for the cumulative ``sums`` of the counts."""
    whole = int(sums[-1]) if len(sums) else 0
    wanted = share * whole
    # The number above falls from border to border. Candidates: the last border with more than wanted, and the next.
    end = int(sums.searchsorted(whole - wanted))
    best: tuple[float, int] | None = None
    for last in (end - 1, end):
        below = int(sums[last]) if 0 <= last < len(sums) else 0
        if 0 < below < whole:
            candidate = abs(whole - below - wanted), int(sums.searchsorted(below)) + 1
            best = candidate if best is None else min(best, candidate)
    return None if best is None else best[1]


def arcsine_distance(old: Int64s, new: Int64s, share: float) -> float:
    """Difference of the shares above the cut, in standard deviations of independent values.

    It is positive if the share of ``new`` is larger.

    Anscombe's arcsine transformation, whose variance does not depend on the share.
    """
    place = cut_bucket(old + new, share)
    if place is None:
        return 0.0
    angles, inverse = [], 0.0
    for counts in (old, new):
        count = int(counts.sum())
        angles.append(2 * math.asin(math.sqrt((int(counts[place:].sum()) + 0.375) / (count + 0.75))))
        inverse += 1 / count
    return (angles[1] - angles[0]) / math.sqrt(inverse)


def tail_chi_square(sums: Int64s, share: float) -> float:
    """Chi-square statistic of the tail fraction across repeats, by their cumulative counts (int64[repeats, buckets]).

    The tail is above the cut of all repeats together. The expectation is about repeats - 1 for independent values.
    """
    place = _cut(np.add.reduce(sums), share) if len(sums) > 1 else None
    if place is None:
        return 0.0
    whole = sums[:, -1]
    above = whole - sums[:, place - 1]
    mean = np.add.reduce(above) / np.add.reduce(whole)
    return float(np.add.reduce((above - whole * mean) ** 2 / (whole * mean * (1 - mean))))


def student_t_two_sided(t: float, freedom: float) -> float:
    """Two-sided p-value of Student's ``t`` with ``freedom`` degrees of freedom.

    ``freedom`` is rounded down to an integer, for which the distribution is a finite sum (Abramowitz and Stegun, 26.7.3
    and 26.7.4); below 2 the p-value is 1.
    """
    whole = int(min(freedom, 1e9))
    if whole < 2:
        return 1.0
    if whole >= MANY:
        return math.erfc(abs(t) / math.sqrt(2))
    angle = math.atan(abs(t) / math.sqrt(whole))
    square = math.cos(angle) ** 2
    odd = whole % 2 == 1
    term = total = math.cos(angle) if odd else 1.0
    for k in range(1, whole // 2):
        term *= square * (2 * k / (2 * k + 1) if odd else (2 * k - 1) / (2 * k))
        total += term
    within = math.sin(angle) * total
    return max(0.0, 1.0 - (2 / math.pi * (angle + within) if odd else within))


def student_t_limit(freedom: int) -> float:
    """The value that |t| exceeds with a probability of 5 %, for at least 1 degree of freedom."""
    return _T_LIMITS[freedom - 1] if freedom <= len(_T_LIMITS) else 1.96 + 2.4 / freedom


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean of at least two values, and half of its 95 % interval by Student's t."""
    count = len(values)
    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return mean, student_t_limit(count - 1) * math.sqrt(variance / count)


def sample_percentiles(values: Sequence[float], percents: Iterable[float]) -> list[float]:
    """Percentiles (0 to 100) of ``values`` (at least one value) by linear interpolation, as from ``numpy.percentile``.

    ``numpy.percentile`` loads numpy's masked arrays, which takes longer than the rest of a report.
    """
    ordered = sorted(values)
    percentiles = []
    for percent in percents:
        at = (len(ordered) - 1) * (percent / 100)
        place = min(int(at), len(ordered) - 1)
        share, low, high = at - place, ordered[place], ordered[min(place + 1, len(ordered) - 1)]
        percentiles.append(high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share)
    return percentiles


def variance_of_mean(values: Floats) -> float:
    """Variance of the mean of ``values``; 0 with fewer than two."""
    if len(values) < 2:
        return 0.0
    # What ``values.var(ddof=1)`` computes, at a third of its cost for a few values.
    differences = values - np.add.reduce(values) / len(values)
    return float(np.add.reduce(differences * differences) / (len(values) - 1)) / len(values)


@dataclass(frozen=True)
class VariancePrior:
    """A prior variance that is worth ``freedom`` more degrees of freedom; 0 where there is no prior."""

    variance: float
    freedom: float

    def moderated(self, variance: float, freedom: float) -> tuple[float, float]:
        """The posterior of an observed ``variance`` with ``freedom`` degrees of freedom, and its degrees of freedom.

        A variance far above the prior belongs to another population and is returned unchanged.
        """
        both = self.freedom + freedom
        if not both or (self.freedom and freedom and variance > self.variance * _upper_limit(freedom)):
            return variance, freedom
        return (self.freedom * self.variance + freedom * variance) / both, both


def prior_variance(variances: Sequence[float], freedom: float) -> VariancePrior:
    """Prior of ``variances``, each observed with ``freedom`` degrees of freedom.

    Empirical Bayes estimate (Smyth 2004, Statistical Applications in Genetics 3, 3: the moderated t): the more the
    variances differ beyond chance, the fewer degrees of freedom the prior has. High outliers are left out. Fewer than
    ten variances, or no freedom, give no prior.
    """
    logs = np.log([variance for variance in variances if variance > 0])
    if len(logs) < 10 or freedom <= 0:
        return VariancePrior(0.0, 0.0)
    half = freedom / 2
    kept = logs
    for _ in range(_ROUNDS):
        centre = median(kept.tolist()) if kept is logs else math.log(_fit(kept, half).variance)
        kept = logs[logs <= centre + math.log(_upper_limit(freedom))]
    return _fit(kept, half)


def _fit(logs: Floats, half: float) -> VariancePrior:
    centre = float(logs.mean()) - _digamma(half) + math.log(half)
    excess = float(logs.var()) - _trigamma(half)
    worth = next((d for d in range(1, MANY) if _trigamma(d / 2) <= excess), MANY) if excess > 0 else MANY
    return VariancePrior(math.exp(centre + _digamma(worth / 2) - math.log(worth / 2)), float(worth))


def _upper_limit(freedom: float) -> float:
    """The 99.9th percentile of an observed variance over the true one, by Wilson and Hilferty's approximation."""
    part = 2 / (9 * freedom)
    return (1 - part + 3.09 * math.sqrt(part)) ** 3


def _digamma(x: float) -> float:
    below = 0.0
    while x < 8:
        below -= 1 / x
        x += 1
    return below + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _trigamma(x: float) -> float:
    below = 0.0
    while x < 8:
        below += 1 / x**2
        x += 1
    return below + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5) + 1 / (42 * x**7)
