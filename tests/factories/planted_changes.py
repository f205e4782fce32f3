"""A change planted in one cell of a check, of a size that a comparison says it could have detected."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from stallprobes.latency.histogram import MIDDLE, Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Change, Comparison, QuantileChange
from stallprobes.matrix.comparing.quantile_comparison import P50
from stallprobes.matrix.matrix import Matrix
from stallprobes.model import Channel

# Share of slow calls of a change at p99.
SLOW = 0.05


@dataclass(frozen=True)
class Planted:
    """A planted change: the part of the comparison that it changed, and the other cells that are worse or better."""

    ratio: float
    part: QuantileChange
    others: tuple[tuple[str, str], ...]

    @property
    def found(self) -> bool:
        """Whether the comparison shows the change: as worse, or as unsure in its direction."""
        worse = self.part.ratio is not None and self.part.ratio > 1
        return self.part.change is Change.WORSE or (self.part.change is Change.UNSURE and worse)


def with_change(
    matrix: Matrix, key: tuple[str, str], channel: Channel, quantile: Quantile, ratio: float, seed: int
) -> Matrix:
    """``matrix`` with a changed cell.

    At p50 every call is ``ratio`` times as long, at p99 1 in 20 is ``ratio`` times the p99. The change has the same
    size in each repeat.
    """
    dice = np.random.default_rng(seed)
    cell = matrix.cells[key]
    p99_ns = cell.channels[channel].percentile(99) or 0.0

    def changed(histogram: Histogram) -> Histogram:
        values = np.repeat(np.minimum(MIDDLE, histogram.max_ns), histogram.counts.astype(np.int64))
        if quantile is P50:
            values = values * ratio
        else:
            values = np.where(dice.random(len(values)) < SLOW, p99_ns * ratio, values)
        return Histogram.of(values.round().astype(np.int64))

    repeats = tuple(
        replace(
            repeat,
            window=replace(
                repeat.window,
                channels={one: changed(h) if one == channel else h for one, h in repeat.window.channels.items()},
            ),
        )
        for repeat in cell.repeats
    )
    return matrix.changed(cells={**matrix.cells, key: cell.changed(repeats=repeats)})


def planted(stated: Comparison, old: Matrix, new: Matrix, quantile: Quantile, seed: int) -> Planted:
    """The comparison of ``old`` with ``new`` in which one cell changed by the ratio that ``stated`` gives for it.

    ``seed`` chooses the cell and the channel among those that state a ratio.
    """
    parts = [
        (cell.key, part)
        for cell in stated.cells
        for part in cell.parts
        if part.quantile is quantile and part.detectable is not None and part.detectable < 100
    ]
    key, chosen = random.Random(seed).choice(parts)
    assert chosen.detectable is not None
    comparison = compare(old, with_change(new, key, chosen.channel, quantile, chosen.detectable, seed), force=True)
    found = next(
        part
        for cell in comparison.cells
        for part in cell.parts
        if (cell.key, part.channel, part.quantile) == (key, chosen.channel, quantile)
    )
    others = tuple(
        cell.key for cell in comparison.cells if cell.change in (Change.WORSE, Change.BETTER) and cell.key != key
    )
    return Planted(chosen.detectable, found, others)
