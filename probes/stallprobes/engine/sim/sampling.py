"""Random latencies: integers from a seeded generator, mapped to times by tables of lognormal quantiles.

A latency has a lognormal distribution given by its median and its 99th percentile. The simulation computes with
integers only, so that the same seed gives the same samples on every machine.
"""

from __future__ import annotations

import math
import zlib
from functools import cache, cached_property
from statistics import NormalDist

# Number of values in the table of a latency distribution; all are equally likely. A random number is below QUANTILES
# and selects one of the values.
QUANTILES = 4096
# Number of fractional bits of the factor by which a median latency is multiplied.
UNIT_BITS = 16
# Number of random numbers that a RandomStream generates at a time, in advance.
_BLOCK = 1024
# 99th percentile of the normal distribution.
_Z99 = NormalDist().inv_cdf(0.99)


@cache
def lognormal_factors(sigma_milli: int) -> tuple[int, ...]:
    """QUANTILES equally likely factors (in 1/65536) of a lognormal with sigma ``sigma_milli`` / 1000, ascending."""
    return tuple(round(math.exp(sigma_milli / 1000 * quantile) * (1 << UNIT_BITS)) for quantile in _quantiles())


@cache
def _quantiles() -> tuple[float, ...]:
    """QUANTILES equally likely values of the normal distribution, ascending."""
    normal = NormalDist()
    return tuple(normal.inv_cdf((number + 0.5) / QUANTILES) for number in range(QUANTILES))


class RandomStream:
    """A stream of random integers from 0 to QUANTILES - 1, given by ``seed`` and ``name``.

    ``numbers`` holds the next ones in reverse order, because removing from the end of a list is fastest.
    """

    __slots__ = ("_generator", "numbers")

    def __init__(self, seed: int, name: str) -> None:
        # Imported here, because listing the profiles does not need it.
        import numpy as np

        self._generator = np.random.Generator(
            np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
        )
        self.numbers: list[int] = []

    def next_number(self) -> int:
        """Remove and return the next number."""
        self.fill(1)
        return self.numbers.pop()

    def fill(self, count: int) -> None:
        """Generate numbers until ``numbers`` holds at least ``count``."""
        while len(self.numbers) < count:
            block: list[int] = self._generator.integers(0, QUANTILES, _BLOCK).tolist()
            block.reverse()
            self.numbers[:0] = block


class LatencyDistribution:
    """Lognormal distribution of a latency, given by median and 99th percentile in ns.

    Raises ValueError unless 0 <= median <= 99th percentile.
    """

    def __init__(self, p50_ns: float, p99_ns: float) -> None:
        if not 0 <= p50_ns <= p99_ns:
            raise ValueError(f"a median of {p50_ns} ns with a 99th percentile of {p99_ns} ns")
        self.p50_ns = round(p50_ns)
        self.p99_ns = round(p99_ns)
        sigma = math.log(p99_ns / p50_ns) / _Z99 if p50_ns > 0 else 0.0
        self._sigma_milli = round(1000 * sigma)

    # Created at the first use: a program makes few of the calls of a profile.
    @cached_property
    def times_ns(self) -> list[int]:
        """QUANTILES equally likely times in ns, ascending."""
        return [self.p50_ns * factor >> UNIT_BITS for factor in lognormal_factors(self._sigma_milli)]

    def draw(self, random: RandomStream) -> int:
        """A random latency in ns."""
        if not random.numbers:
            random.fill(1)
        return self.times_ns[random.numbers.pop()]
