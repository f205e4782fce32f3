"""Text and histograms of one cell of a check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallprobes.latency.ratio import PERCENTILES
from stallprobes.live.view_model import ChannelView
from stallprobes.matrix.comparing.comparison import Change
from stallprobes.matrix.matrix import PHASES, QUIET, Status
from stallprobes.model import TIMELINE_PHASES, Channel
from stallprobes.units import duration_ns, times
from stallprobes.wording import check_wording, comparison_wording, reference_wording
from stallscope.tui.common.histograms import HistogramsView
from stallscope.tui.matrix.view_model import CellFigures, Key, MatrixView, kind_style

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import CellChange
    from stallprobes.matrix.reference import Reference

# Title, style of the title, text.
Paragraph = tuple[str, str, str]


def paragraphs(matrix_view: MatrixView, key: Key, brief: bool = False) -> list[Paragraph]:
    """Everything known about a cell, the most important first.

    ``brief`` leaves out the names of victim and aggressor where the first verdict has them.
    """
    cell = matrix_view.matrix.cells.get(key)
    kind = Status.MISSING if cell is None else cell.kind
    out = [(kind.look.word, kind_style(kind), _cell_title(matrix_view, key))]
    change = matrix_view.changes.get(key)
    if change is not None:
        out.append((change.change.look.word, change.change.look.style, _change_sentences(change)))
    if cell is None or kind is Status.MISSING:
        out.append(("", "", "Not measured yet." if cell is None else cell.reason or "Not measured."))
        return out
    if cell.reason:
        out.append(("Why", "strong", cell.reason))
    verdicts = [
        one for one in sorted(cell.verdicts, key=lambda one: one.kind.severity, reverse=True) if one.kind.severity
    ]
    if brief and verdicts and len(out) == 1:
        out = [(out[0][0], out[0][1], verdicts[0].sentence)]
        out += [("", "", one.sentence) for one in verdicts[1:]]
    else:
        out += [("", "", one.sentence) for one in verdicts]
    out += [("Remedy", "strong", remedy) for remedy in dict.fromkeys(one.remedy for one in verdicts if one.remedy)]
    if not verdicts:
        percentiles = _percentiles(matrix_view.figures[key])
        if percentiles:
            out.append(("", "", percentiles))
    in_flight = check_wording.in_flight(cell)
    if in_flight:
        out.append(("In flight", "bad", f"{in_flight} at the end of a window."))
    if not brief and matrix_view.reference is not None:
        reference = matrix_view.reference.reference
        text = _on_reference(reference, key)
        if text:
            out.append(("On other machines", "strong", f"{text}. {reference_wording.reference_title(reference)}."))
    return out


def _on_reference(reference: Reference, key: Key) -> str:
    """The cell on the reference, "" if it does not have the cell."""
    if key[1] == QUIET:
        return reference_wording.reference_baseline(reference, key[0])
    there = reference.cells.get(key)
    return "" if there is None else reference_wording.reference_cell(there)


def _cell_title(matrix_view: MatrixView, key: Key) -> str:
    row, column = matrix_view.matrix.row(key[0]), matrix_view.matrix.column(key[1])
    return f"{row.title} alone" if column.name == QUIET else f"{row.title} beside “{column.title}”"


def _percentiles(known: CellFigures) -> str:
    """p50 and p99 of a quiet cell with those of its baseline."""
    words = []
    for phase, part in known.parts.items():
        if not part.ratios:
            p50, p99 = (duration_ns(part.now_ns.get(quantile)) for quantile in PERCENTILES)
            words.append(f"{phase} p50 {p50}, p99 {p99}")
            continue
        median, tail = (part.ratios[quantile] for quantile in PERCENTILES)
        words.append(
            f"{phase} p50 {duration_ns(median.baseline_ns)} → {duration_ns(median.now_ns)} ({times(median.ratio)}), "
            f"p99 {duration_ns(tail.baseline_ns)} → {duration_ns(tail.now_ns)}"
        )
    return "; ".join(words) + "." if words else ""


def _change_sentences(change: CellChange) -> str:
    """What changed, in which percentile, why one is unsure, and what a cell that is the same could have detected."""
    words = []
    if change.newly_starved:
        words.append("It starves and did not before.")
    if change.no_longer_starved:
        words.append("It starved before and no longer does.")
    if change.note:
        words.append(change.note)
    for part in change.parts:
        if part.change is Change.SAME and change.change is not Change.SAME:
            continue
        ratio = "" if part.ratio is None else f" ({times(part.ratio)})"
        name = check_wording.channel_name(part.channel)
        figures = f"{duration_ns(part.old_ns)} → {duration_ns(part.new_ns)}{ratio}"
        words.append(f"{name} {part.quantile} {part.change.look.word}: {part.why or figures}".rstrip(".") + ".")
    if change.change is Change.SAME and (detectable := comparison_wording.detectable_text(change)):
        words.append(f"{detectable[:1].upper()}{detectable[1:]}.")
    return " ".join(words)


def histograms(matrix_view: MatrixView, key: Key) -> HistogramsView | None:
    """Call and wait of a cell, and what the timeline measured, with their baselines; None if nothing was measured."""
    cell = matrix_view.matrix.cells.get(key)
    if cell is None or not cell.repeats:
        return None
    kind, worst = matrix_view.figures[key].kind, cell.worst
    shown = (*PHASES, *TIMELINE_PHASES) if matrix_view.matrix.timeline else PHASES
    # Most calls have no start before their return.
    channels = [
        one for one in map(Channel, shown) if one in cell.channels and (one.phase in PHASES or cell.channels[one].count)
    ]
    return HistogramsView(
        cell.row,
        _cell_title(matrix_view, key),
        tuple(
            ChannelView(channel.phase, "", cell.channels[channel], cell.baseline.get(channel)) for channel in channels
        ),
        kind.look.word,
        kind.look.style,
        None if worst is None else worst.ratio,
        cell.in_flight_ns if cell.in_flight_ns and check_wording.in_flight(cell) else None,
        now="with aggressor",
    )
