"""``stallscope demo`` before its screen opens: what it refuses, and when it asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallprobes.errors import NoGpu
from stallprobes.machine import gpus
from stallprobes.machine.gpus import Gpu, GpuProcess, Survey
from stallprobes.machine.libcuda_survey import DriverReport
from stallscope.cli import demo, screen
from stallscope.cli import main as cli
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError

_OTHERS = (GpuProcess(7, "trainer", None),)


def ended(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stderr of ``stallscope demo`` with ``arguments``."""
    with pytest.raises(SystemExit) as end:
        cli.main(["demo", *arguments])
    code = end.value.code or 0
    assert isinstance(code, int)
    return code, capsys.readouterr().err


def machine(monkeypatch: pytest.MonkeyPatch, *processes: tuple[GpuProcess, ...]) -> None:
    """A machine with one H200 for each of ``processes``."""
    found = tuple(
        Gpu(uuid=f"GPU-{n}", pci=f"0000:0{n}:00.0", name="H200", nvml_index=n, cuda_index=n, processes=each)
        for n, each in enumerate(processes)
    )
    problem = None if found else "there is no driver"
    monkeypatch.setattr(gpus, "survey", lambda: Survey(found, DriverReport(problem=problem)))


def test_an_unknown_pattern_is_one_sentence_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(["--sim", "--pattern", "scalar-read"], capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert 'did you mean "scalar-readback"?' in said


def test_without_a_terminal_it_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(["--sim"], capsys)
    assert code == 2
    assert "the screen needs a terminal" in said


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(screen, "load_settings", lambda *_: None)
    code, said = ended(["--record", str(tmp_path / "missing" / "demo.rec")], capsys)
    assert (code, "--record" in said) == (2, True)


def test_it_refuses_to_disturb_others_where_nobody_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, (), _OTHERS)
    assert demo._confirm_shared(None, 1) is False
    with pytest.raises(CommandError, match="--allow-shared"):
        demo._confirm_shared(None, 2)


def test_a_yes_counts_for_the_screen_too_and_a_no_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, _OTHERS)
    monkeypatch.setattr(diagnostics, "is_interactive", lambda: True)
    monkeypatch.setattr(diagnostics, "confirm", lambda question: "trainer" in question)
    assert demo._confirm_shared(None, 2) is True
    monkeypatch.setattr(diagnostics, "confirm", lambda question: False)
    with pytest.raises(CommandError, match="cancelled"):
        demo._confirm_shared(None, 2)


def test_without_a_gpu_it_simulates_unless_a_gpu_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    assert demo._confirm_shared(None, 2) is False
    with pytest.raises(NoGpu) as error:
        demo._confirm_shared("7", 2)
    assert error.value.exit_code == 3
