"""Text report of a demo: what was found here, beside what the reporters found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallprobes.demo.outcome import figure_name, sentence_of
from stallprobes.units import duration_ns, in_us, times
from stallscope.report.remedy_text import with_code
from stallscope.report.table import TableCell, TableColumn
from stallscope.report.text import TextWriter

if TYPE_CHECKING:
    from stallprobes.demo.outcome import DemoResult, PatternOutcome

_COLUMNS = (
    TableColumn("pattern"),
    TableColumn("figure"),
    *(TableColumn(name, right=True, unit="µs") for name in ("baseline", "stalled")),
    TableColumn("×\nbaseline", right=True),
    *(TableColumn(name, right=True, unit="µs") for name in ("remedy", "reported")),
)


def write_demo(out: TextWriter, result: DemoResult) -> None:
    """Write the table of what was found, then the cause and the report of each pattern, then what was skipped."""
    shown = [one for one in result.outcomes if not one.skipped]
    if not result.outcomes:
        out.paragraph("The demo has measured nothing.")
    if shown:
        out.paragraph(result.machine, style="strong")
        out.table(_COLUMNS, [_row(one) for one in shown])
        for one in shown:
            _details(out, one)
    texts = (f"{one.pattern.name}: {one.skipped}" for one in result.outcomes if one.skipped)
    out.section("Skipped, because this machine does not support them", texts)


def _row(one: PatternOutcome) -> tuple[TableCell | str, ...]:
    stalled, known = one.stalled, one.pattern.latency
    style = "" if stalled is None else stalled.kind.look.style
    return (
        one.pattern.name,
        "–" if stalled is None else figure_name(stalled),
        in_us(one.baseline_ns),
        TableCell(in_us(one.stalled_ns), style),
        TableCell("–" if one.ratio is None else times(one.ratio)[1:], style),
        in_us(one.remedied_ns),
        "–" if known is None else f"{in_us(known.baseline_ns)} → {in_us(known.stalled_ns)}",
    )


def _details(out: TextWriter, one: PatternOutcome) -> None:
    """Where the figures of the table are from, the cause, the remedy and the report of a pattern."""
    known = one.pattern.latency
    rows = [("failed", one.problem, "bad"), ("stall", one.stalled and f"{one.stall}: {sentence_of(one.stalled)}", "")]
    if one.remedied is not None:
        helps = f"{one.remedy}: {sentence_of(one.remedied)}"
        rows.append(("remedy", with_code(helps, one.pattern.name), ""))
    elif one.no_remedy:
        rows.append(("remedy", f"not possible on this machine: {one.no_remedy}", ""))
    rows.append(("report", one.pattern.reported, "dim"))
    if known is not None:
        remedy = "" if known.remedy_ns is None else f", with the remedy {duration_ns(known.remedy_ns)}"
        figures = f"{duration_ns(known.baseline_ns)} → {duration_ns(known.stalled_ns)}{remedy}"
        rows.append(("", f"{known.gpu}, {known.figure}: {figures}.", "dim"))
    out.line()
    out.paragraph(one.pattern.name, style="strong")
    for label, text, style in rows:
        if text:
            out.paragraph(text, indent=" " * 10, first=f"  {label:<8}", style=style)
