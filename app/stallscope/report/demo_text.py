"""Text report of a demo: what was found here, beside what the reporters found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallprobes.model import ReportedLatency
from stallprobes.units import duration_ns, in_us, times
from stallscope.report.remedy_text import with_code
from stallscope.report.table import TableCell, TableColumn
from stallscope.report.text import TextWriter

if TYPE_CHECKING:
    from stallprobes.demo.outcome import DemoResult, PatternOutcome, StepLatency

_COLUMNS = (
    TableColumn("pattern"),
    TableColumn("figure"),
    TableColumn("baseline", right=True, unit="µs"),
    TableColumn("stalled", right=True, unit="µs"),
    TableColumn("×\nbaseline", right=True),
    TableColumn("remedy", right=True, unit="µs"),
    TableColumn("reported", right=True, unit="µs"),
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
    stalled = one.stalled
    style = "" if stalled is None else stalled.kind.look.style
    return (
        one.pattern.name,
        "–" if stalled is None else stalled.figure,
        in_us(one.baseline_ns),
        TableCell(in_us(None if stalled is None else stalled.now_ns), style),
        TableCell("–" if one.ratio is None else times(one.ratio)[1:], style),
        in_us(None if one.remedied is None else one.remedied.now_ns),
        "–" if one.pattern.latency is None else _in_us(one.pattern.latency),
    )


def _in_us(latency: ReportedLatency) -> str:
    """``1.60 → 2260``."""
    return f"{in_us(latency.baseline_ns)} → {in_us(latency.stalled_ns)}"


def _reported(latency: ReportedLatency) -> str:
    """``1.60 µs → 2.26 ms``."""
    return f"{duration_ns(latency.baseline_ns)} → {duration_ns(latency.stalled_ns)}"


def _details(out: TextWriter, one: PatternOutcome) -> None:
    """Where the figures of the table are from, the cause, the remedy and the report of a pattern."""
    out.line()
    out.paragraph(one.pattern.name, style="strong")
    if one.problem:
        _labelled(out, "failed", one.problem, "bad")
    if one.stalled is not None:
        _labelled(out, "stall", f"{one.stall}: {_sentence(one.stalled)}")
    if one.remedied is not None:
        helps = f"{one.remedy}: {one.remedied.probe}: {one.remedied.figure} {duration_ns(one.remedied.now_ns)}."
        _labelled(out, "remedy", with_code(helps, one.pattern.name))
    elif one.no_remedy:
        _labelled(out, "remedy", f"not possible on this machine: {one.no_remedy}")
    _labelled(out, "report", one.pattern.reported, "dim")
    if one.pattern.latency is not None:
        known = one.pattern.latency
        remedy = "" if known.remedy_ns is None else f", with the remedy {duration_ns(known.remedy_ns)}"
        _labelled(out, "", f"{known.gpu}, {known.figure}: {_reported(known)}{remedy}.", "dim")


def _sentence(found: StepLatency) -> str:
    """Figure, verdict and cause of a stall."""
    return f"{found.probe}: {found.figure}: {found.kind.look.word}. {found.cause}".rstrip()


def _labelled(out: TextWriter, label: str, text: str, style: str = "") -> None:
    out.paragraph(text, indent=" " * 10, first=f"  {label:<8}", style=style)
