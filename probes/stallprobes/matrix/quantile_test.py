"""Tests of one percentile of one channel of a cell between two checks: size and significance of the change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stallprobes.latency.histogram import BUCKETS, MIDDLE, Histogram
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

P50, P99 = PERCENTILES
# The smallest relevant change: a ratio and a difference, by percentile. With an aggressor running, the median takes one
# of several values per engine: in ten consecutive checks on one H200, the wait of a small H2D with a full launch queue
# was 4.5 us in some checks and 6.1 us in others, the p99 of an event record 0.4 or 1.3 us.
RATIO = {P50: 1.4, P99: 1.3}
BASELINE_RATIO = {P50: 1.2, P99: 1.3}
DIFFERENCE_NS = {P50: 300, P99: 1000}
# A percentile is tested if one of the two checks has so many calls.
CALLS = {P50: 1, P99: 100}

# Shares of both checks' calls above the cuts. A p99 changes when 1 call in 100 or more is slow in one check, which is
# half that share of both checks; the larger shares are for more slow calls. For p50, each check's share of the calls is
# a further cut, which separates distributions that do not overlap.
_CUTS: Mapping[Quantile, tuple[float, ...]] = {P50: (0.5,), P99: (0.01, 0.015, 0.0225)}
# Share above the cut for the comparison of repeats, large enough for a count in each.
_TAIL = 0.02
# Variance due to the bucket width of the difference of two means of four log percentiles.
_GRAIN = 2 * (1 / 64) ** 2 / 12 / 4


@dataclass(frozen=True, eq=False)
class ChannelRepeats:
    """One channel of a cell in one check, by repeat.

    ``whole`` is their sum, ``counts`` is int64[repeats, buckets from ``first`` on], ``hosts`` has each repeat's host.
    """

    whole: Histogram
    counts: Int64s
    hosts: tuple[str, ...]
    first: int = 0

    @classmethod
    def of(cls, repeats: Iterable[Repeat], channel: Channel) -> ChannelRepeats:
        """``channel`` in those of ``repeats`` that have calls in it, ordered by host."""
        with_channel = [repeat for repeat in repeats if channel in repeat.window.channels]
        histograms = [(repeat.host, repeat.window.channels[channel]) for repeat in with_channel]
        # Sorted by host, so that a host's repeats have the same index in both checks.
        held = sorted(((host, one) for host, one in histograms if one.count), key=lambda each: each[0])
        counts = np.array([histogram.counts for _, histogram in held], dtype=np.int64).reshape(len(held), BUCKETS)
        most = max((histogram.max_ns for _, histogram in held), default=0)
        return cls(Histogram(counts.sum(axis=0).astype(np.uint64), most), counts, tuple(host for host, _ in held))

    @cached_property
    def calls(self) -> int:
        """Number of calls in all repeats."""
        return self.whole.count

    def within(self, first: int, end: int) -> ChannelRepeats:
        """The same with only the buckets from ``first`` to before ``end``, which hold all calls."""
        return replace(self, counts=self.counts[:, first:end], first=first)

    @cached_property
    def _sums(self) -> Int64s:
        return np.asarray(self.counts.cumsum(axis=1))

    def log_percentiles(self, quantile: Quantile) -> Floats:
        """The logarithm of each repeat's percentile in ns."""
        return self._logarithms(self._sums, quantile)

    def jackknife(self, quantile: Quantile) -> Floats:
        """The logarithm of the percentile with each repeat left out; empty with fewer than two repeats."""
        sums = self._sums.sum(axis=0) - self._sums if len(self.counts) > 1 else self._sums[:0]
        return self._logarithms(sums, quantile)

    def _logarithms(self, sums: Int64s, quantile: Quantile) -> Floats:
        # Nearest rank, as everywhere.
        percent = quantile.percent
        places = [int(np.searchsorted(line, max(1, -(-percent * int(line[-1]) // 100)))) for line in sums]
        return np.asarray(np.log(np.minimum(MIDDLE[self.first :][places], self.whole.max_ns).clip(1.0)))


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
        old, new = (max(one.whole.percentile(self.quantile.percent) or 0.0, 1.0) for one in (self.old, self.new))
        return old, new

    @property
    def has_calls(self) -> bool:
        """Whether both checks have calls."""
        return bool(self.old.calls and self.new.calls)

    @property
    def ratio(self) -> float:
        """The new percentile over the old one."""
        return self.values_ns[1] / self.values_ns[0]

    @property
    def relevant(self) -> bool:
        """Whether ratio and difference reach their limits."""
        difference = abs(self.values_ns[1] - self.values_ns[0])
        return beyond(self.ratio, self.limit) and difference >= DIFFERENCE_NS[self.quantile]

    @property
    def limit(self) -> float:
        """The smallest relevant ratio."""
        return (BASELINE_RATIO if self.cell.column == QUIET else RATIO)[self.quantile]

    @property
    def paired(self) -> bool:
        """Whether both checks are of the same hosts, so that each host is compared with itself."""
        return any(self.old.hosts) and self.old.hosts == self.new.hosts

    @property
    def single_repeat(self) -> bool:
        """Whether a check has only one repeat, so that its variance is not known."""
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
        return sum(tail_chi_square(one.counts, _TAIL) for one in (self.old, self.new)) / freedom if freedom else 0.0

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
        """Whether the ratio stays beyond half of the limit whichever repeat is left out."""
        if self.single_repeat:
            return False
        old, new = self.old.jackknife(self.quantile), self.new.jackknife(self.quantile)
        if self.paired:
            least, most = (new - old).min(), (new - old).max()
        else:
            least, most = new.min() - old.max(), new.max() - old.min()
        half = math.log(self.limit) / 2
        return bool(least >= half if self.ratio > 1 else most <= -half)

    @cached_property
    def _both(self) -> tuple[Int64s, Int64s]:
        return self.old.counts.sum(axis=0), self.new.counts.sum(axis=0)

    @property
    def cuts(self) -> int:
        """Number of cuts of ``distance``."""
        return len(_CUTS[self.quantile])

    def distance(self) -> float:
        """The largest arcsine distance of the tail fractions over all cuts in the ratio's direction; at least 0."""
        found = [arcsine_distance(*self._both, cut) for cut in _CUTS[self.quantile]]
        return max(max(found) if self.ratio > 1 else -min(found), 0.0)

    def p_value(self) -> float:
        """Two-sided p-value of Fisher's exact test of the tail fractions, corrected for the number of cuts."""
        old, new = self._both
        share = self.new.calls / (self.old.calls + self.new.calls)
        cuts = sorted({*_CUTS[self.quantile], *((share, 1 - share) if self.quantile is Quantile.P50 else ())})
        tails = [fisher_exact_at_cut(old, new, cut) for cut in cuts]
        least = min(tail.more if self.ratio > 1 else tail.fewer for tail in tails)
        return min(1.0, 2 * len(cuts) * least)


def beyond(ratio: float, limit: float) -> bool:
    """Whether ``ratio`` (new over old) is at least ``limit`` or at most its inverse."""
    return ratio >= limit or ratio <= 1 / limit


def quantile_tests(old: Cell, new: Cell) -> list[QuantileTest]:
    """The tests of a cell: each channel at the percentiles for which it has enough calls."""
    found = []
    for channel in _channels(old, new):
        before, now = ChannelRepeats.of(old.repeats, channel), ChannelRepeats.of(new.repeats, channel)
        used = np.flatnonzero(before.whole.counts + now.whole.counts)
        if len(used):
            first, end = int(used[0]), int(used[-1]) + 1
            before, now = before.within(first, end), now.within(first, end)
        most = max(before.calls, now.calls)
        found += [QuantileTest(new, channel, one, before, now) for one in PERCENTILES if most >= CALLS[one]]
    return found


def _channels(old: Cell, new: Cell) -> list[Channel]:
    """The channels to test: the labelled ones that both cells have, else those of the whole phases."""
    common = [channel for channel in old.channels if channel in new.channels]
    found = [channel for phase in PHASES for channel in phase_channels(common, phase)]
    return [channel for channel in found if channel in old.channels or channel in new.channels]
