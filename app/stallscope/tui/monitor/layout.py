"""Sizes of the monitor's panels."""

from __future__ import annotations

from dataclasses import dataclass

WIDE_COLUMNS = 150
# From this size on the log is below the probe table, beside the histograms of several probes.
SPACIOUS_COLUMNS, SPACIOUS_LINES = 220, 50
_LEAST_HISTOGRAMS, _LEAST_HEAT_MAP = 6, 5
# From this size on the histograms of several victims are side by side, with two lines for each of three phases.
_MULTIPLES_COLUMNS, _MULTIPLES_LINES = 120, 40
_MULTIPLES = 10
_LOW = 20
# Below this height, and where the map has this height with the GPU's values and the time axis, the layout is compact.
COMPACT_BELOW, _LEAST_WITH_GPU, _ENOUGH_HEAT_MAP = 34, 8, 12
_LEAST_COMPACT_ROWS, _COMPACT_HISTOGRAMS, _COMPACT_LOG = 4, 4, 4


@dataclass(frozen=True)
class Layout:
    """Heights in lines. ``wide`` puts probe table and histograms side by side; ``heat_map`` 0 hides the heat map.

    ``table`` is None where the table has the full height of the ``upper`` part. ``spacious`` puts the log below the
    table, with the histograms beside both. ``compact`` has no titles of tables, and the aggressors side by side.
    """

    wide: bool
    upper: int
    table: int | None
    heat_map: int
    log: int
    spacious: bool = False
    compact: bool = False

    @property
    def histograms(self) -> int:
        """Height of the histograms."""
        if self.spacious:
            return self.upper + self.log
        return self.upper - (self.table or 0)


def layout(width: int, height: int, table_rows: int, victims: int = 0, header: int = 2) -> Layout:
    """The layout for a screen of ``width`` × ``height`` and a probe table of ``table_rows`` lines.

    ``victims`` of them are victims; ``header`` is the number of lines of the header in a compact layout.
    """
    if width < WIDE_COLUMNS and height < COMPACT_BELOW:
        # The key bar and the aggressors have a line each.
        shared = height - header - 2 - _COMPACT_HISTOGRAMS - _COMPACT_LOG
        rows = min(victims, max(shared - _ENOUGH_HEAT_MAP, _LEAST_COMPACT_ROWS))
        table, heat_map = 1 + rows, shared - rows
        if heat_map >= _LEAST_WITH_GPU:
            # What the map does not need, the histogram has.
            histograms = _COMPACT_HISTOGRAMS + max(0, heat_map - _ENOUGH_HEAT_MAP) // 2
            heat_map -= histograms - _COMPACT_HISTOGRAMS
            return Layout(False, table + histograms, table, heat_map, _COMPACT_LOG, compact=True)
    wanted = max(table_rows, 5)
    # Two lines of header and the key bar.
    rest = height - 3
    if width >= SPACIOUS_COLUMNS and height >= SPACIOUS_LINES:
        heat_map = min(24, rest // 4)
        upper = min(wanted + 1, (rest - heat_map) * 2 // 3)
        return Layout(True, upper, None, heat_map, rest - heat_map - upper, spacious=True)
    if width >= WIDE_COLUMNS:
        upper = max(min(wanted, rest - 6), min(20, rest // 2))
        log = max(3, min(14, (rest - upper) * 2 // 5))
        heat_map = _at_least(min(24, rest - upper - log))
        return Layout(True, rest - heat_map - log, None, heat_map, log)
    log = min(12, 3 + rest // 6)
    histograms = _MULTIPLES if width >= _MULTIPLES_COLUMNS and height >= _MULTIPLES_LINES else _LEAST_HISTOGRAMS
    # The heat map is hidden before a row of the table is.
    heat_map = _at_least(min(18, rest // 4, rest - log - wanted - histograms)) if height >= 28 else 0
    upper = rest - log - heat_map
    # In the lowest screens the table needs the line of the histograms' legend.
    least = _LEAST_HISTOGRAMS - (height < _LOW)
    return Layout(False, upper, max(3, min(wanted, upper - least)), heat_map, log)


def _at_least(heat_map: int) -> int:
    return heat_map if heat_map >= _LEAST_HEAT_MAP else 0
