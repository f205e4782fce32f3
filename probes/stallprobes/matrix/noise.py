"""Noise of the machine that a check ran on, from the spread of the victims' baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from statistics import median
from weakref import WeakKeyDictionary

from stallprobes.latency.baseline import ENOUGH_CALLS
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.statistics import sample_percentiles
from stallprobes.latency.window import ChannelMap
from stallprobes.matrix.matrix import QUIET, Matrix
from stallprobes.model import Channel, Phase

# Percentiles of the medians of a victim's baseline windows. The spread of the baseline is the ratio of the percentile
# _HIGH to the percentile _LOW. Reason: without the extremes, one slow window does not determine the spread.
_LOW, _HIGH = 5.0, 95.0
# Smallest number of baseline windows from which their spread is computed.
_FEWEST_WINDOWS = 4
# Percentiles of a latency in the baseline windows (without aggressors): the machine's own variation ranges from
# _RANGE_LOW to _RANGE_HIGH. A comparison reports a change between two values in this range as unsure.
_RANGE_LOW, _RANGE_HIGH = 10.0, 90.0
# Smallest number of baseline windows from which the range from _RANGE_LOW to _RANGE_HIGH is computed.
_FEWEST_FOR_RANGE = 20
# Channel (kind of latency) of the time inside calls.
_CALL = Channel(Phase.CALL)
# Smallest number of calls, by percentile of their latency, with which a baseline window counts for the range from
# _RANGE_LOW to _RANGE_HIGH.
_ENOUGH = {Quantile.P50: ENOUGH_CALLS, Quantile.P99: 50}


@dataclass(frozen=True)
class BaselineSpread:
    """Variation of the victims' baselines within one check, as ratios of at least 1.

    ``typical`` is the median over the victims, ``worst`` the largest, of victim ``worst_row``.
    """

    typical: float
    worst: float
    worst_row: str


def baseline_spread(matrix: Matrix) -> BaselineSpread | None:
    """Spread of the baseline p50 of ``matrix``.

    A victim has a baseline window before and one after each repeat of each cell. Its spread is the 95th percentile of
    the windows' median call time over the 5th. Windows with fewer than 20 calls are left out, and victims with fewer
    than 4 windows. In a merged matrix each host has its own spread. None when no victim has enough windows.
    """
    # Several parts of a report ask for it.
    if matrix not in _SPREADS:
        _SPREADS[matrix] = _baseline_spread(matrix)
    return _SPREADS[matrix]


# Cache: the spread of each matrix's baselines, which several reports need.
_SPREADS: WeakKeyDictionary[Matrix, BaselineSpread | None] = WeakKeyDictionary()


def _baseline_spread(matrix: Matrix) -> BaselineSpread | None:
    medians: dict[tuple[str, str], list[float]] = {}
    for row, host, window in _baseline_windows(matrix):
        p50 = window.get(_CALL, Histogram.empty()).percentile_or_none(50, ENOUGH_CALLS)
        if p50 is not None:
            # A call below a nanosecond counts as one.
            medians.setdefault((row, host), []).append(max(p50, 1.0))
    spreads = {key[0]: 0.0 for key, windows in medians.items() if len(windows) >= _FEWEST_WINDOWS}
    if not spreads:
        return None
    every: list[float] = []
    for (row, _), windows in medians.items():
        if len(windows) >= _FEWEST_WINDOWS:
            low, high = sample_percentiles(windows, (_LOW, _HIGH))
            every.append(high / low)
            spreads[row] = max(spreads[row], every[-1])
    worst_row = max(spreads, key=lambda row: spreads[row])
    return BaselineSpread(median(every), spreads[worst_row], worst_row)


def baseline_range(
    matrices: Iterable[Matrix], row: str, channel: Channel, quantile: Quantile
) -> tuple[float, float] | None:
    """Range (ns) in which the percentile of the victim ``row`` lies in 8 of 10 baseline windows of ``matrices``.

    The windows before and after each repeat of each cell count. Windows with fewer than 20 calls at p50, or 50 at p99,
    are left out. None with fewer than 20 windows.
    """
    enough = _ENOUGH[quantile]
    percentiles = []
    for of_row, _, window in chain.from_iterable(map(_baseline_windows, matrices)):
        histogram = window.get(channel, Histogram.empty()) if of_row == row else Histogram.empty()
        if histogram.count >= enough:
            percentiles.append(histogram.percentile(quantile.percent) or 0.0)
    if len(percentiles) < _FEWEST_FOR_RANGE:
        return None
    low, high = sample_percentiles(percentiles, (_RANGE_LOW, _RANGE_HIGH))
    return low, high


def _baseline_windows(matrix: Matrix) -> Iterator[tuple[str, str, ChannelMap]]:
    """The baseline windows of all cells, each with its row and its host."""
    for cell in matrix.cells.values():
        for repeat in () if cell.column == QUIET else cell.repeats:
            yield cell.row, repeat.host, repeat.before
            yield cell.row, repeat.host, repeat.after
