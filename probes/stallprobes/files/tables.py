"""Tables of results: records for pandas, polars and Arrow, as CSV, and as HTML for notebooks."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from stallprobes.files import atomic
from stallprobes.foreign_text import printable, printable_lines

# A row of a table by the names of its columns, which have units: ``p50_ns``, ``kernels_share``. None: not known.
Record = dict[str, str | int | float | bool | None]
# First characters with which a spreadsheet takes a text for a formula, and runs it (CWE-1236).
_FORMULAS = ("=", "+", "-", "@")
# Style of an HTML cell by the style of a verdict. Translucent, since notebooks are light or dark.
_CSS = {
    "bad": "background:rgba(220,70,50,.4)",
    "warn": "background:rgba(235,185,40,.35)",
    "dim": "opacity:.6",
    "faint": "opacity:.6",
}


class HtmlCell(NamedTuple):
    """Text of a cell, its style as of verdicts ("bad", "warn", …), and what the mouse shows on it."""

    text: str
    style: str = ""
    hover: str = ""


def aligned(records: Iterable[Record]) -> list[Record]:
    """``records`` with the same columns: where one has fewer, None stands for those of the longest one."""
    every = list(records)
    columns = max(every, key=len, default={})
    return [{name: record.get(name) for name in columns} for record in every]


def csv_text(records: Sequence[Record]) -> str:
    """``records`` as CSV with a line of names (RFC 4180, lines end with a newline); nothing stands for None.

    A text that a spreadsheet would take for a formula gets an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(records[0] if records else ())
    writer.writerows([_csv_value(value) for value in record.values()] for record in records)
    return text.getvalue()


def save_csv(records: Sequence[Record], path: Path, *, force: bool) -> None:
    """Write ``records`` to ``path`` as CSV, completely or not at all. Raises FileNotWritten."""
    atomic.write(path, (csv_text(records).encode(),), force=force)


def _csv_value(value: object) -> object:
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value.startswith(_FORMULAS) else printable(value)


def html_table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[HtmlCell | str]]) -> str:
    """A table with ``titles`` over its columns; the first cell of a row is its name.

    It has no style sheet, which would be one of the whole notebook.
    """
    pieces = [f"<table><caption>{_escaped(caption)}</caption><thead><tr>"]
    pieces += (f"<th>{_escaped(title)}</th>" for title in titles)
    pieces.append("</tr></thead><tbody>\n")
    for name, *cells in rows:
        pieces += ("<tr>", _html_cell(name, "th"), *(_html_cell(cell, "td") for cell in cells), "</tr>\n")
    return printable_lines("".join((*pieces, "</tbody></table>")))


def _html_cell(cell: HtmlCell | str, tag: str) -> str:
    text, style, hover = cell if isinstance(cell, HtmlCell) else HtmlCell(cell)
    css = f' style="{_CSS[style]}"' if style in _CSS else ""
    title = f' title="{_escaped(hover)}"' if hover else ""
    return f"<{tag}{css}{title}>{_escaped(text)}</{tag}>"


def _escaped(text: str) -> str:
    return html.escape(text)
