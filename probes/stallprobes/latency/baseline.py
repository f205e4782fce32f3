"""Baseline: the distribution of a probe's latency over windows of equal length without an aggressor.

The windows show how much the machine itself varies: with nothing running, the p50 of a call of 3 µs can double from one
second to the next. One histogram of two seconds could not tell this variation from a stall.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from stallprobes.latency.histogram import MIDDLE, Histogram
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.latency.window import ChannelMap, judged_histogram, merged
from stallprobes.model import Channel

# Smallest number of calls in a baseline, or in one of its windows, with which a percentile counts. Percentiles of fewer
# calls are ignored. Reason: chance variation would count as variation of the machine.
ENOUGH_CALLS = 20
# Ends of the range of a machine's variation without aggressors, as percentiles over all baseline windows. The range
# contains 99 % of the windows. Reason: rare extreme windows must not widen the range.
_LOWEST, _HIGHEST = 0.5, 99.5
# Assumed standard deviation of the logarithm of a window's percentile, before windows are measured. On a shared H200
# host, the measured value for the p50 of launches and copies was 0.23 to 0.36. The measured value for the p50 of
# completion waits and of the host control was 0.00 to 0.05.
_PRIOR_DEVIATION = 0.25
# Weight of _PRIOR_DEVIATION: the assumed standard deviation counts as much as this number of measured windows.
_PRIOR_WINDOWS = 4
# 99th percentile of the standard normal distribution. The 99th percentile of Student's t is computed from it.
_Z99 = 2.326


@dataclass(frozen=True, eq=False)
class Baseline:
    """Windows of one probe without an aggressor, in memory that does not grow with their number.

    ``channels`` is the sum of the windows. ``percentiles`` holds a histogram of p50, and of p99, over the windows with
    at least 20 calls, by channel. ``duration_ns`` is their total length, ``at_ns`` the board's time at which the
    baseline was complete (0: unknown). ``shared`` is True if another process used the GPU meanwhile.
    """

    channels: ChannelMap
    percentiles: Mapping[Quantile, ChannelMap]
    duration_ns: int
    at_ns: int = 0
    shared: bool = False
    # Figures that were asked for: a baseline is judged against many times before it is extended.
    _percentiles: dict[tuple[Channel, Quantile], float | None] = field(default_factory=dict, repr=False)
    _ranges: dict[tuple[Channel, Quantile], tuple[float, float] | None] = field(default_factory=dict, repr=False)
    _limits: dict[tuple[Channel, Quantile], float | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, windows: Iterable[ChannelMap], *, duration_ns: int = 0, at_ns: int = 0, shared: bool = False
    ) -> Baseline:
        """The baseline of ``windows``, together ``duration_ns`` long."""
        known = list(windows)
        percentiles = {quantile: _distribution(known, quantile) for quantile in PERCENTILES}
        return cls(merged(known), percentiles, duration_ns, at_ns, shared)

    def extended(self, window: ChannelMap, duration_ns: int) -> Baseline:
        """This baseline with one more window."""
        return Baseline(
            merged((self.channels, window)),
            {q: merged((self.percentiles[q], _distribution([window], q))) for q in PERCENTILES},
            self.duration_ns + duration_ns,
            self.at_ns,
            self.shared,
        )

    def windows(self, channel: Channel) -> int:
        """Number of windows with enough calls of ``channel``."""
        histogram = self.percentiles[Quantile.P50].get(channel)
        return 0 if histogram is None else histogram.count

    def percentile_ns(self, channel: Channel, quantile: Quantile) -> float | None:
        """The percentile (ns) of all calls of ``channel``; None with fewer than 20."""
        key = (channel, quantile)
        if key not in self._percentiles:
            whole = judged_histogram(self.channels, channel)
            self._percentiles[key] = None if whole is None else whole.percentile_or_none(quantile.percent, ENOUGH_CALLS)
        return self._percentiles[key]

    def range_ns(self, channel: Channel, quantile: Quantile) -> tuple[float, float] | None:
        """The lowest and the highest percentile among the windows; None without any.

        From 200 windows on it contains 99 % of them. Raises KeyError for a call in flight.
        """
        key = (channel, quantile)
        if key not in self._ranges:
            self._ranges[key] = self._range_ns(channel, quantile)
        return self._ranges[key]

    def _range_ns(self, channel: Channel, quantile: Quantile) -> tuple[float, float] | None:
        histogram = self.percentiles[quantile].get(channel)
        if histogram is None or not histogram.count:
            return None
        low, high = histogram.percentile(_LOWEST), histogram.percentile(_HIGHEST)
        return None if low is None or high is None else (low, high)

    def spread(self, channel: Channel, quantile: Quantile) -> float | None:
        """The highest percentile over the lowest one; None without windows. Values below 1 ns count as 1 ns."""
        ends = self.range_ns(channel, quantile)
        return None if ends is None else max(ends[1], 1.0) / max(ends[0], 1.0)

    def limit_ns(self, channel: Channel, quantile: Quantile) -> float | None:
        """Upper limit of a percentile (ns) for one more window of the machine's own variation; None if unknown.

        The limit is the larger of the range and the upper 99 % prediction limit: Student's t for the logarithms of the
        windows' percentiles, with a variance that is moderated by a prior of 0.25² worth 4 windows. The limit is
        therefore far from the median after two windows, and depends on the machine alone after twenty.
        """
        key = (channel, quantile)
        if key not in self._limits:
            self._limits[key] = self._limit_ns(channel, quantile)
        return self._limits[key]

    def _limit_ns(self, channel: Channel, quantile: Quantile) -> float | None:
        middle = self.percentile_ns(channel, quantile)
        if middle is None:
            return None
        known_range, (mean, deviation, freedom) = self.range_ns(channel, quantile), self._fitted(channel, quantile)
        predicted = math.exp(mean + _upper_t(freedom) * deviation)
        return predicted if known_range is None else max(known_range[1], predicted)

    def deviation(self, channel: Channel, quantile: Quantile) -> float:
        """The standard deviation of the logarithm of the percentile in one more window.

        Without a known window it is the prior's.
        """
        _, deviation, _ = self._fitted(channel, quantile)
        return deviation

    def _fitted(self, channel: Channel, quantile: Quantile) -> tuple[float, float, int]:
        """Mean, deviation and degrees of freedom of the prediction of the logarithm of one more window."""
        histogram, prior = self.percentiles[quantile].get(channel), _PRIOR_WINDOWS * _PRIOR_DEVIATION**2
        if histogram is None or not histogram.count:
            middle = max(self.percentile_ns(channel, quantile) or 0.0, 1.0)
            return math.log(middle), _PRIOR_DEVIATION * math.sqrt(2), _PRIOR_WINDOWS
        buckets, counts = histogram.used
        windows = histogram.count
        logs = np.log(np.maximum(MIDDLE[buckets], 1.0))
        mean = float(counts @ logs) / windows
        freedom = windows - 1 + _PRIOR_WINDOWS
        variance = (float(counts @ (logs - mean) ** 2) + prior) / freedom
        return mean, math.sqrt(variance * (1 + 1 / windows)), freedom


def widest(
    baselines: Mapping[str, Baseline], channels: Iterable[Channel], quantile: Quantile
) -> tuple[str, Channel, float] | None:
    """The probe, the channel and the value of the largest spread; None if no channel has two windows."""
    wanted = list(channels)
    spreads = [
        (name, channel, spread)
        for name, baseline in baselines.items()
        for channel in wanted
        if baseline.windows(channel) >= 2 and (spread := baseline.spread(channel, quantile)) is not None
    ]
    return max(spreads, key=lambda entry: entry[2], default=None)


def _distribution(windows: Iterable[ChannelMap], quantile: Quantile) -> dict[Channel, Histogram]:
    values: dict[Channel, list[int]] = {}
    for window in windows:
        for channel in window:
            histogram = judged_histogram(window, channel)
            value = None if histogram is None else histogram.percentile_or_none(quantile.percent, ENOUGH_CALLS)
            if value is not None:
                values.setdefault(channel, []).append(round(value))
    return {channel: Histogram.of(medians) for channel, medians in values.items()}


def _upper_t(freedom: float) -> float:
    """The 99th percentile of Student's t: the Cornish-Fisher expansion, within 2 % from 5 degrees of freedom on."""
    z = _Z99
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
