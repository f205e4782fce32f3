"""Section of the HTML page on one cell: verdicts, remedies, figures, and histograms beside the baseline."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stallprobes.latency.ratio import PERCENTILES, BaselineRatio, Quantile
from stallprobes.matrix import findings
from stallprobes.matrix.comparing.comparison import CellOutcome
from stallprobes.matrix.matrix import PHASES, QUIET, Status
from stallprobes.units import duration_ns, times
from stallprobes.wording import check_wording, comparison_wording
from stallscope.report import svg

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison
    from stallprobes.matrix.matrix import Cell, Matrix
    from stallprobes.model import Channel

# CSS class for the outcome of a compared cell (one victim beside one aggressor). For an outcome that is missing
# here, the class has the outcome's name.
_OUTCOME_CLASSES = {CellOutcome.WORSE: "starved", CellOutcome.FED: "better"}


@dataclass(frozen=True, eq=False)
class PageData:
    """Common data of all parts of a page: the matrix, each cell's element id, the histograms' axis, and the changes.

    ``before`` is the older matrix of a comparison.
    """

    matrix: Matrix
    ids: Mapping[tuple[str, str], str]
    axis: svg.Axis
    changes: Mapping[tuple[str, str], CellChange]
    before: Matrix | None

    @classmethod
    def of(cls, matrix: Matrix, comparison: Comparison | None) -> PageData:
        """The data of ``matrix`` and of the comparison whose newer side it is."""
        rows = {row.name: number for number, row in enumerate(matrix.rows)}
        columns = {column.name: number for number, column in enumerate(matrix.columns)}
        changes = {change.key: change for change in comparison.cells} if comparison is not None else {}
        before = comparison.old if comparison is not None else None
        older = [before.cells[key] for key, cell in changes.items() if before and cell.outcome is not CellOutcome.SAME]
        shown = (
            histogram
            for cell in (*matrix.cells.values(), *older)
            for channel in findings.channels(cell)
            for histogram in (cell.channels.get(channel), cell.baseline.get(channel))
            if histogram is not None
        )
        return cls(
            matrix=matrix,
            ids={(row, column): f"c{rows[row]}-{columns[column]}" for row, column in matrix.cells},
            axis=svg.Axis.over(shown),
            changes=changes,
            before=before,
        )

    def outcome(self, cell: Cell) -> CellOutcome:
        """CellOutcome of ``cell`` in the comparison; SAME without one."""
        change = self.changes.get(cell.key)
        return CellOutcome.SAME if change is None else change.outcome


def text(value: object) -> str:
    """``value`` escaped as HTML text, in attributes too."""
    return html.escape(str(value), quote=True)


def kind_badge(cell: Cell) -> str:
    """The kind of ``cell`` as a marked word."""
    kind = cell.shown_kind
    return f'<span class="word {kind}">{text(kind.look.word)}</span>'


def section(data: PageData, cell: Cell) -> str:
    """The section of ``cell``."""
    row, column = data.matrix.row(cell.row), data.matrix.column(cell.column)
    where = "alone" if cell.column == QUIET else f"beside {text(column.name)} <small>{text(column.title)}</small>"
    parts = [
        f'<section id="{data.ids[cell.row, cell.column]}"><h3>{text(row.name)} <small>{text(row.title)}</small> ',
        f"{where} {kind_badge(cell)}</h3>",
        *_verdicts(cell),
        *_change(data, cell),
        '<div class="pair">',
        _table(cell),
        *_histograms(data, cell),
        '</div><p class="back"><a href="#matrix">Back to the matrix</a></p></section>',
    ]
    return "".join(parts)


def _verdicts(cell: Cell) -> Iterator[str]:
    if cell.reason:
        yield f"<p>{text(cell.status)}: {text(cell.reason)}</p>"
    in_flight = check_wording.in_flight(cell)
    if in_flight and not any(verdict.quantile is Quantile.IN_FLIGHT for verdict in cell.verdicts):
        yield f"<p>{text(in_flight)}</p>"
    for verdict in findings.verdicts(cell):
        yield f"<p>{text(verdict.sentence)}</p>"
    for remedy in dict.fromkeys(verdict.remedy for verdict in findings.verdicts(cell) if verdict.remedy):
        yield f'<p class="soft">Remedy: {text(remedy)}</p>'


def _same(change: CellChange) -> str:
    """The note of a cell that did not change, else what it could have detected."""
    detectable = comparison_wording.detectable_text(change)
    return change.note or (f"{detectable[:1].upper()}{detectable[1:]}." if detectable else "")


def _change(data: PageData, cell: Cell) -> Iterator[str]:
    change = data.changes.get(cell.key)
    if change is None:
        return
    if change.outcome is CellOutcome.SAME:
        yield f'<p class="soft">Comparison with the old check: SAME. {text(_same(change))}</p>'
        return
    yield f"<p>{badge(change.outcome, 'span')} {text(comparison_wording.change_figures(change))}</p>"


def largest_ratio(cell: Cell) -> float | None:
    """The larger ratio to the baseline of call and wait, None without calls."""
    return max((shown.ratio for phase in PHASES if (shown := findings.shown(cell, phase))), default=None)


def description(data: PageData, cell: Cell) -> str:
    """``d2d@secondary beside spin: STALLED, call p50 ×1.5, wait p50 ×428``, and what changed."""
    parts = [cell.shown_kind.look.word]
    if cell.status is Status.OK and cell.column != QUIET:
        ratios = [shown for phase in PHASES if (shown := findings.shown(cell, phase))]
        parts += [f"{check_wording.phase_name(r.phase)} {r.quantile} {times(r.ratio)}" for r in ratios]
    elif cell.status is Status.STARVED:
        parts.append(check_wording.worst_figure(cell))
    change = data.changes.get(cell.key)
    if change is not None and change.outcome is not CellOutcome.SAME:
        parts.append(f"{change.outcome.look.word}: {comparison_wording.change_figures(change)}")
    return f"{check_wording.cell_name(cell)}: {', '.join(parts)}"


def outcome_badge(data: PageData, cell: Cell) -> str:
    """CellOutcome of ``cell`` as a marked word for the matrix; empty for SAME."""
    outcome = data.outcome(cell)
    return "" if outcome is CellOutcome.SAME else badge(outcome, "em")


def badge(outcome: CellOutcome, tag: str) -> str:
    """``outcome`` as a marked word, in the element ``tag``."""
    return f'<{tag} class="word {_OUTCOME_CLASSES.get(outcome, outcome)}">{text(outcome.look.word)}</{tag}>'


def _table(cell: Cell) -> str:
    alone = cell.column == QUIET
    head = "<th scope=col>calls<th scope=col>p50<th scope=col>p99<th scope=col>max"
    if not alone:
        head += "<th scope=col>× p50<th scope=col>× p99"
    lines = []
    for channel in findings.channels(cell):
        name = text(check_wording.channel_name(channel))
        if not alone:
            baseline = "".join(f"<td>{figure}" for figure in svg.figures(cell.baseline.get(channel)))
            lines.append(f"<tr><th scope=row>{name}, baseline{baseline}<td><td>")
        now = "".join(f"<td>{figure}" for figure in svg.figures(cell.channels.get(channel)))
        ratios = "" if alone else "".join(f"<td>{_ratio(cell, channel, q)}" for q in PERCENTILES)
        lines.append(f"<tr><th scope=row>{name}{'' if alone else ', beside'}{now}{ratios}")
    if not lines:
        return ""
    return f"<div><table class=figures><thead><tr><th scope=col>{head}<tbody>{''.join(lines)}</table></div>"


def _histograms(data: PageData, cell: Cell) -> Iterator[str]:
    changed = data.outcome(cell) is not CellOutcome.SAME
    before = data.before.cells.get(cell.key) if data.before is not None and changed else None
    for channel in findings.channels(cell):
        layers = [("h-quiet", cell.baseline.get(channel)), ("h-now", cell.channels.get(channel))]
        if before is not None:
            layers.append(("h-old", before.channels.get(channel)))
        name = text(check_wording.channel_name(channel))
        yield f"<figure><figcaption>{name}</figcaption>{data.axis.svg(layers, f'histogram of {name}')}</figure>"


def _ratio(cell: Cell, channel: Channel, quantile: Quantile) -> str:
    ratio = BaselineRatio.of(cell.channels, cell.baseline, channel, quantile)
    return "–" if ratio is None else times(ratio.ratio)


def baseline_figures(cell: Cell) -> str:
    """Medians of call and wait with no aggressor running."""
    return "<br>".join(duration_ns(ns) for ns in check_wording.baseline_medians_ns(cell) if ns is not None) or "–"
