"""Text report of an interference matrix: headline, matrix, and one line per cause; with ``full`` every finding.

Aggressors are lines and victims columns, the worst first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from stallprobes.matrix import findings
from stallprobes.matrix.matrix import PHASES, QUIET, CellKind, Status
from stallprobes.units import plural, three
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording, comparison_wording, reference_wording
from stallprobes.wording.headline import Headline
from stallprobes.wording.timeline_wording import timeline_text
from stallscope.report import comparison_text
from stallscope.report.columns import cut_columns, display_width, padded
from stallscope.report.text import TableCell, TableColumn, TextWriter

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison
    from stallprobes.matrix.matrix import Cell, Matrix, MatrixRow
    from stallprobes.matrix.reference import ReferenceComparison
    from stallprobes.model import Phase

# Number of victims of one aggressor whose figures are all in the findings; the matrix has those of the others.
_VICTIMS_IN_FULL = 2
# Number of unusual cells of each kind in a report that is not full.
_UNUSUAL_CELLS = 6
_NAME_WIDTH = 22
_HEAD_WIDTH = 10
_GAP = 2
# Causes are a table where so many columns are left for the remedy.
_REMEDY_WIDTH = 50
_BASELINE = "baseline, µs"

# A cell of the matrix as that of a table.
_ShownCell = Callable[["Cell | None"], TableCell]


def show(
    out: TextWriter,
    matrix: Matrix,
    hosts: Sequence[str] = (),
    *,
    comparison: Comparison | None = None,
    regressions: Sequence[CellChange] = (),
    reference: ReferenceComparison | None = None,
    full: bool = False,
) -> None:
    """The report of a check.

    ``hosts`` are sentences on the hosts of a merged matrix. ``comparison`` is one whose newer side is ``matrix``,
    ``reference`` the comparison with a reference. ``full`` adds every finding, the reasons of cells that were not
    measured, and the fingerprint.
    """
    out.paragraph(check_wording.check_title(matrix), style="strong")
    comparison_text.headline(out, Headline.of(matrix, comparison, reference))
    if full:
        out.paragraph(check_wording.kind_counts(matrix))
    out.section("About the hosts", hosts)
    if comparison is not None:
        out.line()
        comparison_text.machines(out, comparison)
        out.line()
        comparison_text.differences(out, comparison)
        comparison_text.changes(out, comparison, regressions)
    if reference is not None:
        _unusual(out, reference, full)
    out.line()
    _matrix(out, matrix)
    if full:
        _findings(out, matrix)
        _unmeasured(out, matrix)
        out.line()
        machine(out, matrix)
    else:
        _causes(out, matrix)
    out.note(check_wording.variation(matrix))
    out.note(timeline_text(matrix.timeline_summary))


def machine(out: TextWriter, matrix: Matrix) -> None:
    """The fingerprint, and the hosts of a merged matrix."""
    items = " · ".join(f"{key} {value}" for key, value in check_wording.fingerprint_items(matrix.fingerprint))
    out.paragraph(items or "nothing is known of the machine", indent="  ", first="machine: ", style="dim")
    for name, one in matrix.hosts.items():
        known = [str(one[key]) for key in ("gpu", "driver", "uuid") if one.get(key)]
        out.paragraph(" · ".join([name, *known]), indent="    ", first="  ", style="dim")


def _unusual(out: TextWriter, found: ReferenceComparison, full: bool) -> None:
    """The cells that differ from the reference, by column; without ``full`` the clearest ones, if there are any."""
    groups = reference_wording.unusual_groups(found)
    if not groups and not full:
        return
    out.line()
    out.line(reference_wording.REFERENCE_TITLE, "strong")
    out.paragraph(f"reference: {reference_wording.reference_title(found.reference)}", indent="    ", first="  ")
    for title, cells in groups:
        out.paragraph(f"{title}: {plural(len(cells), 'cell')}", indent="    ", first="  ")
        named = cells if full else cells[:_UNUSUAL_CELLS]
        places = ((f"{cell.row} {reference_wording.unusual_figures(cell)}", cell.column) for cell in named)
        for text in comparison_wording.places_by_column(places, "; "):
            out.paragraph(text, indent="      ", first="    ")
        if len(named) < len(cells):
            out.paragraph(f"and {plural(len(cells) - len(named), 'more cell')}: see --full", indent="    ")
    notes = reference_wording.reference_notes(found)
    out.paragraph(" ".join(notes), indent="  ", style="dim")


def _matrix(out: TextWriter, matrix: Matrix) -> None:
    simulated = f", SIMULATED {matrix.profile or 'GPU'}" if matrix.simulated else ""
    out.paragraph(f"{check_wording.MATRIX_TITLE}{simulated}", style="strong")
    # What this machine does not support is counted below.
    rows = [
        row for row in findings.victims(matrix) if not findings.all_unsupported(findings.row_cells(matrix, row.name))
    ]
    columns = [
        column
        for column in findings.aggressors(matrix)
        if not findings.all_unsupported(findings.column_cells(matrix, column.name))
    ]
    names = max((display_width(part) for column in columns for part in folded(column.name, _NAME_WIDTH)), default=0)
    names = max(names, len(_BASELINE))
    # Composed at its first use: the width of a cell decides on the blocks.
    shown = cache(_cell)
    blocks = _blocks(matrix, rows, shown, out.width - names)
    several = columns if len(blocks) > 1 else ()
    ratios = {one.name: findings.largest_quiet_ratio(findings.column_cells(matrix, one.name)) for one in several}
    quiet = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    for number, block in enumerate(blocks):
        if number:
            out.line()
        _block(out, matrix, block, [column.name for column in columns if column.name not in quiet], shown, names)
    if quiet:
        out.line()
        bound = short(max(quiet.values()))
        out.paragraph(f"Quiet for every victim, medians at most ×{bound}: {', '.join(quiet)}", "  ", "")
    out.note(" · ".join(_legend(matrix, shown)))


def _block(
    out: TextWriter,
    matrix: Matrix,
    block: Sequence[MatrixRow],
    columns: Sequence[str],
    shown: _ShownCell,
    names: int,
) -> None:
    lines = _heads(block)
    if findings.has_quiet(matrix):
        quiet = [TableCell(_baseline(matrix.cells.get((row.name, QUIET))), "dim") for row in block]
        lines.append([TableCell(_BASELINE, "dim"), *quiet])
    for name in columns:
        first, *rest = folded(name, _NAME_WIDTH)
        lines.append([padded(first, names), *(shown(matrix.cells.get((row.name, name))) for row in block)])
        lines += [["  " + part, *[""] * len(block)] for part in rest]
    out.table([TableColumn(""), *(TableColumn("", right=True) for _ in block)], lines)


def _legend(matrix: Matrix, shown: _ShownCell) -> list[str]:
    present = findings.counts(matrix)
    legend = [
        f"{kind.look.letter or kind.look.word} {kind.look.meaning or kind.look.word}"
        for kind in findings.KIND_ORDER
        if kind in present and kind is not VerdictKind.QUIET and kind is not Status.INVALID
    ]
    texts = "".join(shown(cell).text for cell in matrix.cells.values())
    marks = [f"{mark} {meaning}" for mark, meaning in findings.PERCENTILE_MARKS.items() if mark in texts]
    return [*legend, *([f"figures are medians except {', '.join(marks)}"] if marks else [])]


def _blocks(matrix: Matrix, rows: Sequence[MatrixRow], shown: _ShownCell, room: int) -> list[list[MatrixRow]]:
    """The victims in blocks that fit into ``room`` columns."""
    blocks: list[list[MatrixRow]] = []
    left = 0
    for row in rows:
        texts = [shown(cell).text for cell in matrix.cells.values() if cell.row == row.name and cell.column != QUIET]
        texts += [_baseline(matrix.cells.get((row.name, QUIET))), *folded(row.name, _HEAD_WIDTH)]
        width = max(display_width(text) for text in texts) + _GAP
        if not blocks or width > left:
            blocks.append([])
            left = room
        blocks[-1].append(row)
        left -= width
    return blocks


def _heads(block: Sequence[MatrixRow]) -> list[list[TableCell | str]]:
    # Aligned to the bottom, so that short names are right above their figures.
    upward = zip_longest(*(reversed(folded(row.name, _HEAD_WIDTH)) for row in block), fillvalue="")
    lines: list[list[TableCell | str]] = [["", *(TableCell(part, "strong") for part in parts)] for parts in upward]
    lines[0][0] = "beside"
    return lines[::-1]


def _cell(cell: Cell | None) -> TableCell:
    if cell is None:
        return TableCell("")
    kind = findings.cell_kind(cell)
    style = _style(kind)
    if not _has_figures(kind):
        return TableCell(f"{kind.look.letter or kind.look.word}  ", style)
    letter = kind.look.letter
    if cell.column == QUIET:
        return TableCell(letter, style)
    return TableCell("/".join(_ratio(cell, phase) for phase in PHASES) + (f" {letter}" if letter else "  "), style)


def _has_figures(kind: CellKind) -> bool:
    """Whether cells of ``kind`` show figures; the others show a word."""
    return isinstance(kind, VerdictKind) and kind is not VerdictKind.STARVED


def _style(kind: CellKind) -> str:
    return "" if kind is VerdictKind.QUIET else kind.look.style


def _ratio(cell: Cell, phase: Phase) -> str:
    shown = findings.shown(cell, phase)
    return "–" if shown is None else short(shown.ratio) + shown.mark


def _baseline(cell: Cell | None) -> str:
    """Medians of call and wait in µs with no aggressor running."""
    if cell is None:
        return ""
    kind = findings.cell_kind(cell)
    if not _has_figures(kind):
        return f"{kind.look.letter or kind.look.word}  "
    medians = check_wording.baseline_medians_ns(cell)
    return "/".join("–" if ns is None else short(ns / 1000) for ns in medians) + "  "


def _causes(out: TextWriter, matrix: Matrix) -> None:
    """One line per cause: its kind, its worst case, and its remedy."""
    unmeasured = check_wording.unmeasured_count(matrix)
    rows = [
        (
            TableCell(group.kind.look.word, _style(group.kind)),
            check_wording.worst_case(group),
            group.remedy or check_wording.NO_CAUSE,
        )
        for group in findings.groups(matrix)
    ]
    if rows:
        out.line()
        out.line(check_wording.CAUSES_TITLE, "strong")
    columns = [TableColumn("")] * 3
    if rows and out.natural_width(columns[:2], [row[:2] for row in rows]) + _REMEDY_WIDTH <= out.width:
        out.table(columns, rows)
    else:
        for kind, case, remedy in rows:
            out.paragraph(f"{case}. {remedy}", indent="  ", first=f"{kind.text}  ", style=kind.style)
    if rows or unmeasured:
        out.line()
    if unmeasured:
        out.paragraph(f"{unmeasured}: see --full for the reasons.", style="dim")
    if rows:
        out.paragraph("--full explains each cause and lists every victim.", style="dim")


def _findings(out: TextWriter, matrix: Matrix) -> None:
    groups = findings.groups(matrix)
    if not groups:
        return
    out.line()
    out.line("Findings", "strong")
    for group in groups:
        out.line()
        out.paragraph(
            group.cause or check_wording.NO_CAUSE,
            indent="  ",
            first=f"{group.kind.look.word}: ",
            style=_style(group.kind),
        )
        for name, cells in group.columns:
            where = "alone" if name == QUIET else f"beside {name}"
            text = "; ".join(f"{cell.row} {check_wording.figures(cell)}" for cell in cells[:_VICTIMS_IN_FULL])
            rest = ", ".join(f"{cell.row} {check_wording.short_figure(cell)}" for cell in cells[_VICTIMS_IN_FULL:])
            text += f"; also {rest}" if rest else ""
            out.paragraph(f"{where}: {text}", indent="    ", first="  ")
        if group.remedy:
            out.paragraph(f"Remedy: {group.remedy}", indent="  ", first="  ", style="dim")


def _unmeasured(out: TextWriter, matrix: Matrix) -> None:
    for status, title in check_wording.UNMEASURED_TITLES.items():
        reasons = findings.reasons(matrix, status)
        out.section(title, (f"{', '.join(places)}: {reason}" for reason, places in reasons))


def short(value: float) -> str:
    """``value`` in at most four characters: ``1.0``, ``427``, ``2.3k``, ``14k``."""
    for size, unit in ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")):
        if value < 999.5 * size:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return three(value)


def folded(name: str, width: int) -> list[str]:
    """``name`` in lines of at most ``width`` columns, broken after - and +, before @ and /, else where it must."""
    lines = [""]
    for part in re.findall(r"[@/]?[^-+@/]*[-+]?", name):
        while part:
            if display_width(lines[-1] + part) <= width:
                lines[-1] += part
                break
            if lines[-1]:
                lines.append("")
            else:
                # A line holds at least one character, else this would not end.
                lines[-1] = cut_columns(part, width) or part[:1]
                part = part[len(lines[-1]) :]
    return lines
