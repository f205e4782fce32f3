"""Disagreement of a cell's repeats, by which a check chooses the cells that get additional ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from stallprobes.latency.histogram import MIDDLE
from stallprobes.latency.ratio import PERCENTILES
from stallprobes.latency.sparse import sparse
from stallprobes.latency.statistics import variance_of_mean
from stallprobes.matrix.matrix import PHASES, Repeat
from stallprobes.model import Channel

# The variance of the p99 depends on few calls, so it says less of a cell than of chance: on two checks of a noisy H200,
# a choice by p50 lowered the ratio that nine of ten phases detect from 2.6 to 2.0 and 3.1 to 2.2, one by p99 to 2.5 and
# 2.7, as much as one more repeat of every cell.
_QUANTILE = PERCENTILES[0]

Key = TypeVar("Key")


def disagreement(repeats: Iterable[Repeat]) -> float:
    """Standard deviation of the mean of the repeats' log p50, of the phase where it is largest.

    0 where fewer than two repeats have calls.
    """
    logs: dict[Channel, list[float]] = {}
    for repeat in repeats:
        for channel in repeat.window.channels:
            if channel.phase in PHASES and (log := _log_percentile(repeat, channel)) is not None:
                logs.setdefault(channel, []).append(log)
    return max((math.sqrt(variance_of_mean(np.array(found))) for found in logs.values()), default=0.0)


def most_disagreeing(repeats: Mapping[Key, Sequence[Repeat]], number: int) -> list[Key]:
    """The ``number`` keys whose repeats disagree most, the worst first; those that do not disagree are left out."""
    found = {key: disagreement(each) for key, each in repeats.items()}
    return sorted((key for key in found if found[key] > 0), key=lambda key: -found[key])[: max(number, 0)]


def _log_percentile(repeat: Repeat, channel: Channel) -> float | None:
    """Logarithm of the channel's percentile in ns, None without calls."""
    held = sparse(repeat.window.channels, channel)
    if not held.count:
        return None
    places, counts = held.used
    rank = -(-_QUANTILE.percent * held.count // 100)
    return math.log(max(min(float(MIDDLE[places[np.searchsorted(counts.cumsum(), rank)]]), held.max_ns), 1.0))
