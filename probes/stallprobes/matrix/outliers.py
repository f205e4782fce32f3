"""Outliers: hosts of a merged matrix with a figure that differs from that of the other hosts.

A host is an outlier if three conditions hold. The host that differs most is tested first. Its figure differs from the
median of the others by at least half as much again. It differs by more than the others differ among themselves (their
median absolute deviation, on logarithms), with a limit that grows with the number of comparisons. And more of its calls
lie beyond that limit than chance gives (Fisher's exact test), at the same level. The last condition excludes a p99 that
depends on a few calls, and so varies from run to run.

A rare stall that delays tens of consecutive calls can still make one of few hosts an outlier: measure again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import Histogram, HistogramBlock, index
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.statistics import fisher_exact
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, Matrix
from stallprobes.model import Channel
from stallprobes.units import duration_ns, times

HOSTS = 3
FLOOR = 1.5
# Probability that a merge of equal hosts names an outlier, if calls are independent.
FALSE_ALARMS = 0.01
# Minimum number of calls for a percentile to be compared.
ENOUGH = {Quantile.P50: 20, Quantile.P99: 200}
# Ratio of the standard deviation of a normal distribution to its median absolute deviation.
_SIGMA = 1.4826
# With fewer other hosts, the median spread of all cells replaces their own.
_FEW = 8
# Consecutive calls are not independent: so many count as one, more if the spread of the other hosts requires it.
_CALLS_PER_SAMPLE = 4


@dataclass(frozen=True)
class Outlier:
    """A host whose percentile ``quantile`` of ``channel`` in a cell differs from that of the others.

    ``host_ns`` is its figure and ``others_ns`` the median of the others' figures, in ns; ``ratio`` is the first over
    the second, ``sentence`` the same in words.
    """

    host: str
    row: str
    column: str
    channel: Channel
    quantile: Quantile
    host_ns: float
    others_ns: float
    ratio: float
    sentence: str


@dataclass(frozen=True, eq=False)
class _Figures:
    """One percentile of one channel in one cell on each host with enough calls.

    ``hosts`` are their numbers, int64[n], and ``logs`` the logarithms of ns, float64[n].
    """

    row: str
    column: str
    channel: Channel
    quantile: Quantile
    hosts: NDArray[np.int64]
    logs: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Calls:
    """The histograms of several hosts, one after the other: places and counts of the buckets in use, int64[m].

    ``starts`` and ``totals``, int64[n], are where each host begins and the number of its calls.
    """

    places: NDArray[np.int64]
    counts: NDArray[np.int64]
    starts: NDArray[np.int64]
    totals: NDArray[np.int64]

    @classmethod
    def of(cls, held: Sequence[Histogram]) -> _Calls:
        """Those of ``held``, none of which is empty."""
        block = HistogramBlock.of(held)
        places, counts = block.used
        return cls(places, counts, np.array(block.borders[:-1]), np.array(block.totals))

    def beyond(self, place: int, above: bool) -> NDArray[np.int64]:
        """Number of calls of each host in buckets above ``place``, or below it."""
        outside = self.places > place if above else self.places < place
        return np.asarray(np.add.reduceat(np.where(outside, self.counts, 0), self.starts))


def find(matrix: Matrix, progress: Callable[[float], None] = lambda _: None) -> tuple[Outlier, ...]:
    """The outliers of a merged ``matrix``, the farthest from the others first; none with fewer than 3 hosts.

    The first pass computes the figures, the second one compares the calls in the cells where a host is far from the
    others; each has the histograms of one cell in memory. ``progress`` is called with the share that is done.
    """
    if len(matrix.hosts) < HOSTS:
        return ()
    names = list(matrix.hosts)
    numbers = {name: number for number, name in enumerate(names)}
    steps = 2 * max(len(matrix.cells), 1)
    figures: dict[tuple[str, str], list[_Figures]] = {}
    for step, (key, cell) in enumerate(matrix.cells.items()):
        progress(step / steps)
        figures[key] = list(_figures(cell, numbers))
    every = [one for found in figures.values() for one in found]
    alpha = FALSE_ALARMS / max(sum(len(one.hosts) for one in every), 1)
    spreads: dict[tuple[Channel, Quantile], list[float]] = {}
    for one in every:
        spreads.setdefault((one.channel, one.quantile), []).append(_spread(one.logs))
    typical = {kind: _median(np.array(found)) for kind, found in spreads.items()}
    outliers: list[Outlier] = []
    for step, (key, cell) in enumerate(matrix.cells.items()):
        progress(0.5 + step / steps)
        tests = [_Test(figure, typical[figure.channel, figure.quantile], alpha) for figure in figures[key]]
        far = [test for test in tests if test.farthest(np.arange(len(test.figures.logs))) is not None]
        channels = {test.figures.channel for test in far}
        held = {channel: _held(cell, channel, numbers) for channel in channels}
        for test in far:
            known = held[test.figures.channel]
            calls = _Calls.of([known[number] for number in test.figures.hosts.tolist()])
            outliers += (_outlier(matrix, test.figures, names, *found) for found in test.outside(calls))
    return tuple(sorted(outliers, key=lambda one: abs(math.log(one.ratio)), reverse=True))


def _held(cell: Cell, channel: Channel, numbers: Mapping[str, int]) -> dict[int, Histogram]:
    """The histogram of ``channel`` on each host, by the host's number."""
    return {
        numbers[repeat.host]: repeat.window.channels[channel]
        for repeat in cell.repeats
        if repeat.host in numbers and channel in repeat.window.channels
    }


