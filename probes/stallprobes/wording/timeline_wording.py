"""Wording of the timeline in reports: its recording, its losses, and the meaning of its phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stallprobes.engine.backend import timeline_refusal
from stallprobes.latency.ratio import phase_channels
from stallprobes.model import TIMELINE_PHASES, Phase, Probe
from stallprobes.units import format_count

if TYPE_CHECKING:
    from stallprobes.matrix.matrix import Cell
    from stallprobes.records.timeline import TimelineLosses
    from stallprobes.records.timeline_summary import TimelineSummary
    from stallprobes.verdicts.verdict import Verdict

# Word in place of CUPTI's version, for a simulated GPU.
SIMULATED = "simulated"
# Words for each kind of loss (singular, plural), in the order of a report.
_LOSSES = {
    "dropped": ("record dropped by CUPTI", "records dropped by CUPTI"),
    "exhausted": ("time that CUPTI found no buffer", "times that CUPTI found no buffer"),
    "overwritten": ("record overwritten before a trace read it", "records overwritten before a trace read them"),
    "unknown": ("record of an unknown kind", "records of unknown kinds"),
    "unmatched": ("record of no known call", "records of no known call"),
    "unanswered": ("call without a record", "calls without a record"),
}


def timeline_text(summary: TimelineSummary | None) -> str:
    """The line on the timeline that ends a report; "" without the timeline."""
    return "" if summary is None else f"Timeline: {summary_text(summary)}"


def summary_text(summary: TimelineSummary) -> str:
    """The recording of the timeline and its losses: ``libcupti 13.1, with context switches. No record was lost. …``."""
    note = "with context switches" if summary.context_switches else summary.note or "no context switches"
    if summary.library == SIMULATED:
        return f"{SIMULATED}, {note}. {losses_text(summary.losses)}"
    return f"libcupti {summary.library}, {note}. {losses_text(summary.losses)} It makes each call 1 to 10 µs longer."


def losses_text(losses: TimelineLosses) -> str:
    """``No record was lost.``, or the number of records of each kind of loss as a sentence."""
    lost = [
        f"{format_count(number)} {singular if number == 1 else plural_form}"
        for name, (singular, plural_form) in _LOSSES.items()
        if (number := getattr(losses, name))
    ]
    return f"Lost or not assigned: {', '.join(lost)}." if lost else "No record was lost."


def phases_text() -> str:
    """Meaning of the phases of the timeline, a sentence for each."""
    return " ".join(f"{phase.traits.word}: {phase.traits.meaning}." for phase in TIMELINE_PHASES)


def on_the_gpu(names: str, probes: Sequence[Probe]) -> str:
    """Meaning of the phases of the timeline, and the way to see them for the pattern or probes ``names`` with
    ``probes``."""
    if timeline_refusal(probes) is not None:
        return "Not measured beside a profiler: a process has one user of CUPTI, and the timeline is another one."
    how = f"`stallscope run {names} --timeline` measures them, and on the screen the key g draws each call's work."
    return f"{phases_text()} {how}"


def start_clause(cell: Cell, verdict: Verdict) -> str:
    """The start in a wait, as a clause: ``, returned → GPU start 2.20 µs → 1.88 ms``; "" without the timeline."""
    if verdict.phase is not Phase.WAIT:
        return ""
    # It loads numpy.
    from stallprobes.latency.window import judged_histogram
    from stallprobes.verdicts.start import start_change_text

    changes = []
    for channel in (start for start in phase_channels(cell.channels, Phase.START) if start in cell.channels):
        sides = (judged_histogram(side, channel) for side in (cell.baseline, cell.channels))
        before, now = (
            None if histogram is None else histogram.percentile(verdict.quantile.percent) for histogram in sides
        )
        if before is not None and now is not None:
            changes.append((now - before, f", {channel.in_sentence} {start_change_text(before, now)}"))
    return max(changes, default=(0.0, ""))[1]
