"""A percentile of one channel of a cell, before and now: how far apart, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stallprobes.latency.histogram import BUCKETS, MIDDLE, Histogram
from stallprobes.latency.statistics import Floats, Int64s, apart, exceed, of_mean, scatter
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, Repeat
from stallprobes.model import Channel

QUANTILES = (50, 99)
# What matters, by percentile: at least so many times as long, and at least so much longer. Beside an aggressor the
# middle settles on one of several values from one engine to the next: in ten checks in a row of one H200 a small H2D
# beside a full launch queue waited 4.5 us in some and 6.1 us in others, the p99 of an event's record 0.4 or 1.3 us.
RATIO = {50: 1.4, 99: 1.3}
QUIET_RATIO = {50: 1.2, 99: 1.3}
DIFFERENCE_NS = {50: 300, 99: 1000}
# A percentile is judged where one of the two sides has so many calls.
CALLS = {50: 1, 99: 100}

# The shares of both sides' calls above the cuts. A p99 moves when 1 call in 100 or more is slow on one side, which is
# half as many of both; the cuts above that are for more. For p50 each side's own share is a cut too: where the two
# sides do not overlap, it parts them.
_CUTS: Mapping[int, tuple[float, ...]] = {50: (0.5,), 99: (0.01, 0.015, 0.0225)}
# The cut at which repeats are held against each other: above it are enough calls of each to count.
_TAIL = 0.02
# The variance that a bucket's width leaves in the means of two times four percentiles' logarithms.
_GRAIN = 2 * (1 / 64) ** 2 / 12 / 4


@dataclass(frozen=True, eq=False)
class Side:
    """One channel of one cell in one of the checks: counts by repeat (int64[repeats, buckets from ``first`` on]) and the
    repeats' hosts."""

    whole: Histogram
    counts: Int64s
    hosts: tuple[str, ...]
    first: int = 0

    @classmethod
    def of(cls, repeats: Iterable[Repeat], channel: Channel) -> Side:
        """The channel in those of ``repeats`` that have calls in it."""
        held = [(repeat.host, repeat.channels[channel]) for repeat in repeats if channel in repeat.channels]
        # By host, so that a host's repeats stand at the same place in both checks.
        held = sorted(((host, one) for host, one in held if one.count), key=lambda each: each[0])
        counts = np.array([histogram.counts for _, histogram in held], dtype=np.int64).reshape(len(held), BUCKETS)
        most = max((histogram.max_ns for _, histogram in held), default=0)
        return cls(Histogram(counts.sum(axis=0).astype(np.uint64), most), counts, tuple(host for host, _ in held))

    @cached_property
    def calls(self) -> int:
        """How many calls there are in all repeats together."""
        return self.whole.count

    def within(self, first: int, end: int) -> Side:
        """The same, of the buckets from ``first`` to before ``end``, which hold all calls."""
        return replace(self, counts=self.counts[:, first:end], first=first)

    @cached_property
    def _sums(self) -> Int64s:
        return np.asarray(self.counts.cumsum(axis=1))

    def each(self, q: int) -> Floats:
        """The logarithm of the percentile of each repeat."""
        return self._logarithms(self._sums, q)

    def without(self, q: int) -> Floats:
        """The logarithm of the percentile with each repeat left out in turn; empty with fewer than two repeats."""
        return self._logarithms(self._sums.sum(axis=0) - self._sums if len(self.counts) > 1 else self._sums[:0], q)

    def _logarithms(self, sums: Int64s, q: int) -> Floats:
        # Nearest rank, as everywhere.
        places = [int(np.searchsorted(line, max(1, -(-q * int(line[-1]) // 100)))) for line in sums]
        return np.asarray(np.log(np.minimum(MIDDLE[self.first :][places], self.whole.max_ns).clip(1.0)))


@dataclass(frozen=True, eq=False)
class QuantileTest:
    """What is judged: percentile ``q`` (50 or 99) of a channel of ``cell``, before and now. One of them has calls."""

    cell: Cell
    channel: Channel
    q: int
    old: Side
    new: Side

    @cached_property
    def figures(self) -> tuple[float, float]:
        """The percentile before and now in ns, at least 1: a side without calls counts as that."""
        old, new = (max(side.whole.percentile(self.q) or 0.0, 1.0) for side in (self.old, self.new))
        return old, new

    @property
    def told(self) -> bool:
        """Whether there are calls on both sides."""
        return bool(self.old.calls and self.new.calls)

    @property
    def ratio(self) -> float:
        """How many times what it was."""
        return self.figures[1] / self.figures[0]

    @property
    def matters(self) -> bool:
        """Whether the difference is one that matters."""
        difference = abs(self.figures[1] - self.figures[0])
        return far_off(self.ratio, self.limit) and difference >= DIFFERENCE_NS[self.q]

    @property
    def limit(self) -> float:
        """From which ratio on a difference matters."""
        return (QUIET_RATIO if self.cell.column == QUIET else RATIO)[self.q]

    @property
    def paired(self) -> bool:
        """Whether the same machines are in both, so that each is compared with itself."""
        return any(self.old.hosts) and self.old.hosts == self.new.hosts

    @property
    def alone(self) -> bool:
        """Whether one repeat is all there is on a side, so that nothing shows how much it varies."""
        return min(len(self.old.counts), len(self.new.counts)) < 2

    @cached_property
    def moved(self) -> float:
        """How far the repeats moved: the logarithm of their percentiles, on the mean."""
        return float(self.new.each(self.q).mean() - self.old.each(self.q).mean())

    @cached_property
    def varies(self) -> tuple[float, int]:
        """The variance of ``moved`` as the repeats show it, and its degrees of freedom."""
        old, new = self.old.each(self.q), self.new.each(self.q)
        if self.paired:
            return of_mean(new - old) + _GRAIN, len(old) - 1
        return of_mean(old) + of_mean(new) + _GRAIN, len(old) + len(new) - 2

    @cached_property
    def scatters(self) -> float:
        """How many times more the share of slow calls varies between repeats than it would by chance."""
        freedom = len(self.old.counts) + len(self.new.counts) - 2
        return sum(scatter(side.counts, _TAIL) for side in (self.old, self.new)) / freedom if freedom else 0.0

    @property
    def weight(self) -> float:
        """How many calls stand behind the ratio: half the harmonic mean."""
        return 1 / (1 / self.old.calls + 1 / self.new.calls)

    @property
    def steady(self) -> bool:
        """Whether the ratio stays beyond half of what matters whichever repeat of either side is left out."""
        if self.alone:
            return False
        old, new = self.old.without(self.q), self.new.without(self.q)
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
        """How many cuts ``far`` tries."""
        return len(_CUTS[self.q])

    def far(self) -> float:
        """How far the shares of slow calls lie apart, in standard deviations of independent calls: the farthest."""
        found = [apart(*self._both, cut) for cut in _CUTS[self.q]]
        return max(max(found) if self.ratio > 1 else -min(found), 0.0)

    def chance(self) -> float:
        """The chance that equal laws put so many calls above a cut, or so few: for all cuts and both ways together."""
        old, new = self._both
        share = self.new.calls / (self.old.calls + self.new.calls)
        cuts = sorted({*_CUTS[self.q], *((share, 1 - share) if self.q == 50 else ())})
        tails = [exceed(old, new, cut) for cut in cuts]
        least = min(tail.more if self.ratio > 1 else tail.fewer for tail in tails)
        return min(1.0, 2 * len(cuts) * least)


def far_off(ratio: float, limit: float) -> bool:
    """Whether ``ratio``, now over before, is ``limit`` or more, either way."""
    return ratio >= limit or ratio <= 1 / limit


def quantile_tests(old: Cell, new: Cell) -> list[QuantileTest]:
    """What is to be judged of a cell: call and wait, each at the percentiles that its calls suffice for."""
    found = []
    for channel in _channels(old, new):
        before, now = Side.of(old.repeats, channel), Side.of(new.repeats, channel)
        used = np.flatnonzero(before.whole.counts + now.whole.counts)
        if len(used):
            first, end = int(used[0]), int(used[-1]) + 1
            before, now = before.within(first, end), now.within(first, end)
        most = max(before.calls, now.calls)
        found += [QuantileTest(new, channel, q, before, now) for q in QUANTILES if most >= CALLS[q]]
    return found


def _channels(old: Cell, new: Cell) -> list[Channel]:
    """The channels to judge. Where a turn makes several calls, each by itself: their common histogram has a hump
    for each, and its median may fall on either."""
    found: list[Channel] = []
    for phase in PHASES:
        labelled = [
            channel for channel in old.channels if channel.phase is phase and channel.label and channel in new.channels
        ]
        whole = Channel(phase)
        found += labelled or [whole] * (whole in old.channels or whole in new.channels)
    return found
