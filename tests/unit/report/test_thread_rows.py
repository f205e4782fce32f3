"""Threads of one aggressor in the report of a run: one row, and named once in a verdict."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from stallscope.cli.main import cli

pytestmark = pytest.mark.usefixtures("in_this_process")


def report(*arguments: str, columns: int = 200) -> str:
    done = CliRunner().invoke(
        cli, ["run", *arguments, "--sim", "--seconds", "0.5"], env={"COLUMNS": str(columns)}, catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("columns", [200, 60])
def test_sixteen_threads_are_one_row_and_named_once(columns: int) -> None:
    text = " ".join(report("event-poll-storm", "--variant", "blocking-x16", columns=columns).split())
    assert text.count("event-block-x16 1 … 16") == 1
    assert "event-block-x16 2" not in text
    assert "while event-block-x16 runs." in text


def test_two_aggressors_keep_rows_and_names_of_their_own() -> None:
    text = report("launch", "launch-burst-x2", "launch-burst", "spin@secondary")
    assert sum(line.startswith("launch-burst-x2 1 … 2 ") for line in text.splitlines()) == 1
    words = " ".join(text.split())
    assert "while launch-burst-x2, launch-burst and spin@secondary run" in words
