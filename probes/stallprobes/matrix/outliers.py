"""Outliers: hosts of a merged matrix with a figure that differs from the figures of the other hosts.

The distance of a host is the ratio of its figure to the median of the others. The end of its confidence interval nearer
to this median counts, so that a p99 of few calls makes no outlier. A host is an outlier if its distance is at least 1.5
and exceeds the spread of the others (their median absolute deviation, on logarithms), by a factor that grows with the
number of comparisons. The host that differs most is tested first.

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

# Smallest number of hosts among which outliers are searched.
HOSTS = 3
# Smallest factor, up or down, by which an outlier's latency differs from the median of the other hosts. The whole
# confidence interval of the latency must be beyond this factor.
FLOOR = 1.5
# Highest probability that a merge of several hosts' checks names any host an outlier although all hosts are equal. The
# probability holds if calls are independent.
FALSE_ALARMS = 0.01
# Smallest number of calls on a host with which a percentile is compared with the percentiles of the other hosts.
ENOUGH = {Quantile.P50: 20, Quantile.P99: 200}
# Factor from the median absolute deviation of a normal distribution to its standard deviation.
_SIGMA = 1.4826
# Smallest number of other hosts whose own spread of a latency counts in the search for outliers. With fewer other
# hosts, only the spread that is typical of all cells counts. The limit for an outlier is multiplied by 1 + _FEW / the
# number of other hosts, because few hosts give uncertain estimates.
_FEW = 8
# Number of consecutive calls that count as one sample in the confidence interval of a percentile. Reason: consecutive
# calls are not independent, and the interval must be wider than for independent calls.
_CALLS_PER_SAMPLE = 4


@dataclass(frozen=True)
class Outlier:
    """A host whose percentile ``quantile`` of ``channel`` in a cell differs from that of the others.

    ``ratio`` is its figure over the median of the others' figures, ``sentence`` the same in words.
    """

    host: str
    row: str
    column: str
    channel: Channel
    quantile: Quantile
    ratio: float
    sentence: str


@dataclass(frozen=True, eq=False)
class _Figures:
    """One percentile of one channel in one cell on each host with enough calls.

    ``hosts`` are their numbers, int64[n]. ``logs``, float64[n], are the logarithms of ns, and ``ends``, float64[n, 2],
    those of both ends of its confidence interval.
    """

    row: str
    column: str
    channel: Channel
    quantile: Quantile
    hosts: NDArray[np.int64]
    logs: NDArray[np.float64]
    ends: NDArray[np.float64]

    def outside(self, typical_spread: float, deviations: float) -> Iterator[tuple[int, float, float]]:
        """Each outlier: the host's number, the logarithm of the others' median, and its distance from it.

        The distance of an outlier is more than ``deviations`` times the spread of the others.
        """
        left = np.arange(len(self.hosts))
        # At most half of the hosts are outliers.
        while len(left) > max(HOSTS - 1, len(self.hosts) // 2 + 1):
            logs = self.logs[left]
            place = int(np.argmax(np.abs(logs - _median(logs))))
            host, left, others = left[place], np.delete(left, place), np.delete(logs, place)
            middle = _median(others)
            spread = max(typical_spread, _spread(others) if len(others) >= _FEW else 0.0)
            # Median and spread of few hosts are uncertain estimates, so the limit grows.
            limit = max(math.log(FLOOR), deviations * spread * (1 + _FEW / len(others)))
            low, high = self.ends[host].tolist()
            if max(low - middle, middle - high) <= limit:
                return
            yield int(self.hosts[host]), middle, float(self.logs[host]) - middle


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
    far: list[_Figures] = []
    spreads: dict[tuple[Channel, Quantile], list[float]] = {}
    for step, cell in enumerate(matrix.cells.values()):
        progress(step / len(matrix.cells))
        for figures, histograms in _figures(cell, numbers):
            spreads.setdefault((figures.channel, figures.quantile), []).append(_spread(figures.logs))
            # Those that the intervals and the typical spread may exclude: an interval takes longer than all else.
            candidates = [number for number, _, _ in figures.outside(0.0, deviations)]
            for number in candidates:
                figures.ends[figures.hosts == number] = _interval(histograms[number], figures.quantile, deviations)
            if candidates:
                far.append(figures)
    typical = {kind: _median(np.array(values)) for kind, values in spreads.items()}
    outliers = [
        _outlier(matrix, figures, names, *place)
        for figures in far
        for place in figures.outside(typical[figures.channel, figures.quantile], deviations)
    ]
    return tuple(sorted(outliers, key=lambda outlier: abs(math.log(outlier.ratio)), reverse=True))


def _figures(cell: Cell, numbers: Mapping[str, int]) -> Iterator[tuple[_Figures, dict[int, Histogram]]]:
    """The figures of a cell, with intervals of no length, and the histograms by the hosts' numbers."""
    held: dict[Channel, dict[int, Histogram]] = {Channel(phase): {} for phase in PHASES}
    # Once: the repeats may be in a file.
    for repeat in cell.repeats:
        channels = repeat.window.channels
        if repeat.host in numbers:
            for channel in held.keys() & channels.keys():
                held[channel][numbers[repeat.host]] = channels[channel]
    for channel, histograms in held.items():
        for quantile, enough in ENOUGH.items():
            compared = {number: histogram for number, histogram in histograms.items() if histogram.count >= enough}
            if len(compared) >= HOSTS:
                values = [histogram.percentile(quantile.percent) or 0.0 for histogram in compared.values()]
                # The logarithm needs at least 1 ns.
                logs = np.log(np.maximum(values, 1.0))
                hosts, ends = np.array(list(compared)), np.stack((logs, logs), axis=1)
                yield _Figures(cell.row, cell.column, channel, quantile, hosts, logs, ends), compared


