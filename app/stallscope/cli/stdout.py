"""The one place that writes to stdout: tables, paragraphs and JSON, fitted to its width, colours and letters."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from stallscope.cli.diagnostics import CommandError, ExitCode, is_terminal, sanitize

PIPE_WIDTH = 120
NARROWEST = 40

_ASCII = str.maketrans(
    {
        "µ": "u", "×": "x", "–": "-", "—": "-", "·": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=",
        "“": '"', "”": '"', "‘": "'", "’": "'", "±": "+-", "─": "-", "│": "|",
    }
)  # fmt: skip
_COLOURS = {"good": "32", "warn": "33", "bad": "31", "dim": "2", "strong": "1"}


class ReaderGone(Exception):
    """Nobody reads stdout any more (a pipe into ``head``)."""


@dataclass(frozen=True)
class TableCell:
    """A table's cell: its text and how it is marked ("good", "warn", "bad", "dim", "strong" or "")."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class TableColumn:
    """A table's column; ``right`` aligned for figures."""

    title: str
    right: bool = False


class Output:
    """Writes results to ``stream``, by default stdout.

    Colour needs a terminal, no NO_COLOR and another TERM than dumb. A locale that is not UTF-8 gets ASCII. Raises
    Problem when there is no stdout.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        chosen = stream if stream is not None else sys.stdout
        if chosen is None:
            raise CommandError(ExitCode.USAGE, "the result could not be written: stdout is closed")
        self._stream = chosen
        terminal = is_terminal(self._stream)
        self.colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.ascii = not speaks_utf8(self._stream)
        self.width = max(NARROWEST, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns if terminal else _pipe_width())

    def line(self, text: str = "", mark: str = "") -> None:
        """One line as it is, marked as a cell would be."""
        self._write(self._painted(self._letters(text), mark) + "\n")

    def paragraph(self, text: str, indent: str = "", first: str | None = None, mark: str = "") -> None:
        """``text`` folded to the width, each line after ``indent`` (the first one after ``first`` if given)."""
        lines = textwrap.wrap(
            self._letters(text),
            min(self.width, PIPE_WIDTH),
            initial_indent=self._letters(indent if first is None else first),
            subsequent_indent=self._letters(indent),
            break_on_hyphens=False,
            break_long_words=False,
        )
        for line in lines:
            self._write(self._painted(line, mark) + "\n")

    def table(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell | str]]) -> None:
        """A table; the last column is folded when the line is too long for the width."""
        cells = [[self._cell(cell) for cell in row] for row in rows]
        head = [self._letters(column.title) for column in columns]
        widths = [max(_cells(t) for t in (title, *(r[i].text for r in cells))) for i, title in enumerate(head)]
        before = sum(width + 2 for width in widths[:-1])
        room = max(20, self.width - before)
        if any(head):
            self._row([TableCell(title, "dim") for title in head], columns, widths, room, before)
        for row in cells:
            self._row(row, columns, widths, room, before)

    def natural_width(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell | str]]) -> int:
        """How many columns ``table`` needs so that nothing is folded."""
        cells = [[self._cell(cell).text for cell in row] for row in rows]
        widths = [max(_cells(t) for t in (c.title, *(r[i] for r in cells))) for i, c in enumerate(columns)]
        return sum(widths) + 2 * (len(columns) - 1)

    def json(self, document: Mapping[str, Any]) -> None:
        """``document`` as JSON. Raises ValueError for what JSON has no word for (NaN)."""
        self._write(_pretty(document) + "\n")

    def flush(self) -> None:
        """Send everything on its way. Raises CommandError when it cannot be written (a full disk), ReaderGone when nobody
        reads any more."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise ReaderGone from None
        except OSError as error:
            raise CommandError(ExitCode.USAGE, f"the result could not be written: {error.strerror}") from error

    def _row(
        self, row: Sequence[TableCell], columns: Sequence[TableColumn], widths: list[int], room: int, before: int
    ) -> None:
        parts = []
        for cell, column, width in zip(row[:-1], columns, widths, strict=False):
            space = " " * (width - _cells(cell.text))
            text = self._painted(cell.text, cell.mark)
            parts.append(space + text if column.right else text + space)
        last = row[-1]
        folded = [last.text]
        if _cells(last.text) > room and " " in last.text:
            folded = textwrap.wrap(last.text, room, break_on_hyphens=False, break_long_words=False)
        elif columns[-1].right:
            folded = [" " * (widths[-1] - _cells(last.text)) + last.text]
        start = "  ".join(parts) + ("  " if parts else "")
        for number, text in enumerate(folded or [""]):
            line = (start if number == 0 else " " * before) + self._painted(text, last.mark)
            self._write(line.rstrip() + "\n")

    def _cell(self, cell: TableCell | str) -> TableCell:
        cell = cell if isinstance(cell, TableCell) else TableCell(cell)
        return TableCell(self._letters(cell.text), cell.mark)

    def _letters(self, text: str) -> str:
        text = sanitize(text)
        if not self.ascii:
            return text
        return text.translate(_ASCII).encode("ascii", errors="replace").decode("ascii")

    def _painted(self, text: str, mark: str) -> str:
        if not (self.colour and mark and text):
            return text
        return f"\x1b[{_COLOURS[mark]}m{text}\x1b[0m"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except BrokenPipeError:
            raise ReaderGone from None
        except OSError as error:
            raise CommandError(ExitCode.USAGE, f"the result could not be written: {error.strerror}") from error


def count(value: int) -> str:
    """An integer with thin groups: ``12 345``."""
    return f"{value:,}".replace(",", " ")


def _cells(text: str) -> int:
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _pipe_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    # Into a file or a pipe, lines are as long as they need to be, unless somebody says otherwise.
    return int(columns) if columns.isdecimal() and int(columns) > 0 else 10_000


def speaks_utf8(stream: TextIO | None = None) -> bool:
    """Whether ``stream``, by default stdout, and the locale can show more than ASCII."""
    stream = sys.stdout if stream is None else stream
    spoken = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    # In the C locale Python makes its streams UTF-8 all the same, and says so in LC_CTYPE.
    coerced = os.environ.get("LC_CTYPE") == "C.UTF-8" and not os.environ.get("LC_ALL")
    names = ("LC_ALL", "LANG") if coerced and os.environ.get("LANG") else ("LC_ALL", "LC_CTYPE", "LANG")
    chosen = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return spoken == "utf8" and (not chosen or "utf" in chosen.lower())


def _pretty(value: Any, pad: str = "") -> str:
    """JSON with a line for each member, but lists of figures (histograms) on one line."""
    inner = pad + " "
    if isinstance(value, Mapping) and value:
        members = (f"{inner}{json.dumps(key)}: {_pretty(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(members) + f"\n{pad}}}"
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return "[\n" + ",\n".join(inner + _pretty(item, inner) for item in value) + f"\n{pad}]"
    return json.dumps(value, allow_nan=False)
