"""The heat map: latency over time of the focused probe, with a mark at each switch, above the GPU's values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from textual.reactive import var

from stallprobes.live.history import BINS, DECADES, PER_DECADE, position
from stallprobes.live.view_model import FocusView
from stallscope.report.columns import by_column, display_width
from stallscope.tui.common.lines import BLOCKS, SHADES, Line, LineWidget, cut, rule, runs_of_rows, short_duration
from stallscope.tui.common.plots import decade_label

LABEL = 8
# Columns of the figures beside the rows, in panels of so many columns.
FIGURE, _FIGURES_FROM = 8, 64
# Lowest and highest decade of the latency axis, from 100 ns; those with which it begins: 1 µs to 100 ms.
Decades = tuple[int, int]
FIRST_DECADES: Decades = (1, 6)
_MOST_PARTS = 4
# From these heights on there are the GPU's values with a time axis, a title, and a row for power.
_WITH_AXIS, _WITH_TITLE, _WITH_POWER = 8, 11, 16
_LETTERS = np.array(list(SHADES))
_STYLES = ("faint", "heat", "hot", "bad")


@dataclass(frozen=True, eq=False)
class HeatMapView:
    """The heat map of ``focus``; ``notes`` say why it is shown, the longest one first."""

    focus: FocusView | None = None
    notes: tuple[str, ...] = ()


class HeatMap(LineWidget):
    """Draws the last minute of ``view``, the newest column at the right."""

    view = var(HeatMapView())

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._decades = FIRST_DECADES

    def watch_view(self, before: HeatMapView, after: HeatMapView) -> None:
        """Draw when a column is complete, and when anything but its counts changed."""
        if before.focus is None or after.focus is None or _drawn_once(before) != _drawn_once(after):
            self.redraw()

    def lines(self, width: int, height: int) -> list[Line]:
        """A title where there is room, a line for the marks, the map, the GPU's values and the time axis."""
        if self.view.focus is None or height < 3:
            return []
        # The axis widens when calls leave it, and does not narrow, since it would jump when they come back.
        self._decades = widened(self.view.focus, self._decades)
        return heat_lines(self.view.focus, width, height, self._decades, self.view.notes)

    @property
    def columns(self) -> int:
        """Number of columns of the time axis."""
        return columns_of(self.size.width)


def columns_of(width: int) -> int:
    """Number of columns of the time axis in a panel of ``width`` columns."""
    return max(1, width - LABEL - 1 - (FIGURE if width >= _FIGURES_FROM else 0))


def _drawn_once(view: HeatMapView) -> object:
    """What differs where the map is drawn again."""
    focus = view.focus
    if focus is None:
        return None
    return focus.row.name, focus.first, focus.marks, focus.channels and focus.channels[0].baseline is None, view.notes


