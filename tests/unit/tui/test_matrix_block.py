"""The block of symbols on the matrix screen: it agrees with the text report, and fits at every size."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from factories import matrices, matrix_examples
from stallprobes.matrix import check_file, findings
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, Status
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.report import matrix_symbols
from stallscope.report.text import TextWriter
from stallscope.tui.common.lines import Line, fit, length
from stallscope.tui.matrix.block import BlockView, block_lines
from stallscope.tui.matrix.controller import CheckRun, MatrixState
from stallscope.tui.matrix.cursor import MatrixCursor
from stallscope.tui.matrix.cursor import block_view as view_of_block
from stallscope.tui.matrix.view_model import Key, MatrixView

CHECK = Path(__file__).parents[2] / "gpu" / "recorded" / "check-h200x2-1.json.gz"
_SIZES = [(60, 14), (60, 20), (80, 20), (80, 24), (100, 36), (119, 40), (120, 36), (160, 44), (250, 66)]


def recorded() -> Matrix:
    return check_file.load(CHECK)


def block_view(state: MatrixState, cursor: MatrixCursor | None = None, ascii_only: bool = False) -> BlockView:
    return view_of_block(state, (cursor or MatrixCursor()).on_cell_of(state.matrix_view), False, ascii_only)


def drawn(view: BlockView, size: tuple[int, int]) -> list[str]:
    """The lines as a widget of ``size`` draws them."""
    return [text(fit(line, size[0])) for _, line in block_lines(view, *size)]


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


@pytest.fixture(scope="module")
def whole() -> MatrixState:
    """A recorded check of 14 victims and 25 aggressors."""
    return MatrixState(MatrixView.of(recorded()))


@pytest.mark.parametrize("made", [recorded, matrix_examples.every_kind, matrix_examples.screen_example])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_order_and_symbols_are_those_of_the_text_report(made: Callable[[], Matrix], ascii_only: bool) -> None:
    matrix, stream = made(), io.StringIO()
    matrix_symbols.write(TextWriter(stream, width=300, ascii=ascii_only), matrix)
    view = block_view(MatrixState(MatrixView.of(matrix)), ascii_only=ascii_only)
    # Outside of ASCII, a filter replaces the characters of the screen.
    replaced = str.maketrans("█▓▒░", "#%+,") if ascii_only else {}
    rows = {name: [view.symbols[victim, name][0].translate(replaced) for victim in view.columns] for name in view.rows}
    told = re.findall(r"^(\S+) +((?:\S )*\S)(?:  .*)?$", stream.getvalue(), re.MULTILINE)
    lines = [(name, signs.split(" ")) for name, signs in told if name in rows]
    assert lines == list(rows.items())


def test_a_symbol_says_how_severe_its_cell_is_in_colour_too(whole: MatrixState) -> None:
    assert whole.matrix_view is not None
    view, styles = block_view(whole), {}
    for cell in whole.matrix_view.matrix.cells.values():
        sign, style = view.symbols[cell.row, cell.column]
        styles[sign] = style
        if cell.shown_kind is VerdictKind.STALLED:
            ratio = findings.verdicts(cell)[0].ratio or 0.0
            assert sign == ("█" if ratio >= 1000 else "▓" if ratio >= 100 else "▒" if ratio >= 10 else "░")
    assert len({styles[sign] for sign in "X█▓▒░·"}) == 6


@pytest.mark.parametrize("size", _SIZES)
def test_each_symbol_is_below_the_letter_of_its_victim_and_a_click_there_selects_its_cell(
    whole: MatrixState, size: tuple[int, int]
) -> None:
    view = block_view(whole)
    lines = block_lines(view, *size)
    assert len(lines) <= size[1]
    head = text(lines[0][1])
    letters = dict(zip("ABCDEFGHIJKLMN", view.columns, strict=True))
    at = view.layout(*size)
    shown = lines[1 : 1 + min(at.rows, len(view.rows))]
    for targets, line in shown:
        for begin, end, key in targets:
            assert end - begin == 2
            assert letters[head[begin + 1]] == key[0]
            assert text(line)[begin + 1] == view.symbols[key][0]
            assert text(line)[1 : at.label].rstrip("… ") in key[1]
    if size[0] >= 80:
        # All victims are named.
        assert at.columns == len(view.columns)
        assert all(any(f"{letter} {name}" in text(line) for _, line in lines) for letter, name in letters.items())


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("key", [("d2d@secondary", "spin"), ("launch", "free-beside-kernel")])
def test_the_selected_cell_is_in_brackets_and_its_cause_and_remedy_are_there_at_every_size(
    whole: MatrixState, size: tuple[int, int], key: Key
) -> None:
    cursor = MatrixCursor(key=key)
    view = block_view(whole, cursor)
    view = replace(view, first=view.layout(*size).first_with_focus(view))
    lines = drawn(view, size)
    (row,) = (line for line in lines if line.startswith("▸"))
    assert f"[{view.symbols[key][0]}]" in row
    assert key[1] in row
    shown = "\n".join(lines)
    assert f"{key[0]} beside {key[1]}" in shown
    assert "STALLED ×" in shown
    assert " because " in shown or "while “" in shown
    assert "remedy " in shown.lower()


def test_what_does_not_fit_is_left_out_in_an_order(whole: MatrixState) -> None:
    view = block_view(whole)

    def parts(width: int, height: int) -> list[bool]:
        shown = "\n".join(drawn(view, (width, height)))
        worst = view.layout(width, height).worst
        return [worst, "N host" in shown or "▸A launch" in shown, "X STARVED" in shown, "█ with aggressor" in shown]

    assert parts(119, 40) == [True, True, True, True]
    assert parts(80, 24) == [False, True, True, True]
    assert parts(70, 24) == [False, False, True, True]
    assert parts(80, 13) == [False, True, False, True]
    assert parts(80, 12) == [False, True, False, False]


def test_from_120_columns_on_the_cell_is_beside_the_block(whole: MatrixState) -> None:
    view = block_view(whole)
    assert not view.layout(119, 36).wide
    assert view.layout(120, 36).wide
    # Without enough lines below the list of victims it is not.
    assert not view.layout(120, 20).wide
    lines = drawn(view, (120, 36))
    title = next(number for number, line in enumerate(lines) if " beside " in line)
    assert lines[title].index("──") > 50
    assert title > len(view.columns)


def test_aggressors_that_are_quiet_for_all_are_one_line_at_the_end() -> None:
    view = block_view(MatrixState(MatrixView.of(matrix_examples.screen_example())))
    assert not {"d2h-pinned-large", "alloc-async"} & set(view.rows)
    lines = drawn(view, (80, 24))
    assert lines[1 + len(view.rows)].strip() == "quiet for all: d2h-pinned-large, alloc-async"


def test_where_every_cell_is_quiet_all_aggressors_have_a_line() -> None:
    view = block_view(MatrixState(MatrixView.of(matrices.made_up(1))))
    assert set(view.rows) == {column.name for column in matrices.COLUMNS if column.name != QUIET}
    assert view.rest == ""
    assert "quiet" in "\n".join(drawn(view, (80, 24)))


def test_while_cells_are_measured_each_keeps_its_place_and_those_to_come_have_a_sign() -> None:
    matrix = matrix_examples.screen_example()
    blank = {key: Cell(*key, Status.MISSING) for key in matrix.cells}
    view = MatrixView.of(matrix.changed(cells=blank))
    run = CheckRun(0.0)
    order = [column.name for column in matrix.columns if column.name != QUIET]
    for key, cell in matrix.cells.items():
        found = block_view(MatrixState(view, run=run))
        assert found.rows == tuple(order)
        assert found.columns == tuple(row.name for row in matrix.rows)
        assert found.symbols[key][0] == "-"
        view = view.with_cell(cell)
        assert block_view(MatrixState(view, run=run)).symbols[key][0] != "-"
    assert block_view(MatrixState(MatrixView.of(view.matrix))).rows[0] == "host-alloc-free"


def test_more_victims_than_letters_are_drawn_and_none_is_too_wide() -> None:
    rows = tuple(matrices.ROWS[0].changed(name=f"victim-{number}-{'x' * 30}") for number in range(60))
    columns = (matrices.COLUMNS[0], matrices.COLUMNS[1].changed(name="aggressor-" + "y" * 60))
    made = matrices.made_up(1, rows=rows, columns=columns, times={(rows[0].name, columns[1].name): 9.0}, calls=3)
    view = block_view(MatrixState(MatrixView.of(made)))
    for size in _SIZES:
        lines = block_lines(view, *size)
        assert all(length(line) <= size[0] for _, line in lines[:3])
        assert "→ " in "\n".join(drawn(view, size)) or size[0] > 200
