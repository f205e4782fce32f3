"""``record`` that is interrupted or meets a full disk: exit code, sentence, and what is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from factories.command_line import start
from factories.full_disk import FullDisk
from factories.virtual_session import VirtualSession, virtual_sessions
from factories.waiting import LIMIT_S, wait_until
from stallprobes.errors import NoTimeline
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallscope.cli import main as cli
from stallscope.cli import screen
from stallscope.cli.process import diagnostics
from stallscope.cli.process.signals import InterruptHandler

PATTERN = ("secondary-context-d2d", "--variant", "kernel-other-context", "--sim")


def record(file: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    """Exit code and stderr of the command in this process."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["record", str(file), *PATTERN, "--seconds", "0.5", *more])
    out, err = capsys.readouterr()
    assert out == ""
    code = ended.value.code or 0
    assert isinstance(code, int)
    return code, err


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize(
    ("command", "called"),
    [(["run"], "stallprobes.measurement.measure.run"), (["record", "a.rec"], "stallprobes.live.capture.capture")],
    ids=["run", "record"],
)
def test_the_settings_switch_the_gpm_counters_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], called: str, wanted: bool
) -> None:
    class Called(Exception):
        pass

    def called_with(*_: object, gpm_counters: bool, **others: object) -> None:
        assert gpm_counters is wanted
        raise Called

    (tmp_path / "settings.toml").write_text(f"gpm_counters = {str(wanted).lower()}\n", encoding="utf-8")
    monkeypatch.setenv("STALLSCOPE_SETTINGS", str(tmp_path / "settings.toml"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(called, called_with)
    with pytest.raises(Called):
        cli.cli.main([*command, *PATTERN], standalone_mode=False)


def test_with_the_timeline_it_keeps_the_trace_of_the_stall(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.rec"
    with virtual_sessions():
        assert record(file, capsys, "--timeline") == (0, f"stallscope: recorded to {file} with 1 trace\n")
    found = Recording(file)
    assert all(observation.timeline for observation in found.play())
    trigger = found.trace(0).trigger
    assert trigger is not None
    assert found.trace(0).probes[trigger.probe].name == "d2d@secondary"


def test_without_a_victim_it_keeps_the_trace_of_the_longest_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.rec"
    arguments = ["scalar-readback", "--variant", "pageable", "--sim", "--timeline", "--seconds", "1"]
    with virtual_sessions(), pytest.raises(SystemExit) as ended:
        cli.main(["record", str(file), *arguments])
    assert ended.value.code in (0, None)
    trace = Recording(file).trace(0)
    assert trace.trigger is not None
    call = trace.calls[trace.trigger_call()]
    assert "D2H 4 bytes" in trace.probes[trace.trigger.probe].ops[int(call["op"])]


def test_a_missing_timeline_exits_4_and_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: VirtualSession) -> None:
        raise NoTimeline("the timeline is not available: libcupti is missing; install it")

    monkeypatch.setattr(VirtualSession, "require_timeline", refuse)
    with virtual_sessions():
        code, err = record(tmp_path / "a.rec", capsys, "--timeline")
    assert (code, err) == (4, "stallscope: the timeline is not available: libcupti is missing; install it\n")
    assert list(tmp_path.iterdir()) == []


def test_sigint_exits_130_and_what_was_recorded_is_readable(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    with start("record", str(file), *PATTERN, "--seconds", "3600") as process:
        wait_until(
            lambda: process.poll() is not None or (file.exists() and file.stat().st_size > 2000),
            "the recording has observations",
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (130, "")
    assert err == f"stallscope: interrupted; what was measured until then is in {file}\n"
    found = Recording(file)
    assert not found.cut_off
    assert list(found.play())


def test_an_interrupt_before_the_first_observation_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InterruptHandler, "stop_requested", lambda _: True)
    file = tmp_path / "a.rec"
    assert record(file, capsys) == (130, f"stallscope: interrupted; nothing was recorded, so {file} was not created\n")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_exits_2_and_what_was_recorded_before_is_readable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.rec"
    with FullDisk(3000) as disk:

        def stop_requested(_: InterruptHandler) -> bool:
            # The memory of the board is a file as well, and exists by now.
            disk.fill()
            return False

        monkeypatch.setattr(InterruptHandler, "stop_requested", stop_requested)
        code, err = record(file, capsys)
    assert code == 2
    assert err.startswith(f"stallscope: {file} cannot be written: File too large; the ")
    assert err.endswith(" observations before are readable\n")
    assert len(Recording(file)) > 0


def test_a_recording_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.rec"
    file.write_text("mine", encoding="utf-8")
    sentence = f"stallscope: {file} exists; a recording never overwrites a file: name another one\n"
    assert record(file, capsys) == (2, sentence)
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("problem", "written", "dropped", "code", "wanted", "sentence"),
    [
        (None, 10, 0, 0, 0, "recorded to {file}"),
        (None, 10, 3, 0, 0, "recorded to {file}; 3 observations were lost because the disk is slow"),
        (None, 0, 0, 0, 0, "nothing was measured, so {file} was not created"),
        ("{file} cannot be written: No space left on device", 10, 5, 0, 2, None),
        # What ended the screen counts more.
        ("{file} cannot be written: No space left on device", 10, 5, 130, 130, None),
    ],
)
def test_the_screen_exits_2_if_its_recording_failed(
    problem: str | None,
    written: int,
    dropped: int,
    code: int,
    wanted: int,
    sentence: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "a.rec"

    def run(_source: object, _settings: object, recorder: Recorder, *_: object) -> tuple[int, None]:
        recorder.written, recorder.dropped = written, dropped
        recorder.problem = None if problem is None else problem.format(file=file)
        return code, None

    monkeypatch.setattr(screen, "run_app", run)
    monkeypatch.setattr(diagnostics, "screen_obstacle", lambda *_: None)
    monkeypatch.setattr("stallscope.cli.process.prewarm.start_engine", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--sim", "--record", str(file)])
    assert ended.value.code == wanted
    told = (sentence or problem or "").format(file=file)
    assert capsys.readouterr().err == f"stallscope: {told}\n"
