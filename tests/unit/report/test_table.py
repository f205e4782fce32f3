"""Tables and names at a width: what is folded, what is left out, and what never is."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from stallscope.report.columns import cut_words, display_width, name_parts
from stallscope.report.table import TableCell, TableColumn, TableHeading, TableRow
from stallscope.report.text import TextWriter

COLUMNS = (
    TableColumn("probe", whole=True),
    TableColumn("cause"),
    TableColumn("p50", right=True, unit="µs"),
    TableColumn("in flight", right=True, optional=True),
)
ROWS: tuple[TableRow, ...] = (
    TableHeading("the stall"),
    ("peer-copy", TableCell("A transfer waits for a kernel on another stream.", "bad"), "93848", ""),
    ("語語", "none\nof them", "2.70", ""),
)


def written(columns: Sequence[TableColumn], rows: Sequence[TableRow], width: int) -> list[str]:
    stream = io.StringIO()
    TextWriter(stream, width=width).table(columns, rows)
    return stream.getvalue().splitlines()


def test_a_table_that_fits_has_a_line_for_each_row_and_line_feed_and_no_empty_column() -> None:
    assert written(COLUMNS, ROWS, 80) == [
        "                                                               p50",
        "probe      cause                                                µs",
        "the stall",
        "peer-copy  A transfer waits for a kernel on another stream.  93848",
        "語語       none                                               2.70",
        "           of them",
    ]


def test_a_table_that_is_too_wide_folds_text_and_keeps_names_and_figures_whole() -> None:
    assert written(COLUMNS, ROWS, 40) == [
        "                                     p50",
        "probe      cause                      µs",
        "the stall",
        "peer-copy  A transfer waits for a  93848",
        "           kernel on another",
        "           stream.",
        "語語       none                     2.70",
        "           of them",
    ]


def test_where_figures_alone_are_wider_each_row_is_text_with_the_titles_of_its_figures() -> None:
    columns = [TableColumn("name"), *(TableColumn(f"part {number}", right=True, unit="µs") for number in range(6))]
    lines = written(columns, [("launch", *map(str, range(6)))], 45)
    assert lines == [
        "  launch: part 0 0 µs, part 1 1 µs, part 2", "    2 µs, part 3 3 µs, part 4 4 µs, part 5", "    5 µs"
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, 41, 57, 80])
def test_no_line_is_wider_than_the_writer(width: int) -> None:
    rows: list[TableRow] = [(name, "語" * 50 + " word " * 9, "1" * 9, "") for name in ("a" * 12, "b")]
    assert all(display_width(line) <= width for line in written(COLUMNS, [*ROWS, *rows], width))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("launch", ["launch"]),
        ("d2d@secondary", ["d2d", "@secondary"]),
        ("d2h-pageable-warm/null", ["d2h-", "pageable-", "warm/null"]),
        ("averylongname", ["averylongn", "ame"]),
        ("", [""]),
    ],
)
def test_a_name_is_broken_where_it_can_be(name: str, parts: list[str]) -> None:
    assert name_parts(name, 10) == parts
    assert "".join(name_parts(name, 3)) == name


def test_what_is_cut_ends_with_dots_behind_a_whole_word() -> None:
    assert cut_words("Use pinned memory.", 18) == "Use pinned memory."
    assert cut_words("Use pinned memory.", 17) == "Use pinned …"
    assert cut_words("Use pinned memory.", 17, "...") == "Use pinned ..."
