"""Tests of one percentile of one channel of a cell between two checks: size and significance of the change."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import numpy as np

from stallprobes.latency.histogram import MIDDLE, Histogram, ranks
from stallprobes.latency.ratio import PERCENTILES, Quantile, phase_channels
from stallprobes.latency.statistics import (
    Floats,
    Int64s,
    arcsine_distance,
    fisher_exact_at_cut,
    tail_chi_square,
    variance_of_mean,
)
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, Repeat
from stallprobes.model import Channel

# The two percentiles that are compared.
P50, P99 = PERCENTILES
# Smallest relevant ratio of a percentile between two checks, except baselines (BASELINE_RATIO). Smaller changes occur
# by themselves. In ten consecutive checks on one H200, the wait of a small H2D with a full launch queue was 4.5 us in
# some checks and 6.1 us in others.
RATIO = {P50: 1.39, P99: 1.3}
# Smallest ratio of a baseline's percentile between two checks that counts as a change.
BASELINE_RATIO = {P50: 1.2, P99: 1.3}
# Smallest relevant difference (ns) of a percentile between two checks, or between the repeats of one check when modes
# are searched. In ten consecutive checks on one H200, the p99 of an event record was 0.4 us in some checks and 1.3 us
# in others.
DIFFERENCE_NS = {P50: 200, P99: 1000}
# Smallest number of calls, in at least one of two checks, with which a percentile is tested for a change. A percentile
# of a baseline needs this number, but at least 20 calls.
CALLS = {P50: 1, P99: 100}

# Cuts (shares of slowest calls among the calls of two checks together), by percentile that is tested for a change. For
# each cut, a test compares how many of the slowest calls belong to each check. The larger cuts for p99 find changes of
# more calls.
_CUTS: Mapping[Quantile, tuple[float, ...]] = {P50: (0.5,), P99: (0.01, 0.015, 0.0225)}
# Share of the calls of all repeats together that count as slow. If a repeat has far more or fewer slow calls than
# chance allows, its calls are not independent. The comparison takes this dependence into account.
_TAIL = 0.02
# Histograms of one channel, each with the host of its repeat.
_Held = list[tuple[str, Histogram]]
# Empty array, in place of the logarithms of the repeats' percentiles, for a channel (kind of latency) with too few
# repeats.
_NO_FLOATS: Floats = np.zeros(0)
# Variance of the logarithm of the ratio of two checks' percentiles that is due to the width of the histogram's buckets.
# The logarithm is the difference of two means, each over the repeats of a check. The value is for four repeats in each
# check; with more repeats, the true variance is smaller.
_GRAIN = 2 * (1 / 64) ** 2 / 12 / 4


@dataclass(frozen=True, eq=False)
class ChannelRepeats:
    """One channel of a cell in one check, by repeat.

    ``counts`` is int64[repeats, buckets from ``first`` on] with all calls, ``hosts`` has each repeat's host, ``max_ns``
    is the exact maximum of all calls.
    """

    counts: Int64s
    hosts: tuple[str, ...]
    max_ns: int
    first: int = 0

    @classmethod
    def pair(cls, old: _Held, new: _Held) -> tuple[ChannelRepeats, ChannelRepeats]:
        """One channel in two checks, by the repeats that have calls in it, ordered by host, with the same buckets."""
        before = _with_calls(old)
        if old is new:
            same = cls._within(before, *_range(before))
            return same, same
        now = _with_calls(new)
        first, end = _range([*before, *now])
        return cls._within(before, first, end), cls._within(now, first, end)

    @classmethod
    def _within(cls, held: _Held, first: int, end: int) -> ChannelRepeats:
        counts = np.zeros((len(held), end - first), dtype=np.int64)
        for line, (_, histogram) in zip(counts, held, strict=True):
            buckets, values = histogram.used
            line[buckets - first] = values
        return cls(counts, tuple([host for host, _ in held]), max([each.max_ns for _, each in held], default=0), first)

    @cached_property
    def total(self) -> Int64s:
        """The counts of all repeats together, int64[buckets from ``first`` on]."""
        return np.asarray(np.add.reduce(self.counts))

    @cached_property
    def calls(self) -> int:
        """Number of calls in all repeats."""
        return int(np.add.reduce(self.total))

    def percentile_ns(self, quantile: Quantile) -> float | None:
        """The percentile of all repeats together in ns, as their histogram has it; None without calls."""
        return float(self._percentiles_ns[quantile][-1]) if self.calls else None

    @cached_property
    def _sums(self) -> Int64s:
        return np.asarray(np.add.accumulate(self.counts, axis=1))

    @cached_property
    def _percentiles_ns(self) -> Mapping[Quantile, Floats]:
        """The percentiles in ns of each repeat, then of all without each repeat, then of all.

        Several tests and conditions use them, and numpy computes all of them in the time of one.
        """
        total = np.add.reduce(self._sums)
        sums = np.concatenate((self._sums, total - self._sums, total[None]))
        nearest = np.stack([ranks(quantile.percent, sums[:, -1:]) for quantile in PERCENTILES])
        places = (sums >= nearest).argmax(axis=2)
        return dict(zip(PERCENTILES, np.minimum(MIDDLE[self.first + places], self.max_ns), strict=True))

    @cached_property
    def _logs(self) -> Mapping[Quantile, Floats]:
        return {quantile: np.log(np.maximum(ns, 1.0)) for quantile, ns in self._percentiles_ns.items()}

    def log_percentiles(self, quantile: Quantile) -> Floats:
        """The logarithm of each repeat's percentile in ns."""
        return self._logs[quantile][: len(self.counts)] if len(self.counts) else _NO_FLOATS

    def jackknife(self, quantile: Quantile) -> Floats:
        """The logarithm of the percentile with each repeat left out; empty with fewer than two repeats."""
        return self._logs[quantile][len(self.counts) : -1] if len(self.counts) > 1 else _NO_FLOATS

    def tail_chi_square(self, share: float) -> float:
        """Chi-square statistic of the tail fraction above the cut of all repeats together."""
        return tail_chi_square(self._sums, share)


