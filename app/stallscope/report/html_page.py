"""HTML page of a check: one self-contained file that needs no network.

Text and inline SVG only. Its content security policy lets the browser load nothing, and run and style by nothing but
the page's own two blocks, so that a name in a check stays text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from stallprobes.foreign_text import printable_lines
from stallprobes.matrix import findings
from stallprobes.matrix.comparing.comparison import CellOutcome
from stallprobes.matrix.matrix import QUIET, Status
from stallprobes.units import compact, plural
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording, comparison_wording, reference_wording
from stallprobes.wording.headline import headline
from stallprobes.wording.timeline_wording import phases_text, summary_text
from stallscope.report import html_cell
from stallscope.report.html_cell import PageData, text

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import Comparison
    from stallprobes.matrix.matrix import Cell, Matrix, MatrixColumn, MatrixRow
    from stallprobes.matrix.reference import ReferenceComparison

# Title of the matrix in the HTML report.
_MATRIX_TITLE = "Latency relative to baseline"
# Explanation of the figures in the matrix of the HTML report.
_LEGEND = "The larger ratio of call and wait, the worst rows and columns first; hover for both."
# Explanation of the phases in the HTML report.
_PHASES = "call: time inside the driver call. wait: from its return until the host sees the work complete."
# Explanation of the histograms in the HTML report.
_HISTOGRAM_LEGEND = (
    "All histograms have the same logarithmic time axis. Heights are square roots of the share of calls, so that rare "
    "slow calls stay visible."
)
# CSS classes that darken a stalled cell (one victim beside one aggressor). The number before a class is the smallest
# ratio to the baseline for the class. The largest ratio comes first.
_SHADES = ((300, "most"), (30, "much"))
# Number of causes that the HTML report shows unfolded; the reader unfolds the others.
_CAUSES_IN_VIEW = 8


def page(
    matrix: Matrix,
    comparison: Comparison | None = None,
    hosts: Sequence[str] = (),
    reference: ReferenceComparison | None = None,
) -> str:
    """The page of ``matrix``, with its comparison with an older check, and its comparison with a reference.

    ``hosts`` are sentences on the hosts of a merged matrix.
    """
    style, script = (_resource(name) for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    data = PageData.of(matrix, comparison)
    when = matrix.started_at if comparison is None else f"{comparison.old.started_at} → {matrix.started_at}"
    kind = "check" if comparison is None else "comparison"
    title = text(f"stallscope {kind} · {matrix.fingerprint.get('gpu') or 'no GPU'} · {when}")
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f'<link rel="icon" href="data:,"><title>{title}</title>\n<style>{style}</style></head>\n<body>',
        f'<svg class="defs" aria-hidden="true"><defs>{data.axis.ticks()}</defs></svg>\n<header>',
        *_head(matrix, comparison, hosts, reference),
        "</header>\n<main>",
        *_comparison(data, comparison),
        *_causes(data),
        *_unusual(data, reference),
        *_matrix(data),
        *_cells(data),
        *_unmeasured(matrix),
        *_machine(matrix),
        f"</main>\n<script>{script}</script></body></html>\n",
    ]
    return printable_lines("".join(parts))


def _head(
    matrix: Matrix, comparison: Comparison | None, hosts: Sequence[str], reference: ReferenceComparison | None
) -> Iterator[str]:
    if matrix.simulated:
        yield f'<p class="simulated">SIMULATED: no GPU was measured. Profile {text(matrix.profile)}, '
        yield f"seed {text(matrix.sim_seed)}.</p>"
    yield f"<h1>{'stallscope check' if comparison is None else 'stallscope: comparison of two checks'}</h1>"
    yield f"<p>{text(check_wording.check_title(matrix))}</p>"
    yield '<table class="key headline"><tbody>'
    for label, line in headline(matrix, comparison, reference):
        yield f"<tr><th scope=row>{label}</th><td>{text(line)}</td></tr>"
    yield "</tbody></table>"
    if matrix.interrupted:
        yield "<p><b>Interrupted: cells that were not reached are missing.</b></p>"
    if hosts:
        yield "<h2>About the hosts</h2><ul>"
        yield from (f"<li>{text(sentence)}" for sentence in hosts)
        yield "</ul>"


def _matrix(data: PageData) -> Iterator[str]:
    matrix = data.matrix
    rows, columns = findings.victims(matrix), findings.aggressors(matrix)
    yield f'<h2 id="matrix">{_MATRIX_TITLE}</h2>'
    if any(change.outcome is not CellOutcome.SAME for change in data.changes.values()):
        yield '<button class="changes" type="button" aria-pressed="false">only changed</button>'
    simulated = f"SIMULATED {text(matrix.profile)}. " if matrix.simulated else ""
    yield f'<p id="legend">{simulated}{_LEGEND} {_kinds_legend(matrix)}</p><p class="hint">Select a cell for its '
    yield "histograms: click it, or press Tab and the arrow keys. Escape closes it.</p>"
    yield '<div class="scroll" tabindex="0" role="region" aria-labelledby="matrix">'
    yield '<table class="matrix" aria-describedby="legend">\n<thead><tr><th scope=col>beside</th>'
    yield from (f'<th scope=col title="{text(row.title)}">{_breakable(row.name)}</th>' for row in rows)
    yield "</tr></thead>\n<tbody>"
    if findings.has_quiet(matrix):
        yield "<tr><th scope=row>baseline: call, wait</th>"
        yield from (_cell(data, row, matrix.column(QUIET)) for row in rows)
        yield "</tr>\n"
    for column in columns:
        yield f'<tr><th scope=row title="{text(column.title)}">{_breakable(column.name)}</th>'
        yield from (_cell(data, row, column) for row in rows)
        yield "</tr>\n"
    yield "</tbody></table></div>\n"


def _kinds_legend(matrix: Matrix) -> str:
    """The kinds that cells have, each as a cell shows it."""
    parts = []
    for kind in findings.counts(matrix):
        if kind is VerdictKind.QUIET:
            parts.append("· quiet")
        elif kind is VerdictKind.STALLED:
            darker = "".join(f' <b class="word stalled {shade}">≥ {ratio}</b>' for ratio, shade in _SHADES[::-1])
            parts.append(f'<b class="word stalled">{text(kind.look.word)}</b>{darker}')
        else:
            letter = kind.look.letter if isinstance(kind, Status) else ""
            words = kind.look.word if letter in ("", kind.look.word) else f"{letter} {kind.look.word}"
            parts.append(f'<span class="word {kind}">{text(words)}</span>')
    return " ".join(parts)


def _cell(data: PageData, row: MatrixRow, column: MatrixColumn) -> str:
    cell = data.matrix.cells.get((row.name, column.name))
    if cell is None:
        return "<td></td>"
    kind = cell.shown_kind
    ratio = html_cell.largest_ratio(cell)
    figure = compact(ratio) if ratio is not None and cell.status is Status.OK else ""
    shade = ""
    if isinstance(kind, Status):
        inner = text(kind.look.letter or kind.look.word)
    elif column.name == QUIET:
        inner = html_cell.baseline_figures(cell) + ("" if kind is VerdictKind.QUIET else _word(kind))
    elif kind is VerdictKind.QUIET:
        inner = "·"
    elif kind is VerdictKind.STALLED and figure:
        inner = f"<b>{figure}</b>"
        shade = next((f" {shade}" for least, shade in _SHADES if ratio is not None and ratio >= least), "")
    else:
        inner = figure + ("" if kind is VerdictKind.SLOWER and figure else _word(kind))
    changed = "" if data.outcome(cell) is CellOutcome.SAME else " changed"
    words = text(html_cell.description(data, cell))
    link = f'<a href="#{data.ids[cell.row, cell.column]}" title="{words}" aria-label="{words}">'
    return f'<td class="{kind}{shade}{changed}">{link}{inner}{html_cell.outcome_badge(data, cell)}</a></td>'


def _word(kind: VerdictKind) -> str:
    return f"<em>{text(kind.look.word)}</em>"


def _breakable(name: str) -> str:
    """``name`` with line breaks allowed before @ and /, and after +."""
    return re.sub(r"(?=[@/])|(?<=\+)", "<wbr>", text(name))


def _cells(data: PageData) -> Iterator[str]:
    old = f", {_swatch('h-old')} the old check where it changed" if data.changes else ""
    yield '<div class="cells" aria-live="polite"><button class="close" type="button">Close</button>'
    yield from (html_cell.section(data, cell) + "\n" for cell in data.matrix.cells.values())
    yield f'</div><p class="soft">Histograms: {_swatch("h-quiet")} baseline, {_swatch("h-now")} beside the aggressor'
    yield f"{old}. {_HISTOGRAM_LEGEND} {_PHASES}</p>\n"
    if data.matrix.timeline:
        yield f'<p class="soft">{text(phases_text())}</p>\n'


def _causes(data: PageData) -> Iterator[str]:
    """One line per cause with its worst case and remedy; opened, its cause and all its cells. The worst first."""
    groups = findings.groups(data.matrix)
    if not groups:
        return
    yield f"<h2>{check_wording.CAUSES_TITLE}</h2>"
    yield from _findings(data, groups[:_CAUSES_IN_VIEW])
    if more := groups[_CAUSES_IN_VIEW:]:
        yield f'<details class="finding"><summary>{plural(len(more), "more cause")}</summary>'
        yield from _findings(data, more)
        yield "</details>\n"


def _findings(data: PageData, groups: Sequence[findings.CauseGroup]) -> Iterator[str]:
    for group in groups:
        link = f'<a href="#{data.ids[group.worst.row, group.worst.column]}">{text(check_wording.worst_case(group))}</a>'
        yield f'<details class="finding"><summary><span class="word {group.kind}">{text(group.kind.look.word)}</span> '
        yield f"{link}. "
        yield f'<span class="soft">{text(group.remedy or check_wording.NO_CAUSE)}</span></summary>'
        yield f"<p>{text(group.cause or check_wording.NO_CAUSE)}</p><ul>"
        for name, cells in group.columns:
            column = data.matrix.column(name)
            where = "alone" if name == QUIET else f"beside {text(name)} <small>{text(column.title)}</small>"
            figures = "; ".join(f"{_link(data, cell)} {text(check_wording.figures(cell))}" for cell in cells)
            yield f"<li>{where}: {figures}"
        yield "</ul></details>\n"


def _unmeasured(matrix: Matrix) -> Iterator[str]:
    for status, title in check_wording.UNMEASURED_TITLES.items():
        reasons = findings.reasons(matrix, status)
        if reasons:
            yield f"<h2>{title}</h2><ul>"
            yield from (f"<li>{text(', '.join(places))}: {text(reason)}" for reason, places in reasons)
            yield "</ul>\n"


def _machine(matrix: Matrix) -> Iterator[str]:
    yield '<h2>Machine</h2><table class="key"><tbody>'
    for key, value in check_wording.fingerprint_items(matrix.fingerprint):
        yield f"<tr><th scope=row>{text(key)}</th><td>{text(value)}</td></tr>"
    unknown = matrix.fingerprint.get("unknown")
    if isinstance(unknown, dict):
        for key, why in unknown.items():
            name = text(str(key).replace("_", " "))
            yield f'<tr><th scope=row>{name}</th><td class="soft">unknown: {text(why)}</td></tr>'
    facts = (
        ("period of victims", f"{matrix.pace_ns / 1000:g} µs"),
        ("order of cells", f"seed {matrix.seed}"),
        ("stallscope", matrix.program or "unknown"),
    )
    yield from (f"<tr><th scope=row>{name}</th><td>{text(value)}</td></tr>" for name, value in facts)
    if matrix.timeline_summary is not None:
        yield f"<tr><th scope=row>timeline</th><td>{text(summary_text(matrix.timeline_summary))}</td></tr>"
    yield "</tbody></table>\n"
    if matrix.hosts:
        yield '<h2>Hosts</h2><table class="key"><tbody>'
        for name, fingerprint in matrix.hosts.items():
            items = " · ".join(f"{key} {value}" for key, value in check_wording.fingerprint_items(fingerprint))
            yield f"<tr><th scope=row>{text(name)}</th><td>{text(items)}</td></tr>"
        yield "</tbody></table>\n"


def _comparison(data: PageData, comparison: Comparison | None) -> Iterator[str]:
    if comparison is None:
        return
    yield f"<h2>What changed</h2><p>since {text(check_wording.check_title(comparison.old))}</p>"
    if comparison.differences:
        yield '<table class="figures key"><caption>Differences in GPU, driver, settings and host</caption><thead><tr>'
        yield "<th scope=col></th><th scope=col>old</th><th scope=col>new</th></tr></thead><tbody>"
        for row in comparison.differences:
            yield f"<tr><th scope=row>{text(row.key)}</th><td>{text(check_wording.format_value(row.old))}</td>"
            yield f"<td>{text(check_wording.format_value(row.new))}</td></tr>"
        yield "</tbody></table>"
    else:
        yield "<p>No difference in GPU, driver, settings and host.</p>"
    for outcome in CellOutcome:
        cells = [cell for cell in comparison.cells if cell.outcome is outcome]
        if cells and outcome is not CellOutcome.SAME:
            yield f"<p>{html_cell.badge(outcome, 'span')} {len(cells)}</p>"
            yield from _cell_list(data, ((change.key, comparison_wording.change_figures(change)) for change in cells))
    yield f"<p>SAME: {text(comparison_wording.unchanged_text(comparison))}</p>"
    for places, where in ((comparison.only_old, "OLD"), (comparison.only_new, "NEW")):
        if places:
            names = comparison_wording.places_by_column(place.key for place in places)
            yield f"<p>only in {where}: {text('; '.join(names))}</p>"
    yield f'<p class="soft">{text(comparison_wording.false_alarms(comparison))}</p>\n'


def _unusual(data: PageData, comparison: ReferenceComparison | None) -> Iterator[str]:
    if comparison is None:
        return
    name = text(reference_wording.reference_title(comparison.reference))
    yield f"<h2>{reference_wording.REFERENCE_TITLE}</h2><p>reference: {name}</p>"
    for title, cells in reference_wording.unusual_groups(comparison):
        yield f"<p>{text(title)}: {plural(len(cells), 'cell')}</p>"
        yield from _cell_list(data, ((cell.key, reference_wording.unusual_figures(cell)) for cell in cells))
    yield f'<p class="soft">{text(" ".join(reference_wording.reference_notes(comparison)))}</p>\n'


def _cell_list(data: PageData, figures: Iterable[tuple[tuple[str, str], str]]) -> Iterator[str]:
    yield "<ul>"
    for key, shown in figures:
        yield f"<li>{_link(data, data.matrix.cells[key])} beside {text(key[1])}: {text(shown)}"
    yield "</ul>"


def _link(data: PageData, cell: Cell) -> str:
    return f'<a href="#{data.ids[cell.row, cell.column]}">{text(cell.row)}</a>'


def _swatch(name: str) -> str:
    return f'<svg class="swatch" viewBox="0 0 24 12" aria-hidden="true"><path class="{name}" d="M2 11V3h20v8z"/></svg>'


def _resource(name: str) -> str:
    return (resources.files("stallscope.report") / name).read_text(encoding="utf-8").strip()


def _hash(block: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(block.encode("utf-8")).digest()).decode("ascii")
