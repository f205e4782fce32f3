"""The gate for foreign text: what it replaces, what it keeps, and that nothing goes around it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import traceback
import unicodedata
from functools import cache
from pathlib import Path

import pytest
from rich.cells import get_character_cell_size

from factories import matrix_examples, runs
from factories.hostile_text import HOSTILE, WIDE, forbidden, is_forbidden, poisoned
from stallprobes.foreign_text import escaped_json, is_printable, printable, printable_lines
from stallprobes.matrix import check_file, prometheus
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.matrix import QUIET
from stallscope.cli.process import diagnostics, streams
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output
from stallscope.report import comparison_text, html_page, matrix_text, run_text
from stallscope.report.columns import by_column, cut_columns, display_width, padded, wrapped

ROOT = Path(__file__).parents[2]
# Wide since Unicode 16, or of a width on which tables differ: trigrams, hexagrams, counting rods.
_DISPUTED = [*range(0x2630, 0x2638), *range(0x268A, 0x2690), *range(0x4DC0, 0x4E00), *range(0x1D300, 0x1D380)]
KEPT = (QUIET, "cuda", "2026-11-21T10:00:00+00:00", "2026-11-21T07:00:00+00:00", "ok", "unsupported", "invalid")


class Terminal(io.StringIO):
    """A terminal with colour."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@cache
