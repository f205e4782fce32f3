"""Hosts that are not like the others: whose figure in which cell, found so rarely by chance that it means the host.

A host is named when three things hold at once, beginning with the one that differs most. Its figure differs from the
median of the others by at least half as much again. It differs by more than the others differ among themselves (their
median absolute deviation, on logarithms), at a limit that grows with the number of comparisons. And more of its calls
lie beyond that limit than chance gives (Fisher's exact test), at the same care. The last one keeps a p99 that rests on
a handful of calls, and so jumps from run to run, from naming anybody.

What stalls a victim rarely but for tens of calls in a row can still look like one of few hosts: measure again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import index
from stallprobes.latency.sparse import SparseHistogram, sparse
from stallprobes.matrix.matrix import PHASES, QUIET, Matrix
from stallprobes.model import Channel
from stallprobes.units import duration, times

HOSTS = 3
FLOOR = 1.5
# Of a hundred merges of hosts that are alike, at most one names a host by chance, calls being independent.
FALSE_ALARMS = 0.01
# A percentile of fewer calls is not compared.
ENOUGH = {50: 20, 99: 200}
# A median absolute deviation times this estimates a normal law's sigma.
_SIGMA = 1.4826
# The spread of so few others is no measure; the usual spread over all cells stands in for it.
_FEW = 8
# Calls close to each other share what slows them, so this many are worth one; more where the others show it.
_SHARED = 4


@dataclass(frozen=True)
class Outlier:
    """A host whose percentile ``q`` (50 or 99) of ``channel`` in a cell is not what it is on the others.

    ``host_us`` is its figure and ``others_us`` the median of the others' in microseconds, ``ratio`` the one over the
    other, ``sentence`` all of it in words.
    """

    host: str
    row: str
    column: str
    channel: Channel
    q: int
    host_us: float
    others_us: float
    ratio: float
    sentence: str


@dataclass(frozen=True, eq=False)
class _Figures:
    """One percentile of one channel in one cell on each host with enough calls: its histogram, and its logarithm of ns."""

    row: str
    column: str
    channel: Channel
    q: int
    held: Mapping[str, SparseHistogram]
    logs: NDArray[np.float64]


def find(matrix: Matrix) -> tuple[Outlier, ...]:
    """The outliers of a merged ``matrix``, the farthest from the others first; none with fewer than 3 hosts."""
    figures = list(_figures(matrix))
    comparisons = sum(len(figure.held) for figure in figures)
    spreads: dict[tuple[Channel, int], list[float]] = {}
    for figure in figures:
        spreads.setdefault((figure.channel, figure.q), []).append(_spread(figure.logs))
    usual = {kind: float(np.median(found)) for kind, found in spreads.items()}
    found = [
        outlier
        for figure in figures
        for outlier in _outside(matrix, figure, usual[figure.channel, figure.q], FALSE_ALARMS / comparisons)
    ]
    return tuple(sorted(found, key=lambda one: abs(math.log(one.ratio)), reverse=True))


def _figures(matrix: Matrix) -> Iterator[_Figures]:
    for cell in matrix.cells.values():
        for channel in map(Channel, PHASES):
            known = {
                r.host: sparse(r.channels, channel)
                for r in cell.repeats
                if r.host in matrix.hosts and channel in r.channels
            }
            for q, enough in ENOUGH.items():
                held = {host: one for host, one in known.items() if one.count >= enough}
                if len(held) >= HOSTS:
                    ns = [one.whole().percentile(q) or 0.0 for one in held.values()]
                    # A call below a nanosecond counts as one.
                    yield _Figures(cell.row, cell.column, channel, q, held, np.log(np.maximum(ns, 1.0)))


def _outside(matrix: Matrix, figures: _Figures, usual: float, alpha: float) -> Iterator[Outlier]:
    care = NormalDist().inv_cdf(1 - alpha / 2)
    names = np.array(list(figures.held))
    logs = figures.logs
    # The farthest first, and without it: it would make those beside it look odd. More than half are the usual ones.
    while len(logs) > max(HOSTS - 1, len(figures.logs) // 2 + 1):
        farthest = int(np.argmax(np.abs(logs - np.median(logs))))
        host, others = str(names[farthest]), np.delete(names, farthest)
        here, logs = float(logs[farthest]), np.delete(logs, farthest)
        apart = here - float(np.median(logs))
        spread = max(usual, _spread(logs) if len(logs) >= _FEW else 0.0)
        # The others' median and spread are estimates themselves, the worse the fewer they are.
        limit = max(math.log(FLOOR), care * spread * (1 + _FEW / len(logs)))
        border = here - apart + math.copysign(limit, apart)
        if abs(apart) <= limit or _chance(figures, host, others.tolist(), border, apart > 0) >= alpha:
            return
        names = others
        yield _outlier(matrix, figures, host, here - apart, apart)


def _spread(logs: NDArray[np.float64]) -> float:
    """A robust sigma."""
    return _SIGMA * float(np.median(np.abs(logs - np.median(logs))))


def _chance(figures: _Figures, host: str, names: Sequence[str], border: float, slower: bool) -> float:
    """How likely it is by chance that so many of the host's calls, and so few of the others', lie beyond ``border``.

    ``border`` is a logarithm of ns; beyond is above it where the host is ``slower``, else below.
    """
    place = index(int(math.exp(border)))
    beyond = {name: _beyond(figures.held[name], place, slower) for name in (host, *names)}
    counts = {name: figures.held[name].count for name in beyond}
    here, there = beyond[host], sum(beyond[name] for name in names)
    of, of_there = counts[host], sum(counts[name] for name in names)
    usual = there / of_there
    shared = float(_SHARED)
    if 0 < usual < 1:
        odd = [(beyond[name] - counts[name] * usual) ** 2 / (counts[name] * usual * (1 - usual)) for name in names]
        shared = max(shared, sum(odd) / (len(odd) - 1))
    return fisher(int(here / shared), int(of / shared), int(there / shared), int(of_there / shared))


def _beyond(held: SparseHistogram, place: int, above: bool) -> int:
    """How many calls lie in buckets above ``place``, or below it."""
    places, counts = held.used
    return int(counts[places > place].sum() if above else counts[places < place].sum())


def fisher(here: int, of: int, there: int, of_there: int) -> float:
    """How likely at least ``here`` of ``of`` is where ``there`` of ``of_there`` is usual: Fisher's exact test.

    1 where it is no more than usual.
    """
    if here * of_there <= there * of:
        return 1.0
    marked, everything = here + there, of + of_there
    whole = _choose(everything, of)
    total = 0.0
    for k in range(here, min(marked, of) + 1):
        # Beyond what is usual each term is smaller than the one before. Huge counts leave some error in the logarithm.
        term = math.exp(min(0.0, _choose(marked, k) + _choose(everything - marked, of - k) - whole))
        total += term
        if term < 1e-12 * total:
            break
    return min(1.0, total)


def _choose(n: int, k: int) -> float:
    """The logarithm of n over k."""
    if not 0 <= k <= n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _outlier(matrix: Matrix, figures: _Figures, host: str, others_log: float, apart: float) -> Outlier:
    row, column = matrix.row(figures.row), matrix.column(figures.column)
    beside = "in quiet" if column.name == QUIET else f"beside “{column.title}”"
    ratio, others_us = math.exp(apart), math.exp(others_log) / 1000
    here_us = others_us * ratio
    said = (
        f"p{figures.q} is {duration(here_us)}, against {duration(others_us)} on the other {len(figures.held) - 1} hosts"
    )
    slower = ratio > 1
    return Outlier(
        host=host,
        row=row.name,
        column=column.name,
        channel=figures.channel,
        q=figures.q,
        host_us=here_us,
        others_us=others_us,
        ratio=ratio,
        sentence=f"{host} is {'slower' if slower else 'faster'}: {row.title} {beside}: {figures.channel.phase} {said} "
        f"({times(ratio) if slower else f'×{ratio:.2g}'}).",
    )
