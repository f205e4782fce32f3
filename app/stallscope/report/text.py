"""Text output for reports: tables and paragraphs fitted to a stream's width, colours and character set."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from stallprobes.foreign_text import printable, printable_lines
from stallscope.report.columns import display_width, wrapped
from stallscope.report.table import Run, Table, TableColumn, TableRow

# Largest width (columns) of a paragraph: longer lines are hard to read.
PARAGRAPH_WIDTH = 120
# Smallest width (columns) for which reports are laid out. A narrower terminal wraps the lines of the report.
NARROWEST = 40
# Width (columns) of a report to a file, a pipe or a terminal of unknown width, unless COLUMNS is set. The demo's
# results on the clipboard have this width too. Reason: nearly every terminal is at least this wide.
USUAL_WIDTH = 80
# Number of additional spaces before the rest of a folded line of code. The folded line's own indentation is cut to at
# most twice this number.
CODE_FOLD = 4

# Replacements of characters for an output without Unicode.
_ASCII = str.maketrans(
    {
        "µ": "u", "×": "x", "–": "-", "—": "-", "·": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=",
        "“": '"', "”": '"', "‘": "'", "’": "'", "±": "+-", "─": "-", "│": "|",
        "┐": "+", "┌": "+", "█": "#", "▏": "|", "▓": "%", "▒": "+", "░": ",",
    }
)  # fmt: skip
# Parameters of the control sequence for each style (SGR).
_COLOURS = {"good": "32", "warn": "33", "bad": "31", "accent": "36", "dim": "2", "faint": "2", "strong": "1"}


class TerminalText(str):
    """Text for a terminal: printable, with escape sequences that this program added. Streams write it as it is."""


class TextWriter:
    """Writer of lines, paragraphs and tables to ``stream``.

    ``width`` is in columns, at least 40. Without ``colour`` styles are dropped; with ``ascii`` other characters are
    replaced. Control characters are always replaced.
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

    def runs(self, runs: Sequence[Run]) -> None:
        """Write one line of texts with their styles, never folded, without blank ones at its end."""
        while runs and not runs[-1][0].strip():
            runs = runs[:-1]
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
        )

    def section(self, title: str, texts: Iterable[str], style: str = "") -> None:
        """Write ``texts`` under a title, a paragraph for each; nothing without any."""
        for number, text in enumerate(texts):
            if not number:
                self.line()
                self.paragraph(title, style="strong")
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

    def table(self, columns: Sequence[TableColumn], rows: Sequence[TableRow], indent: str = "") -> None:
        """Write a table, each line after ``indent``: columns of text are folded where it is wider than the writer.

        Where its figures alone are wider, each row is text.
        """
        table, room = self._table(columns, rows), self.width - len(indent)
        for line in table.lines(room) or table.stacked(room):
            self.runs([(indent, ""), *line])

    def fitting_table(self, columns: Sequence[TableColumn], rows: Sequence[TableRow]) -> bool:
        """Write a table, unless a cell of it would be folded. Returns whether it was written."""
        if self.natural_width(columns, rows) > self.width:
            return False
        self.table(columns, rows)
        return True

    def natural_width(self, columns: Sequence[TableColumn], rows: Sequence[TableRow]) -> int:
        """Number of columns that ``table`` needs to fold nothing."""
        return self._table(columns, rows).natural_width

    def _table(self, columns: Sequence[TableColumn], rows: Sequence[TableRow]) -> Table:
        return Table(columns, rows, self.printed)

    def write(self, text: str) -> None:
        """Write ``text``, of any number of lines."""
        self._stream.write(text if isinstance(text, TerminalText) else TerminalText(printable_lines(text)))

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


def speaks_utf8(stream: TextIO | None = None) -> bool:
    """True if ``stream``, by default stdout, and the locale can show more than ASCII."""
    stream = sys.stdout if stream is None else stream
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    # In the C locale Python makes its streams UTF-8 all the same, and sets LC_CTYPE to C.UTF-8.
    coerced = os.environ.get("LC_CTYPE") == "C.UTF-8" and not os.environ.get("LC_ALL")
    names = ("LC_ALL", "LANG") if coerced and os.environ.get("LANG") else ("LC_ALL", "LC_CTYPE", "LANG")
    chosen = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return encoding == "utf8" and (not chosen or "utf" in chosen.lower())