def assigned() -> list[str]:
    """Every character of Unicode, without those of private use."""
    return [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co")]


def test_every_character_without_a_glyph_is_replaced_by_one_column() -> None:
    letters = [letter for letter in assigned() if letter not in "\n\t"]
    shown = printable("".join(letters))
    assert not forbidden(shown)
    replaced = {letter for letter, one in zip(letters, shown, strict=True) if letter != one}
    assert replaced == {letter for letter in letters if printable(letter) == "\ufffd"} - {"\ufffd"}
    assert replaced >= set(filter(is_forbidden, letters))
    assert {display_width(letter) for letter in replaced} == {1}


def test_what_has_a_glyph_stays_and_offsets_do_not_change() -> None:
    kept = "GPU-0 µ×–→≥ “a” é e\u0301 語 ░█ 😀 עברית \xa0"
    assert printable(kept) is kept
    assert is_printable(kept)
    assert len(printable(HOSTILE)) == len(HOSTILE)
    assert printable(printable(HOSTILE)) == printable(HOSTILE)
    assert printable("a\tb\nc") == "a b c"
    assert printable_lines("a\tb\nc") == "a\tb\nc"


def test_a_width_is_that_of_the_screen_library() -> None:
    differing = [
        hex(ord(letter))
        for letter in assigned()
        if is_printable(letter) and display_width(letter) != get_character_cell_size(letter)
    ]
    assert not set(differing) - set(map(hex, _DISPUTED))


def test_json_is_escaped_without_loss() -> None:
    for ensure_ascii in (True, False):
        text = escaped_json(json.dumps({HOSTILE: [HOSTILE]}, ensure_ascii=ensure_ascii))
        assert not forbidden(text)
        assert json.loads(text) == {HOSTILE: [HOSTILE]}


@pytest.mark.parametrize("columns", [1, 2, 5, 20])
def test_lines_are_cut_padded_and_wrapped_by_columns(columns: int) -> None:
    text = f"{WIDE * 9} {WIDE} abc {'語' * 30} d\u0301e"
    assert display_width(cut_columns(text, columns)) in (columns, columns - 1)
    assert display_width(padded(cut_columns(text, columns), columns)) == columns
    lines = wrapped(text, max(2, columns))
    assert all(display_width(line) <= max(2, columns) for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert len(by_column(text)) == display_width(text)
    assert "".join(by_column(text)) == text
    whole = wrapped(text, columns, first="* ", indent="  ", break_long_words=False)
    assert [line[2:] for line in whole if "語語" in line][-1].startswith("語" * 30)


def test_all_that_others_write_to_the_streams_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with streams.guarded_streams():
        print(HOSTILE)  # noqa: T201
        sys.stderr.writelines([HOSTILE])
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            traceback.print_exc()
        assert not hasattr(sys.stdout, "buffer")
        assert sys.stdout.isatty()
    assert sys.stdout is out
    for text in (out.getvalue(), err.getvalue()):
        assert "�]0;t" in text
        assert not forbidden(text)


def test_a_stream_without_utf8_gets_what_it_can_encode() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    streams.guarded(stream).write("é → 語\x1b\n")
    stream.flush()
    assert stream.buffer.getvalue() == b"\xe9 ? ??\n"


def test_messages_questions_and_progress_are_one_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(err, "fileno", lambda: 2, raising=False)
    monkeypatch.setattr("os.get_terminal_size", lambda _=0: __import__("os").terminal_size((40, 20)))
    diagnostics.print_message(HOSTILE)
    assert diagnostics.confirm(HOSTILE)
    assert not forbidden(err.getvalue())
    assert err.getvalue().count("\n") == 1
    before = len(err.getvalue())
    with Progress() as progress:
        progress.show(0.5, f"{WIDE * 20}{HOSTILE}", left_s=60)
        line = err.getvalue()[before:].removeprefix("\r\x1b[K")
    assert err.getvalue().endswith("\r\x1b[K")
    assert not forbidden(line)
    assert display_width(line) == 39


def test_a_closed_stderr_is_ignored(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    diagnostics.print_message("nothing")
    assert capsys.readouterr().out == ""


def test_reports_of_hostile_text_hold_no_sequence_but_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    stream = Terminal()
    out = Output(stream)
    matrix = poisoned(matrix_examples.every_kind(1), KEPT)
    other = poisoned(matrix_examples.every_kind(2), KEPT)
    run_text.show_run(out, poisoned(runs.everything(), KEPT))
    matrix_text.show(out, matrix, full=True)
    comparison_text.show(out, compare(matrix, other), ())
    out.json({HOSTILE: HOSTILE})
    own = [f"\x1b[{code}m" for code in (0, 1, 2, 31, 32, 33, 36)]
    text = stream.getvalue()
    assert own[0] in text
    for sequence in own:
        text = text.replace(sequence, "")
    assert "�]0;t" in text
    assert not forbidden(text)
    assert "語" in text


def test_files_of_hostile_text_hold_none_of_it(tmp_path: Path) -> None:
    matrix = poisoned(matrix_examples.every_kind(1), KEPT)
    page = html_page.page(matrix, compare(matrix, matrix), [HOSTILE])
    assert not forbidden(page)
    assert "<b onclick" not in page
    prometheus.write(matrix, tmp_path / "a.prom")
    check_file.save(matrix, tmp_path / "a.json")
    for name in ("a.prom", "a.json"):
        text = (tmp_path / name).read_bytes().decode()
        assert "[red]" in text
        assert not forbidden(text)
    assert "[red]" in next(iter(check_file.load(tmp_path / "a.json").rows)).name


# A way around the gates on each line.
_DETOURS = """\
sys.stdout.write("")
sys.stderr.write("")
sys.__stderr__.write("")
os.write(1, b"")
click.echo("")
print("")
from sys import stderr
from click import secho
from rich.text import Text
from rich.table import Table
from rich.console import Console
from textual.widgets import Static
from textual.widgets.option_list import Option
from textual.content import Content
from stallscope.report.text import TerminalText
"""


@pytest.mark.parametrize("folder", ["app/stallscope/report", "app/stallscope/tui/monitor", "probes/stallprobes/matrix"])
def test_the_linter_refuses_every_way_around_the_gates(folder: str) -> None:
    imports = "import sys; import os; import click\n"
    options = ("--select", "TID251,T20", "--output-format", "json", "--stdin-filename", f"{folder}/made_up.py", "-")
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *options],
        input=imports + _DETOURS,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    refused = {found["location"]["row"] for found in json.loads(done.stdout)}
    assert refused == set(range(2, 2 + len(_DETOURS.splitlines())))


def test_no_line_is_broken_between_a_figure_and_its_unit() -> None:
    text = "34 % of 236 ms, 2.8 MiB, 8 % and 9 secondary 7 steps"
    assert wrapped(text, 13) == ["34 % of", "236 ms,", "2.8 MiB, 8 %", "and 9", "secondary 7", "steps"]
    assert wrapped("at 19 776 blocks", 8) == ["at", "19 776", "blocks"]
    # Also where letters take two columns.
    assert wrapped(f"漢 {text}", 8)[:3] == ["漢 34 %", "of", "236 ms,"]
