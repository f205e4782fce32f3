"""ctrl+z without the screen: the engines of a check stop too, those of a recording do not, and fg continues."""

from __future__ import annotations

import sys
from pathlib import Path

from factories import processes
from factories.terminal import OpenTerminal
from stallprobes.live.recording import Recording


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
    shell.wait_until(
        lambda: {_state(pid) for pid in engines if not processes.has_ended(pid)} == {"T"}, "the engines are stopped"
    )
    since = shell.press("fg\n")
    shell.wait_for("Latency relative to baseline", since=since)
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
    engines = processes.children(record)
    shell.press("\x1a")
    shell.wait_for("Stopped", since=since)
    assert _state(record) == "T"
    assert "T" not in {_state(pid) for pid in engines}
    since = shell.press("fg\n")
    shell.wait_until(lambda: _state(record) != "T", "the recording continues")
    shell.press("\x03")
    shell.wait_for("what was measured until then is in", since=since)
    since = shell.press("echo code=$?\n")
    shell.wait_for("code=130", since=since)
    assert Recording(file).cut_off is False
