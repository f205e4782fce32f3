"""The check as one block of symbols: a line for each aggressor, a letter for each victim, and the selected cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import ascii_letters, ascii_uppercase

from textual.reactive import var

from stallprobes.model import Phase
from stallscope.report.columns import display_width, padded, wrapped
from stallscope.report.matrix_block import LegendEntry
from stallscope.tui.common.histograms import histogram_lines, legend_runs
from stallscope.tui.common.lines import (
    Line,
    Run,
    Targets,
    WheelWidget,
    cut,
    fit,
    length,
    paragraph_lines,
    rule,
    shortened,
)
from stallscope.tui.common.plots import bar_lines, bars
from stallscope.tui.matrix.cell import CellSummary
from stallscope.tui.matrix.view_model import Key, symbol_style

# Smallest panel width (columns) with the selected cell's text at the right of the block of symbols. A cell is a victim
# beside an aggressor and has one symbol in the block. In a narrower panel, the text stands below the block.
_WIDE = 120
# Width (columns) of the selected cell's text at the right of the block of symbols.
_BESIDE = 52
# Largest width (columns) of the names of the aggressors.
_WIDEST_LABEL = 30
# Widths (columns) in the block of symbols. _STEP: width of a symbol with the blank before the symbol. _WORST: width of
# the highest ratio to the baseline, which follows each aggressor's symbols.
_STEP, _WORST = 2, 10
# Smallest number of matrix rows that get room on the screen before the legend and the histogram get any room.
_LEAST_ROWS = 6
# Smallest room (lines) for the selected cell's text at the right of the block of symbols with which the area below the
# block shows the whole explanation of the cell. With less room, or if rows of the block would not fit, this area shows
# only the cell's cause and remedy.
_CELL = 16
# Smallest room (lines) for the selected cell's text at the right of the block of symbols. With less room, the text
# stands below the block.
_LEAST_CELL = 8
# Heights (lines) of the area below the block of symbols, if the selected cell's figures are at the right of the block.
# _CAUSE: height for the cell's cause and remedy. _TEXT: height for the whole explanation of the cell.
_CAUSE, _TEXT = 3, 8
# Smallest number of free lines in which each measured time (call, wait, …) of the selected cell gets a plot, if the
# cell's text is below the block of symbols. With fewer free lines, one plot of one line shows the time with the worst
# verdict. At the right of the block, one line less is enough, and with fewer lines no plot is shown.
_LEAST_PLOTS = 6
# Letters that name the columns of the block of symbols: A to Z, a to z, then again from A.
_LETTERS = ascii_uppercase + ascii_letters[: len(ascii_uppercase)]


@dataclass(frozen=True)
class BlockView:
    """View of the block: ``rows`` are aggressors, ``columns`` victims; ``empty`` are the lines in their place.

    ``focus`` is the row and column of the selected cell, ``first`` of the upper left cell, both from 0. ``fresh`` is
    the aggressor that was measured last. ``symbols`` has the symbol of each cell with its style, ``worst`` the worst
    ratio beside each aggressor. ``rest`` names aggressors without a line, "" for none. ``entries`` is the legend.
    """

    title: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    focus: tuple[int, int] = (0, 0)
    first: tuple[int, int] = (0, 0)
    fresh: str | None = None
    symbols: Mapping[Key, Run] = field(default_factory=dict)
    worst: Mapping[str, str] = field(default_factory=dict)
    rest: str = ""
    entries: tuple[LegendEntry, ...] = ()
    cell: CellSummary | None = None

    def key(self, row: int, column: int) -> Key:
        """The victim and the aggressor of a cell."""
        return self.columns[column], self.rows[row]

    def layout(self, width: int, height: int) -> BlockLayout:
        """The layout in ``width`` columns and ``height`` lines."""
        return block_layout(self, width, height)


@dataclass(frozen=True)
class BlockLayout:
    """Layout of the block, and of what is around it.

    ``label`` is the width of the names of the aggressors, ``rows`` and ``columns`` are the numbers of visible ones.
    ``legend``, ``worst``: the legend and the worst ratios are shown. ``beside`` is the first column of the list of
    victims, 0 without one; ``wide``: the selected cell is below that list. ``below`` is the number of lines between
    block and legend.
    """

    label: int
    rows: int
    columns: int
    legend: bool
    worst: bool
    beside: int
    wide: bool
    below: int

    def clamped(self, view: BlockView, first: tuple[int, int]) -> tuple[int, int]:
        """``first`` limited to the existing rows and columns."""
        top = max(0, min(first[0], len(view.rows) - self.rows))
        left = max(0, min(first[1], len(view.columns) - self.columns))
        return top, left

    def first_with_focus(self, view: BlockView) -> tuple[int, int]:
        """The nearest upper left cell with which the selected cell is visible."""
        (row, column), (top, left) = view.focus, view.first
        top = min(max(top, row - self.rows + 1), row)
        left = min(max(left, column - self.columns + 1), column)
        return self.clamped(view, (top, left))


def block_layout(view: BlockView, width: int, height: int) -> BlockLayout:
    """Layout of ``view``. What does not fit is left out: the worst ratios, the list of victims, columns; and below the
    legend, the histogram, rows."""
    count = len(view.columns)
    label = min(max(map(display_width, view.rows), default=0) + 1, _WIDEST_LABEL, width // 3)
    wide = width >= _WIDE and height >= count + _LEAST_CELL + _CAUSE + 3
    listed = _BESIDE if wide else max(map(display_width, view.columns), default=0) + 6
    room = width - label - 1
    has_list = wide or _STEP * count + listed <= room
    worst = has_list and _STEP * count + listed + _WORST <= room
    columns = max(1, min(count, (room - (listed if has_list else 0)) // _STEP))
    beside = label + _STEP * columns + 1 + _WORST * worst + 2 if has_list else 0
    if wide:
        needed = max(2 + len(view.rows), 1 + count + _CELL)
        below = _TEXT if height - 1 - needed >= _TEXT else _CAUSE
        return BlockLayout(label, height - 3 - below, columns, True, worst, beside, wide, below)
    fixed = 2 + _cell_height(view.cell)
    spare = height - fixed - min(len(view.rows), _LEAST_ROWS)
    plotted = view.cell is not None and view.cell.plots is not None and spare > 0
    legend = spare > plotted
    rows = max(1, min(len(view.rows), height - fixed - plotted - legend))
    return BlockLayout(label, rows, columns, legend, worst, beside, wide, height - 2 - rows - legend)


def block_lines(view: BlockView, width: int, height: int) -> list[tuple[Targets, Line]]:
    """Lines of the block with the list of victims and the selected cell, and a legend; the targets are cells."""
    if view.empty:
        return [([], rule(view.title, width)), *(([], [(f" {text}", "")]) for text in view.empty)]
    at = view.layout(width, height)
    top, left = at.clamped(view, view.first)
    rows = range(top, min(top + at.rows, len(view.rows)))
    columns = range(left, min(left + at.columns, len(view.columns)))
    head: Line = [(" " * at.label, "")]
    for column in columns:
        head.append((f" {_LETTERS[column % len(_LETTERS)]}", "strong" if column == view.focus[1] else "dim"))
    block: list[tuple[Targets, Line]] = [([], _joined(head))]
    names = shortened(view.rows, at.label - 1)
    for row in rows:
        targets: Targets = [
            (at.label + _STEP * number, at.label + _STEP * (number + 1), view.key(row, column))
            for number, column in enumerate(columns)
        ]
        block.append((targets, _row(view, at, row, columns, names[row])))
    block += [([], [])] * (at.rows + 1 - len(rows))
    beside = _beside(view, at, width - at.beside, len(block)) if at.beside else [[]] * len(block)
    last = 1 + len(rows)
    block[last] = [], _rest(view, rows, columns, (at.beside if beside[last] else width) - 2)
    lines = zip(block, beside, strict=True)
    block = [(targets, [*fit(line, at.beside), *part] if part else line) for (targets, line), part in lines]
    below = _below(view, width, at)
    if at.legend:
        below = [*below[: at.below], *[[]] * (at.below - len(below)), _legend(view, width)]
    return [*block, *(([], line) for line in below)][:height]


def _row(view: BlockView, at: BlockLayout, row: int, columns: range, name: str) -> Line:
    focused = row == view.focus[0]
    style = "strong" if focused else "live" if view.rows[row] == view.fresh else ""
    line: Line = [("▸" if focused else " ", "accent"), (padded(name, at.label - 1), style)]
    for column in (*columns, columns.stop):
        chosen, behind = (focused and view.focus[1] == place for place in (column, column - 1))
        edge = "[" if chosen else "]" if behind and column > columns.start else " "
        line.append((edge, "accent"))
        if column in columns:
            line.append(view.symbols.get(view.key(row, column), (" ", "")))
    if at.worst:
        line.append((f"  {view.worst.get(view.rows[row], '')}", "dim"))
    return _joined(line)


def _joined(line: Line) -> Line:
    """``line`` with fewer runs: each costs time on the way to the terminal. A space has the style before it."""
    out: Line = []
    for text, style in line:
        if out and (style == out[-1][1] or (text == " " and out[-1][1] not in ("alarm", "better"))):
            out[-1] = (out[-1][0] + text, out[-1][1])
        else:
            out.append((text, "" if text == " " else style))
    return out


def _rest(view: BlockView, rows: range, columns: range, width: int) -> Line:
    """Text on invisible rows and columns, and on aggressors without a line."""
    hidden = (
        (rows.start, "↑ {} above"),
        (len(view.rows) - rows.stop, "↓ {} below"),
        (columns.start, "← {}"),
        (len(view.columns) - columns.stop, "→ {}"),
    )
    words = "  ".join(text.format(number) for number, text in hidden if number)
    return [(f" {cut('  '.join(filter(None, (words, view.rest))), width)}", "dim")]


def _beside(view: BlockView, at: BlockLayout, width: int, height: int) -> list[Line]:
    """The list of victims, and where it is wide the selected cell."""
    out: list[Line] = []
    for column, name in enumerate(view.columns):
        focused = column == view.focus[1]
        letter = f"{_LETTERS[column % len(_LETTERS)]} "
        mark: Run = ("▸", "accent") if focused else (" ", "")
        out.append([mark, (letter, "dim"), (name, "strong" if focused else "")])
    if len(out) < height:
        out.insert(0, [(f" {view.title}", "dim")])
    first = max(0, min(view.focus[1] - height // 2, len(out) - height))
    out = out[first : first + height]
    if at.wide and view.cell is not None:
        out += [[], *_cell(view.cell, width, height - len(out) - 1)]
    return [*out, *[[]] * (height - len(out))][:height]


def _below(view: BlockView, width: int, at: BlockLayout) -> list[Line]:
    """The selected cell; where it is beside the block, its cause and remedy, or all of its text where there is room."""
    cell = view.cell
    if cell is None:
        return []
    if not at.wide:
        letter = _LETTERS[view.focus[1] % len(_LETTERS)]
        return _narrow_cell(cell, width, at.below, letter)
    if at.below == _TEXT:
        return paragraph_lines(cell.paragraphs, width, at.below)
    return [rule("", width), *cell.explanation(width)]


def _title(cell: CellSummary, width: int, letter: str = "") -> Line:
    state = f" {cell.state} "
    title = rule(f"{letter} {cell.title}".lstrip(), width - display_width(state) - 3)
    return [*title, (state, cell.style), ("─" * 3, "faint")]


def _cell_height(cell: CellSummary | None) -> int:
    """Lines of the selected cell without a histogram: title, figures, cause, remedy."""
    return 0 if cell is None else 4


def _narrow_cell(cell: CellSummary, width: int, height: int, letter: str) -> list[Line]:
    figures: Line = [(" ", "")]
    for number, text in enumerate(cell.figures):
        if number == 0 or length(figures) + 3 + display_width(text) < width:
            figures.append((f"{'   ' if number else ''}{text}", "dim" if number else ""))
    out = [_title(cell, width, letter), figures]
    room = height - _cell_height(cell)
    if cell.plots is not None and room >= _LEAST_PLOTS:
        out += histogram_lines(cell.plots, width, room + 1)[1:]
    elif room > 0:
        out += _one_plot(cell, width)
    return [*out, *cell.explanation(width)][:height]


def _cell(cell: CellSummary, width: int, height: int) -> list[Line]:
    """The selected cell with the histograms of all phases."""
    figures = (part for text in cell.figures for part in wrapped(text, width - 2, indent="  "))
    out = [_title(cell, width), *([(f" {part}", "")] for part in figures)]
    elsewhere: list[Line] = [[(f" {cut(cell.elsewhere, width - 2)}", "dim")]] if cell.elsewhere else []
    room = height - len(out) - len(elsewhere)
    if cell.plots is not None and room >= _LEAST_PLOTS - 1:
        out += histogram_lines(cell.plots, width, room + 1)[1:]
    return [*out, *elsewhere][:height]


def _one_plot(cell: CellSummary, width: int) -> list[Line]:
    """The histogram of the judged phase in one line."""
    if cell.plots is None or not cell.plots.channels:
        return []
    channel = next((drawn for drawn in cell.plots.channels if drawn.phase is cell.judged), cell.plots.channels[0])
    legend: Line = [("  ", ""), *legend_runs([channel], cell.plots.now_text)]
    plot = max(10, width - 9 - length(legend))
    age_ns = cell.plots.row.in_flight_ns if channel.phase is Phase.CALL else None
    letters, styles = bars([channel.live], [channel.baseline], [age_ns], plot, 1)
    return [[(f"   {channel.phase.traits.word:<6}", "dim"), *bar_lines(letters[0], styles[0])[0], *legend]]


def _legend(view: BlockView, width: int) -> Line:
    """The symbols in use."""
    line = _legend_line(view, short=False)
    return line if length(line) <= width else _legend_line(view, short=True)


def _legend_line(view: BlockView, short: bool) -> Line:
    line: Line = [(" ", "")]
    begun = short
    for entry in view.entries:
        words = entry.ratios or entry.kind.look.word
        if entry.least is not None and short:
            words = f"×{entry.least:.0f}" if entry.least else "stalled"
        elif entry.least is not None and not begun:
            begun = True
            line.append((f"{entry.kind.look.word}: ", "dim"))
        line += [(entry.symbol, symbol_style(entry.symbol)), (f" {words}  ", "dim")]
    return line


class SymbolBlock(WheelWidget):
    """Draws the block. The target of a click is the victim and the aggressor of a cell; the wheel scrolls."""

    view = var(BlockView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Lines of the block."""
        drawn = block_lines(self.view, width, height)
        self.targets = [targets for targets, _ in drawn]
        return [line for _, line in drawn]
