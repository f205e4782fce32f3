"""Histograms as SVG on one logarithmic axis for a whole page: quiet behind, what was measured before it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import MIDDLE, Histogram
from stallprobes.units import duration

_PER_DECADE = 20
# So that letters come out as large as on other pages.
_FEWEST = 5
_STEP = 4
_HEIGHT = 56
_BASE = 60
_WHOLE = 76


@dataclass(frozen=True, eq=False)
class Axis:
    """``decades`` powers of ten from ``10 ** low`` ns on."""

    low: int
    decades: int

    @classmethod
    def over(cls, histograms: Iterable[Histogram]) -> Axis:
        """The axis that has room for all of ``histograms``."""
        counts = sum((histogram.counts for histogram in histograms), np.zeros(len(MIDDLE), dtype=np.uint64))
        used = MIDDLE[np.flatnonzero(counts)]
        if not len(used):
            return cls(3, _FEWEST)
        low = math.floor(math.log10(max(float(used[0]), 10.0)))
        return cls(low, max(_FEWEST, math.floor(math.log10(max(float(used[-1]), 10.0))) + 1 - low))

    @property
    def width(self) -> int:
        """The width of a picture in its own units."""
        return self.decades * _PER_DECADE * _STEP

    def ticks(self) -> str:
        """The axis as the SVG group ``axis``, to be drawn once and used by every picture."""
        marks, labels = [], []
        for decade in range(self.decades + 1):
            x = decade * _PER_DECADE * _STEP
            marks.append(f"M{x} 0V{_BASE + 3}")
            # The last one would hang over the edge.
            if decade < self.decades:
                labels.append(f'<text x="{x + 2}" y="{_WHOLE - 4}">{_power(self.low + decade)}</text>')
        return f'<g id="axis"><path d="M0 {_BASE}H{self.width}{"".join(marks)}"/>{"".join(labels)}</g>'

    def svg(self, layers: Sequence[tuple[str, Histogram | None]], label: str) -> str:
        """A picture of ``layers``, each a CSS class with its histogram, the first one at the back.

        Heights are roots of the shares of calls, so that a rare slow call is seen. ``label`` must be escaped.
        """
        shares = [(name, self._shares(histogram)) for name, histogram in layers if histogram is not None]
        most = max((float(share.max()) for _, share in shares), default=0.0)
        paths = "".join(f'<path class="{name}" d="{_steps(share / most)}"/>' for name, share in shares if most > 0)
        return (
            f'<svg viewBox="0 0 {self.width} {_WHOLE}" role="img" aria-label="{label}"><use href="#axis"/>{paths}</svg>'
        )

    def _shares(self, histogram: Histogram) -> NDArray[np.float64]:
        places = np.floor((np.log10(np.maximum(MIDDLE, 1.0)) - self.low) * _PER_DECADE).astype(np.int64)
        places = places.clip(0, self.decades * _PER_DECADE - 1)
        counts = np.bincount(places, weights=histogram.counts, minlength=self.decades * _PER_DECADE)
        return counts / max(histogram.count, 1)


def _steps(shares: NDArray[np.float64]) -> str:
    """One path over all bins: up, along, down; what is there is at least 2 high."""
    heights = [0 if share <= 0 else max(2, round(math.sqrt(share) * _HEIGHT)) for share in shares.tolist()]
    path, before, run = [], 0, 0
    for number, height in enumerate(heights):
        if height == before:
            run += 1
            continue
        if before == 0:
            path.append(f"M{number * _STEP} {_BASE}")
        else:
            path.append(f"h{run * _STEP}")
        path.append(f"v{before - height}")
        before, run = height, 1
    if before:
        path.append(f"h{run * _STEP}v{before}")
    return "".join(path)


def _power(exponent: int) -> str:
    if exponent < 3:
        return f"{10**exponent} ns"
    unit = ("µs", "ms", "s", "ks")[min(exponent // 3 - 1, 3)]
    return f"{10 ** (exponent - 3 * min(exponent // 3, 4))} {unit}"


def figures(histogram: Histogram | None) -> tuple[str, str, str, str]:
    """How many calls, p50, p99 and the maximum in words."""
    if histogram is None or not histogram.count:
        return ("0", "–", "–", "–")
    p50, p99 = histogram.percentile(50) or 0.0, histogram.percentile(99) or 0.0
    return (str(histogram.count), duration(p50 / 1000), duration(p99 / 1000), duration(histogram.max_ns / 1000))
