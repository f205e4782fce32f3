"""Precision of a cell: the ratios at p50 that a comparison of two such checks could detect in its phases."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from stallprobes.latency.ratio import phase_channels
from stallprobes.latency.statistics import prior_variance, variance_of_mean
from stallprobes.matrix.comparing.compare import SELECTION, UNSURE_P_VALUE
from stallprobes.matrix.comparing.quantile_comparison import DIFFERENCE_NS, P50, RATIO
from stallprobes.matrix.comparing.sensitivity import power_sd, student_t_limit
from stallprobes.matrix.matrix import PHASES, Repeat
from stallprobes.model import Channel

# Variance of the logarithm of a percentile that is due to the width of the histogram's buckets.
_GRAIN = (1 / 64) ** 2 / 12

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class PhaseSpread:
    """Spread of the p50 of one phase of a cell between its ``repeats``.

    ``variance`` is the variance of the logarithm of a repeat's p50, and ``prior`` the degrees of freedom that similar
    cells add. The p50 varies less than the p99, which depends on few calls and says less of a cell than of chance.
    """

    repeats: int
    variance: float
    prior: float
    p50_ns: float

    def detectable(self, repeats: int) -> float:
        """The smallest ratio that two checks detect, both with this spread and so many repeats of the cell."""
        deviation = math.sqrt(2 * self.variance / repeats)
        freedom = int(2 * (repeats - 1) + self.prior)
        margin = power_sd(freedom) * deviation
        size = math.log(max(RATIO[P50], 1 + DIFFERENCE_NS[P50] / max(self.p50_ns, 1.0))) + margin
        limit = SELECTION * (student_t_limit(UNSURE_P_VALUE, freedom) * deviation + margin)
        return math.exp(min(max(size, limit), _LARGEST))


# Logarithm of the largest ratio that is stated as detectable. Larger ratios are reduced to this value.
_LARGEST = math.log(1e6)


def spreads(cells: Mapping[Key, Sequence[Repeat]]) -> dict[Key, list[PhaseSpread]]:
    """The spreads of the phases of each cell that have calls in two repeats or more.

    As in a comparison, the variance of each is moderated with the variances of all cells.
    """
    variances = {key: _variances(repeats) for key, repeats in cells.items()}
    first = min((len(repeats) for repeats in cells.values()), default=0)
    groups: dict[str, list[float]] = {}
    for key, repeats in cells.items():
        same = variances[key] if len(repeats) == first else _variances(repeats[:first])
        for channel, (_, variance, _) in same.items():
            groups.setdefault(channel.phase, []).append(variance)
    priors = {phase: prior_variance(variances, first - 1) for phase, variances in groups.items()}

    def moderated(channel: Channel, repeats: int, variance: float, p50_ns: float) -> PhaseSpread:
        prior = priors.get(channel.phase)
        if prior is not None:
            variance, freedom = prior.moderated(variance, repeats - 1)
            return PhaseSpread(repeats, variance, freedom - (repeats - 1), p50_ns)
        return PhaseSpread(repeats, variance, 0.0, p50_ns)

    return {key: [moderated(channel, *each) for channel, each in own.items()] for key, own in variances.items()}


def _variances(repeats: Iterable[Repeat]) -> dict[Channel, tuple[int, float, float]]:
    """Number of repeats with calls, variance of their log p50, and mean p50 in ns of each phase."""
    logs: dict[Channel, list[float]] = {}
    for repeat in repeats:
        for channel, log in _log_medians(repeat).items():
            logs.setdefault(channel, []).append(log)
    result = {}
    for phase in PHASES:
        for channel in phase_channels(logs, phase):
            values = np.array(logs.get(channel, ()))
            if len(values) > 1:
                variance = variance_of_mean(values) * len(values) + _GRAIN
                result[channel] = len(values), variance, math.exp(float(values.mean()))
    return result


# Cache of the logarithms of the median latencies (ns) of each repeat, by channel (kind of latency). Reason: the spreads
# of a check's cells are computed several times.
_LOG_MEDIANS: WeakKeyDictionary[Repeat, dict[Channel, float]] = WeakKeyDictionary()


def _log_medians(repeat: Repeat) -> dict[Channel, float]:
    """The logarithm of the p50 in ns of each phase with calls."""
    medians = _LOG_MEDIANS.get(repeat)
    if medians is None:
        channels = [channel for channel in repeat.window.channels if channel.phase in PHASES]
        logs = {channel: _log_median(repeat, channel) for channel in channels}
        medians = _LOG_MEDIANS[repeat] = {channel: log for channel, log in logs.items() if log is not None}
    return medians


def _log_median(repeat: Repeat, channel: Channel) -> float | None:
    median_ns = repeat.window.channels[channel].percentile(P50.percent)
    return None if median_ns is None else math.log(max(median_ns, 1.0))
