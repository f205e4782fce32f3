"""The output of a program as lines, whatever its pieces are."""

from __future__ import annotations

import pytest

from stallscope.tui.sources.pane_program import LONGEST_LINE, MOST_LINES, ProgramOutput

TEXTS = {
    "lines": (b"one\ntwo\nthr", ["one", "two", "thr"]),
    "terminal's newlines": (b"one\r\ntwo\r\n", ["one", "two"]),
    "colours": (b"\x1b[1;31mred\x1b[0m plain\n", ["red plain"]),
    "a title": (b"\x1b]0;train\x07step\x1b]2;x\x1b\\\n", ["step"]),
    "a charset": (b"\x1b(Bstep\n", ["step"]),
    "a progress bar": (b"10%\r20%\r30%", ["30%"]),
    "a progress bar that ends": (b"10%\r100%\r\nnext", ["100%", "next"]),
    "backspaces": (b"10\b\b20\n", ["20"]),
    "a bell": (b"ding\x07\n", ["ding"]),
    "UTF-8": ("größer → ✓\n".encode(), ["größer → ✓"]),
    "no UTF-8": (b"a\xffb\n", ["a\ufffdb"]),
    "a tab": (b"a\tb\n", ["a       b"]),
    "nothing": (b"", []),
    "empty lines": (b"\n\na\n", ["", "", "a"]),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_lines_do_not_depend_on_the_pieces_that_are_read(name: str, size: int) -> None:
    data, lines = TEXTS[name]
    output = ProgramOutput()
    for first in range(0, len(data), size):
        output.feed(data[first : first + size])
    assert output.lines() == lines


def test_lines_are_bounded_in_length_and_number() -> None:
    output = ProgramOutput()
    output.feed(b"x" * (2 * LONGEST_LINE) + b"\n")
    assert [len(line) for line in output.lines()] == [LONGEST_LINE]
    output.feed(b"y\n" * (MOST_LINES + 5))
    assert (len(output.lines()), output.count) == (MOST_LINES, MOST_LINES + 6)
    assert output.lines(2) == ["y", "y"]
    assert output.complete()[0] == output.count


def test_an_escape_sequence_that_never_ends_hides_nothing_for_long() -> None:
    output = ProgramOutput()
    output.feed(b"\x1b]0;" + b"x" * 10_000)
    output.feed(b"\nvisible\n")
    assert output.lines()[-1] == "visible"