def _figures(cell: Cell, numbers: Mapping[str, int]) -> Iterator[_Figures]:
    kinds = [(channel, quantile) for channel in map(Channel, PHASES) for quantile in ENOUGH]
    found: dict[tuple[Channel, Quantile], dict[int, float]] = {kind: {} for kind in kinds}
    for repeat in cell.repeats:
        number = numbers.get(repeat.host)
        channels = repeat.window.channels
        for channel, quantile in kinds if number is not None else ():
            if channel in channels:
                held = found[channel, quantile]
                histogram = channels[channel]
                if histogram.count >= ENOUGH[quantile]:
                    held[number] = histogram.percentile(quantile.percent) or 0.0  # type: ignore[index]
                else:
                    held.pop(number, None)  # type: ignore[arg-type]
    for (channel, quantile), held in found.items():
        if len(held) >= HOSTS:
            values = np.array(list(held.values()))
            # The logarithm needs at least 1 ns.
            logs = np.log(np.maximum(values, 1.0))
            yield _Figures(cell.row, cell.column, channel, quantile, np.array(list(held)), logs)


@dataclass(frozen=True, eq=False)
class _Far:
    """The host of some that is farthest from the others: its index in the figures, and its distance as a logarithm.

    ``border`` is the logarithm of ns beyond which its calls are counted.
    """

    at: int
    distance: float
    border: float


@dataclass(frozen=True, eq=False)
class _Test:
    """Test for outliers of one percentile in one cell."""

    figures: _Figures
    typical_spread: float
    alpha: float

    def farthest(self, left: NDArray[np.int64]) -> _Far | None:
        """The farthest of the hosts with the indices ``left``; None if it is not far enough to be an outlier."""
        logs = self.figures.logs[left]
        # At most half of the hosts are outliers.
        if len(logs) <= max(HOSTS - 1, len(self.figures.logs) // 2 + 1):
            return None
        farthest = int(np.argmax(np.abs(logs - _median(logs))))
        here, others = float(logs[farthest]), np.delete(logs, farthest)
        distance = here - _median(others)
        spread = max(self.typical_spread, _spread(others) if len(others) >= _FEW else 0.0)
        # Median and spread of few hosts are uncertain estimates, so the limit grows.
        deviations = NormalDist().inv_cdf(1 - self.alpha / 2)
        limit = max(math.log(FLOOR), deviations * spread * (1 + _FEW / len(others)))
        if abs(distance) <= limit:
            return None
        return _Far(int(left[farthest]), distance, here - distance + math.copysign(limit, distance))

    def outside(self, calls: _Calls) -> Iterator[tuple[int, float, float]]:
        """Each outlier: the host's number, the logarithm of the others' median, and its distance from it."""
        left = np.arange(len(self.figures.logs))
        # The host that differs most is tested first, and excluded from the spread.
        while (far := self.farthest(left)) is not None:
            left = left[left != far.at]
            if _p_value(calls, far, left) >= self.alpha:
                return
            log = float(self.figures.logs[far.at])
            yield int(self.figures.hosts[far.at]), log - far.distance, far.distance


def _spread(logs: NDArray[np.float64]) -> float:
    """Robust estimate of the standard deviation."""
    return _SIGMA * _median(np.abs(logs - _median(logs)))


def _median(values: NDArray[np.float64]) -> float:
    """What ``numpy.median`` returns, in a fifth of its time for a few values."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _p_value(calls: _Calls, far: _Far, others: NDArray[np.int64]) -> float:
    """One-sided p-value of the number of the host's calls beyond the border, compared with those of ``others``."""
    beyond = calls.beyond(index(int(math.exp(far.border))), far.distance > 0)
    there_of, of_each = beyond[others], calls.totals[others]
    here, of = int(beyond[far.at]), int(calls.totals[far.at])
    there, of_there = int(there_of.sum()), int(of_each.sum())
    share = there / of_there
    per_sample = float(_CALLS_PER_SAMPLE)
    if 0 < share < 1:
        terms = (there_of - of_each * share) ** 2 / (of_each * share * (1 - share))
        # Summed in order, as a pairwise sum depends on the number of hosts.
        per_sample = max(per_sample, float(np.cumsum(terms)[-1]) / (len(terms) - 1))
    return fisher_exact(*(int(count / per_sample) for count in (here, of, there, of_there))).more


def _outlier(
    matrix: Matrix, figures: _Figures, names: Sequence[str], number: int, others_log: float, distance: float
) -> Outlier:
    row, column, host = matrix.row(figures.row), matrix.column(figures.column), names[number]
    beside = "with no aggressor" if column.name == QUIET else f"beside {column.name}"
    ratio, others_ns = math.exp(distance), math.exp(others_log)
    host_ns = others_ns * ratio
    others = f"{duration_ns(others_ns)} on the other {len(figures.hosts) - 1} hosts"
    words = f"{figures.quantile} is {duration_ns(host_ns)}, against {others}"
    slower = ratio > 1
    return Outlier(
        host=host,
        row=row.name,
        column=column.name,
        channel=figures.channel,
        quantile=figures.quantile,
        host_ns=host_ns,
        others_ns=others_ns,
        ratio=ratio,
        sentence=f"{host} is {'slower' if slower else 'faster'}: {row.name} {beside}: {figures.channel.phase} {words} "
        f"({times(ratio) if slower else f'×{ratio:.2g}'}).",
    )
