"""Chance, the same on every machine: integers drawn from a seed, turned into times by tables of quantiles.

A call's time is spread like a lognormal given by its median and its 99th percentile. Only integers are computed with
while the simulation runs, so that the same seed gives the same samples wherever it runs.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from statistics import NormalDist

FACES = 4096
UNIT_BITS = 16
_BLOCK = 1024
_Z99 = NormalDist().inv_cdf(0.99)


@cache
def spread(sigma_milli: int) -> tuple[int, ...]:
    """FACES equally likely factors (in 1/65536) of a lognormal with sigma ``sigma_milli`` / 1000, ascending."""
    normal = NormalDist()
    faces = ((face + 0.5) / FACES for face in range(FACES))
    return tuple(round(math.exp(sigma_milli / 1000 * normal.inv_cdf(face)) * (1 << UNIT_BITS)) for face in faces)


class Cost:
    """A time that is drawn: median and 99th percentile in ns. Raises ValueError unless 0 <= median <= the other."""

    __slots__ = ("factors", "p50_ns", "p99_ns")

    def __init__(self, p50_ns: float, p99_ns: float) -> None:
        if not 0 <= p50_ns <= p99_ns:
            raise ValueError(f"a median of {p50_ns} ns with a 99th percentile of {p99_ns} ns")
        self.p50_ns = round(p50_ns)
        self.p99_ns = round(p99_ns)
        sigma = math.log(p99_ns / p50_ns) / _Z99 if p50_ns > 0 else 0.0
        self.factors = spread(round(1000 * sigma))

    def draw(self, dice: Iterator[int]) -> int:
        """One such time in ns."""
        return self.p50_ns * self.factors[next(dice)] >> UNIT_BITS


def dice(seed: int, name: str) -> Iterator[int]:
    """An endless row of numbers from 0 to FACES - 1 that belongs to ``name`` alone, whoever else rolls."""
    # Here, since whoever only wants to know the profiles need not load it.
    import numpy as np

    numbers = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())])))
    return chain.from_iterable(iter(lambda: numbers.integers(0, FACES, _BLOCK).tolist(), None))
