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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import index
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.sparse import SparseHistogram, sparse
from stallprobes.latency.statistics import fisher_exact
from stallprobes.matrix.matrix import PHASES, QUIET, Matrix
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
    """One percentile of one channel in one cell on each host with enough calls: histograms, and logarithms of ns."""

    row: str
    column: str
    channel: Channel
    quantile: Quantile
    held: Mapping[str, SparseHistogram]
    logs: NDArray[np.float64]


def find(matrix: Matrix) -> tuple[Outlier, ...]:
    """The outliers of a merged ``matrix``, the farthest from the others first; none with fewer than 3 hosts."""
    figures = list(_figures(matrix))
    comparisons = sum(len(figure.held) for figure in figures)
    spreads: dict[tuple[Channel, Quantile], list[float]] = {}
    for figure in figures:
        spreads.setdefault((figure.channel, figure.quantile), []).append(_spread(figure.logs))
    typical = {kind: float(np.median(found)) for kind, found in spreads.items()}
    found = [
        outlier
        for figure in figures
        for outlier in _outside(matrix, figure, typical[figure.channel, figure.quantile], FALSE_ALARMS / comparisons)
    ]
    return tuple(sorted(found, key=lambda one: abs(math.log(one.ratio)), reverse=True))


def _figures(matrix: Matrix) -> Iterator[_Figures]:
    for cell in matrix.cells.values():
        for channel in map(Channel, PHASES):
            known = {
                repeat.host: sparse(repeat.window.channels, channel)
                for repeat in cell.repeats
                if repeat.host in matrix.hosts and channel in repeat.window.channels
            }
            for quantile, enough in ENOUGH.items():
                held = {host: one for host, one in known.items() if one.count >= enough}
                if len(held) >= HOSTS:
                    ns = [one.dense().percentile(quantile.percent) or 0.0 for one in held.values()]
                    # The logarithm needs at least 1 ns.
                    yield _Figures(cell.row, cell.column, channel, quantile, held, np.log(np.maximum(ns, 1.0)))


def _outside(matrix: Matrix, figures: _Figures, typical_spread: float, alpha: float) -> Iterator[Outlier]:
    deviations = NormalDist().inv_cdf(1 - alpha / 2)
    names = np.array(list(figures.held))
    logs = figures.logs
    # The host that differs most is tested first, and excluded from the spread. At most half of the hosts are outliers.
    while len(logs) > max(HOSTS - 1, len(figures.logs) // 2 + 1):
        farthest = int(np.argmax(np.abs(logs - np.median(logs))))
        host, others = str(names[farthest]), np.delete(names, farthest)
        here, logs = float(logs[farthest]), np.delete(logs, farthest)
        distance = here - float(np.median(logs))
        spread = max(typical_spread, _spread(logs) if len(logs) >= _FEW else 0.0)
        # Median and spread of few hosts are uncertain estimates, so the limit grows.
        limit = max(math.log(FLOOR), deviations * spread * (1 + _FEW / len(logs)))
        border = here - distance + math.copysign(limit, distance)
        if abs(distance) <= limit or _p_value(figures, host, others.tolist(), border, distance > 0) >= alpha:
            return
        names = others
        yield _outlier(matrix, figures, host, here - distance, distance)


def _spread(logs: NDArray[np.float64]) -> float:
    """Robust estimate of the standard deviation."""
    return _SIGMA * float(np.median(np.abs(logs - np.median(logs))))


def _p_value(figures: _Figures, host: str, names: Sequence[str], border: float, slower: bool) -> float:
    """One-sided p-value of the number of the host's calls beyond ``border``, compared with the others'.

    ``border`` is a logarithm of ns; beyond is above it where the host is ``slower``, else below.
    """
    place = index(int(math.exp(border)))
    beyond = {name: _beyond(figures.held[name], place, slower) for name in (host, *names)}
    counts = {name: figures.held[name].count for name in beyond}
    here, there = beyond[host], sum(beyond[name] for name in names)
    of, of_there = counts[host], sum(counts[name] for name in names)
    share = there / of_there
    per_sample = float(_CALLS_PER_SAMPLE)
    if 0 < share < 1:
        terms = [(beyond[name] - counts[name] * share) ** 2 / (counts[name] * share * (1 - share)) for name in names]
        per_sample = max(per_sample, sum(terms) / (len(terms) - 1))
    return fisher_exact(*(int(count / per_sample) for count in (here, of, there, of_there))).more


def _beyond(held: SparseHistogram, place: int, above: bool) -> int:
    """Number of calls in buckets above ``place``, or below it."""
    places, counts = held.used
    return int(counts[places > place].sum() if above else counts[places < place].sum())


def _outlier(matrix: Matrix, figures: _Figures, host: str, others_log: float, distance: float) -> Outlier:
    row, column = matrix.row(figures.row), matrix.column(figures.column)
    beside = "with no aggressor" if column.name == QUIET else f"beside “{column.title}”"
    ratio, others_ns = math.exp(distance), math.exp(others_log)
    host_ns = others_ns * ratio
    others = f"{duration_ns(others_ns)} on the other {len(figures.held) - 1} hosts"
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
        sentence=f"{host} is {'slower' if slower else 'faster'}: {row.title} {beside}: {figures.channel.phase} {words} "
        f"({times(ratio) if slower else f'×{ratio:.2g}'}).",
    )
