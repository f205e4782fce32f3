"""Text report of a check: headline, the worst case of each cause, and the matrix as symbols; with ``full`` in figures.

Aggressors are lines and victims columns, the worst first.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from stallprobes.matrix import findings
from stallprobes.matrix.matrix import PHASES, QUIET, CellKind, Status
from stallprobes.units import compact, plural
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording, comparison_wording, reference_wording
from stallprobes.wording.headline import headline
from stallprobes.wording.timeline_wording import timeline_text
from stallscope.report import comparison_text, matrix_symbols
from stallscope.report.columns import cut_words, display_width, name_parts, padded
from stallscope.report.matrix_block import MatrixBlock, quiet_text
from stallscope.report.table import GAP, TableCell, TableColumn
from stallscope.report.text import TextWriter

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison
    from stallprobes.matrix.findings import CauseGroup
    from stallprobes.matrix.matrix import Cell, Matrix
    from stallprobes.matrix.reference import ReferenceComparison
    from stallprobes.model import Phase

# Number of victims of one aggressor for which the findings give full figures; other victims get one short figure.
_VICTIMS_IN_FULL = 2
# Largest number of cells (one victim beside one aggressor each) that a short report lists as stalled here but not in
# the reference. The same number applies to the list of cells that are stalled only in the reference.
_UNUSUAL_CELLS = 6
# Largest width (columns) of an aggressor's name at the left of the matrix; a longer name has several lines.
_NAME_WIDTH = 22
# Largest width (columns) of a victim's name above its column of the matrix; a longer name has several lines.
_HEAD_WIDTH = 10
# Number of blanks between two columns of the matrix.
_GAP = 2
# Number of lines above which a short report leaves out causes. The report always keeps the first _LEAST_CAUSES causes.
_MOST_LINES = 75
# Smallest number of causes that stay in a short report.
_LEAST_CAUSES = 3
# Smallest width (columns) for a remedy in the line of its cause. With less width, the remedy stands below the cause.
_REMEDY_WIDTH = 60
# Name of the matrix row with the baselines of the victims.
_BASELINE = "baseline, µs"

# Function from a cell of the matrix to a cell of the table.
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

    ``hosts`` are sentences on the hosts of a merged matrix. ``comparison`` compares ``matrix`` with an older check,
    ``reference`` with a reference. ``full`` adds every finding, the reasons of cells that were not measured, and the
    fingerprint.
    """

    def begin(out: TextWriter) -> None:
        out.paragraph(check_wording.check_title(matrix), style="strong")
        comparison_text.first_lines(out, headline(matrix, comparison, reference))
        if full:
            out.paragraph(check_wording.kind_counts(matrix))
        out.section("About the hosts", hosts)
        if comparison is not None:
            out.line()
            comparison_text.machines(out, comparison)
            out.line()
            comparison_text.differences(out, comparison)
            comparison_text.changes(out, comparison, regressions)

    def end(out: TextWriter) -> None:
        out.line()
        if full:
            _matrix(out, matrix)
        else:
            out.paragraph(_title(matrix, check_wording.SYMBOLS_TITLE), style="strong")
            matrix_symbols.write(out, matrix)
        if reference is not None:
            _unusual(out, reference, full)
        if full:
            _unmeasured(out, matrix)
            out.line()
            machine(out, matrix)
            # The headline has it too.
            out.note(check_wording.variation(matrix))
        out.note(timeline_text(matrix.timeline_summary))

    begin(out)
    if full:
        _findings(out, matrix)
    else:
        _causes(out, matrix, _MOST_LINES - _height(out, begin) - _height(out, end))
    end(out)


def _height(out: TextWriter, write: Callable[[TextWriter], None]) -> int:
    """The number of lines that ``write`` writes to ``out``."""
    stream = io.StringIO()
    write(TextWriter(stream, width=out.width, ascii=out.ascii))
    return stream.getvalue().count("\n")


def machine(out: TextWriter, matrix: Matrix) -> None:
    """The fingerprint, and the hosts of a merged matrix."""
    items = " · ".join(f"{key} {value}" for key, value in check_wording.fingerprint_items(matrix.fingerprint))
    out.paragraph(items or "nothing is known of the machine", indent="  ", first="machine: ", style="dim")
    for name, host in matrix.hosts.items():
        facts = [str(host[key]) for key in ("gpu", "driver", "uuid") if host.get(key)]
        out.paragraph(" · ".join([name, *facts]), indent="    ", first="  ", style="dim")


