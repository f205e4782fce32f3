"""The block of symbols of a check as text, with leader lines from the names of victims to their columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stallprobes.latency.ratio import Quantile
from stallprobes.matrix import findings
from stallprobes.matrix.matrix import CellKind, Status
from stallprobes.units import compact, duration_ns
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording
from stallscope.report.columns import by_column, cut_columns, display_width, name_parts, padded
from stallscope.report.matrix_block import MatrixBlock, legend, quiet_text, symbol, worst_cell
from stallscope.report.table import Run

if TYPE_CHECKING:
    from stallprobes.matrix.matrix import Matrix
    from stallscope.report.text import TextWriter

# Legend texts for symbols; for a kind that is not in this table, the legend shows the meaning of the kind.
_WORDS: dict[CellKind, str] = {
    VerdictKind.QUIET: "quiet",
    VerdictKind.STARVED: "STARVED: fewer than 3 calls returned in 0.5 s",
    Status.INVALID: "invalid",
    Status.UNSUPPORTED: "not supported",
}
# Width (columns) of a cell in the block of symbols: its symbol and one space.
_STEP = 2
# Largest width (columns) of the column of aggressors' names at the left of the symbols. A longer name has several
# lines.
_LONGEST_NAME = 30
# Width (columns) that is kept free at the right of the symbols for a row's worst ratio.
_RATIO = 7


def write(out: TextWriter, matrix: Matrix) -> None:
    """Write the block, or several where the victims need more columns, then its legend."""
    block = MatrixBlock.of(matrix)
    titles = [out.printed(name) for name in (*block.victims, *block.lines)]
    longest = max((display_width(title) + 2 for title in titles), default=0)
    names = min(longest, _LONGEST_NAME, out.width // 2)
    size = max((out.width - names - _RATIO) // _STEP, 1)
    parts = [block.victims[at : at + size] for at in range(0, len(block.victims), size)]
    for number, victims in enumerate(parts if block.lines else ()):
        if number:
            out.line()
        _block(out, matrix, victims, block.lines, names, whole=len(parts) == 1)
    if block.quiet:
        out.paragraph(quiet_text(matrix, block), indent="  ", first="")
    if block.unreached:
        out.paragraph(f"Not reached: {', '.join(block.unreached)}", indent="  ", first="")
    if block.aggressors:
        out.paragraph(_legend(out, matrix), style="dim")


def _block(
    out: TextWriter, matrix: Matrix, victims: Sequence[str], aggressors: Sequence[str], names: int, whole: bool
) -> None:
    places = [names + _STEP * number for number in range(len(victims))]
    for head in _heads([out.printed(name) for name in victims], places, out.width):
        out.line(head, "strong")
    worst = [_worst_texts(matrix, name) if whole else ("",) * 3 for name in aggressors]
    room = out.width - names - _STEP * len(victims) - 1
    # The longest text of all aggressors that fits, so that lines are alike.
    level = next((n for n in range(3) if all(display_width(texts[n]) <= room for texts in worst)), 3)
    for name, texts in zip(aggressors, worst, strict=True):
        first, *rest = name_parts(out.printed(name), names - 1)
        line: list[Run] = [(padded(first, names - 1), "")]
        for victim in victims:
            cell = matrix.cells[victim, name]
            kind = cell.shown_kind
            style = "" if kind is VerdictKind.QUIET else kind.look.style
            line += [(" ", ""), (symbol(cell, out.ascii), style)]
        out.runs([*line, (f"  {texts[level]}" if level < 3 and texts[level] else "", "dim")])
        for part in rest:
            out.line("  " + part)


def _heads(names: Sequence[str], places: Sequence[int], width: int) -> Iterator[str]:
    """Lines that lead from the names of columns to their ``places``: names of the first columns are on their left,
    names of the last columns on their right."""
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


def _worst_texts(matrix: Matrix, aggressor: str) -> tuple[str, str, str]:
    """The worst cell beside ``aggressor``: its figures, its ratio with phase and victim, its ratio and victim."""
    worst = worst_cell(matrix, aggressor)
    if worst is None:
        return ("",) * 3
    verdict = findings.verdicts(worst)[0]
    if worst.shown_kind is VerdictKind.STARVED or verdict.ratio is None:
        text = f"{worst.shown_kind.look.word} {worst.row}"
        return (f"{text}: {check_wording.worst_figure(worst)}", text, text)
    ratio = f"{'×' + compact(verdict.ratio):>5} "
    what = f"{check_wording.phase_name(verdict.phase)} {verdict.quantile}"
    if verdict.quantile is Quantile.IN_FLIGHT:
        what = "in flight"
    change = f"{duration_ns(verdict.baseline_ns)} → {duration_ns(verdict.now_ns)}"
    return f"{ratio}{worst.row} {what} {change}", f"{ratio}{worst.row} {what}", f"{ratio}{worst.row}"


def _legend(out: TextWriter, matrix: Matrix) -> str:
    parts: dict[CellKind, list[str]] = {}
    for entry in legend(matrix, out.ascii):
        kind = entry.kind
        words = entry.ratios or _WORDS.get(kind) or kind.look.meaning or kind.look.word
        parts.setdefault(kind, []).append(f"{entry.symbol} {words}")
    if VerdictKind.STALLED in parts:
        parts[VerdictKind.STALLED][0] = f"STALLED, by the ratio to the baseline: {parts[VerdictKind.STALLED][0]}"
    return "; ".join(", ".join(words) for words in parts.values())
