"""Chance, the same on every machine: integers drawn from a seed, turned into times by tables of quantiles.

A call's time is spread like a lognormal given by its median and its 99th percentile. Only integers are computed with
while the simulation runs, so that the same seed gives the same samples wherever it runs.
"""

from __future__ import annotations

import math
import zlib
from functools import cache
from statistics import NormalDist

QUANTILES = 4096
UNIT_BITS = 16
_BLOCK = 1024
_Z99 = NormalDist().inv_cdf(0.99)


@cache
def lognormal_factors(sigma_milli: int) -> tuple[int, ...]:
    """FACES equally likely factors (in 1/65536) of a lognormal with sigma ``sigma_milli`` / 1000, ascending."""
    return tuple(round(math.exp(sigma_milli / 1000 * quantile) * (1 << UNIT_BITS)) for quantile in _quantiles())


@cache
def _quantiles() -> tuple[float, ...]:
    """FACES equally likely values of the normal distribution, ascending."""
    normal = NormalDist()
    return tuple(normal.inv_cdf((number + 0.5) / QUANTILES) for number in range(QUANTILES))


class RandomStream:
    """An endless row of numbers from 0 to FACES - 1 that belongs to ``name`` alone, whoever else rolls.

    ``numbers`` is a part of it, the next number last, since taking from there is what costs least.
    """

    __slots__ = ("_generator", "numbers")

    def __init__(self, seed: int, name: str) -> None:
        # Here, since whoever only wants to know the profiles need not load it.
        import numpy as np

        self._generator = np.random.Generator(
            np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
        )
        self.numbers: list[int] = []

    def next_number(self) -> int:
        """The next number."""
        self.fill(1)
        return self.numbers.pop()

    def fill(self, count: int) -> None:
        """See to it that ``numbers`` holds at least ``count`` numbers."""
        while len(self.numbers) < count:
            block: list[int] = self._generator.integers(0, QUANTILES, _BLOCK).tolist()
            block.reverse()
            self.numbers[:0] = block

    def peek(self, count: int) -> list[int]:
        """The next ``count`` numbers, which stay where they are until they are dropped."""
        self.fill(count)
        return self.numbers[: -count - 1 : -1]

    def discard(self, count: int) -> None:
        """Pass over the next ``count`` numbers."""
        del self.numbers[len(self.numbers) - count :]


class LatencyDistribution:
    """A time that is drawn: median and 99th percentile in ns. Raises ValueError unless 0 <= median <= the other."""

    __slots__ = ("factors", "p50_ns", "p99_ns")

    def __init__(self, p50_ns: float, p99_ns: float) -> None:
        if not 0 <= p50_ns <= p99_ns:
            raise ValueError(f"a median of {p50_ns} ns with a 99th percentile of {p99_ns} ns")
        self.p50_ns = round(p50_ns)
        self.p99_ns = round(p99_ns)
        sigma = math.log(p99_ns / p50_ns) / _Z99 if p50_ns > 0 else 0.0
        self.factors = lognormal_factors(round(1000 * sigma))

    def draw(self, random: RandomStream) -> int:
        """One such time in ns."""
        if not random.numbers:
            random.fill(1)
        return self.p50_ns * self.factors[random.numbers.pop()] >> UNIT_BITS
