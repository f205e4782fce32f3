"""``stallprobes.watched``: programs that a Python program watches, beside the stand-ins."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import stallprobes
from factories.attaching import RunningProgram, use_built
from factories.stand_in import OPTIONS, StandIn
from stallprobes.errors import WatchError
from stallprobes.watch.comparing import run_file
from stallscope.cli import main as cli


@pytest.fixture(autouse=True)
def _settings(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def left(settings: dict[str, str]) -> list[Path]:
    """What is left in the folder of the recordings."""
    return list(Path(settings["XDG_RUNTIME_DIR"]).iterdir())


def test_a_program_is_watched_to_its_end(stand_in: StandIn, settings: dict[str, str]) -> None:
    command = [str(stand_in.folder / "host"), "copies"]
    with stallprobes.watched(command, OPTIONS) as watch:
        assert watch.process is not None
    (process,) = watch.report.processes
    assert (watch.report.program, watch.report.exit_code, process.ended) == (tuple(command), 0, True)
    assert process.calls > 0
    assert any("cuMemcpyDtoHAsync_v2" in str(call.sentence) for call in process.slow_calls)
    assert left(settings) == []


def test_a_report_is_there_while_the_program_runs(stand_in: StandIn, settings: dict[str, str]) -> None:
    with stallprobes.watched([str(stand_in.folder / "host"), "steps-until-stopped", "2"], OPTIONS) as watch:
        assert watch.process is not None
        while not any(process.calls for process in watch.report.processes):
            pass
        assert watch.report.exit_code is None
        watch.process.send_signal(signal.SIGTERM)
    assert watch.report.exit_code == 0
    assert watch.report.processes[0].ended


def test_a_block_that_raises_ends_the_program(settings: dict[str, str]) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    with pytest.raises(ZeroDivisionError), stallprobes.watched(command) as watch:
        raise ZeroDivisionError
    assert watch.report.exit_code == 128 + signal.SIGTERM
    assert left(settings) == []


def test_a_program_that_is_none_is_an_error(settings: dict[str, str]) -> None:
    with pytest.raises(FileNotFoundError), stallprobes.watched(["/no/such/program"]):
        pass
    assert left(settings) == []


def test_a_process_that_runs_is_attached_and_detached(
    stand_in: StandIn, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_built(stand_in, monkeypatch)
    with RunningProgram(stand_in, "poll") as program:
        with stallprobes.watched(program.pid, OPTIONS) as watch:
            before = program.launches()
        assert program.launches() > before
        assert (watch.report.program, watch.report.exit_code) == (None, None)
        assert [process.pid for process in watch.report.processes] == [program.pid]
        saved = tmp_path / "a.runs"
        words = ("watch", "--headless", "--pid", str(program.pid), "--seconds", "0.5", "--save", str(saved))
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code in (0, None)
    (run,) = run_file.load(saved)
    assert (run.program, run.processes[0].pid) == (None, program.pid)
    assert left(settings) == []


def test_a_process_that_cannot_be_attached_is_an_error() -> None:
    with pytest.raises(WatchError), stallprobes.watched(2**22 - 1):
        pass
