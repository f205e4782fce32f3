"""The calibration of a GPU, and what watch takes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallprobes.engine.cuda import calibration
from stallprobes.errors import EngineFailed
from stallprobes.machine import gpm, gpu_reach, gpus
from stallprobes.machine.gpu_reach import PCIE, UNITS, Basis

pytestmark = pytest.mark.gpu


def test_each_unit_reaches_most_of_its_peak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    survey = gpus.survey()
    (gpu, *_) = gpus.choose(None, survey)
    try:
        made = calibration.measure(gpu, survey.driver_version or "")
    except EngineFailed as error:
        if gpm.UNSUPPORTED in str(error):
            pytest.skip(gpm.UNSUPPORTED)
        raise
    assert made.reached.keys() == {*UNITS, *PCIE}
    # Of the tensor cores some GPUs reach less without the instructions of their generation.
    assert made.measures.keys() >= {*UNITS, *PCIE} - {"tensor"}
    assert gpu_reach.store(made)
    # What the model reaches counts where it is more.
    known = gpu_reach.known(gpu.uuid, gpu.name, made.driver)
    assert [name for name, reached in made.measures.items() if known[name].value < reached] == []
    monkeypatch.setattr(gpu_reach, "of_model", lambda model: None)
    known = gpu_reach.known(gpu.uuid, gpu.name, made.driver)
    assert {known[name].basis for name in made.measures} == {Basis.CALIBRATION}
