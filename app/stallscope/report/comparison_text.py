"""Text report of a comparison of two checks: headline, machines, then the cells that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stallprobes.matrix.comparing.comparison import CellOutcome
from stallprobes.units import plural
from stallprobes.wording import check_wording, comparison_wording
from stallprobes.wording.headline import headline
from stallscope.report.table import TableColumn
from stallscope.report.text import TextWriter

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison

# Largest number of unsure cells that a comparison lists; the other unsure cells are only counted. An unsure cell (one
# victim beside one aggressor) looks changed without enough evidence.
_MOST_UNSURE = 12


def show(out: TextWriter, comparison: Comparison, regressions: Sequence[CellChange]) -> None:
    """The whole report."""
    machines(out, comparison)
    out.line()
    stalls, changed, measured = headline(comparison.new, comparison)
    first_lines(out, (changed, stalls, measured))
    out.line()
    differences(out, comparison)
    changes(out, comparison, regressions)


def first_lines(out: TextWriter, lines: Sequence[tuple[str, str]]) -> None:
    """The lines that begin a report: label and text of each."""
    out.table((TableColumn(""), TableColumn("")), lines)


def machines(out: TextWriter, comparison: Comparison) -> None:
    """Which checks are compared."""
    for name, matrix in (("OLD", comparison.old), ("NEW", comparison.new)):
        out.paragraph(check_wording.check_title(matrix), indent="     ", first=f"{name}  ", style="strong")


def differences(out: TextWriter, comparison: Comparison) -> None:
    """Differences between the machines and settings of the two checks."""
    if not comparison.differences:
        out.paragraph("No difference in GPU, driver, settings and host")
        return
    out.paragraph("Differences in GPU, driver, settings and host", style="strong")
    rows = [
        (f"  {row.key}", f"{check_wording.format_value(row.old)} → {check_wording.format_value(row.new)}")
        for row in comparison.differences
    ]
    out.table((TableColumn(""), TableColumn("")), rows)


def changes(out: TextWriter, comparison: Comparison, regressions: Sequence[CellChange]) -> None:
    """The changed cells by outcome, and the reliability of the comparison."""
    for outcome in CellOutcome:
        cells = [cell for cell in comparison.cells if cell.outcome is outcome]
        if not cells or outcome is CellOutcome.SAME:
            continue
        out.line()
        meaning = f": {outcome.look.meaning}" if outcome is CellOutcome.STARVED else ""
        out.paragraph(f"{outcome.look.word}{meaning} · {plural(len(cells), 'cell')}", style=outcome.look.style)
        named = cells if outcome is not CellOutcome.UNSURE else cells[:_MOST_UNSURE]
        for cell in named:
            out.paragraph(
                f"{cell.row} beside {cell.column}: {comparison_wording.change_figures(cell)}", indent="    ", first="  "
            )
        if len(cells) > len(named):
            more = plural(len(cells) - len(named), "more cell")
            out.paragraph(f"and {more}: see --json or --html", indent="  ", first="  ")
    out.line()
    same = comparison_wording.unchanged_text(comparison)
    out.paragraph(f"{CellOutcome.SAME.look.word} · {same}", style="good" if not regressions else "")
    for places, where in ((comparison.only_old, "OLD"), (comparison.only_new, "NEW")):
        if places:
            names = comparison_wording.places_by_column(place.key for place in places)
            out.paragraph(f"only in {where}: {'; '.join(names)}", indent="  ")
    out.note(comparison_wording.false_alarms(comparison))
