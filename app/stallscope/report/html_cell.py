"""The part of the page on one cell: its histograms against quiet, its figures, what was found and what helps."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stallprobes.matrix.matrix import PHASES, QUIET
from stallprobes.units import duration, times
from stallscope.report import comparison_text, findings, svg
from stallscope.report.text import without_control

if TYPE_CHECKING:
    from stallprobes.matrix.compare import CellChange, Comparison
    from stallprobes.matrix.matrix import Cell, Matrix
    from stallprobes.model import Channel

Places = Mapping[tuple[str, str], str]


@dataclass(frozen=True, eq=False)
class Book:
    """What every part of a page draws from: the matrix, each cell's place in the page, the axis, what changed."""

    matrix: Matrix
    places: Places
    axis: svg.Axis
    changes: Mapping[tuple[str, str], CellChange]
    before: Matrix | None

    @classmethod
    def of(cls, matrix: Matrix, comparison: Comparison | None) -> Book:
        """Everything for ``matrix`` and the comparison that it is the newer side of."""
        rows = {row.name: number for number, row in enumerate(matrix.rows)}
        columns = {column.name: number for number, column in enumerate(matrix.columns)}
        changes = {(one.row, one.column): one for one in comparison.cells} if comparison is not None else {}
        before = comparison.old if comparison is not None else None
        older = [before.cells[key] for key, one in changes.items() if before and comparison_text.group(one) != "same"]
        shown = (
            histogram
            for cell in (*matrix.cells.values(), *older)
            for channel in findings.channels(cell)
            for histogram in (cell.channels.get(channel), cell.quiet.get(channel))
            if histogram is not None
        )
        return cls(
            matrix=matrix,
            places={(row, column): f"c{rows[row]}-{columns[column]}" for row, column in matrix.cells},
            axis=svg.Axis.over(shown),
            changes=changes,
            before=before,
        )


def text(value: object) -> str:
    """``value`` so that HTML takes it for text, in an attribute too."""
    return html.escape(without_control(str(value)), quote=True)


def word(cell: Cell) -> str:
    """The cell's kind as a marked word."""
    kind = findings.kind(cell)
    return f'<span class="word {kind}">{text(findings.WORDS.get(kind, kind))}</span>'


def section(book: Book, cell: Cell) -> str:
    """The whole section of ``cell``."""
    row, column = book.matrix.row(cell.row), book.matrix.column(cell.column)
    where = "alone" if cell.column == QUIET else f"beside {text(column.name)} <small>{text(column.title)}</small>"
    parts = [
        f'<section id="{book.places[cell.row, cell.column]}"><h3>{text(row.name)} <small>{text(row.title)}</small> ',
        f"{where} {word(cell)}</h3>",
        *_said(cell),
        *_changed(book, cell),
        '<div class="pair">',
        _table(cell),
        *_charts(book, cell),
        '</div><p class="back"><a href="#matrix">Back to the matrix</a></p></section>',
    ]
    return "".join(parts)


def _said(cell: Cell) -> Iterator[str]:
    if cell.reason:
        yield f"<p>{text(cell.status)}: {text(cell.reason)}</p>"
    hung = findings.in_flight(cell)
    if hung and not any(verdict.quantile == "in-flight" for verdict in cell.verdicts):
        yield f"<p>{text(hung)}</p>"
    for verdict in findings.verdicts(cell):
        yield f"<p>{text(verdict.sentence)}</p>"
    for helps in dict.fromkeys(verdict.helps for verdict in findings.verdicts(cell) if verdict.helps):
        yield f'<p class="soft">What helps: {text(helps)}</p>'


def _changed(book: Book, cell: Cell) -> Iterator[str]:
    change = book.changes.get((cell.row, cell.column))
    if change is None:
        return
    group = comparison_text.group(change)
    if group == "same":
        yield f'<p class="soft">Against the old check: SAME. {text(change.note)}</p>'
        return
    yield f'<p><span class="word {group_class(group)}">{_title(group)}</span> {text(comparison_text.figures(change))}</p>'


def _title(group: str) -> str:
    return next((text(title.partition(":")[0]) for key, title, _ in comparison_text.TITLES if key == group), "SAME")


def group_class(group: str) -> str:
    """The class that a group of changes is coloured by."""
    return {"slower": "starved", "fed": "faster"}.get(group, group)


def badge(book: Book, cell: Cell) -> str:
    """A cell's change in a word for the matrix; empty for the same."""
    change = book.changes.get((cell.row, cell.column))
    group = "same" if change is None else comparison_text.group(change)
    return "" if group == "same" else f'<em class="word {group_class(group)}">{_title(group)}</em>'


def _table(cell: Cell) -> str:
    alone = cell.column == QUIET
    head = "<th scope=col>calls<th scope=col>p50<th scope=col>p99<th scope=col>max"
    if not alone:
        head += "<th scope=col>× p50<th scope=col>× p99"
    lines = []
    for channel in findings.channels(cell):
        name = _channel(channel)
        if not alone:
            quiet = "".join(f"<td>{figure}" for figure in svg.figures(cell.quiet.get(channel)))
            lines.append(f"<tr><th scope=row>{name}, quiet{quiet}<td><td>")
        now = "".join(f"<td>{figure}" for figure in svg.figures(cell.channels.get(channel)))
        ratios = "" if alone else "".join(f"<td>{_ratio(cell, channel, q)}" for q in (50, 99))
        lines.append(f"<tr><th scope=row>{name}{'' if alone else ', beside'}{now}{ratios}")
    if not lines:
        return ""
    return f"<div><table class=figures><thead><tr><th scope=col>{head}<tbody>{''.join(lines)}</table></div>"


def _charts(book: Book, cell: Cell) -> Iterator[str]:
    change = book.changes.get((cell.row, cell.column))
    changed = change is not None and comparison_text.group(change) != "same"
    before = book.before.cells.get((cell.row, cell.column)) if book.before is not None and changed else None
    for channel in findings.channels(cell):
        layers = [("h-quiet", cell.quiet.get(channel)), ("h-now", cell.channels.get(channel))]
        if before is not None:
            layers.append(("h-old", before.channels.get(channel)))
        name = _channel(channel)
        yield f"<figure><figcaption>{name}</figcaption>{book.axis.svg(layers, f'histogram of {name}')}</figure>"


def _ratio(cell: Cell, channel: Channel, q: int) -> str:
    found = findings.against_quiet(cell, channel, q)
    return "–" if found is None else times(found.ratio)


def _channel(channel: Channel) -> str:
    phase = findings.phase_word(channel.phase)
    return text(f"{phase} of {channel.label}" if channel.label else phase)


def quiet_figures(cell: Cell) -> str:
    """The medians of call and wait where nothing else ran."""
    medians = []
    for phase in PHASES:
        channel = next((channel for channel in cell.channels if channel.phase is phase and not channel.label), None)
        ns = None if channel is None else cell.channels[channel].percentile(50)
        if ns is not None:
            medians.append(duration(ns / 1000))
    return "<br>".join(medians) or "–"