def _by_channel(repeats: Iterable[Repeat]) -> dict[Channel, _Held]:
    """The host and the histogram of each repeat that has the channel."""
    channels: dict[Channel, _Held] = {}
    for repeat in repeats:
        host = repeat.host
        for channel, histogram in repeat.window.channels.items():
            channels.setdefault(channel, []).append((host, histogram))
    return channels


def _with_calls(held: _Held) -> _Held:
    """The histograms of ``held`` with calls, ordered by host."""
    # Sorted by host, so that a host's repeats have the same index in both checks.
    return sorted([each for each in held if each[1].count], key=itemgetter(0))


def _range(held: _Held) -> tuple[int, int]:
    """The first bucket in use, and the one after the last."""
    used = [histogram.used[0] for _, histogram in held]
    return min([int(part[0]) for part in used], default=0), max([int(part[-1]) + 1 for part in used], default=0)


@dataclass(frozen=True, eq=False)
class QuantileTest:
    """The test of percentile ``quantile`` of a channel of ``cell`` between two checks; one of them has calls."""

    cell: Cell
    channel: Channel
    quantile: Quantile
    old: ChannelRepeats
    new: ChannelRepeats

    @cached_property
    def values_ns(self) -> tuple[float, float]:
        """The old and the new percentile in ns, at least 1; 1 where there are no calls."""
        old, new = (max(repeats.percentile_ns(self.quantile) or 0.0, 1.0) for repeats in (self.old, self.new))
        return old, new

    @property
    def has_calls(self) -> bool:
        """True if both checks have calls."""
        return bool(self.old.calls and self.new.calls)

    @property
    def ratio(self) -> float:
        """The new percentile over the old one."""
        return self.values_ns[1] / self.values_ns[0]

    @property
    def relevant(self) -> bool:
        """True if ratio and difference reach their limits."""
        difference = abs(self.values_ns[1] - self.values_ns[0])
        return beyond(self.ratio, self.limit) and difference >= DIFFERENCE_NS[self.quantile]

    @property
    def relevant_by_repeats(self) -> bool:
        """True if, at p50, the means of the repeats' log percentiles differ by so much, in the direction of ``ratio``.

        Where repeats vary, the median of all calls depends on chance more than this mean does, and the repeats show the
        deviation of the mean.
        """
        if self.quantile is not P50 or self.single_repeat:
            return False
        ratio = math.exp(self.log_ratio)
        old_ns = math.exp(float(self.old.log_percentiles(P50).mean()))
        large = beyond(ratio, self.limit) and abs(ratio - 1) * old_ns >= DIFFERENCE_NS[P50]
        return large and (ratio > 1) is (self.ratio > 1)

    @property
    def limit(self) -> float:
        """The smallest relevant ratio."""
        return (BASELINE_RATIO if self.cell.column == QUIET else RATIO)[self.quantile]

    @property
    def paired(self) -> bool:
        """True if both checks are of the same hosts, so that each host is compared with itself."""
        return any(self.old.hosts) and self.old.hosts == self.new.hosts

    @property
    def single_repeat(self) -> bool:
        """True if a check has only one repeat, so that its variance is not known."""
        return min(len(self.old.counts), len(self.new.counts)) < 2

    @property
    def inverse_repeats(self) -> float:
        """Variance of ``log_ratio`` over that of a single repeat: the sum of the inverse numbers of repeats."""
        old, new = len(self.old.counts), len(self.new.counts)
        return 1 / old if self.paired else 1 / old + 1 / new

    @cached_property
    def log_ratio(self) -> float:
        """Difference of the means of the repeats' log percentiles."""
        old, new = self.old.log_percentiles(self.quantile), self.new.log_percentiles(self.quantile)
        return float(new.mean() - old.mean())

    @cached_property
    def variance(self) -> tuple[float, int]:
        """Variance of ``log_ratio`` by the repeats, and its degrees of freedom."""
        old, new = self.old.log_percentiles(self.quantile), self.new.log_percentiles(self.quantile)
        if self.paired:
            return variance_of_mean(new - old) + _GRAIN, len(old) - 1
        return variance_of_mean(old) + variance_of_mean(new) + _GRAIN, len(old) + len(new) - 2

    @cached_property
    def tail_dispersion(self) -> float:
        """Chi-square of the tail fraction across repeats, over its degrees of freedom: 1 for independent calls."""
        freedom = len(self.old.counts) + len(self.new.counts) - 2
        return (self.old.tail_chi_square(_TAIL) + self.new.tail_chi_square(_TAIL)) / freedom if freedom else 0.0

    @property
    def weight(self) -> float:
        """Half the harmonic mean of the numbers of calls."""
        return 1 / (1 / self.old.calls + 1 / self.new.calls)

    @cached_property
    def steady_limit(self) -> float:
        """Logarithm of the ratio that stays beyond half of the limit whichever repeat is left out."""
        old, new = self.old.jackknife(self.quantile), self.new.jackknife(self.quantile)
        both = math.log(self.values_ns[1]) - math.log(self.values_ns[0])
        least = (new - old).min() if self.paired else new.min() - old.max()
        return float(max(both - least, 0.0)) + math.log(self.limit) / 2

    @property
    def steady(self) -> bool:
        """True if the ratio stays beyond half of the limit whichever repeat is left out."""
        if self.single_repeat:
            return False
        old, new = self.old.jackknife(self.quantile), self.new.jackknife(self.quantile)
        if self.paired:
            least, most = (new - old).min(), (new - old).max()
        else:
            least, most = new.min() - old.max(), new.max() - old.min()
        half = math.log(self.limit) / 2
        return bool(least >= half if self.ratio > 1 else most <= -half)

    @property
    def cuts(self) -> int:
        """Number of cuts of ``distance``."""
        return len(_CUTS[self.quantile])

    def distance(self) -> float:
        """The largest arcsine distance of the tail fractions over all cuts in the ratio's direction; at least 0."""
        distances = [arcsine_distance(self.old.total, self.new.total, cut) for cut in _CUTS[self.quantile]]
        return max(max(distances) if self.ratio > 1 else -min(distances), 0.0)

    def p_value(self) -> float:
        """Two-sided p-value of Fisher's exact test of the tail fractions, corrected for the number of cuts."""
        old, new = self.old.total, self.new.total
        share = self.new.calls / (self.old.calls + self.new.calls)
        cuts = sorted({*_CUTS[self.quantile], *((share, 1 - share) if self.quantile is Quantile.P50 else ())})
        tails = [fisher_exact_at_cut(old, new, cut) for cut in cuts]
        least = min(tail.more if self.ratio > 1 else tail.fewer for tail in tails)
        return min(1.0, 2 * len(cuts) * least)


def beyond(ratio: float, limit: float) -> bool:
    """True if ``ratio`` (new over old) is at least ``limit`` or at most its inverse."""
    return ratio >= limit or ratio <= 1 / limit


def quantile_tests(old: Cell, new: Cell) -> list[QuantileTest]:
    """The tests of a cell: each channel at the percentiles for which it has enough calls."""
    before = _by_channel(old.repeats)
    now = before if old.repeats is new.repeats else _by_channel(new.repeats)
    tests = []
    for channel in _channels(before, now):
        none: _Held = []
        pair = ChannelRepeats.pair(before.get(channel, none), now.get(channel, none))
        most = max(repeats.calls for repeats in pair)
        tests += [QuantileTest(new, channel, quantile, *pair) for quantile in PERCENTILES if most >= CALLS[quantile]]
    return tests


def _channels(old: Collection[Channel], new: Collection[Channel]) -> list[Channel]:
    """The channels to test: the labelled ones of both cells, else the channels of whole phases."""
    common = [channel for channel in old if channel in new]
    ordered = [channel for phase in PHASES for channel in phase_channels(common, phase)]
    return [channel for channel in ordered if channel in old or channel in new]
