"""A check as one page for a browser: nothing outside it is needed, no network and no other file.

Everything in it is text and inline SVG. Its policy forbids the browser to load anything, and to run or style by
anything but the two blocks that are in it, so that a name in a check can be no more than a name.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from stallprobes.matrix.matrix import PHASES, QUIET, Status
from stallscope.report import comparison_text, findings, html_cell
from stallscope.report.html_cell import Book, text
from stallscope.report.matrix_text import short

if TYPE_CHECKING:
    from stallprobes.matrix.compare import CellChange, Comparison
    from stallprobes.matrix.matrix import Cell, Matrix, MatrixColumn, MatrixRow

_LEGEND = (
    "Each cell: times quiet of call / wait, medians but for: "
    + ", ".join(f"{mark} {meaning}" for mark, meaning in findings.MARKS.items())
    + ". Rows and columns come the worst first. call is the time inside the driver's call, wait the time until the "
    "host saw the work done."
)
_CHART_LEGEND = (
    "One logarithmic axis of time for all pictures; heights are roots of the share of calls, so that a rare slow call "
    "is seen."
)
# From these ratios on a stall is painted darker.
_MUCH, _MOST = 30, 300


def page(matrix: Matrix, comparison: Comparison | None = None, hosts: Sequence[str] = ()) -> str:
    """The page of ``matrix``; with ``comparison``, whose newer side it must be, also what changed.

    ``hosts`` are sentences on the hosts of a merged matrix.
    """
    style, script = (_resource(name) for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    book = Book.of(matrix, comparison)
    title = text(f"stallscope check · {matrix.fingerprint.get('gpu') or 'no GPU'} · {matrix.started_at}")
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f'<link rel="icon" href="data:,"><title>{title}</title>\n<style>{style}</style></head>\n<body>',
        f'<svg class="defs" aria-hidden="true"><defs>{book.axis.ticks()}</defs></svg>\n<header>',
        *_head(matrix, hosts),
        "</header>\n<main>",
        *_comparison(book, comparison),
        *_matrix(book),
        *_cells(book),
        *_findings(book),
        *_unmeasured(matrix),
        *_machine(matrix),
        f"</main>\n<script>{script}</script></body></html>\n",
    ]
    return "".join(parts)


def _head(matrix: Matrix, hosts: Sequence[str]) -> Iterator[str]:
    if matrix.simulated:
        yield f'<p class="simulated">SIMULATED: no GPU was measured. Profile {text(matrix.profile)}, '
        yield f"seed {text(matrix.sim_seed)}.</p>"
    yield f"<h1>stallscope check</h1><p>{text(findings.headline(matrix))}</p>"
    yield f"<p><b>{text(findings.summary(matrix))}</b></p>"
    if matrix.interrupted:
        yield "<p><b>Interrupted: this is what was measured until then.</b></p>"
    if hosts:
        yield "<h2>About the hosts</h2><ul>"
        yield from (f"<li>{text(sentence)}" for sentence in hosts)
        yield "</ul>"


def _matrix(book: Book) -> Iterator[str]:
    matrix = book.matrix
    rows, columns = findings.victims(matrix), findings.aggressors(matrix)
    yield '<h2 id="matrix">Times quiet</h2><p class="hint">Choose a cell to see its histograms: a click, or the tab '
    yield "key and then the arrow keys; Escape closes it.</p>"
    simulated = f"SIMULATED {text(matrix.profile)}. " if matrix.simulated else ""
    yield f'<p id="legend">{simulated}{text(_LEGEND)}</p><div class="scroll" tabindex="0" role="region" '
    yield 'aria-labelledby="matrix"><table class="matrix" aria-describedby="legend">\n'
    yield "<thead><tr><th scope=col>beside</th>"
    yield from (f'<th scope=col title="{text(row.title)}">{_breakable(row.name)}</th>' for row in rows)
    yield "</tr></thead>\n<tbody>"
    if findings.has_quiet(matrix):
        yield "<tr><th scope=row>nothing (quiet)</th>"
        yield from (_cell(book, row, matrix.column(QUIET)) for row in rows)
        yield "</tr>\n"
    for column in columns:
        yield f'<tr><th scope=row title="{text(column.title)}">{_breakable(column.name)}</th>'
        yield from (_cell(book, row, column) for row in rows)
        yield "</tr>\n"
    yield "</tbody></table></div>\n"


def _cell(book: Book, row: MatrixRow, column: MatrixColumn) -> str:
    cell = book.matrix.cells.get((row.name, column.name))
    if cell is None:
        return "<td></td>"
    kind = findings.kind(cell)
    shown = [findings.shown(cell, phase) for phase in PHASES]
    if column.name == QUIET:
        inner = html_cell.quiet_figures(cell) if cell.status in (Status.OK, Status.STARVED) else "–"
    elif any(shown) and cell.status is Status.OK:
        inner = "/".join("–" if s is None else short(s.ratio) + text(s.mark) for s in shown)
    else:
        inner = ""
    if kind != "quiet":
        inner += f"<em>{text(findings.WORDS.get(kind, kind))}</em>"
    worst = max((s.ratio for s in shown if s is not None), default=0.0) if kind == "stalled" else 0.0
    shade = " most" if worst >= _MOST else " much" if worst >= _MUCH else ""
    link = f'<a href="#{book.places[cell.row, cell.column]}">{inner}{html_cell.badge(book, cell)}</a>'
    return f'<td class="{kind}{shade}">{link}</td>'


def _breakable(name: str) -> str:
    """A name that a line may break before @ and /, and after +."""
    return re.sub(r"(?=[@/])|(?<=\+)", "<wbr>", text(name))


def _cells(book: Book) -> Iterator[str]:
    old = f", {_swatch('h-old')} the old check where it changed" if book.changes else ""
    yield '<div class="cells" aria-live="polite"><button class="close" type="button">Close</button>'
    yield from (html_cell.section(book, cell) + "\n" for cell in book.matrix.cells.values())
    yield f'</div><p class="soft">In the pictures: {_swatch("h-quiet")} quiet, {_swatch("h-now")} measured'
    yield f"{old}. {text(_CHART_LEGEND)}</p>\n"


def _findings(book: Book) -> Iterator[str]:
    groups = findings.groups(book.matrix)
    if not groups:
        return
    yield "<h2>What was found</h2>"
    for group in groups:
        word = text(findings.WORDS.get(group.kind, group.kind))
        yield f'<div class="finding"><p><span class="word {group.kind}">{word}</span> '
        yield f"{text(group.cause or 'No cause is known.')}</p><ul>"
        for name, cells in group.columns:
            column = book.matrix.column(name)
            where = "alone" if name == QUIET else f"beside {text(name)} <small>{text(column.title)}</small>"
            told = "; ".join(f"{_link(book, cell)} {text(findings.figures(cell))}" for cell in cells)
            yield f"<li>{where}: {told}"
        yield "</ul>"
        if group.helps:
            yield f'<p class="soft">What helps: {text(group.helps)}</p>'
        yield "</div>\n"


def _unmeasured(matrix: Matrix) -> Iterator[str]:
    for status, title in ((Status.INVALID, "Measured, and does not count"), (Status.UNSUPPORTED, "Not possible here")):
        reasons = findings.without(matrix, status)
        if reasons:
            yield f"<h2>{title}</h2><ul>"
            yield from (f"<li>{text(', '.join(places))}: {text(reason)}" for reason, places in reasons)
            yield "</ul>\n"


def _machine(matrix: Matrix) -> Iterator[str]:
    yield '<h2>Machine</h2><table class="key"><tbody>'
    for key, value in findings.told(matrix.fingerprint):
        yield f"<tr><th scope=row>{text(key)}</th><td>{text(value)}</td></tr>"
    unknown = matrix.fingerprint.get("unknown")
    if isinstance(unknown, dict):
        for key, why in unknown.items():
            name = text(str(key).replace("_", " "))
            yield f'<tr><th scope=row>{name}</th><td class="soft">unknown: {text(why)}</td></tr>'
    facts = (
        ("victims call every", f"{matrix.pace_us:g} µs"),
        ("order of the cells", f"seed {matrix.seed}"),
        ("stallscope", matrix.program or "unknown"),
    )
    yield from (f"<tr><th scope=row>{name}</th><td>{text(value)}</td></tr>" for name, value in facts)
    yield "</tbody></table>\n"
    if matrix.hosts:
        yield '<h2>Hosts</h2><table class="key"><tbody>'
        for name, fingerprint in matrix.hosts.items():
            told = " · ".join(f"{key} {value}" for key, value in findings.told(fingerprint))
            yield f"<tr><th scope=row>{text(name)}</th><td>{text(told)}</td></tr>"
        yield "</tbody></table>\n"


def _comparison(book: Book, comparison: Comparison | None) -> Iterator[str]:
    if comparison is None:
        return
    yield f"<h2>What changed</h2><p>since {text(comparison_text.told(comparison.old))}</p>"
    if comparison.differences:
        yield '<table class="figures key"><caption>What differs in GPU, driver, settings and host</caption><thead><tr>'
        yield "<th scope=col></th><th scope=col>old</th><th scope=col>new</th></tr></thead><tbody>"
        for one in comparison.differences:
            yield f"<tr><th scope=row>{text(one.key)}</th><td>{text(findings.plain(one.old))}</td>"
            yield f"<td>{text(findings.plain(one.new))}</td></tr>"
        yield "</tbody></table>"
    else:
        yield "<p>No difference in GPU, driver, settings and host.</p>"
    for key, title, _ in comparison_text.TITLES:
        found = [cell for cell in comparison.cells if comparison_text.group(cell) == key]
        if found:
            yield f'<p><span class="word {html_cell.group_class(key)}">{text(title)}</span> {len(found)}</p><ul>'
            yield from (f"<li>{_changed(book, cell)}" for cell in found)
            yield "</ul>"
    same = sum(comparison_text.group(cell) == "same" for cell in comparison.cells)
    yield f"<p>SAME: {same}</p>"
    for places, where in ((comparison.only_old, "OLD"), (comparison.only_new, "NEW")):
        if places:
            yield f"<p>only in {where}: {text(comparison_text.only(places))}</p>"
    yield f'<p class="soft">{text(comparison_text.false_alarms(comparison))}</p>\n'


def _changed(book: Book, change: CellChange) -> str:
    cell = book.matrix.cells[change.row, change.column]
    return f"{_link(book, cell)} beside {text(change.column)}: {text(comparison_text.figures(change))}"


def _link(book: Book, cell: Cell) -> str:
    return f'<a href="#{book.places[cell.row, cell.column]}">{text(cell.row)}</a>'


def _swatch(name: str) -> str:
    return f'<svg class="swatch" viewBox="0 0 24 12" aria-hidden="true"><path class="{name}" d="M2 11V3h20v8z"/></svg>'


def _resource(name: str) -> str:
    return (resources.files("stallscope.report") / name).read_text(encoding="utf-8").strip()


def _hash(block: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(block.encode("utf-8")).digest()).decode("ascii")
