"""The heat map: latency over time of the focused probe, with a mark at each switch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from textual.reactive import var

from stallprobes.live.history import BINS, DECADES, PER_DECADE, position
from stallprobes.live.view_model import FocusView
from stallprobes.model import Phase
from stallprobes.verdicts.evidence import STALLED
from stallscope.report.columns import by_column, display_width
from stallscope.tui.common.lines import SHADES, Line, LineWidget, cut, rule, runs_of_rows
from stallscope.tui.common.plots import decade_label

LABEL = 8
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

    def watch_view(self, before: HeatMapView, after: HeatMapView) -> None:
        """Draw when a column is complete, and when anything but its counts changed."""
        if before.focus is None or after.focus is None or _drawn_once(before) != _drawn_once(after):
            self.redraw()

    def lines(self, width: int, height: int) -> list[Line]:
        """A title, a line for the marks, and the map."""
        if self.view.focus is None or height < 3:
            return []
        return heat_lines(self.view.focus, width, height, self.view.notes)

    @property
    def columns(self) -> int:
        """Number of columns of the time axis."""
        return max(1, self.size.width - LABEL - 1)


def _drawn_once(view: HeatMapView) -> object:
    """What differs where the map is drawn again."""
    focus = view.focus
    if focus is None:
        return None
    return focus.row.name, focus.first, focus.marks, focus.channels and focus.channels[0].baseline is None, view.notes


def heat_lines(view: FocusView, width: int, height: int, notes: tuple[str, ...] = ()) -> list[Line]:
    """The map in ``height`` lines: darker cells have more calls per second. Cells above three times the baseline's p99
    have another color. The first of ``notes`` that fits follows the title."""
    columns = len(view.heat)
    span = columns * view.column_s
    title = f"time × latency of {cut(view.row.name, max(10, width - 60))}"
    scale = f"last {span:.0f} s, {view.column_s:g} s per column"
    # Eight columns of the rule stay.
    room = width - display_width(title) - display_width(scale) - 16
    note = next((f", {note}" for note in notes if display_width(note) + 2 <= room), "")
    out: list[Line] = [rule(title + note, width, scale)]
    rows = height - 2
    slow = _slow_step(view)
    out.append([(" " * LABEL + "│", "faint"), *_marks(view, columns)])
    # Each line shows several of the axis's BINS steps, the slowest calls at the top.
    bounds = [round(i * BINS / rows) for i in range(rows + 1)]
    labels = _labels(rows, bounds)
    marked = np.isin(np.arange(columns), [column for column, _ in view.marks])
    # The step of each column's oldest call in flight.
    where = np.array([position(float(ns), BINS) if ns else -1 for ns in view.ages_ns], dtype=np.int64)
    # Rates, not counts: a column in progress, or observed for part of its time, is as dark as its neighbors.
    seconds = np.where(view.observed_s > 0, view.observed_s, view.column_s) if len(view.observed_s) else view.column_s
    steps = np.cumsum(view.heat, axis=1, dtype=np.int64)
    steps = np.concatenate((np.zeros((columns, 1), dtype=np.int64), steps), axis=1)
    # The top line first.
    lows, highs = np.array(bounds[-2::-1]), np.array(bounds[:0:-1])
    level = _shades((steps[:, highs] - steps[:, lows]).T / seconds)
    in_flight = (where >= lows[:, None]) & (where < highs[:, None])
    letters = np.where(in_flight, "◆", np.where((level == 0) & marked, "▏", _LETTERS[level]))
    loud = (lows >= slow) if slow is not None else np.zeros(rows, dtype=bool)
    styles = np.where(in_flight, 3, np.where(level > 0, np.where(loud, 2, 1)[:, None], 0))
    for label, line in zip(labels, runs_of_rows(letters, styles, _STYLES), strict=True):
        out.append([(f"{label:>{LABEL - 1}} │", "dim"), *line])
    return out


def _shades(per_second: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for no call; 1 to 4 for up to 46, 215, 1000 calls per second, and more."""
    level = 1 + 1.5 * (np.log10(np.maximum(per_second, 1e-9)) - 1)
    return np.where(per_second > 0, np.clip(level, 1, len(SHADES) - 1), 0).astype(np.int64)


def _slow_step(view: FocusView) -> int | None:
    """The step from which calls are slow: three times the baseline's p99 of its slowest phase; None without one."""
    tails = [
        channel.baseline.percentile(99)
        for channel in view.channels
        if channel.baseline is not None and not channel.label and channel.phase is not Phase.DUE
    ]
    known = [ns for ns in tails if ns is not None]
    return position(STALLED * max(known), BINS) if known else None


def _labels(rows: int, bounds: list[int]) -> list[str]:
    labels = [""] * rows
    for decade in range(DECADES):
        for number in range(rows):
            low, high = bounds[rows - 1 - number], bounds[rows - number]
            if low <= decade * PER_DECADE < high and not labels[number]:
                labels[number] = decade_label(decade)
    # Labels on adjacent lines are hard to read.
    last = None
    for number in range(rows):
        if labels[number] and last is not None and number - last < 2:
            labels[number] = ""
        elif labels[number]:
            last = number
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
