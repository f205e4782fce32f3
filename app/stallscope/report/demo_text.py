"""Text report of a demo: what was found here, beside what the reporters found."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from stallscope.report.remedy_text import with_code
from stallscope.report.table import TableColumn
from stallscope.report.text import TextWriter

if TYPE_CHECKING:
    from stallprobes.demo import PatternOutcome

_COLUMNS = [TableColumn("pattern"), TableColumn("step"), TableColumn("latency"), TableColumn("")]


def write_demo(out: TextWriter, machine: str, outcomes: Collection[PatternOutcome]) -> None:
    """Write the table of what was found on ``machine``, the causes, and what was skipped."""
    if not outcomes:
        out.paragraph("The demo has measured nothing.")
        return
    shown = [one for one in outcomes if not one.skipped]
    out.paragraph(machine, style="strong")
    names = [(one.pattern.name if number == 0 else "", row) for one in shown for number, row in enumerate(one.rows)]
    out.table(_COLUMNS, [(name, label, words, note) for name, (label, _, words, note) in names])
    for one in shown:
        out.section(one.pattern.name, filter(None, _details(one)))
    skipped = (f"{one.pattern.name}: {one.skipped}" for one in outcomes if one.skipped)
    out.section("Skipped, because this machine does not support them", skipped)


def _details(one: PatternOutcome) -> Iterator[str]:
    """The failure, the stall with its cause, the remedy and the report of a pattern; "" for what there is not."""
    yield one.problem and f"failed: {one.problem}"
    yield one.stall and f"stall {one.stall}: {one.stalled.sentence or 'nothing was stalled'}"
    yield one.remedy and with_code(f"remedy {one.remedy}.", one.pattern.name)
    yield f"report: {one.pattern.reported}"
