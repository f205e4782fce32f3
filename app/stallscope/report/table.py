"""Layout of tables: columns that fit a width.

The one place that decides how a table becomes narrower. A column that is empty is left out; then columns of text are
folded, the widest first. Figures are never folded and never cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from stallscope.report.columns import display_width, name_parts, name_pieces, wrapped

# Number of blanks between two columns of a table.
GAP = 2
# Smallest width (columns) to which a column of short words is folded. A column with a longer word is folded to the
# width of its longest word, at most _LEAST_OF_WORD.
_LEAST = 12
# Smallest width (columns) to which a column with a very long word is folded. A word that is wider than this width is
# folded too.
_LEAST_OF_WORD = 24

# Text and its style.
Run = tuple[str, str]


@dataclass(frozen=True)
class TableCell:
    """Text of a table cell and its style: "good", "warn", "bad", "accent", "dim", "faint", "strong" or "".

    A line feed begins a line of the cell.
    """

    text: str
    style: str = ""


@dataclass(frozen=True)
class TableColumn:
    """Title of a table column; a line feed begins a line of it. ``unit``, below it, is the unit of all its figures.

    ``right`` aligns its cells to the right: figures, never folded. ``whole``: names to be typed, never folded either.
    ``optional``: the column is left out where all of its cells are empty.
    """

    title: str
    right: bool = False
    optional: bool = False
    whole: bool = False
    unit: str = ""


@dataclass(frozen=True)
class TableHeading:
    """A line over the rows of a table that follow."""

    text: str
    style: str = "strong"


# A row of a table: its cells, or a heading.
TableRow = Sequence[TableCell | str] | TableHeading


class Table:
    """A table of ``columns`` and ``rows``, with the text of cells as ``printed`` returns it."""

    def __init__(
        self, columns: Sequence[TableColumn], rows: Sequence[TableRow], printed: Callable[[str], str] = str
    ) -> None:
        self._printed = printed
        cells = [row if isinstance(row, TableHeading) else [self._cell(cell) for cell in row] for row in rows]
        kept = [
            number
            for number, column in enumerate(columns)
            if not column.optional or any(not isinstance(row, TableHeading) and row[number][0] for row in cells)
        ]
        self.columns = [columns[number] for number in kept]
        self._titles = [
            self._cell(TableCell("\n".join(filter(None, (column.title, column.unit))), "dim"))
            for column in self.columns
        ]
        self._rows = [row if isinstance(row, TableHeading) else [row[number] for number in kept] for row in cells]
        grid = [self._titles, *(row for row in self._rows if not isinstance(row, TableHeading))]
        self._natural = [
            max(display_width(line) for lines, _ in column for line in lines or [""])
            for column in zip(*grid, strict=True)
        ]

    @property
    def natural_width(self) -> int:
        """Number of columns of the terminal in which nothing is folded."""
        return _total(self._natural)

    def lines(self, width: int) -> list[list[Run]] | None:
        """The lines of the table in ``width`` columns, its titles first; None where its figures alone are wider."""
        widths = self._widths(width)
        if widths is None:
            return None
        titled = any(lines for lines, _ in self._titles)
        return [
            line
            for row in ([self._titles] if titled else []) + self._rows
            for line in (
                self._heading(row, width)
                if isinstance(row, TableHeading)
                else self._row(row, widths, bottom=row is self._titles)
            )
        ]

    def stacked(self, width: int) -> list[list[Run]]:
        """Each row as text of at most ``width`` columns: its first cell, then the others, figures with their titles."""
        lines: list[list[Run]] = []
        for row in self._rows:
            if isinstance(row, TableHeading):
                lines += self._heading(row, width)
                continue
            name, *others = (" ".join(lines) for lines, _ in row)
            texts = [
                " ".join(filter(None, (column.title.replace("\n", " "), text, column.unit))) if column.right else text
                for column, text in zip(self.columns[1:], others, strict=True)
                if text
            ]
            text = f"{name}: {', '.join(texts)}" if name and texts else name or ", ".join(texts)
            lines += [[(part, row[0][1])] for part in wrapped(self._printed(text), width, first="  ", indent="    ")]
        return lines

    def _widths(self, width: int) -> list[int] | None:
        """The widths of the columns: columns of text become narrower, the widest first, until the table fits."""
        widths = list(self._natural)
        least = [
            natural if column.right or column.whole else min(natural, self._least(number))
            for number, (column, natural) in enumerate(zip(self.columns, self._natural, strict=True))
        ]
        if _total(least) > width:
            return None
        while _total(widths) > width:
            widths[max((current, number) for number, current in enumerate(widths) if current > least[number])[1]] -= 1
        return widths

    def _least(self, number: int) -> int:
        """The least width of a column of text: the width of its longest word, or part of a name, within limits."""
        cells = [self._titles, *(row for row in self._rows if not isinstance(row, TableHeading))]
        words = (word for row in cells for line in row[number][0] for word in line.split())
        longest = max((display_width(piece) for word in words for piece in name_pieces(word)), default=0)
        return min(max(longest, _LEAST), _LEAST_OF_WORD)

    def _row(self, row: Sequence[_Lines], widths: Sequence[int], *, bottom: bool) -> list[list[Run]]:
        folded = [
            [part for line in lines for part in _folded(line, width)] or [""]
            for (lines, _), width in zip(row, widths, strict=True)
        ]
        height = max(map(len, folded))
        if bottom:
            folded = [[""] * (height - len(parts)) + parts for parts in folded]
        printed = []
        for parts in zip_longest(*folded, fillvalue=""):
            line: list[Run] = []
            for number, (part, width) in enumerate(zip(parts, widths, strict=True)):
                space = " " * (width - display_width(part))
                before, after = (space, "") if self.columns[number].right else ("", space)
                last = number == len(widths) - 1
                line += [(before, ""), (part, row[number][1]), ("" if last else after + " " * GAP, "")]
            printed.append(line)
        return printed

    def _heading(self, row: TableHeading, width: int) -> list[list[Run]]:
        return [[(part, row.style)] for part in wrapped(self._printed(row.text), width)]

    def _cell(self, cell: TableCell | str) -> _Lines:
        text, style = (cell, "") if isinstance(cell, str) else (cell.text, cell.style)
        return [self._printed(line) for line in text.split("\n")] if text else [], style


# Lines of a cell and their style.
_Lines = tuple[list[str], str]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _folded(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` columns: as it is where it fits, else broken at spaces."""
    if display_width(text) <= width:
        return [text]
    return wrapped(text, width) if " " in text else name_parts(text, width)
