"""ctrl+z without the screen: the engines of a check stop too, those of a recording do not, and fg continues."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from factories import processes
from factories.terminal import OpenTerminal
from stallprobes.recording.recording import Recording
from stallprobes.wording import check_wording

# The number of measured cells in the progress bar.
_MEASURED = re.compile(r"\] [1-9]\d*/\d+, ")


def _state(pid: int) -> str:
    """The letter of the state of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _states_of_children(pid: int) -> set[str]:
    return {_state(child) for child in processes.children(pid)} - {"", "Z", "X"}


def test_a_suspended_check_stops_its_engines_and_continues(terminal: OpenTerminal) -> None:
    shell = terminal(shell=True)
    shell.wait_for("$ ")
    # So many cells that it does not end before it is suspended, however late the test is.
    since = shell.press(f"{sys.executable} -m stallscope check --sim h200\n")
    shell.wait_until(lambda: _MEASURED.search(shell.text(since)), "cells are measured")
    (check,) = processes.children(shell.pid)
    shell.wait_until(lambda: _states_of_children(check), "an engine runs")
    since = shell.press("\x1a")
    shell.wait_for("Stopped", since=since)
    assert _state(check) == "T"
    # Between two cells there may be none.
    shell.wait_until(lambda: _states_of_children(check) <= {"T"}, "the engines are stopped")
    since = shell.press("fg\n")
    shell.wait_until(lambda: _state(check) != "T" and "T" not in _states_of_children(check), "all continue")
    shell.wait_until(lambda: _MEASURED.search(shell.text(since)), "cells are measured")
    shell.press("\x03")
    shell.wait_for(check_wording.SYMBOLS_TITLE, since=since)
    # On a slow machine before the first cell: then nothing is shown.
    shell.wait_for("stallscope: interrupted; ", since=since)
    shell.wait_until(lambda: not processes.children(shell.pid), "the check has ended")


def test_a_suspended_recording_continues_and_its_engine_does_not_stop(terminal: OpenTerminal, tmp_path: Path) -> None:
    shell = terminal(shell=True)
    shell.wait_for("$ ")
    file = tmp_path / "stall.rec"
    since = shell.press(
        f"{sys.executable} -m stallscope record {file} scalar-readback --variant pageable --sim h200 --seconds 600\n"
    )
    shell.wait_until(file.exists, "the recording has an observation")
    (record,) = processes.children(shell.pid)
    shell.press("\x1a")
    shell.wait_for("Stopped", since=since)
    assert _state(record) == "T"
    assert "T" not in _states_of_children(record)
    since = shell.press("fg\n")
    shell.wait_until(lambda: _state(record) != "T", "the recording continues")
    shell.press("\x03")
    shell.wait_for("what was measured until then is in", since=since)
    since = shell.press("echo code=$?\n")
    shell.wait_for("code=130", since=since)
    assert Recording(file).cut_off is False
