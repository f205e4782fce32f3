"""Text report of a comparison of watched runs: differences, the first sentence, both bars, then what changed."""

from __future__ import annotations

import shlex

from stallprobes.matrix.comparing.comparison import OUTCOME_LOOKS, CellOutcome, Change
from stallprobes.units import in_ms, plural
from stallprobes.watch.comparing.comparison import ItemChange, RunsComparison, RunsSide, Sort
from stallprobes.watch.comparing.sentence import bound_text, side_lines, spread_text
from stallprobes.watch.division.parts import Part
from stallprobes.watch.reading.kernel_names import kernel_label
from stallprobes.wording.check_wording import format_value
from stallscope.report.columns import cut_columns
from stallscope.report.table import TableCell, TableColumn
from stallscope.report.text import TextWriter

# Largest number of items that are listed of a sort.
_MOST_ITEMS = 6
# Titles of the items by sort.
_TITLES = {
    Sort.WAIT: "Waits (what they cost)",
    Sort.LINE: "Lines (what they cost)",
    Sort.LAUNCH: "Kernels by the line that launches them",
    Sort.KERNEL: "Kernels",
    Sort.PART: "Parts of the time",
}
# Largest width (columns) of a bar.
_WIDEST_BAR = 80
# Largest width (columns) of a command.
_LONGEST_COMMAND = 200


def show(out: TextWriter, result: RunsComparison) -> None:
    """The whole report."""
    for name, side in side_lines(result):
        out.paragraph(side_text(side), indent="     ", first=f"{name}  ")
    if result.differences:
        rows = [(f"     {row.key}", f"{format_value(row.old)} → {format_value(row.new)}") for row in result.differences]
        out.table((TableColumn(""), TableColumn("")), rows)
    out.line()
    out.paragraph(result.sentence, style=result.change.look.style if result.change is not Change.SAME else "strong")
    if result.ratio is not None:
        out.line()
        _bars(out, result)
    for sort in Sort:
        _items(out, sort, [item for item in result.items if item.sort is sort])
    missing = (f"{name}: {text}" for name, side in side_lines(result) for text in side.left_out)
    out.section("Not compared", missing, "warn")
    if result.notes:
        out.line()
    for text in result.notes:
        out.paragraph(text)
    out.note(spread_text(result))


def side_text(side: RunsSide) -> str:
    """Which runs a side has: ``python train.py · 3 runs · 2026-11-30 12:00:00 · host-bound``."""
    when = (side.began_at or "")[:19].replace("T", " ")
    command = cut_columns(
        shlex.join(side.command) if len(side.command) > 1 else "".join(side.command), _LONGEST_COMMAND
    )
    runs = plural(side.runs, "run") if side.runs else "no run that can be compared"
    return " · ".join(text for text in (command, runs, when, bound_text(side)) if text)


def _bars(out: TextWriter, result: RunsComparison) -> None:
    """The time of a step of both sides as bars of one scale, and the parts that they have."""
    width = max(min(out.width, _WIDEST_BAR) - 5, 10)
    longest = max(side.mean_ns for _, side in side_lines(result))
    for name, side in side_lines(result):
        end_ns, used, runs = 0.0, 0, [(f"{name}  ", "")]
        for part, ns in side.parts.items():
            end_ns += ns
            cells = round(end_ns / longest * width) - used
            used += cells
            runs.append((part.traits.mark * cells, part.traits.style))
        out.runs(runs)
    parts = [part for part in Part if any(part in side.parts for _, side in side_lines(result))]
    rows = []
    for part in parts:
        old_ns, new_ns = (side.parts.get(part, 0.0) for _, side in side_lines(result))
        if max(old_ns, new_ns) >= 0.01 * longest:
            mark = TableCell(f"{part.traits.mark} {part.word}", part.traits.style)
            rows.append((mark, in_ms(old_ns), in_ms(new_ns)))
    out.table(
        (TableColumn("part"), TableColumn("OLD", right=True, unit="ms"), TableColumn("NEW", right=True, unit="ms")),
        rows,
    )


def _items(out: TextWriter, sort: Sort, items: list[ItemChange]) -> None:
    if not items or sort is Sort.PART:
        return
    out.line()
    out.paragraph(_TITLES[sort], style="strong")
    rows = [(_name(item), in_ms(item.old_ns), in_ms(item.new_ns), _word(item)) for item in items[:_MOST_ITEMS]]
    columns = (
        TableColumn(""),
        TableColumn("OLD", right=True, unit="ms"),
        TableColumn("NEW", right=True, unit="ms"),
        TableColumn("", whole=True),
    )
    out.table(columns, rows, indent="  ")
    if len(items) > _MOST_ITEMS:
        out.paragraph(f"and {len(items) - _MOST_ITEMS} more: see --json", indent="  ", first="  ")


def _name(item: ItemChange) -> str:
    name = kernel_label(item.name) if item.sort is Sort.KERNEL else item.name
    return f"{name}: {item.function}" if item.function else name


def _word(item: ItemChange) -> TableCell:
    look = OUTCOME_LOOKS[CellOutcome(item.change)]
    return TableCell(look.word, look.style)
