"""The matrix of a check as one block of symbols: a line for each aggressor, a column for each victim, the worst first.

A symbol is a cell's kind, that of a stall also how long it is; it is readable without colour and in ASCII.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stallprobes.latency.ratio import Quantile
from stallprobes.matrix import findings
from stallprobes.matrix.matrix import QUIET, CellKind, Status
from stallprobes.units import compact, duration_ns
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording
from stallscope.report.columns import by_column, cut_columns, display_width, name_parts, padded
from stallscope.report.table import Run

if TYPE_CHECKING:
    from stallprobes.matrix.matrix import Cell, Matrix, MatrixColumn, MatrixRow
    from stallscope.report.text import TextWriter

# Symbols of a stall by its ratio to the baseline, the longest first.
_STALLS = ((1000.0, "█"), (100.0, "▓"), (10.0, "▒"), (0.0, "░"))
_SYMBOLS: dict[CellKind, str] = {
    VerdictKind.QUIET: "·",
    VerdictKind.STARVED: "X",
    Status.INVALID: "!",
    Status.UNSUPPORTED: "n",
    Status.MISSING: "-",
}
_WORDS: dict[CellKind, str] = {
    VerdictKind.QUIET: "quiet",
    VerdictKind.STARVED: "STARVED: fewer than 3 calls returned in 0.5 s",
    Status.INVALID: "invalid",
    Status.UNSUPPORTED: "not supported",
}
# Columns of a symbol and the space behind it.
_STEP = 2
_LONGEST_NAME = 30
# What is left of a block that is no cells: the worst ratio.
_RATIO = 7


def write(out: TextWriter, matrix: Matrix) -> None:
    """Write the block, or several where the victims need more columns, then its legend."""
    rows, columns = supported(matrix)
    quiet = quiet_columns(matrix, columns)
    unreached = [column.name for column in columns if _unreached(findings.column_cells(matrix, column.name))]
    loud = [column for column in columns if column.name not in quiet and column.name not in unreached]
    titles = [out.printed(name) for name in (*(row.name for row in rows), *(column.name for column in loud))]
    longest = max((display_width(title) + 2 for title in titles), default=0)
    names = min(longest, _LONGEST_NAME, out.width // 2)
    size = max((out.width - names - _RATIO) // _STEP, 1)
    blocks = [rows[at : at + size] for at in range(0, len(rows), size)]
    for number, block in enumerate(blocks if loud else ()):
        if number:
            out.line()
        _block(out, matrix, block, loud, names, whole=len(blocks) == 1)
    if quiet:
        bound = compact(max(quiet.values()))
        out.paragraph(f"Quiet for every victim, medians at most ×{bound}: {', '.join(quiet)}", indent="  ", first="")
    if unreached:
        out.paragraph(f"Not reached: {', '.join(unreached)}", indent="  ", first="")
    if columns:
        out.paragraph(_legend(out, matrix), style="dim")


def _unreached(cells: Sequence[Cell]) -> bool:
    return all(cell.status is Status.MISSING for cell in cells)


def supported(matrix: Matrix) -> tuple[list[MatrixRow], list[MatrixColumn]]:
    """The victims and aggressors that this machine supports at all, the worst first."""
    rows, columns = findings.victims(matrix), findings.aggressors(matrix)
    return (
        [one for one in rows if not findings.all_unsupported(findings.row_cells(matrix, one.name))],
        [one for one in columns if not findings.all_unsupported(findings.column_cells(matrix, one.name))],
    )


def quiet_columns(matrix: Matrix, columns: Sequence[MatrixColumn]) -> dict[str, float]:
    """The largest ratio of each aggressor that is quiet for every victim, by its name."""
    ratios = {one.name: findings.largest_quiet_ratio(findings.column_cells(matrix, one.name)) for one in columns}
    return {name: ratio for name, ratio in ratios.items() if ratio is not None}


def _block(
    out: TextWriter,
    matrix: Matrix,
    rows: Sequence[MatrixRow],
    columns: Sequence[MatrixColumn],
    names: int,
    whole: bool,
) -> None:
    places = [names + _STEP * number for number in range(len(rows))]
    for head in _heads([out.printed(row.name) for row in rows], places, out.width):
        out.line(head, "strong")
    worst = [_worst_texts(matrix, column) if whole else ("",) * 3 for column in columns]
    room = out.width - names - _STEP * len(rows) - 1
    # The longest text of all aggressors that fits, so that lines are alike.
    level = next((n for n in range(3) if all(display_width(texts[n]) <= room for texts in worst)), 3)
    for column, texts in zip(columns, worst, strict=True):
        first, *rest = name_parts(out.printed(column.name), names - 1)
        line: list[Run] = [(padded(first, names - 1), "")]
        for row in rows:
            symbol, style = _symbol(matrix.cells.get((row.name, column.name)))
            line += [(" ", ""), (_drawn(out, symbol), style)]
        out.runs([*line, (f"  {texts[level]}" if level < 3 and texts[level] else "", "dim")])
        for part in rest:
            out.line("  " + part)


def _heads(names: Sequence[str], places: Sequence[int], width: int) -> Iterator[str]:
    """Lines that lead from the names of columns to their ``places``: names of the first columns are on the left of
    them, those of the last ones on the right."""
    count = len(names)
    left = min(
        (
            number
            for number in range(count + 1)
            if all(
                place + 2 + display_width(name) <= width
                for name, place in zip(names[number:], places[number:], strict=True)
            )
        ),
        key=lambda number: max(number, count - number),
    )
    height = max(left, count - left)
    for line in range(height):
        letters = [" "] * (places[-1] + 1)
        # The columns whose names are in this line; the lines of those nearer to the middle come from above.
        before, behind = height - 1 - line, count - height + line
        for number, place in enumerate(places):
            if before < number < left or left <= number < behind:
                letters[place] = "│"
        if before < left:
            name = by_column(cut_columns(names[before], places[before] - 1))
            letters[places[before] - 1 - len(name) : places[before] + 1] = [*name, " ", "┐"]
        if behind >= left:
            letters[places[behind] :] = ["┌", " ", *by_column(names[behind])]
        yield "".join(letters).rstrip()


def _symbol(cell: Cell | None) -> Run:
    if cell is None:
        return " ", ""
    kind = findings.cell_kind(cell)
    style = "" if kind is VerdictKind.QUIET else kind.look.style
    if kind is VerdictKind.STALLED:
        ratio = _worst_ratio(cell)
        return next(symbol for least, symbol in _STALLS if ratio >= least), style
    return _symbol_of(kind), style


def _symbol_of(kind: CellKind) -> str:
    return _SYMBOLS.get(kind) or kind.look.letter or kind.look.word[0]


def _worst_ratio(cell: Cell) -> float:
    found = findings.verdicts(cell)
    return found[0].ratio or 0.0 if found else 0.0


def _worst_texts(matrix: Matrix, column: MatrixColumn) -> tuple[str, str, str]:
    """The worst cell beside ``column``: its figures, its ratio with phase and victim, its ratio and victim."""
    cells = findings.column_cells(matrix, column.name)
    measured = [cell for cell in cells if cell.status.measured and findings.verdicts(cell)]
    if not measured:
        return ("",) * 3
    worst = max(measured, key=lambda cell: findings.verdicts(cell)[0].weight)
    verdict = findings.verdicts(worst)[0]
    if findings.cell_kind(worst) is VerdictKind.STARVED or verdict.ratio is None:
        text = f"{findings.cell_kind(worst).look.word} {worst.row}"
        return (f"{text}: {check_wording.worst_figure(worst)}", text, text)
    ratio = f"{'×' + compact(verdict.ratio):>5} "
    what = f"{check_wording.phase_name(verdict.phase)} {verdict.quantile}"
    if verdict.quantile is Quantile.IN_FLIGHT:
        what = "in flight"
    change = f"{duration_ns(verdict.baseline_ns)} → {duration_ns(verdict.now_ns)}"
    return f"{ratio}{worst.row} {what} {change}", f"{ratio}{worst.row} {what}", f"{ratio}{worst.row}"


def _drawn(out: TextWriter, symbol: str) -> str:
    # In ASCII a middle dot would be the mark of what was not reached.
    return "." if out.ascii and symbol == _SYMBOLS[VerdictKind.QUIET] else symbol


def _legend(out: TextWriter, matrix: Matrix) -> str:
    present = findings.counts(matrix)
    parts = []
    for kind in findings.KIND_ORDER:
        if kind not in present:
            continue
        if kind is VerdictKind.STALLED:
            used = {_symbol(cell)[0] for cell in matrix.cells.values() if cell.column != QUIET}
            steps = [
                f"{symbol} {f'from ×{least:.0f}' if least else f'below ×{_STALLS[-2][0]:.0f}'}"
                for least, symbol in _STALLS
                if symbol in used
            ]
            parts.append(f"STALLED, by the ratio to the baseline: {', '.join(steps)}")
        else:
            parts.append(f"{_drawn(out, _symbol_of(kind))} {_WORDS.get(kind) or kind.look.meaning or kind.look.word}")
    return "; ".join(parts)
