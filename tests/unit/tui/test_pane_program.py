"""A program beside the screen: its streams, its end, and the signals that it gets."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from factories.waiting import wait_until
from stallprobes.errors import FileNotWritten
from stallscope.cli.process.inherited_signals import IGNORED_BY_PYTHON
from stallscope.tui.sources.pane_program import PaneProgram

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "TERM": "xterm"}


def ended(*words: str, file: Path | None = None) -> PaneProgram:
    program = PaneProgram(words, ENVIRONMENT, file, (70, 20), defaults=IGNORED_BY_PYTHON)
    program.wait()
    program.drain()
    return program


def test_both_outputs_are_read_and_the_input_is_empty() -> None:
    program = ended("sh", "-c", "echo out; echo err >&2; cat; tty; stty size <&1; echo $TERM; exit 3")
    assert (program.exit_code, program.running) == (3, False)
    assert program.output.lines() == ["out", "err", "not a tty", "20 70", "dumb"]


def test_its_output_goes_to_a_file(tmp_path: Path) -> None:
    program = ended("sh", "-c", "echo out; echo err >&2; echo $TERM", file=tmp_path / "a.log")
    assert (tmp_path / "a.log").read_text() == "out\nerr\nxterm\n"
    assert program.output.lines() == []


def test_signals_reach_its_group_until_it_has_ended() -> None:
    program = PaneProgram([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(100)"], ENVIRONMENT)
    wait_until(lambda: program.output.lines() == ["1"], "it has begun")
    program.send(signal.SIGTERM)
    assert program.wait() == -signal.SIGTERM
    program.send(signal.SIGTERM)


def test_it_starts_with_the_signals_of_any_other() -> None:
    program = ended("grep", "-E", "^Sig(Ign|Blk):", "/proc/self/status")
    # 32 and 33 are the C library's own.
    assert {int(line.split()[1], 16) & ~(3 << 31) for line in program.output.lines()} == {0}


def test_a_script_without_an_interpreter_runs_in_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $0 $1\n")
    script.chmod(0o755)
    assert ended(str(script), "x").output.lines() == [f"{script} x"]


def test_what_cannot_be_started_is_an_error() -> None:
    for name, reason in (("/no/such", "No such file"), ("/etc/passwd", "Permission denied")):
        with pytest.raises(OSError, match=reason):
            PaneProgram([name], ENVIRONMENT)


@pytest.mark.parametrize("content", [None, "kept"])
def test_a_program_that_does_not_start_changes_no_file(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "a.log"
    if content is not None:
        file.write_text(content)
    with pytest.raises(OSError, match="No such file"):
        PaneProgram(["/no/such"], ENVIRONMENT, file, force=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == (
        {} if content is None else {"a.log": "kept"}
    )


def test_its_output_replaces_a_file_only_by_force(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("kept")
    with pytest.raises(FileNotWritten, match="already exists"):
        PaneProgram(["true"], ENVIRONMENT, file)
    assert file.read_text() == "kept"
    assert PaneProgram(["echo", "new"], ENVIRONMENT, file, force=True).wait() == 0
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.log", "new\n")]
