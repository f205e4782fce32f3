"""What changed between two checks, as text: the machines first, then what is slower, faster and unsure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stallprobes.units import duration, times
from stallscope.report import findings
from stallscope.report.text import TableColumn, TextWriter

if TYPE_CHECKING:
    from stallprobes.matrix.compare import CellChange, Compared, Comparison
    from stallprobes.matrix.matrix import Matrix

# A cell's title for its group, what marks it, and the groups' order.
TITLES = (
    ("slower", "SLOWER", "bad"),
    ("starved", "newly STARVED: hardly a call returned, and it did before", "bad"),
    ("faster", "FASTER", "good"),
    ("fed", "no longer STARVED", "good"),
    ("unsure", "UNSURE", "warn"),
)
_MOST_UNSURE = 12


def group(cell: CellChange) -> str:
    """The group of TITLES that ``cell`` belongs to, or "same"."""
    if cell.newly_starved:
        return "starved"
    if cell.no_longer_starved:
        return "fed"
    return str(cell.change)


def show(out: TextWriter, comparison: Comparison, regressions: Sequence[CellChange]) -> None:
    """The whole comparison."""
    machines(out, comparison)
    for key, title, mark in TITLES:
        found = [cell for cell in comparison.cells if group(cell) == key]
        if not found:
            continue
        out.line()
        out.line(f"{title} · {_cells(len(found))}", mark)
        shown = found if key != "unsure" else found[:_MOST_UNSURE]
        for cell in shown:
            out.paragraph(f"{cell.row} beside {cell.column}: {figures(cell)}", indent="    ", first="  ")
        if len(found) > len(shown):
            out.paragraph(
                f"and {_cells(len(found) - len(shown))} more; --json and --html have them all", indent="  ", first="  "
            )
    out.line()
    same = sum(group(cell) == "same" for cell in comparison.cells)
    out.line(f"SAME · {_cells(same)}", "good" if not regressions else "")
    for places, where in ((comparison.only_old, "OLD"), (comparison.only_new, "NEW")):
        if places:
            out.paragraph(f"only in {where}: {only(places)}", indent="  ")
    out.line()
    out.paragraph(false_alarms(comparison), style="dim")


def machines(out: TextWriter, comparison: Comparison) -> None:
    """Which checks are compared, and what differs between their machines and settings."""
    for name, matrix in (("OLD", comparison.old), ("NEW", comparison.new)):
        out.paragraph(told(matrix), indent="     ", first=f"{name}  ", style="strong")
    out.line()
    if not comparison.differences:
        out.line("No difference in GPU, driver, settings and host")
        return
    out.line("What differs in GPU, driver, settings and host", "strong")
    rows = [(one.key, f"{findings.plain(one.old)} → {findings.plain(one.new)}") for one in comparison.differences]
    out.table((TableColumn(""), TableColumn("")), [("  " + key, change) for key, change in rows])


def told(matrix: Matrix) -> str:
    """A check in a line."""
    return findings.headline(matrix) + (" · interrupted" if matrix.interrupted else "")


def figures(cell: CellChange) -> str:
    """What changed in a cell: ``call p50 2.70 µs → 5.40 µs (×2.0)``, or why it cannot be said."""
    if cell.note:
        return cell.note
    parts = [part for part in cell.parts if part.change == cell.change]
    return "; ".join(_part(part) for part in parts) or group(cell)


def only(places: Iterable[tuple[str, str]]) -> str:
    """Cells by their places, those of one column together."""
    by_column: dict[str, list[str]] = {}
    for row, column in places:
        by_column.setdefault(column, []).append(row)
    return "; ".join(f"beside {column}: {', '.join(rows)}" for column, rows in by_column.items())


def false_alarms(comparison: Comparison) -> str:
    """How far SLOWER and FASTER can be trusted, in words."""
    one_in = round(1 / comparison.false_alarm_rate)
    return (
        f"If nothing changed between the two checks and chance alone is at work, at most 1 such comparison in {one_in} "
        "says SLOWER or FASTER anywhere. A real machine has moods besides: what is said of a single pair deserves a "
        "second check. UNSURE is a change that could be chance."
    )


def _part(part: Compared) -> str:
    name = f"{part.channel.phase}{f' of {part.channel.label}' if part.channel.label else ''} p{part.q}"
    if part.change == "unsure" and part.why:
        return f"{name} {part.why.rstrip('.')}"
    change = f"{name} {duration(part.old_us)} → {duration(part.new_us)}"
    return change + (f" ({times(part.ratio)})" if part.ratio is not None else "")


def _cells(number: int) -> str:
    return f"{number} cell{'' if number == 1 else 's'}"