def _unusual(out: TextWriter, comparison: ReferenceComparison, full: bool) -> None:
    """The cells that differ from the reference, by column; without ``full`` the clearest ones, if there are any."""
    groups = reference_wording.unusual_groups(comparison)
    if not groups and not full:
        return
    out.line()
    out.paragraph(reference_wording.REFERENCE_TITLE, style="strong")
    out.paragraph(f"reference: {reference_wording.reference_title(comparison.reference)}", indent="    ", first="  ")
    for title, cells in groups:
        out.paragraph(f"{title}: {plural(len(cells), 'cell')}", indent="    ", first="  ")
        named = cells if full else cells[:_UNUSUAL_CELLS]
        places = ((f"{cell.row} {reference_wording.unusual_figures(cell)}", cell.column) for cell in named)
        for text in comparison_wording.places_by_column(places, "; "):
            out.paragraph(text, indent="      ", first="    ")
        if len(named) < len(cells):
            out.paragraph(f"and {plural(len(cells) - len(named), 'more cell')}: see --full", indent="    ")
    notes = reference_wording.reference_notes(comparison)
    out.paragraph(" ".join(notes), indent="  ", style="dim")


def _title(matrix: Matrix, title: str) -> str:
    return f"{title}, SIMULATED {matrix.profile or 'GPU'}" if matrix.simulated else title


def _matrix(out: TextWriter, matrix: Matrix) -> None:
    out.paragraph(_title(matrix, check_wording.MATRIX_TITLE), style="strong")
    # What this machine does not support is counted below.
    block = MatrixBlock.of(matrix)
    names = max((display_width(part) for name in block.aggressors for part in name_parts(name, _NAME_WIDTH)), default=0)
    names = max(names, len(_BASELINE))
    # Composed at its first use: the width of a cell decides on the blocks.
    shown = cache(_cell)
    parts = _parts(matrix, block.victims, shown, out.width - names)
    quiet = block.quiet if len(parts) > 1 else ()
    for number, victims in enumerate(parts):
        if number:
            out.line()
        _block(out, matrix, victims, [name for name in block.aggressors if name not in quiet], shown, names)
    if quiet:
        out.line()
        out.paragraph(quiet_text(matrix, block), "  ", "")
    out.note(" · ".join(_legend(matrix, shown)))


def _block(
    out: TextWriter, matrix: Matrix, victims: Sequence[str], columns: Sequence[str], shown: _ShownCell, names: int
) -> None:
    lines = _heads(victims)
    if findings.has_quiet(matrix):
        quiet = [TableCell(_baseline(matrix.cells.get((victim, QUIET))), "dim") for victim in victims]
        lines.append([TableCell(_BASELINE, "dim"), *quiet])
    for name in columns:
        first, *rest = name_parts(name, _NAME_WIDTH)
        lines.append([padded(first, names), *(shown(matrix.cells.get((victim, name))) for victim in victims)])
        lines += [["  " + part, *[""] * len(victims)] for part in rest]
    out.table([TableColumn(""), *(TableColumn("", right=True) for _ in victims)], lines)


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


def _parts(matrix: Matrix, victims: Sequence[str], shown: _ShownCell, room: int) -> list[list[str]]:
    """The victims in parts that fit into ``room`` columns."""
    parts: list[list[str]] = []
    left = 0
    for victim in victims:
        texts = [shown(cell).text for cell in matrix.cells.values() if cell.row == victim and cell.column != QUIET]
        texts += [_baseline(matrix.cells.get((victim, QUIET))), *name_parts(victim, _HEAD_WIDTH)]
        width = max(display_width(text) for text in texts) + _GAP
        if not parts or width > left:
            parts.append([])
            left = room
        parts[-1].append(victim)
        left -= width
    return parts