def widened(view: FocusView, decades: Decades) -> Decades:
    """``decades`` with those of the slowest call of ``view``, and of all but the fastest one in a hundred."""
    counts = view.heat.sum(axis=0).cumsum()
    aged = [position(float(ns), BINS) for ns in view.ages_ns if ns]
    if not len(counts) or not (counts[-1] or aged):
        return decades
    fastest = int(counts.searchsorted(counts[-1] // 100, side="right"))
    slowest = max(int(counts.searchsorted(counts[-1])), *aged, 0)
    return min(decades[0], fastest // PER_DECADE), max(decades[1], slowest // PER_DECADE + 1)


def heat_lines(
    view: FocusView, width: int, height: int, decades: Decades = FIRST_DECADES, notes: tuple[str, ...] = ()
) -> list[Line]:
    """The map of ``decades`` in ``height`` lines: darker cells have more calls per second. Cells above three times the
    baseline's p99 have another color. The first of ``notes`` that fits follows the title."""
    columns = len(view.heat)
    span = columns * view.column_s
    below = [*_gpu_lines(view, width, height), _time_axis(columns, span)] if height >= _WITH_AXIS else []
    out: list[Line] = []
    if height >= _WITH_TITLE:
        title = f"time × latency of {cut(view.row.name, max(10, width - 60))}"
        scale = f"last {span:.0f} s, {view.column_s:g} s per column"
        # Eight columns of the rule stay.
        room = width - display_width(title) - display_width(scale) - 16
        note = next((f", {note}" for note in notes if display_width(note) + 2 <= room), "")
        out.append(rule(title + note, width, scale))
    out.append([(" " * LABEL + "│", "faint"), *_marks(view, columns)])
    room = max(1, height - len(out) - len(below))
    # Each row is a whole decade or an equal part of one, the slowest calls at the top, so that labels step evenly.
    low, high = decades
    # Lines that would stay empty show more of the axis.
    high = min(DECADES, max(high, low + room)) if room < 2 * (high - low) else high
    low = max(0, min(low, high - room)) if room < 2 * (high - low) else low
    parts = min(max(room // (high - low), 1), _MOST_PARTS)
    bounds = [round(low * PER_DECADE + i * PER_DECADE / parts) for i in range((high - low) * parts + 1)]
    if len(bounds) - 1 > room:
        bounds = [round(low * PER_DECADE + i * (high - low) * PER_DECADE / room) for i in range(room + 1)]
    rows = len(bounds) - 1
    labels = _labels(rows, bounds)
    marked = np.isin(np.arange(columns), [column for column, _ in view.marks])
    empty = "".join("▏" if mark else " " for mark in marked)
    out += [[(" " * LABEL + "│" + empty, "faint")]] * (room - rows)
    # The step of each column's oldest call in flight.
    where = np.array([position(float(ns), BINS) if ns else -1 for ns in view.ages_ns], dtype=np.int64)
    # Rates, not counts: a column in progress, or observed for part of its time, is as dark as its neighbors.
    seconds = np.where(view.observed_s > 0, view.observed_s, view.column_s) if len(view.observed_s) else view.column_s
    steps = np.cumsum(view.heat, axis=1, dtype=np.int64)
    steps = np.concatenate((np.zeros((columns, 1), dtype=np.int64), steps), axis=1)
    # The top line first.
    lows, highs = np.array([*bounds[-2:0:-1], 0]), np.array(bounds[:0:-1])
    level = _shades((steps[:, highs] - steps[:, lows]).T / seconds)
    in_flight = (where >= lows[:, None]) & (where < highs[:, None])
    letters = np.where(in_flight, "◆", np.where((level == 0) & marked, "▏", _LETTERS[level]))
    loud = lows[:, None] >= _slow_steps(view, columns)
    styles = np.where(in_flight, 3, np.where(level > 0, np.where(loud, 2, 1), 0))
    figures = _figures(view, lows, highs) if width >= _FIGURES_FROM else [""] * rows
    for label, line, figure in zip(labels, runs_of_rows(letters, styles, _STYLES), figures, strict=True):
        out.append([(f"{label:>{LABEL - 1}} │", "dim"), *line, (figure, "" if view.row.mark != "bad" else "bad")])
    return [*out, *below]


def _figures(view: FocusView, lows: NDArray[np.int64], highs: NDArray[np.int64]) -> list[str]:
    """The p50 of the last second beside its row."""
    p50_ns = view.row.p50_ns
    at = -1 if p50_ns is None else position(p50_ns, BINS)
    return [f" {short_duration(p50_ns)}" if low <= at < high else "" for low, high in zip(lows, highs, strict=True)]


def _gpu_lines(view: FocusView, width: int, height: int) -> list[Line]:
    """A row of blocks for each value of the GPU that is known, with its last figure; power where there is room."""
    out: list[Line] = []
    for values, (name, style, text, most) in zip(view.gpu, _GPU_ROWS, strict=True):
        known = values[np.isfinite(values)]
        if not len(known) or (name == "power" and height < _WITH_POWER):
            continue
        share = 100 * values / (most or max(float(known.max()), 1.0))
        steps = np.where(share >= 1, np.minimum(1 + share * len(BLOCKS[1:]) // 101, len(BLOCKS) - 1), 0)
        letters = "".join(BLOCKS[int(step)] if np.isfinite(step) else "·" for step in steps)
        figure = f" {text(float(known[-1]))}" if width >= _FIGURES_FROM else ""
        out.append([(f"{name:>{LABEL - 1}} │", "dim"), (letters, style), (figure, "")])
    return out


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


# Name, style, text of a figure, and the value of a full block (None: the largest one) of each of GPU_VALUES.
_GPU_ROWS: tuple[tuple[str, str, Callable[[float], str], float | None], ...] = (
    ("util", "heat", _percent, 100.0),
    ("SM act.", "live", _percent, 100.0),
    ("power", "dim", lambda watts: f"{watts:.0f} W", None),
)


def _time_axis(columns: int, span_s: float) -> Line:
    """Labels of quarters of the span, the newest moment at the right."""
    letters = [" "] * columns
    for quarter in range(4):
        at = columns * quarter // 4
        text = f"╵-{span_s * (4 - quarter) / 4:.0f} s"
        if at + len(text) < (columns * (quarter + 1) // 4 if quarter < 3 else columns - 5):
            letters[at : at + len(text)] = text
    if columns > len("now╵"):
        letters[-4:] = "now╵"
    return [(" " * (LABEL + 1), ""), ("".join(letters), "dim")]


def _shades(per_second: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for no call; 1 to 4 for up to 46, 215, 1000 calls per second, and more."""
    level = 1 + 1.5 * (np.log10(np.maximum(per_second, 1e-9)) - 1)
    return np.where(per_second > 0, np.clip(level, 1, len(SHADES) - 1), 0).astype(np.int64)


def _slow_steps(view: FocusView, columns: int) -> NDArray[np.int64]:
    """The step from which calls are slow, of each column by the baseline of its probe set; above all without one."""
    steps = np.full(columns, BINS if view.slow_ns is None else position(view.slow_ns, BINS), dtype=np.int64)
    earlier = view.earlier_slow_ns
    steps[: len(earlier)] = [BINS if np.isnan(ns) else position(float(ns), BINS) for ns in earlier]
    return steps


def _labels(rows: int, bounds: list[int]) -> list[str]:
    labels = [""] * rows
    for decade in range(DECADES):
        for number in range(rows):
            low, high = bounds[rows - 1 - number], bounds[rows - number]
            if low <= decade * PER_DECADE < high and not labels[number]:
                labels[number] = decade_label(decade)
    return labels


def _marks(view: FocusView, columns: int) -> Line:
    """The switches; where two texts would overlap, only the newer one's is written."""
    letters = [" "] * columns
    for column, label in reversed(view.marks):
        if not 0 <= column < columns:
            continue
        # Near the right edge the text is at the left of its stroke.
        left = column + display_width(label) + 1 > columns
        text, start = (label + "▏", column - display_width(label)) if left else ("▏" + label, column)
        places = by_column(text)
        if start < 0 or any(letter != " " for letter in letters[start : start + len(places) + 1]):
            places, start = ["▏" if letters[column] == " " else letters[column]], column
        letters[start : start + len(places)] = places
    return [("".join(letters), "accent")]
