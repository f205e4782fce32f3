"""Outliers: hosts of a merged matrix with a figure that differs from that of the other hosts.

The distance of a host is the ratio of its figure to the median of the others. Of the confidence interval of its
figure, the end nearer to that median counts, so that a p99 that depends on a few calls makes no outlier. A host is one
if its distance is at least half as much again, and exceeds what the others differ among themselves (their median
absolute deviation, on logarithms), with a limit that grows with the number of comparisons. The host that differs most
is tested first.

A rare stall that delays ten or more consecutive calls can still make one of few hosts an outlier: measure again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import MIDDLE, Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, Matrix
from stallprobes.model import Channel
from stallprobes.units import duration_ns, times

HOSTS = 3
FLOOR = 1.5
# Highest probability that a merge of equal hosts names an outlier, if calls are independent.
FALSE_ALARMS = 0.01
# Minimum number of calls for a percentile to be compared.
ENOUGH = {Quantile.P50: 20, Quantile.P99: 200}
# Ratio of the standard deviation of a normal distribution to its median absolute deviation.
_SIGMA = 1.4826
# Number of other hosts below which the median spread of all cells is the least spread of a cell.
_FEW = 8
# Number of consecutive calls that count as one in a confidence interval, as they are not independent.
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

    ``hosts`` are their numbers, int64[n]. ``logs``, float64[n, 3], are logarithms of ns: the low end of the confidence
    interval, the percentile, and the high end.
    """

    row: str
    column: str
    channel: Channel
    quantile: Quantile
    hosts: NDArray[np.int64]
    logs: NDArray[np.float64]

    def outside(self, typical_spread: float, deviations: float) -> Iterator[tuple[int, float, float]]:
        """Each outlier: the host's number, the logarithm of the others' median, and its distance from it.

        The distance of an outlier is more than ``deviations`` times the spread of the others.
        """
        left = np.arange(len(self.hosts))
        # At most half of the hosts are outliers.
        while len(left) > max(HOSTS - 1, len(self.hosts) // 2 + 1):
            logs = self.logs[left, 1]
            place = int(np.argmax(np.abs(logs - _median(logs))))
            host, left, others = left[place], np.delete(left, place), np.delete(logs, place)
            middle = _median(others)
            spread = max(typical_spread, _spread(others) if len(others) >= _FEW else 0.0)
            # Median and spread of few hosts are uncertain estimates, so the limit grows.
            limit = max(math.log(FLOOR), deviations * spread * (1 + _FEW / len(others)))
            low, log, high = self.logs[host].tolist()
            if max(low - middle, middle - high) <= limit:
                return
            yield int(self.hosts[host]), middle, log - middle


def find(matrix: Matrix, progress: Callable[[float], None] = lambda _: None) -> tuple[Outlier, ...]:
    """The outliers of a merged ``matrix``, the farthest from the others first; none with fewer than 3 hosts.

    The histograms of one cell at a time are in memory. ``progress`` is called with the share that is done.
    """
    if len(matrix.hosts) < HOSTS:
        return ()
    names = list(matrix.hosts)
    numbers = {name: number for number, name in enumerate(names)}
    comparisons = max(len(matrix.cells), 1) * len(names) * len(PHASES) * len(ENOUGH)
    deviations = NormalDist().inv_cdf(1 - FALSE_ALARMS / comparisons / 2)
    every: list[_Figures] = []
    spreads: dict[tuple[Channel, Quantile], list[float]] = {}
    for step, cell in enumerate(matrix.cells.values()):
        progress(step / len(matrix.cells))
        for figures in _figures(cell, numbers, deviations):
            every.append(figures)
            spreads.setdefault((figures.channel, figures.quantile), []).append(_spread(figures.logs[:, 1]))
    typical = {kind: _median(np.array(known)) for kind, known in spreads.items()}
    outliers = [
        _outlier(matrix, figures, names, *found)
        for figures in every
        for found in figures.outside(typical[figures.channel, figures.quantile], deviations)
    ]
    return tuple(sorted(outliers, key=lambda one: abs(math.log(one.ratio)), reverse=True))


def _figures(cell: Cell, numbers: Mapping[str, int], deviations: float) -> Iterator[_Figures]:
    for channel in map(Channel, PHASES):
        held = {
            numbers[repeat.host]: repeat.window.channels[channel]
            for repeat in cell.repeats
            if repeat.host in numbers and channel in repeat.window.channels
        }
        for quantile, enough in ENOUGH.items():
            logs = {
                number: _interval(histogram, quantile, deviations)
                for number, histogram in held.items()
                if histogram.count >= enough
            }
            if len(logs) >= HOSTS:
                yield _Figures(
                    cell.row, cell.column, channel, quantile, np.array(list(logs)), np.array(list(logs.values()))
                )


def _interval(histogram: Histogram, quantile: Quantile, deviations: float) -> tuple[float, float, float]:
    """Logarithms (ns) of the low end of the confidence interval of a percentile, the percentile, and the high end.

    The number of calls below a percentile is binomial; its quantile is corrected for skewness (Cornish-Fisher).
    """
    share = quantile.percent / 100
    samples = histogram.count / _CALLS_PER_SAMPLE
    error = deviations * math.sqrt(share * (1 - share) / samples) + (deviations**2 - 1) / (6 * samples)
    places, counts = histogram.used
    sums = counts.cumsum()
    low_high = sums.searchsorted(np.array([share - error, share + error]) * histogram.count)
    low, high = MIDDLE[places[np.minimum(low_high, len(sums) - 1)]].tolist()
    # The logarithm needs at least 1 ns.
    return (
        math.log(max(low, 1.0)) if share > error else -math.inf,
        math.log(max(histogram.percentile(quantile.percent) or 0.0, 1.0)),
        math.log(max(high, 1.0)) if share + error < 1 else math.inf,
    )


def _spread(logs: NDArray[np.float64]) -> float:
    """Robust estimate of the standard deviation."""
    return _SIGMA * _median(np.abs(logs - _median(logs)))


def _median(values: NDArray[np.float64]) -> float:
    """What ``numpy.median`` returns, in a fifth of its time for a few values."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


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
