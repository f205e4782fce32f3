"""Sizes of the monitor's panels, one below the other: probe table, histograms, heat map, verdicts."""

from __future__ import annotations

from dataclasses import dataclass

# Heights (lines): the probe table leaves _LEAST_HISTOGRAMS lines to the histograms of one victim, one line less without
# a legend; a heat map of less than _LEAST_HEAT_MAP lines is hidden.
_LEAST_HISTOGRAMS, _LEAST_HEAT_MAP = 6, 5
# Smallest screen width (columns) and height (lines) that show the histograms of several victims side by side.
_MULTIPLES_COLUMNS, _MULTIPLES_LINES = 120, 40
# Smallest height (lines) of the panel with the histograms of several victims side by side. It has room for bars of two
# lines for each of two measured times (call and wait).
_MULTIPLES = 10
# Height (lines) of a screen below which the histograms have no legend.
_LOW = 20
# A screen with fewer lines gets the compact layout, unless its heat map would then have fewer than _LEAST_WITH_GPU
# lines.
COMPACT_BELOW = 34
# Heights (lines) of the heat map. From _LEAST_WITH_GPU lines on, it shows the GPU's values and the time axis. In the
# compact layout, the probe table leaves _ENOUGH_HEAT_MAP lines to the heat map if it can, and about half of the further
# lines go to the histograms. In the usual layout, the heat map has at least _ENOUGH_HEAT_MAP lines if there is room.
_LEAST_WITH_GPU, _ENOUGH_HEAT_MAP = 8, 12
# Heights (lines) in the compact layout. _LEAST_COMPACT_ROWS: smallest number of rows of victims. _COMPACT_HISTOGRAMS,
# _COMPACT_LOG: heights of the histograms and of the log.
_LEAST_COMPACT_ROWS, _COMPACT_HISTOGRAMS, _COMPACT_LOG = 4, 4, 4
# Smallest number of lines that the compact layout adds to the histograms: one line for each of the two plots, and an
# empty line between the plots. If fewer lines are free, the layout adds none.
_HIGHER_PLOTS = 3
# Screen height (lines) below which the layout plans a single line of the probe table for all aggressors, which then
# stand side by side.
_TALL = 50
# _LOG: largest height (lines) of the log on a screen of up to _LOG_GROWS_FROM lines, for a title, a verdict with cause
# and remedy, the next step, another verdict. On a higher screen, the log gets one more line for every eight.
_LOG, _LOG_GROWS_FROM = 6, 48
# Share of the heat map in the lines that the probe table and the log leave; the histograms get the rest.
_HEAT_MAP_SHARE = 0.6
# Lines of the heat map's panel that stay when the map is hidden: marks, utilisation, SM activity, time axis.
_WITHOUT_MAP = 4


@dataclass(frozen=True)
class Layout:
    """Heights in lines; ``heat_map`` 0 hides the heat map.

    ``compact`` has no titles of tables, and the aggressors side by side.
    """

    table: int
    histograms: int
    heat_map: int
    log: int
    compact: bool = False


def layout(
    width: int, height: int, table_rows: int, victims: int = 0, header: int = 2, *, larger: bool = False
) -> Layout:
    """The layout for a screen of ``width`` × ``height`` and a probe table of ``table_rows`` lines.

    ``victims`` of them are not aggressors; ``header`` is the number of lines of the header in a compact layout. With
    ``larger`` the histograms have the lines of the map, and the GPU's values and the time axis stay.
    """
    usual = _layout(width, height, table_rows, victims, header)
    if not larger or usual.heat_map <= _WITHOUT_MAP:
        return usual
    more = usual.heat_map - _WITHOUT_MAP
    return Layout(usual.table, usual.histograms + more, _WITHOUT_MAP, usual.log, usual.compact)


def _layout(width: int, height: int, table_rows: int, victims: int, header: int) -> Layout:
    if height < COMPACT_BELOW:
        # The key bar and the aggressors have a line each.
        shared = height - header - 2 - _COMPACT_HISTOGRAMS - _COMPACT_LOG
        rows = min(victims, max(shared - _ENOUGH_HEAT_MAP, _LEAST_COMPACT_ROWS))
        table, heat_map = 1 + rows, shared - rows
        if heat_map >= _LEAST_WITH_GPU:
            # What the map does not need, the histogram has: with fewer lines its plots would not be higher.
            spare = heat_map - _ENOUGH_HEAT_MAP
            more = max(spare // 2, _HIGHER_PLOTS) if spare >= _HIGHER_PLOTS else 0
            return Layout(table, _COMPACT_HISTOGRAMS + more, heat_map - more, _COMPACT_LOG, compact=True)
    # Two lines of header and the key bar.
    rest = height - 3
    log = min(_LOG + max(0, height - _LOG_GROWS_FROM) // 8, 3 + rest // 6)
    wanted = max(table_rows, 5)
    if COMPACT_BELOW <= height < _TALL:
        # The aggressors, the title of the victims, and their rows.
        wanted = min(wanted, 2 + max(victims, 3))
    # In the lowest screens the table needs the line of the histograms' legend.
    histograms = _LEAST_HISTOGRAMS - (height < _LOW)
    if width >= _MULTIPLES_COLUMNS and height >= _MULTIPLES_LINES:
        histograms = _MULTIPLES
    table = max(3, min(wanted, rest - log - histograms))
    left = rest - log - table
    # The heat map is hidden before a row of the table is.
    heat_map = min(left - histograms, max(round(left * _HEAT_MAP_SHARE), _ENOUGH_HEAT_MAP))
    if heat_map < _LEAST_HEAT_MAP or height < 28:
        heat_map = 0
    return Layout(table, left - heat_map, heat_map, log)
