"""The command ``calibrate``: what it measures and keeps, and which GPUs it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from stallprobes.engine.cuda import calibration
from stallprobes.errors import EXIT_ENGINE, EngineFailed
from stallprobes.files import schemas
from stallprobes.machine import gpu_reach, gpus
from stallprobes.machine.gpu_reach import SCHEMA, Calibration
from stallprobes.machine.gpus import Gpu, GpuProcess, Survey
from stallprobes.machine.libcuda_survey import DriverReport
from stallscope.cli.calibrate import command
from stallscope.cli.process.diagnostics import CommandError, ExitCode

UUID = "aaaa1111-0000-0000-0000-000000000001"
GPU = Gpu(f"GPU-{UUID}", "0000:1b:00.0", "NVIDIA H200", nvml_index=0, cuda_index=0, mig=False, processes=())
MADE = Calibration(SCHEMA, GPU.name, GPU.uuid, "580", "2026-11-30", {"dram": 0.8, "tensor": 0.5})


def calibrated(monkeypatch: pytest.MonkeyPatch, gpu: Gpu, *arguments: str) -> Result:
    survey = Survey((gpu,), DriverReport(cuda_version=13000), driver_version="580")
    monkeypatch.setattr(gpus, "survey", lambda: survey)
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "measure", lambda gpu, driver: MADE)


def test_what_it_measures_is_kept_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = calibrated(monkeypatch, GPU).output
    for words in ("80 %", "not used: its kernel is no measure", "not measured"):
        assert words in " ".join(shown.split())
    assert gpu_reach.load(UUID, "580") == MADE


def test_its_json_follows_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(calibrated(monkeypatch, GPU, "--json").output)
    jsonschema.Draft202012Validator(schemas.schema(SCHEMA)).validate(document)
    assert document["reached"] == MADE.reached


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (replace(GPU, processes=(GpuProcess(1, "train", None),)), "is in use by train (pid 1)"),
        (replace(GPU, mig=True), "has MIG on"),
    ],
)
def test_a_gpu_in_use_or_with_mig_is_refused(monkeypatch: pytest.MonkeyPatch, gpu: Gpu, words: str) -> None:
    with pytest.raises(CommandError, match=words.replace("(", r"\(").replace(")", r"\)")):
        calibrated(monkeypatch, gpu)
    assert gpu_reach.load(UUID, "580") is None


def test_a_gpu_that_cannot_be_calibrated_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(_gpu: Gpu, _driver: str) -> Calibration:
        raise EngineFailed(EXIT_ENGINE, "this GPU has no GPM counters: GPUs have them from Hopper on")

    monkeypatch.setattr(calibration, "measure", failed)
    with pytest.raises(EngineFailed, match="from Hopper on") as error:
        calibrated(monkeypatch, GPU)
    assert error.value.exit_code == ExitCode.FAILED
