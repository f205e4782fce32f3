"""What chance alone can do: an exact test of two histograms, and how much a figure varies between repeats.

Nothing here knows of cells or verdicts, and nothing is simulated: the answers are the same each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

# From here on Student's law is as good as the normal one.
MANY = 200
_ROUNDS = 4


@dataclass(frozen=True)
class Tails:
    """The chance (0 to 1) that equal laws put at least as many of the new values above a cut, or at most as many."""

    more: float
    fewer: float


def exceed(old: Int64s, new: Int64s, share: float) -> Tails:
    """Whether more or fewer of ``new`` than of ``old`` (counts by bucket) lie above a cut.

    The cut is the bucket's border above which about ``share`` (0 to 1) of both taken together lie. It follows from
    both together, so Fisher's exact test holds at it. Where no border parts the values, both chances are 1.
    """
    place = border(old + new, share)
    if place is None:
        return Tails(1.0, 1.0)
    mine, found = int(new.sum()), int(new[place:].sum())
    total, drawn = int(old.sum()) + mine, int(old[place:].sum()) + found
    least, most = max(0, drawn - (total - mine)), min(drawn, mine)
    fact = _log_factorials(1 << total.bit_length())
    held = np.arange(least, most + 1)
    logs = (
        fact[mine] - fact[held] - fact[mine - held]
        + fact[total - mine] - fact[drawn - held] - fact[total - mine - drawn + held]
        - fact[total] + fact[drawn] + fact[total - drawn]
    )  # fmt: skip
    chances = np.exp(logs)
    return Tails(
        more=min(1.0, float(chances[found - least :].sum())), fewer=min(1.0, float(chances[: found - least + 1].sum()))
    )


def border(counts: Int64s, share: float) -> int | None:
    """The bucket from which on about ``share`` (0 to 1) of ``counts`` lie, None where no border parts them."""
    above = counts[::-1].cumsum()[::-1]
    inner = np.flatnonzero((above > 0) & (above < above[0]))
    return int(inner[np.abs(above[inner] - share * above[0]).argmin()]) if len(inner) else None


def apart(old: Int64s, new: Int64s, share: float) -> float:
    """How far the shares above the cut of ``exceed`` lie apart, in standard deviations of independent calls; above 0
    where more of ``new`` are. By Anscombe's arcsine, which has the same variance for every share."""
    place = border(old + new, share)
    if place is None:
        return 0.0
    angles, inverse = [], 0.0
    for counts in (old, new):
        count = int(counts.sum())
        angles.append(2 * math.asin(math.sqrt((int(counts[place:].sum()) + 0.375) / (count + 0.75))))
        inverse += 1 / count
    return (angles[1] - angles[0]) / math.sqrt(inverse)


def scatter(counts: Int64s, share: float) -> float:
    """How much the share above a cut scatters between repeats (int64[repeats, buckets]), as a sum of squares.

    The cut is that of all repeats together. It is about repeats - 1 where calls are independent of each other.
    """
    place = border(counts.sum(axis=0), share)
    if place is None or len(counts) < 2:
        return 0.0
    found, whole = counts[:, place:].sum(axis=1), counts.sum(axis=1)
    mean = found.sum() / whole.sum()
    return float(((found - whole * mean) ** 2 / (whole * mean * (1 - mean))).sum())


@lru_cache(maxsize=4)
def _log_factorials(count: int) -> Floats:
    return np.concatenate(([0.0], np.log(np.arange(1, count)).cumsum()))


def student(t: float, freedom: float) -> float:
    """The chance that Student's t lies farther from 0 than ``t`` on either side.

    ``freedom`` is rounded down to an even number, for which the law has a finite sum (Abramowitz and Stegun, 26.7.4);
    below 2 nothing can be told and the chance is 1.
    """
    even = 2 * int(min(freedom, 1e9) // 2)
    if even < 2:
        return 1.0
    if even >= MANY:
        return math.erfc(abs(t) / math.sqrt(2))
    angle = math.atan(abs(t) / math.sqrt(even))
    term = total = 1.0
    for k in range(1, even // 2):
        term *= math.cos(angle) ** 2 * (2 * k - 1) / (2 * k)
        total += term
    return max(0.0, 1.0 - math.sin(angle) * total)


def of_mean(values: Floats) -> float:
    """The variance of the mean of ``values``; 0 with fewer than two."""
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Usual:
    """The variance that is usual, and how much it is worth: as ``freedom`` more degrees of it. None is worth 0."""

    variance: float
    freedom: float

    def moderate(self, variance: float, freedom: float) -> tuple[float, float]:
        """A variance seen with few degrees of ``freedom``, drawn towards the usual one, and its degrees of freedom.

        One that is far above the usual is of another kind, and stays as it is.
        """
        both = self.freedom + freedom
        if not both or (self.freedom and freedom and variance > self.variance * _rare(freedom)):
            return variance, freedom
        return (self.freedom * self.variance + freedom * variance) / both, both


def usual(variances: Sequence[float], freedom: float) -> Usual:
    """What is usual among ``variances``, each seen with ``freedom`` degrees of it.

    Variances that scatter no more than chance lets them are all one and the same: many degrees. The more they
    scatter beyond that, the less one tells about another (Smyth 2004, Statistical Applications in Genetics 3, 3:
    the moderated t). Those far above the rest are left out, so that a few wild ones leave the tame ones usual. With
    fewer than ten, or no freedom, nothing is usual.
    """
    logs = np.log([variance for variance in variances if variance > 0])
    if len(logs) < 10 or freedom <= 0:
        return Usual(0.0, 0.0)
    half = freedom / 2
    kept = logs
    for _ in range(_ROUNDS):
        centre = float(np.median(kept)) if kept is logs else math.log(_fit(kept, half).variance)
        kept = logs[logs <= centre + math.log(_rare(freedom))]
    return _fit(kept, half)


def _fit(logs: Floats, half: float) -> Usual:
    centre = float(logs.mean()) - _digamma(half) + math.log(half)
    excess = float(logs.var()) - _trigamma(half)
    worth = next((d for d in range(1, MANY) if _trigamma(d / 2) <= excess), MANY) if excess > 0 else MANY
    return Usual(math.exp(centre + _digamma(worth / 2) - math.log(worth / 2)), float(worth))


def _rare(freedom: float) -> float:
    """How many times the true variance one seen with ``freedom`` degrees is once in a thousand (Wilson, Hilferty)."""
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
