"""HTML page of a comparison of watched runs: one self-contained file that needs no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from stallprobes.foreign_text import printable_lines
from stallprobes.units import duration_ns
from stallprobes.watch.comparing.comparison import ItemChange, RunsComparison, Sort
from stallprobes.watch.comparing.sentence import side_lines, spread_text
from stallprobes.watch.division.parts import Part
from stallprobes.wording.check_wording import format_value
from stallscope.report.html_cell import text
from stallscope.report.runs_text import side_text

# Colour of a part in the bars, by the style of its traits and its place among the parts of that style.
_COLOURS = {
    "good": ("#2e7d32", "#66bb6a", "#a5d6a7"),
    "accent": ("#1565c0", "#42a5f5", "#90caf9"),
    "warn": ("#ef6c00", "#ffb74d", "#ffe0b2"),
    "bad": ("#b71c1c", "#e53935", "#ef9a9a", "#ad1457", "#f06292"),
    "dim": ("#757575", "#9e9e9e", "#bdbdbd", "#e0e0e0"),
}
_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:64em;padding:0 1em;color:#222;background:#fff}"
    "table{border-collapse:collapse}td,th{padding:.15em .8em .15em 0;text-align:left}td.n{text-align:right}"
    "p.first{font-size:1.25em;font-weight:600}.worse{color:#b71c1c}.better{color:#2e7d32}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}.worse{color:#ef9a9a}.better{color:#a5d6a7}}"
)
# Width and height of a bar in units of the picture.
_WIDTH, _HEIGHT = 960, 28
# Titles of the tables of what changed, by sort.
_TITLES = {
    Sort.WAIT: "Waits",
    Sort.LINE: "Lines",
    Sort.LAUNCH: "Kernels by the line that launches them",
    Sort.KERNEL: "Kernels",
    Sort.PART: "Parts",
}


def page(result: RunsComparison) -> str:
    """The page of ``result``."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return printable_lines(
        "".join(
            (
                '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">',
                f"<title>stallscope comparison of runs</title>\n<style>{_STYLE}</style></head>\n<body>\n",
                *_body(result),
                "</body></html>\n",
            )
        )
    )


def _body(result: RunsComparison) -> Iterator[str]:
    yield "<h1>stallscope: comparison of watched runs</h1>\n<table><tbody>"
    for name, side in side_lines(result):
        yield f"<tr><th scope=row>{name}</th><td>{text(side_text(side))}</td></tr>"
    yield "</tbody></table>\n"
    if result.differences:
        yield "<h2>What differs between the programs and machines</h2><table><tbody>"
        for row in result.differences:
            change = f"{format_value(row.old)} → {format_value(row.new)}"
            yield f"<tr><th scope=row>{text(row.key)}</th><td>{text(change)}</td></tr>"
        yield "</tbody></table>\n"
    yield f'<p class="first {result.change}">{text(result.sentence)}</p>\n'
    if result.ratio is not None:
        yield "<h2>Time of a step</h2>\n" if not result.operations else "<h2>Time of 1000 operations</h2>\n"
        yield from _bars(result)
    for sort, title in _TITLES.items():
        items = [item for item in result.items if item.sort is sort]
        if items:
            yield f"<h2>{title} that changed</h2><table><thead><tr><th></th><th>OLD</th><th>NEW</th></tr></thead>"
            yield "<tbody>"
            yield from map(_row, items)
            yield "</tbody></table>\n"
    notes = [f"{name}: {sentence}" for name, side in side_lines(result) for sentence in side.left_out]
    for note in (*notes, *result.notes, spread_text(result)):
        yield f"<p>{text(note)}</p>\n" if note else ""


def _bars(result: RunsComparison) -> Iterator[str]:
    """Both bars on one scale, and a table of their parts."""
    longest = max(side.mean_ns for _, side in side_lines(result))
    colours = _colours()
    for name, side in side_lines(result):
        yield f'<svg role="img" viewBox="0 0 {_WIDTH + 40} {_HEIGHT}" width="100%" aria-label="{name}">'
        yield f'<text x="0" y="19" font-size="13" fill="currentColor">{name}</text>'
        begin = 40.0
        for part, ns in side.parts.items():
            width = ns / longest * _WIDTH
            title = f"{part.word} {duration_ns(ns)}"
            yield f'<rect x="{begin:.1f}" y="2" width="{width:.1f}" height="{_HEIGHT - 4}" fill="{colours[part]}">'
            yield f"<title>{text(title)}</title></rect>"
            begin += width
        yield "</svg>\n"
    yield "<table><thead><tr><th>part</th><th>OLD</th><th>NEW</th></tr></thead><tbody>"
    for part in Part:
        old_ns, new_ns = (side.parts.get(part, 0.0) for _, side in side_lines(result))
        if max(old_ns, new_ns) >= 0.01 * longest:
            yield f'<tr><th scope=row><svg width="12" height="12"><rect width="12" height="12" fill="{colours[part]}"/>'
            yield f"</svg> {text(part.word)}</th><td class=n>{duration_ns(old_ns)}</td>"
            yield f"<td class=n>{duration_ns(new_ns)}</td></tr>"
    yield "</tbody></table>\n"


def _colours() -> dict[Part, str]:
    used: dict[str, int] = {}
    colours = {}
    for part in Part:
        style = part.traits.style
        choice = _COLOURS.get(style, _COLOURS["dim"])
        colours[part] = choice[used.get(style, 0) % len(choice)]
        used[style] = used.get(style, 0) + 1
    return colours


def _row(item: ItemChange) -> str:
    name = f"{item.name}: {item.function}" if item.function else item.name
    figures = "".join(f"<td class=n>{duration_ns(ns)}</td>" for ns in (item.old_ns, item.new_ns))
    return f'<tr class="{item.change}"><td>{text(name)}</td>{figures}<td>{item.change.look.word}</td></tr>'