def _heads(victims: Sequence[str]) -> list[list[TableCell | str]]:
    # Aligned to the bottom, so that short names are right above their figures.
    upward = zip_longest(*(reversed(name_parts(victim, _HEAD_WIDTH)) for victim in victims), fillvalue="")
    lines: list[list[TableCell | str]] = [["", *(TableCell(part, "strong") for part in parts)] for parts in upward]
    lines[0][0] = "beside"
    return lines[::-1]


def _cell(cell: Cell | None) -> TableCell:
    if cell is None:
        return TableCell("")
    kind = cell.shown_kind
    style = _style(kind)
    if not _has_figures(kind):
        return TableCell(f"{kind.look.letter or kind.look.word}  ", style)
    letter = kind.look.letter
    if cell.column == QUIET:
        return TableCell(letter, style)
    return TableCell("/".join(_ratio(cell, phase) for phase in PHASES) + (f" {letter}" if letter else "  "), style)


def _has_figures(kind: CellKind) -> bool:
    """True if cells of ``kind`` show figures; the others show a word."""
    return isinstance(kind, VerdictKind) and kind is not VerdictKind.STARVED


def _style(kind: CellKind) -> str:
    return "" if kind is VerdictKind.QUIET else kind.look.style


def _ratio(cell: Cell, phase: Phase) -> str:
    shown = findings.shown(cell, phase)
    return "–" if shown is None else compact(shown.ratio) + shown.mark


def _baseline(cell: Cell | None) -> str:
    """Medians of call and wait in µs with no aggressor running."""
    if cell is None:
        return ""
    kind = cell.shown_kind
    if not _has_figures(kind):
        return f"{kind.look.letter or kind.look.word}  "
    medians = check_wording.baseline_medians_ns(cell)
    return "/".join("–" if ns is None else compact(ns / 1000) for ns in medians) + "  "


def _causes(out: TextWriter, matrix: Matrix, room: int) -> None:
    """The worst case of each cause with its remedy in one line, the worst first: what ``room`` lines hold."""
    groups = findings.groups(matrix)
    unmeasured = check_wording.unmeasured_count(matrix)
    notes = [f"{unmeasured}: see --full for the reasons."] if unmeasured else []
    notes.append(
        "--full explains each cause, with its victims, and has the figures of all cells."
        if groups
        else "--full has the figures of all cells."
    )
    out.line()
    if groups:
        out.paragraph(check_wording.CAUSES_TITLE, style="strong")
        # Below the title, an empty line, and the number of those left out.
        left_out = len(groups) - _cause_lines(out, groups, room - 3 - sum(map(out.height, notes)))
        if left_out:
            out.paragraph(f"And {plural(left_out, 'more cause')}.", style="dim")
    for note in notes:
        out.paragraph(note, style="dim")


def _cause_lines(out: TextWriter, groups: Sequence[CauseGroup], room: int) -> int:
    """Write as many of ``groups`` as ``room`` lines hold, at least ``_LEAST_CAUSES``. Returns their number."""
    columns = (TableColumn("", whole=True), TableColumn("", whole=True), TableColumn(""))
    cells = [TableCell(group.kind.look.word, _style(group.kind)) for group in groups]
    cases = [check_wording.worst_case(group) for group in groups]
    words = max(display_width(cell.text) for cell in cells) + GAP
    beside = out.width - out.natural_width(columns[:2], list(zip(cells, cases, strict=True))) - GAP
    in_line = beside >= _REMEDY_WIDTH
    dots = out.printed("…")
    remedies = [
        cut_words(out.printed(group.remedy or check_wording.NO_CAUSE), beside if in_line else out.width - words, dots)
        for group in groups
    ]
    shown = 0
    for case in cases:
        room -= 1 if in_line else out.height(case, " " * words) + 1
        if room < 0 and shown >= _LEAST_CAUSES:
            break
        shown += 1
    rows = list(zip(cells, cases, remedies, strict=True))[:shown]
    if in_line:
        out.table(columns, rows)
    for cell, case, remedy in () if in_line else rows:
        out.paragraph(case, indent=" " * words, first=padded(cell.text, words), style=cell.style)
        out.line(" " * words + remedy)
    return shown


def _findings(out: TextWriter, matrix: Matrix) -> None:
    groups = findings.groups(matrix)
    if not groups:
        return
    out.line()
    out.paragraph("Findings", style="strong")
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
