"""Sizes of the monitor's panels, one below the other: probe table, histograms, heat map, verdicts."""

from __future__ import annotations

from dataclasses import dataclass

# Smallest height (lines) of the histograms of one victim; the probe table leaves this height to the histograms. On a
# screen lower than _LOW, the histograms need one line less: the legend has no line of its own.
_LEAST_HISTOGRAMS = 6
# Smallest height (lines) of the heat map. With fewer lines, the heat map is hidden.
_LEAST_HEAT_MAP = 5
# Height (lines) of a screen below which the legend of the histograms has no line of its own.
_LOW = 20
# Screen height (lines) below which the monitor has the compact layout. Exception: if the compact layout leaves fewer
# than _LEAST_WITH_GPU lines to the heat map, the monitor has the usual layout.
COMPACT_BELOW = 34
# Smallest height (lines) of a heat map that shows the GPU's values and the time axis. The compact layout is used only
# if the heat map has at least this height.
_LEAST_WITH_GPU = 8
# Height (lines) of a visible heat map up to which the histograms keep their smallest height. In the compact layout, the
# probe table also gives up rows for this height, and the histograms get about half of all further lines.
_ENOUGH_HEAT_MAP = 12
# Heights (lines) in the compact layout. _LEAST_COMPACT_ROWS: smallest height of the rows of victims.
# _COMPACT_HISTOGRAMS: smallest height of the histograms. _COMPACT_LOG: height of the log.
_LEAST_COMPACT_ROWS, _COMPACT_HISTOGRAMS, _COMPACT_LOG = 4, 4, 4
# Smallest number of lines by which the compact layout makes the histograms higher. If fewer lines are free, the
# histograms get no further line. Reason: the two plots need a further line each, and an empty line between the plots.
_HIGHER_PLOTS = 3
# Screen height (lines) below which the layout plans one line of the probe table for all aggressors together. The
# aggressors then stand side by side.
_TALL = 50
# Largest height (lines) of the log on a screen of up to _LOG_GROWS_FROM lines. The lines are for a title, a verdict
# with cause and remedy, the next step, and another verdict.
_LOG = 6
# Screen height (lines) above which the log may have more than _LOG lines. The log may have one more line for every
# eight further lines of the screen.
_LOG_GROWS_FROM = 48
# Usual share (0 to 1) of the heat map in the lines that the probe table and the log leave free. The histograms get the
# rest.
_HEAT_MAP_SHARE = 0.6


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


def layout(height: int, table_rows: int, victims: int = 0, header: int = 2) -> Layout:
    """The layout for a screen of ``height`` lines and a probe table of ``table_rows`` lines.

    ``victims`` of them are not aggressors; ``header`` is the number of lines of the header in a compact layout.
    """
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
    table = max(3, min(wanted, rest - log - histograms))
    left = rest - log - table
    # The heat map is hidden before a row of the table is.
    heat_map = min(left - histograms, max(round(left * _HEAT_MAP_SHARE), _ENOUGH_HEAT_MAP))
    if heat_map < _LEAST_HEAT_MAP or height < 28:
        heat_map = 0
    return Layout(table, left - heat_map, heat_map, log)
