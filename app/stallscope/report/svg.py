"""Histograms as SVG, all of a page on one logarithmic time axis; the baseline is behind the measured one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import MIDDLE, Histogram
from stallprobes.units import duration_ns

# Number of bins for each factor of 10 on the time axis of the HTML report's histograms.
_PER_DECADE = 20
# Smallest length of the histograms' time axis, in factors of 10. Reason: the page stretches each image to the full
# width, and the letters of a shorter axis would become too large.
_MIN_DECADES = 5
# Width (user units of the SVG) of a histogram's bin.
_BIN_WIDTH = 4
# Largest height (user units of the SVG) of a histogram.
_HEIGHT = 56
# y (user units of the SVG) of a histogram's base line.
_BASELINE_Y = 60
# Height (user units of the SVG) of a histogram with the labels of its axis.
_IMAGE_HEIGHT = 76


@dataclass(frozen=True, eq=False)
class Axis:
    """Logarithmic time axis of ``decades`` decades that begins at ``10 ** low`` ns."""

    low: int
    decades: int

    @classmethod
    def over(cls, histograms: Iterable[Histogram]) -> Axis:
        """The smallest axis that holds all of ``histograms``."""
        counts = sum((histogram.counts for histogram in histograms), np.zeros(len(MIDDLE), dtype=np.uint64))
        used = MIDDLE[np.flatnonzero(counts)]
        if not len(used):
            return cls(3, _MIN_DECADES)
        low = math.floor(math.log10(max(float(used[0]), 10.0)))
        return cls(low, max(_MIN_DECADES, math.floor(math.log10(max(float(used[-1]), 10.0))) + 1 - low))

    @property
    def width(self) -> int:
        """Width of an image in its own units."""
        return self.decades * _PER_DECADE * _BIN_WIDTH

    def ticks(self) -> str:
        """The axis as the SVG group ``axis``, defined once and used by every image."""
        marks, labels = [], []
        for decade in range(self.decades + 1):
            x = decade * _PER_DECADE * _BIN_WIDTH
            marks.append(f"M{x} 0V{_BASELINE_Y + 3}")
            # The last label would cross the edge.
            if decade < self.decades:
                labels.append(f'<text x="{x + 2}" y="{_IMAGE_HEIGHT - 4}">{_decade_label(self.low + decade)}</text>')
        return f'<g id="axis"><path d="M0 {_BASELINE_Y}H{self.width}{"".join(marks)}"/>{"".join(labels)}</g>'

    def svg(self, layers: Sequence[tuple[str, Histogram | None]], label: str) -> str:
        """Image of ``layers``, each a CSS class with its histogram, from back to front.

        Heights are square roots of the shares of calls, so that rare slow calls stay visible. ``label`` must be
        escaped.
        """
        shares = [(name, self._shares(histogram)) for name, histogram in layers if histogram is not None]
        most = max((float(share.max()) for _, share in shares), default=0.0)
        paths = "".join(f'<path class="{name}" d="{_outline(share / most)}"/>' for name, share in shares if most > 0)
        box = f'viewBox="0 0 {self.width} {_IMAGE_HEIGHT}"'
        return f'<svg {box} role="img" aria-label="{label}"><use href="#axis"/>{paths}</svg>'

    def _shares(self, histogram: Histogram) -> NDArray[np.float64]:
        places = np.floor((np.log10(np.maximum(MIDDLE, 1.0)) - self.low) * _PER_DECADE).astype(np.int64)
        places = places.clip(0, self.decades * _PER_DECADE - 1)
        counts = np.bincount(places, weights=histogram.counts, minlength=self.decades * _PER_DECADE)
        return counts / max(histogram.count, 1)


def _outline(shares: NDArray[np.float64]) -> str:
    """SVG path of the histogram's outline; bins with calls are at least 2 high."""
    heights = [0 if share <= 0 else max(2, round(math.sqrt(share) * _HEIGHT)) for share in shares.tolist()]
    path, x, before = "", 0, 0
    for height, bins in groupby((*heights, 0)):
        width = len(list(bins)) * _BIN_WIDTH
        if before:
            path += f"v{before - height}"
        elif height:
            path += f"M{x} {_BASELINE_Y}v{-height}"
        path += f"h{width}" if height else ""
        x, before = x + width, height
    return path


def _decade_label(exponent: int) -> str:
    if exponent < 3:
        return f"{10**exponent} ns"
    unit = ("µs", "ms", "s", "ks")[min(exponent // 3 - 1, 3)]
    return f"{10 ** (exponent - 3 * min(exponent // 3, 4))} {unit}"


def figures(histogram: Histogram | None) -> tuple[str, ...]:
    """Number of calls, p50, p99 and maximum as text."""
    if histogram is None or not histogram.count:
        return ("0", "–", "–", "–")
    times_ns = histogram.percentile(50), histogram.percentile(99), histogram.max_ns
    return (str(histogram.count), *map(duration_ns, times_ns))
