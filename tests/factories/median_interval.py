"""The median of a few values, and the interval in which it lies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MedianInterval:
    """The median of values, and the 95 % interval of it by order statistics."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> MedianInterval:
        """Of ``values``; with fewer than six the interval is all of them."""
        ordered = sorted(values)
        # The normal approximation of the binomial's 2.5 % point.
        skip = max(round(len(ordered) / 2 - 0.98 * len(ordered) ** 0.5) - 1, 0)
        return cls(statistics.median(ordered), ordered[skip], ordered[-1 - skip])
