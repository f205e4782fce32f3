"""Sizes of the monitor's panels."""

from __future__ import annotations

from dataclasses import dataclass

WIDE_COLUMNS = 150
_LEAST_HISTOGRAMS, _LEAST_HEAT_MAP = 6, 5


@dataclass(frozen=True)
class Layout:
    """Heights in lines. ``wide`` puts probe table and histograms side by side; ``heat_map`` 0 hides the heat map.

    ``table`` is None where the table has the full height of the ``upper`` part.
    """

    wide: bool
    upper: int
    table: int | None
    heat_map: int
    log: int


def layout(width: int, height: int, table_rows: int) -> Layout:
    """The layout for a screen of ``width`` × ``height`` and a probe table of ``table_rows`` lines."""
    wanted = max(table_rows, 5)
    # Two lines of header and the key bar.
    rest = height - 3
    if width >= WIDE_COLUMNS:
        upper = max(min(wanted, rest - 6), min(20, rest // 2))
        log = max(3, min(14, (rest - upper) * 2 // 5))
        heat_map = _at_least(min(24, rest - upper - log))
        return Layout(True, rest - heat_map - log, None, heat_map, log)
    log = min(12, 3 + rest // 6)
    # The heat map is hidden before a row of the table is.
    heat_map = _at_least(min(18, rest // 4, rest - log - wanted - _LEAST_HISTOGRAMS)) if height >= 28 else 0
    upper = rest - log - heat_map
    return Layout(False, upper, max(3, min(wanted, upper - _LEAST_HISTOGRAMS)), heat_map, log)


def _at_least(heat_map: int) -> int:
    return heat_map if heat_map >= _LEAST_HEAT_MAP else 0
