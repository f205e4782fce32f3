"""Modes of a machine: phases whose repeats within one check fall into two groups, as if the machine had changed.

On some machines a cell has one latency in some repeats and another one in others. With few repeats, chance can give all
of one check the first and all of the other check the second; the variance within the checks then shows nothing. The
other phases with two modes show how many there are, since the repeats of most of them are not divided by chance between
the checks: both modes are in one check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np

from stallprobes.latency.statistics import Int64s
from stallprobes.matrix.comparing.quantile_comparison import DIFFERENCE_NS, ChannelRepeats, QuantileTest
from stallprobes.matrix.matrix import QUIET

# Smallest number of repeats with similar latency that count as a mode. A single repeat may be an outlier.
_FEWEST = 2
# Smallest distance of a latency's two modes, as a share of another latency's change between two checks, with which the
# change may be chance. Two modes are two levels of a latency in the repeats of one check. Distance and change are
# logarithms of ratios; the share is below 1 because few repeats show the distance only roughly.
_ALIKE = 0.85


class Modes:
    """The phases of ``tests`` that have two modes within one of the checks.

    Two groups of repeats are modes if ``is_change`` is true of the test between them. They are searched for when they
    are first needed: in a comparison without a change they are not.
    """

    def __init__(self, tests: Iterable[QuantileTest], is_change: Callable[[QuantileTest], bool]) -> None:
        self._tests: dict[tuple[int, bool], list[QuantileTest]] = {}
        for test in tests:
            self._tests.setdefault(_kind(test), []).append(test)
        self._is_change = is_change
        self._found: dict[tuple[int, bool], list[tuple[QuantileTest, float]]] = {}

    def as_far_apart(self, test: QuantileTest) -> int:
        """Number of other phases, at the percentile of ``test``, with modes as far apart as its change."""
        least = _ALIKE * abs(test.log_ratio)
        return sum(apart >= least for other, apart in self._modes(_kind(test)) if other is not test)

    def false_changes(self, test: QuantileTest) -> float:
        """Expected number of unchanged phases that chance divides between the checks as if they changed so much.

        It is the estimated number of phases with such modes times the probability for as many repeats as in ``test``.
        """
        count = self.as_far_apart(test)
        if not count:
            return 0.0
        whole = self._tests[_kind(test)]
        shown = sum(_shown(*_repeats(peer)) for peer in whole) / len(whole)
        return count / shown * _divided(*_repeats(test))

    def _modes(self, kind: tuple[int, bool]) -> list[tuple[QuantileTest, float]]:
        """Each phase with modes, and the logarithm of the ratio between them."""
        if kind not in self._found:
            largest = [
                (test, max((part.log_ratio for part in _groups(test) if self._is_change(part)), default=0.0))
                for test in self._tests.get(kind, ())
            ]
            self._found[kind] = [each for each in largest if each[1]]
        return self._found[kind]


def _kind(test: QuantileTest) -> tuple[int, bool]:
    return test.quantile.percent, test.cell.column == QUIET


def _repeats(test: QuantileTest) -> tuple[int, int]:
    return len(test.old.counts), len(test.new.counts)


@lru_cache(maxsize=256)
def _divided(old: int, new: int) -> float:
    """Probability that the repeats of a phase with two modes are divided by the check.

    It is the mean over the probability p of a mode, each equally likely: p^old (1 - p)^new and the reverse.
    """
    return 2 / ((old + new + 1) * math.comb(old + new, old))


@lru_cache(maxsize=256)
def _shown(old: int, new: int) -> float:
    """Probability that one of the checks has enough repeats in each of two modes, as a mean over p."""
    first, second = (range(_FEWEST, repeats - _FEWEST + 1) for repeats in (old, new))
    both = sum(math.comb(old, a) * math.comb(new, b) / math.comb(old + new, a + b) for a in first for b in second) / (
        old + new + 1
    )
    return len(first) / (old + 1) + len(second) / (new + 1) - both


def _groups(test: QuantileTest) -> Iterator[QuantileTest]:
    """The test between the two groups of repeats of each check, divided at their largest gap.

    Each repeat counts twice, so that both groups together are as many as two checks have. Merged checks of the same
    hosts compare each host with itself, so their repeats are not divided.
    """
    for side in () if test.paired else (test.old, test.new):
        logs = side.log_percentiles(test.quantile)
        if len(logs) < 2 * _FEWEST:
            continue
        order = logs.argsort()
        ordered = logs[order]
        if math.exp(ordered[-1]) - math.exp(ordered[0]) < DIFFERENCE_NS[test.quantile]:
            continue
        gaps = (ordered[1:] - ordered[:-1])[_FEWEST - 1 : len(logs) - _FEWEST]
        at = _FEWEST + int(gaps.argmax())
        # A change stays beyond half of the limit whichever repeat is left out.
        if gaps.max() >= math.log(test.limit) / 2:
            low, high = (_twice(side, places) for places in (order[:at], order[at:]))
            yield QuantileTest(test.cell, test.channel, test.quantile, low, high)


def _twice(side: ChannelRepeats, places: Int64s) -> ChannelRepeats:
    counts = np.repeat(side.counts[places], 2, axis=0)
    return ChannelRepeats(counts, ("",) * len(counts), side.max_ns, side.first)
