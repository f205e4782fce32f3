"""Text output for reports: tables and paragraphs fitted to a stream's width, colours and character set."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from stallprobes.foreign_text import printable, printable_lines
from stallscope.report.columns import display_width, padded, wrapped

# Paragraphs are folded to at most this many columns; longer lines are hard to read.
PARAGRAPH_WIDTH = 120
NARROWEST = 40
# Of a file or a pipe, in which lines are as long as they need to be.
UNLIMITED_WIDTH = 10_000
# Spaces before the rest of a line of code that was folded.
CODE_FOLD = 4

_ASCII = str.maketrans(
    {
        "µ": "u", "×": "x", "–": "-", "—": "-", "·": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=",
        "“": '"', "”": '"', "‘": "'", "’": "'", "±": "+-", "─": "-", "│": "|",
        "█": "#", "▓": "%", "▒": "+", "░": ",",
    }
)  # fmt: skip
_COLOURS = {"good": "32", "warn": "33", "bad": "31", "accent": "36", "dim": "2", "faint": "2", "strong": "1"}


class TerminalText(str):
    """Text for a terminal: printable, with escape sequences that this program added. Streams write it as it is."""


@dataclass(frozen=True)
class TableCell:
    """Text of a table cell and its style: "good", "warn", "bad", "accent", "dim", "faint", "strong" or ""."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class TableColumn:
    """Title of a table column; ``right`` aligns its cells to the right."""

    title: str
    right: bool = False


