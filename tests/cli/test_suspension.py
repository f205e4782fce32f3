"""ctrl+z during a check without the screen: its engines stop too, and fg continues."""

from __future__ import annotations

import sys
from pathlib import Path

from factories import processes
from factories.terminal import OpenTerminal


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_suspended_check_stops_its_engines_and_continues(terminal: OpenTerminal) -> None:
    shell = terminal(shell=True)
    shell.wait_for("$ ")
    since = shell.press(
        f"{sys.executable} -m stallscope check --quick --sim h200 --victims launch,d2d@secondary "
        "--aggressors spin,alloc-free; echo code=$?\n"
    )
    # Measuring: the engines have started.
    shell.wait_for(" left", since=since)
    (check,) = processes.children(shell.pid)
    engines = processes.children(check)
    assert engines
    since = shell.press("\x1a")
    shell.wait_for("Stopped", since=since)
    assert _state(check) == "T"
    assert {_state(pid) for pid in engines if not processes.has_ended(pid)} == {"T"}
    since = shell.press("fg\n")
    shell.wait_for("Latency relative to baseline", since=since)
    shell.wait_until(lambda: not processes.children(shell.pid), "the check has ended")


def test_a_recording_cannot_be_suspended_and_says_so(terminal: OpenTerminal, tmp_path: Path) -> None:
    shell = terminal(shell=True)
    shell.wait_for("$ ")
    file = tmp_path / "stall.rec"
    since = shell.press(
        f"{sys.executable} -m stallscope record {file} scalar-readback --variant pageable --sim h200 --seconds 30; "
        "echo code=$?\n"
    )
    shell.wait_until(file.exists, "the recording has an observation")
    shell.press("\x1a")
    shell.wait_for("cannot be suspended", since=since)
    shell.press("\x03")
    shell.wait_for("code=130", since=since)
