"""Text on stdout: tables, wrapping, character set and colours."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from stallscope.cli.process.stdout import Output
from stallscope.report.table import TableCell, TableColumn
from stallscope.report.text import NARROWEST, USUAL_WIDTH


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    monkeypatch.setenv("TERM", "xterm")


def table(out: Output) -> None:
    out.table(
        (TableColumn("name"), TableColumn("figure", right=True), TableColumn("text")),
        [("one", TableCell("2.3 µs", "bad"), "word " * 30), ("three", "12 µs", "short")],
    )


def test_a_table_keeps_within_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    table(Output(stream))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[1].startswith("one    2.3 µs  word")
    assert lines[-1] == "three   12 µs  short"


@pytest.mark.parametrize(("columns", "width"), [("", USUAL_WIDTH), ("none", USUAL_WIDTH), ("120", 120)])
def test_a_pipe_has_the_usual_width_unless_columns_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.StringIO()
    table(Output(stream))
    assert width - 5 < max(map(len, stream.getvalue().splitlines())) <= width


def test_colour_needs_a_terminal_that_supports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def coloured(stream: io.StringIO) -> bool:
        table(Output(stream))
        return "\x1b[" in stream.getvalue()

    assert coloured(Terminal())
    assert not coloured(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not coloured(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not coloured(Terminal())


@pytest.mark.parametrize(
    "environment",
    [{"LANG": "C"}, {"LC_ALL": "POSIX"}, {"LANG": "de_DE.ISO-8859-1"}, {"LANG": "C", "LC_CTYPE": "C.UTF-8"}],
)
def test_a_locale_that_is_not_utf8_gets_ascii(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    out = Output(stream)
    out.paragraph("wait 5.6 µs → 2.38 ms (×427) – “late” 語")
    table(out)
    assert stream.getvalue().isascii()
    assert 'wait 5.6 us -> 2.38 ms (x427) - "late" ?' in stream.getvalue()


def test_wide_letters_count_as_two_columns() -> None:
    assert Output(Terminal()).natural_width((TableColumn("a"),), [("語語",)]) == 4


def test_json_is_written_without_loss() -> None:
    document: dict[str, Any] = {
        "text": 'µ "quoted" [1]',
        "none": None,
        "empty": {},
        "results": [{"histogram": [[64, 3], [128, 1]], "ok": True}, {"histogram": []}],
        "histogram": [[1, 2]],
    }
    stream = io.StringIO()
    Output(stream).json(document)
    assert json.loads(stream.getvalue()) == document
    assert "[[64, 3], [128, 1]]" in stream.getvalue()


def test_json_rejects_not_a_number() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Output(io.StringIO()).json({"p50_us": float("nan")})


def test_the_width_has_a_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1")
    assert Output(Terminal()).width == NARROWEST