class TextWriter:
    """Writer of lines, paragraphs and tables to ``stream``.

    ``width`` is in columns, at least 40. Without ``colour`` styles are dropped; with ``ascii`` other characters are
    replaced. What a terminal would obey is replaced in any case.
    """

    def __init__(self, stream: TextIO, *, width: int, colour: bool = False, ascii: bool = False) -> None:
        self._stream = stream
        self.colour = colour
        self.ascii = ascii
        self.width = max(NARROWEST, width)

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line, never folded."""
        self.write(TerminalText(self._styled(self.printed(text), style) + "\n"))

    def lines(self, text: str) -> None:
        """Write each line of ``text``, never folded."""
        for line in text.splitlines():
            self.line(line)

    def runs(self, runs: Sequence[tuple[str, str]]) -> None:
        """Write one line of texts with their styles, never folded."""
        self.write(TerminalText("".join(self._styled(self.printed(text), style) for text, style in runs) + "\n"))

    def paragraph(self, text: str, indent: str = "", first: str | None = None, style: str = "") -> None:
        """Write ``text`` folded to the width: ``first`` begins its first line, ``indent`` the others (and the first
        without ``first``)."""
        for line in self._folded(text, indent, first):
            self.write(TerminalText(self._styled(line, style) + "\n"))

    def height(self, text: str, indent: str = "", first: str | None = None) -> int:
        """Number of lines of ``paragraph``; 0 for ""."""
        return len(self._folded(text, indent, first)) if text else 0

    def _folded(self, text: str, indent: str, first: str | None) -> list[str]:
        return wrapped(
            self.printed(text),
            min(self.width, PARAGRAPH_WIDTH),
            first=self.printed(indent if first is None else first),
            indent=self.printed(indent),
            break_long_words=False,
        )

    def section(self, title: str, texts: Iterable[str], style: str = "") -> None:
        """Write ``texts`` under a title, a paragraph for each; nothing without any."""
        for number, text in enumerate(texts):
            if not number:
                self.line()
                self.line(title, "strong")
            self.paragraph(text, indent="    ", first="  ", style=style)

    def note(self, text: str) -> None:
        """Write ``text`` dim, after an empty line; nothing for ""."""
        if text:
            self.line()
            self.paragraph(text, style="dim")

    def code(self, lines: Sequence[str], indent: str = "") -> None:
        """Write lines of code, each after ``indent``; one that is longer than the width is folded at its spaces."""
        for line in map(self.printed, lines):
            folded = [f"{indent}{line}".rstrip()]
            if display_width(folded[0]) > self.width:
                text = line.lstrip()
                own = indent + " " * min(len(line) - len(text), 2 * CODE_FOLD)
                folded = wrapped(text, self.width, first=own, indent=own + " " * CODE_FOLD, break_long_words=False)
            for part in folded:
                self.write(TerminalText(part + "\n"))

    def table(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell | str]]) -> None:
        """Write a table; the last column is folded when a line is longer than the width."""
        lines = self._lines(columns, rows)
        widths = _widths(lines)
        for line in lines if any(cell.text for cell in lines[0]) else lines[1:]:
            self._row(line, columns, widths)

    def fitting_table(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell | str]]) -> bool:
        """Write a table, unless a line of it would be folded. Returns whether it was written."""
        if self.natural_width(columns, rows) > self.width:
            return False
        self.table(columns, rows)
        return True

    def natural_width(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell | str]]) -> int:
        """Number of columns that ``table`` needs to fold nothing."""
        return sum(_widths(self._lines(columns, rows))) + 2 * (len(columns) - 1)

    def write(self, text: str) -> None:
        """Write ``text``, of any number of lines."""
        self._stream.write(text if isinstance(text, TerminalText) else TerminalText(printable_lines(text)))

    def _row(self, row: Sequence[TableCell], columns: Sequence[TableColumn], widths: list[int]) -> None:
        before = sum(width + 2 for width in widths[:-1])
        room = max(20, self.width - before)
        parts = []
        for cell, column, width in zip(row[:-1], columns, widths, strict=False):
            space = " " * (width - display_width(cell.text))
            text = self._styled(cell.text, cell.style)
            parts.append(f"{space}{text}  " if column.right else f"{text}{space}  ")
        last = row[-1]
        lines = [last.text]
        if display_width(last.text) > room and " " in last.text:
            lines = wrapped(last.text, room, break_long_words=False)
        elif columns[-1].right:
            lines = [padded(last.text, widths[-1], right=True)]
        for number, text in enumerate(lines or [""]):
            line = (" " * before if number else "".join(parts)) + self._styled(text, last.style)
            self.write(TerminalText(line.rstrip() + "\n"))

    def _lines(
        self, columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell | str]]
    ) -> list[list[TableCell]]:
        """The lines of a table as they are printed, its titles first."""
        titles = [TableCell(column.title, "dim") for column in columns]
        cells = [[cell if isinstance(cell, TableCell) else TableCell(cell) for cell in row] for row in rows]
        return [[TableCell(self.printed(cell.text), cell.style) for cell in row] for row in (titles, *cells)]

    def printed(self, text: str) -> str:
        """``text`` as the writer's methods print it: one line, in the characters of the stream."""
        text = printable(text)
        if not self.ascii:
            return text
        return text.translate(_ASCII).encode("ascii", errors="replace").decode("ascii")

    def _styled(self, text: str, style: str) -> str:
        if not (self.colour and style and text):
            return text
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m"


def _widths(lines: Sequence[Sequence[TableCell]]) -> list[int]:
    return [max(display_width(cell.text) for cell in column) for column in zip(*lines, strict=True)]


def speaks_utf8(stream: TextIO | None = None) -> bool:
    """Whether ``stream``, by default stdout, and the locale can show more than ASCII."""
    stream = sys.stdout if stream is None else stream
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    # In the C locale Python makes its streams UTF-8 all the same, and sets LC_CTYPE to C.UTF-8.
    coerced = os.environ.get("LC_CTYPE") == "C.UTF-8" and not os.environ.get("LC_ALL")
    names = ("LC_ALL", "LANG") if coerced and os.environ.get("LANG") else ("LC_ALL", "LC_CTYPE", "LANG")
    chosen = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return encoding == "utf8" and (not chosen or "utf" in chosen.lower())
