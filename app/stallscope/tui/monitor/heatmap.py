"""Time against latency for the focused probe, with a mark wherever something was switched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallprobes.live.history import BINS, DECADES, PER_DECADE, position
from stallprobes.live.view_model import FocusView
from stallprobes.model import Phase
from stallprobes.verdicts.rules import STALLED
from stallscope.tui.common.lines import SHADES, Drawn, Line, cut, rule, runs
from stallscope.tui.monitor.histograms import decade_words

LABEL = 8
_LETTERS = np.array(list(SHADES))
_STYLES = ("faint", "heat", "hot", "bad")


class HeatMap(Drawn):
    """Draws ``view``: the focused probe's last minute, the newest at the right."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view: FocusView | None = None
        self._drawn: object = None

    def redraw(self) -> None:
        """Draw again when a column is complete, or when it is another map."""
        view = self.view
        key = (
            self.size,
            view and (view.row.name, view.first, view.marks, view.channels and view.channels[0].quiet is None),
        )
        if key != self._drawn or not self._strips:
            self._drawn = key
            super().redraw()

    def lines(self, width: int, height: int) -> list[Line]:
        """A title, a line for the marks, and the map."""
        if self.view is None or height < 3:
            return []
        return heat_lines(self.view, width, height)

    @property
    def columns(self) -> int:
        """How many columns of time there is room for."""
        return max(1, self.size.width - LABEL - 1)


def heat_lines(view: FocusView, width: int, height: int) -> list[Line]:
    """The map in ``height`` lines: the fuller a cell, the more calls a second. Cells above three times the quiet p99
    are of another colour."""
    columns = len(view.heat)
    span = columns * view.column_s
    # What the title says holds for every panel width.
    title = f"time × latency of {cut(view.row.title, max(10, width - 60))}"
    out: list[Line] = [rule(title, width, f"last {span:.0f} s, {view.column_s:g} s a column")]
    rows = height - 2
    border = _border(view)
    out.append([(" " * LABEL + "│", "faint"), *_marks(view, columns)])
    # The axis has BINS steps; each line takes a stretch of them, the slowest calls at the top.
    bounds = [round(i * BINS / rows) for i in range(rows + 1)]
    labels = _labels(rows, bounds)
    marked = np.isin(np.arange(columns), [column for column, _ in view.marks])
    where = _positions(view)
    # Rates, not counts: a column that is not over yet, or was looked at late, is as full as its neighbours.
    looked = np.where(view.looked_s > 0, view.looked_s, view.column_s) if len(view.looked_s) else view.column_s
    for number in range(rows):
        low, high = bounds[rows - 1 - number], bounds[rows - number]
        level = _shades(view.heat[:, low:high].sum(axis=1, dtype=np.int64) / looked)
        aged = (where >= low) & (where < high)
        letters = np.where(aged, "◆", np.where((level == 0) & marked, "▏", _LETTERS[level]))
        loud = border is not None and low >= border
        styles = np.where(aged, 3, np.where(level > 0, 2 if loud else 1, 0))
        out.append([(f"{labels[number]:>{LABEL - 1}} │", "dim"), *runs(letters, styles, _STYLES)])
    return out


def _shades(per_second: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for no call, and 1 to 4 for up to 46, 215, 1000 calls a second, and more."""
    level = 1 + 1.5 * (np.log10(np.maximum(per_second, 1e-9)) - 1)
    return np.where(per_second > 0, np.clip(level, 1, len(SHADES) - 1), 0).astype(np.int64)


def _positions(view: FocusView) -> NDArray[np.int64]:
    """The step of each column's oldest call in flight, -1 where there is none."""
    where = np.full(len(view.ages_ns), -1, dtype=np.int64)
    for column in np.flatnonzero(view.ages_ns):
        where[column] = position(float(view.ages_ns[column]), BINS)
    return where


def _border(view: FocusView) -> int | None:
    """The step above which a call is a slow one: three times the quiet p99 of its slowest phase."""
    quiet = [
        channel.quiet.percentile(99)
        for channel in view.channels
        if channel.quiet is not None and not channel.label and channel.phase is not Phase.DUE
    ]
    known = [ns for ns in quiet if ns is not None]
    return position(STALLED * max(known), BINS) if known else None


def _labels(rows: int, bounds: list[int]) -> list[str]:
    labels = [""] * rows
    for decade in range(DECADES):
        for number in range(rows):
            low, high = bounds[rows - 1 - number], bounds[rows - number]
            if low <= decade * PER_DECADE < high and not labels[number]:
                labels[number] = decade_words(decade)
    # A label for every line is too many when there are few lines a decade.
    last = None
    for number in range(rows):
        if labels[number] and last is not None and number - last < 2:
            labels[number] = ""
        elif labels[number]:
            last = number
    return labels


def _marks(view: FocusView, columns: int) -> Line:
    """The switches in words, the newest first; where words would overlap, only the stroke is left."""
    letters = [" "] * columns
    for column, words in reversed(view.marks):
        if not 0 <= column < columns:
            continue
        # A mark at the right edge is written to its left, so that it can be read at once; the stroke stays in place.
        left = column + len(words) + 1 > columns
        text, start = (words + "▏", column - len(words)) if left else ("▏" + words, column)
        if start < 0 or any(letter != " " for letter in letters[start : start + len(text) + 1]):
            text, start = "▏" if letters[column] == " " else letters[column], column
        letters[start : start + len(text)] = list(text)
    return [("".join(letters), "accent")]
