"""Panels of the matrix screen: grid of victims and aggressors, and the text of the selected cell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from textual.reactive import var

from stallprobes.matrix.matrix import Status
from stallscope.report.columns import cut_columns, display_width, padded
from stallscope.tui.common.lines import (
    Line,
    Targets,
    WheelWidget,
    cut,
    rule,
    shortened,
)
from stallscope.tui.matrix.view_model import CellLabel, Key

# CELL, WIDEST_CELL: smallest and largest width (columns) of a cell (a victim beside an aggressor) in the table.
CELL, WIDEST_CELL = 9, 12
# LABEL, WIDEST_LABEL: smallest and largest width (columns) of the names of the rows.
LABEL, WIDEST_LABEL = 12, 30
# Largest number of lines for the names above the columns of the matrix.
HEAD_LINES = 4
# Smallest width (columns) to which the title of the grid is cut.
_SHORTEST_TITLE = 10
# Width (columns) of the word "call" or "wait" with a blank after a row label, if call and wait have a line each.
_PHASE_WIDTH = 5
# Label of a cell that was not measured.
_NO_CELL = CellLabel(Status.MISSING.look.mark, Status.MISSING.look.style)
# Piece of a probe's name. In a column's head, a line break is allowed between two pieces.
_PIECES = re.compile(r"[^-+@/]*[-+/]?|@[^-+@/]*[-+/]?")


@dataclass(frozen=True)
class GridView:
    """View of the grid. ``labels`` has for each (row, column) the cell in one line, its call and its wait.

    ``focus`` is the row and column of the selected cell, ``first`` of the upper left cell, both from 0. The first
    ``pinned`` columns do not scroll. ``fresh`` is the column that was measured last. ``parts`` are the names of a row's
    two lines, where there is room for two. ``legend`` explains marks and words; ``empty`` replaces missing rows.
    """

    title: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    labels: Mapping[tuple[str, str], tuple[CellLabel, CellLabel, CellLabel]] = field(default_factory=dict)
    focus: tuple[int, int] = (0, 0)
    first: tuple[int, int] = (0, 0)
    pinned: int = 1
    fresh: str | None = None
    parts: tuple[str, str] = ("call", "wait")
    legend: tuple[tuple[str, str], ...] = ()
    empty: tuple[str, ...] = ()

    def key(self, row: int, column: int) -> Key:
        """The key of a cell."""
        return self.rows[row], self.columns[column]

    def layout(self, width: int, height: int) -> GridLayout:
        """The layout in ``width`` columns and ``height`` lines."""
        return grid_layout(self, width, height)

    def drawn(self, width: int, height: int) -> list[tuple[Targets, Line]]:
        """The lines, each with its targets."""
        return grid_lines(self, width, height)


@dataclass(frozen=True)
class GridLayout:
    """Widths and heights in characters, and the number of visible rows and columns.

    ``columns`` does not count the pinned ones. ``each`` is the number of lines of a row.
    """

    label: int
    cell: int
    head: int
    each: int
    rows: int
    columns: int
    legend: bool

    def clamped(self, view: GridView, first: tuple[int, int]) -> tuple[int, int]:
        """``first`` limited to the existing rows and columns."""
        top = max(0, min(first[0], len(view.rows) - self.rows))
        left = max(0, min(first[1], len(view.columns) - view.pinned - self.columns))
        return top, left

    def first_with_focus(self, view: GridView) -> tuple[int, int]:
        """The nearest upper left cell with which the selected cell is visible."""
        row, column = view.focus
        top, left = view.first
        top = min(max(top, row - self.rows + 1), row)
        if column >= view.pinned:
            inner = column - view.pinned
            left = min(max(left, inner - self.columns + 1), inner)
        return self.clamped(view, (top, left))


def grid_layout(view: GridView, width: int, height: int) -> GridLayout:
    """Layout of ``view`` in ``width`` columns and ``height`` lines. Call and wait have a line each if that fits."""
    longest = max((display_width(name) for name in view.rows), default=0) + 2
    label = max(LABEL, min(longest, WIDEST_LABEL, width // 3))
    several = max(1, len(view.columns))
    cell = max(CELL, min(WIDEST_CELL, (width - label - _PHASE_WIDTH) // several))
    head = max((len(_folded(name, cell - 1)) for name in view.columns), default=1)
    head = min(head, HEAD_LINES, max(2, height - 2 - len(view.rows)))
    legend = height >= head + 6
    room = height - 1 - head - legend
    each = 2 if 2 * len(view.rows) <= room else 1
    if each == 2:
        label += _PHASE_WIDTH
    pinned = min(view.pinned, len(view.columns))
    columns = max(1, (width - label) // cell - pinned)
    return GridLayout(label, cell, head, each, max(1, room // each), columns, legend)


def grid_lines(view: GridView, width: int, height: int) -> list[tuple[Targets, Line]]:
    """Lines of the grid: title with the visible part, column names, rows, legend; the targets are cells."""
    if height < 3:
        return []
    if not view.rows:
        return [([], rule(view.title, width)), *(([], [(f" {text}", "")]) for text in view.empty)]
    at = grid_layout(view, width, height)
    top, left = at.clamped(view, view.first)
    rows = range(top, min(top + at.rows, len(view.rows)))
    pinned = min(view.pinned, len(view.columns))
    inner = range(pinned + left, min(pinned + left + at.columns, len(view.columns)))
    columns = [*range(pinned), *inner]
    part = _visible_part(view, rows, inner, pinned)
    # What is not visible matters more than the end of the title.
    title = cut(view.title, max(_SHORTEST_TITLE, width - len(part) - 9)) if part else view.title
    out: list[tuple[Targets, Line]] = [([], rule(title, width, part))]
    heads = _heads(view.columns, at.cell - 1, at.head)
    for number in range(at.head):
        line: Line = [(" " * at.label, "")]
        for column in columns:
            text = heads[column][number]
            line.append((" " + padded(text, at.cell - 1, right=True), _head_style(view, column)))
        out.append(([], line))
    starts = range(at.label, at.label + len(columns) * at.cell, at.cell)
    for row in rows:
        keys = [(view.rows[row], view.columns[column]) for column in columns]
        targets: Targets = [(start, start + at.cell, key) for start, key in zip(starts, keys, strict=True)]
        out += [(targets, line) for line in _row(view, row, columns, at)]
    if at.legend:
        texts = [text for _, line in out[1 + at.head :] for text, _ in line]
        out.append(([], _legend(view, width, at.each, texts)))
    return out


def _row(view: GridView, row: int, columns: Sequence[int], at: GridLayout) -> list[Line]:
    name, out = view.rows[row], []
    focused = row == view.focus[0]
    for number in range(at.each):
        phase = f"{view.parts[number]} " if at.each == 2 else ""
        room = at.label - 1 - len(phase)
        text = _row_labels(view.rows, room)[row] if number == 0 else ""
        line: Line = [
            ("▸" if focused and number == 0 else " ", "accent"),
            (padded(text, room), "strong" if focused else ""),
            (phase, "faint"),
        ]
        for column in columns:
            key = (name, view.columns[column])
            single, call, wait = view.labels.get(key, (_NO_CELL,) * 3)
            label = single if at.each == 1 else (call, wait)[number]
            chosen = focused and column == view.focus[1]
            style = (f"focus-{label.style}" if label.style in _FOCUSED else "focus") if chosen else label.style
            edge = "▸" if chosen and number == 0 else " "
            line += [(edge, "accent"), (f"{cut(label.text, at.cell - 1):>{at.cell - 1}}", style)]
        out.append(line)
    return out


@lru_cache(8)
def _row_labels(names: tuple[str, ...], width: int) -> list[str]:
    return shortened(names, width)


# Styles of cells that have a variant "focus-STYLE" for the selected cell; the others use "focus".
_FOCUSED = ("good", "warn", "bad", "dim")


def _visible_part(view: GridView, rows: range, inner: range, pinned: int) -> str:
    """The visible rows and columns, "" for all."""
    words = []
    if len(rows) < len(view.rows):
        words.append(f"rows {rows.start + 1}–{rows.stop} of {len(view.rows)}")
    if len(inner) + pinned < len(view.columns):
        words.append(f"columns {inner.start + 1}–{inner.stop} of {len(view.columns)}")
    return ", ".join(words)


def _folded(name: str, width: int) -> list[str]:
    """A name in lines of ``width``, broken after hyphens and before its context and stream."""
    out = [""]
    for piece in (piece for piece in _PIECES.findall(name) if piece):
        if out[-1] and display_width(out[-1] + piece) > width:
            out.append("")
        if display_width(piece) > width + 1:
            piece = cut(piece, width)
        out[-1] += piece
        if display_width(out[-1]) > width:
            # Only the separator of the next piece does not fit.
            head = cut_columns(out[-1], width)
            out[-1:] = [head, out[-1][len(head) :]]
    return out


@lru_cache(8)
def _heads(names: tuple[str, ...], width: int, lines: int) -> list[list[str]]:
    """Each name in ``lines`` lines of ``width``, aligned to the bottom; different names are never drawn alike."""
    heads = [_head(name, width, lines) for name in names]
    short = shortened(names, width * lines)
    for number, head in enumerate(heads):
        if heads.count(head) > 1:
            text = short[number]
            chunks = [text[at : at + width] for at in range(0, len(text), width)]
            heads[number] = [*[""] * (lines - len(chunks)), *chunks]
    return heads


def _head(name: str, width: int, lines: int) -> list[str]:
    """A name folded into ``lines`` lines of ``width``, cut where it needs more."""
    folded = _folded(name, width)
    if len(folded) > lines:
        return [cut(text, width) for text in (*folded[: lines - 1], "".join(folded[lines - 1 :]))]
    return [*[""] * (lines - len(folded)), *folded]


def _head_style(view: GridView, column: int) -> str:
    if column == view.focus[1]:
        return "strong"
    return "live" if view.columns[column] == view.fresh else "dim"


def _legend(view: GridView, width: int, each: int, drawn: Sequence[str]) -> Line:
    """As much of the legend as fits; where not all does, rather what occurs in the ``drawn`` texts of the cells.

    With one line per row also the letters of call and wait.
    """

    def is_seen(entry: tuple[str, str]) -> bool:
        return entry in letters or any(_ends_with_mark(text, entry[0]) for text in drawn)

    letters = () if each == 2 and view.parts[0] else (("c", "call"), ("w", "wait"))
    entries, room, fitting = (*letters, *view.legend), width - 1, set()
    for entry in sorted(entries, key=is_seen, reverse=True):
        needed = len(entry[0]) + len(entry[1]) + 3
        if needed <= room:
            room -= needed
            fitting.add(entry)
    line: Line = [(" ", "")]
    for mark, words in (entry for entry in entries if entry in fitting):
        line += [(mark, "key"), (f" {words}  ", "dim")]
    return line


def _ends_with_mark(text: str, mark: str) -> bool:
    """True if a cell's text ends with a mark, which is not the end of a longer one such as ``!!``."""
    text = text.rstrip()
    return text.endswith(mark) and not text.removesuffix(mark).endswith(mark)


class Grid(WheelWidget):
    """Draws the grid. The target of a click is the row and column of a cell; the wheel scrolls."""

    view = var[GridView](GridView(""))

    def lines(self, width: int, height: int) -> list[Line]:
        """Lines of the grid."""
        drawn = self.view.drawn(width, height)
        self.targets = [targets for targets, _ in drawn]
        return [line for _, line in drawn]
