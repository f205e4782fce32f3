"""Text report of a demo: what was found here, beside what the reporters found."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from stallscope.report.remedy_text import with_code
from stallscope.report.table import TableColumn
from stallscope.report.text import TextWriter

if TYPE_CHECKING:
    from stallprobes.demo import PatternOutcome

# Columns of the table of a demo's steps; the last column has remarks.
_COLUMNS = [TableColumn("pattern"), TableColumn("step"), TableColumn("latency"), TableColumn("")]


def write_demo(out: TextWriter, machine: str, outcomes: Collection[PatternOutcome]) -> None:
    """Write the table of what was found on ``machine``, the causes, and what was skipped."""
    if not outcomes:
        out.paragraph("The demo has measured nothing.")
        return
    shown = [outcome for outcome in outcomes if not outcome.skipped]
    out.paragraph(machine, style="strong")
    names = [(demo.pattern.name if number == 0 else "", row) for demo in shown for number, row in enumerate(demo.rows)]
    out.table(_COLUMNS, [(name, label, words, note) for name, (label, _, words, note) in names])
    for outcome in shown:
        out.section(outcome.pattern.name, filter(None, _details(outcome)))
    skipped = (f"{demo.pattern.name}: {demo.skipped}" for demo in outcomes if demo.skipped)
    out.section("Skipped, because this machine does not support them", skipped)


def _details(outcome: PatternOutcome) -> Iterator[str]:
    """The failure, the stall with its cause, the remedy and the report of a pattern; "" for what there is not."""
    yield outcome.problem and f"failed: {outcome.problem}"
    yield outcome.stall and f"stall {outcome.stall}: {outcome.stalled.sentence or 'nothing was stalled'}"
    yield outcome.remedy and with_code(f"remedy {outcome.remedy}.", outcome.pattern.name)
    yield f"report: {outcome.pattern.reported}"
