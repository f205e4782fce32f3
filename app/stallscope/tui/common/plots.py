"""Plots of histograms on the fixed time axis: the live values before the baseline, many histograms at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import Histogram
from stallprobes.live.history import DECADES, LOW_NS, binned, position
from stallscope.tui.common.lines import BLOCKS, Line, runs_of_rows

# Width (columns) of the longest label of a plot's latency axis.
_AXIS_LABEL = 6
# Styles of the characters of a plot.
STYLES = ("", "baseline", "live", "both", "bad", "ghost")
# Indices into STYLES, by what a character shows. _BASELINE_ONLY: the baseline without live calls. _LIVE: live calls.
# _BOTH: live calls in front of a higher baseline. _IN_FLIGHT: a call in flight. _GHOST: the stall before a remedy.
_BASELINE_ONLY, _LIVE, _BOTH, _IN_FLIGHT, _GHOST = 1, 2, 3, 4, 5
# BLOCKS as an array: the character of each height.
_LETTERS = np.array(list(BLOCKS))

Letters = NDArray[np.str_]
Heights = NDArray[np.int64]


def bars(
    live: Sequence[Histogram],
    behind: Sequence[Histogram | None],
    in_flight_ns: Sequence[float | None],
    columns: int,
    rows: int,
    ghosts: Sequence[Histogram | None] = (),
) -> tuple[Letters, Heights]:
    """The plots of several histograms, letters and numbers of ``STYLES``, each [histograms][rows][columns].

    ``behind`` is drawn behind each histogram, nothing for None, and ``ghosts`` behind both. ``in_flight_ns`` is the age
    of a call in flight, which is marked. The top row of a plot comes first.
    """
    # Eighths of a line by row.
    below = np.arange(rows - 1, -1, -1)[:, None] * 8
    # ``np.clip`` takes several times as long for so few.
    now, before = (
        np.minimum(np.maximum(heights[:, None, :] - below, 0), 8)
        for heights in (_heights(tuple(live), columns, rows), _baseline_heights(tuple(behind), columns, rows))
    )
    letters = np.where((now == 0) & (before > 0), "░", _LETTERS[now])
    styles = np.where(now == 0, np.where(before > 0, _BASELINE_ONLY, 0), np.where(before > now, _BOTH, _LIVE))
    if any(ghost is not None for ghost in ghosts):
        free = (now == 0) & (before == 0) & (_baseline_heights(tuple(ghosts), columns, rows)[:, None, :] > below)
        letters, styles = np.where(free, "▒", letters), np.where(free, _GHOST, styles)
    for number, age_ns in enumerate(in_flight_ns):
        if age_ns is not None:
            at = number, rows - 1, position(age_ns, columns)
            letters[at], styles[at] = "◆", _IN_FLIGHT
    return letters, styles


def bar_lines(letters: Letters, styles: Heights) -> list[Line]:
    """Lines of letters with the numbers of their styles, [lines][columns]."""
    return runs_of_rows(letters, styles, STYLES)


def _heights(histograms: tuple[Histogram | None, ...], columns: int, rows: int) -> Heights:
    """Heights in eighths of a line, [histograms][columns]: square roots of counts, at least 1, so that a single slow
    call is visible."""
    counts = binned([Histogram.empty() if histogram is None else histogram for histogram in histograms], columns)
    most = np.maximum(counts.max(axis=1, initial=0), 1)
    heights = np.ceil(np.sqrt(counts / most[:, None]) * (rows * 8)).astype(np.int64)
    return np.where(counts > 0, np.maximum(heights, 1), 0)


# ``_heights`` with a cache, for baselines: a baseline changes at most once a second.
_baseline_heights = lru_cache(32)(_heights)


def decade_label(decade: int) -> str:
    """The lower end of a decade of the axis: ``100 ns``, ``1 µs``, ``10 ms``."""
    value, unit = LOW_NS * 10**decade, 0
    while value >= 1000 and unit < 3:
        value, unit = value // 1000, unit + 1
    return f"{value} {('ns', 'µs', 'ms', 's')[unit]}"


@lru_cache(32)
def axis_labels(columns: int) -> str:
    """Times at every decade of the axis, or at fewer where they would touch."""
    letters = [" "] * columns
    step = max(1, -(-DECADES * _AXIS_LABEL // columns))
    for decade in range(0, DECADES, step):
        text = f"╵{decade_label(decade)}".replace(" ", "")
        at = round(decade * columns / DECADES)
        if at + len(text) <= columns:
            letters[at : at + len(text)] = list(text)
    return "".join(letters)