def _interval(histogram: Histogram, quantile: Quantile, deviations: float) -> tuple[float, float]:
    """Logarithms (ns) of both ends of the confidence interval of a percentile; infinite where it has no end.

    The number of calls below a percentile is binomial; its quantile is corrected for skewness (Cornish-Fisher).
    """
    share = quantile.percent / 100
    samples = histogram.count / _CALLS_PER_SAMPLE
    error = deviations * math.sqrt(share * (1 - share) / samples) + (deviations**2 - 1) / (6 * samples)
    places, counts = histogram.used
    sums = counts.cumsum()
    low_high = sums.searchsorted(np.array([share - error, share + error]) * histogram.count)
    low, high = MIDDLE[places[np.minimum(low_high, len(sums) - 1)]].tolist()
    return (
        math.log(max(low, 1.0)) if share > error else -math.inf,
        math.log(max(high, 1.0)) if share + error < 1 else math.inf,
    )


def _spread(logs: NDArray[np.float64]) -> float:
    """Robust estimate of the standard deviation."""
    return _SIGMA * _median(np.abs(logs - _median(logs)))


def _median(values: NDArray[np.float64]) -> float:
    """Result of ``numpy.median``, in a fifth of its time for a few values."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _outlier(
    matrix: Matrix, figures: _Figures, names: Sequence[str], number: int, others_log: float, distance: float
) -> Outlier:
    row, column, host = matrix.row(figures.row), matrix.column(figures.column), names[number]
    beside = "with no aggressor" if column.name == QUIET else f"beside {column.name}"
    ratio, others_ns = math.exp(distance), math.exp(others_log)
    others = f"{duration_ns(others_ns)} on the other {len(figures.hosts) - 1} hosts"
    words = f"{figures.quantile} is {duration_ns(others_ns * ratio)}, against {others}"
    slower = ratio > 1
    return Outlier(
        host=host,
        row=row.name,
        column=column.name,
        channel=figures.channel,
        quantile=figures.quantile,
        ratio=ratio,
        sentence=f"{host} is {'slower' if slower else 'faster'}: {row.name} {beside}: {figures.channel.phase} {words} "
        f"({times(ratio) if slower else f'×{ratio:.2g}'}).",
    )
