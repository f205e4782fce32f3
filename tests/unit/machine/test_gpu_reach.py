"""Calibrations of GPUs in the user's state folder, and those of models in the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallprobes.files import user_state
from stallprobes.machine.gpu_reach import SCHEMA, Basis, Calibration, known, load, of_model, store

UUID, OTHER = "12345678-90ab-cdef-1234-567890abcdef", "22345678-90ab-cdef-1234-567890abcdef"
MADE = Calibration(
    SCHEMA, "NVIDIA H200", f"GPU-{UUID}", "1.2", "2026-11-30", {"dram": 0.9, "tensor": 0.62, "fp32": 0.98}
)


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_calibration_counts_for_its_gpu_and_driver() -> None:
    assert store(MADE)
    assert load(UUID, "1.2") == MADE
    assert load(UUID.upper(), "1.2") == MADE
    assert load(OTHER, "1.2") is None
    assert load(UUID, "1.3") is None


def test_an_own_calibration_comes_before_that_of_the_model() -> None:
    store(MADE)
    found = known(UUID, "NVIDIA H200", "1.2")
    assert found["dram"] == (0.9, Basis.CALIBRATION)
    # What a kernel does not reach is no measure of the unit.
    assert found["tensor"] == (0.99, Basis.MODEL)
    assert known(OTHER, "NVIDIA H200", "1.2")["dram"] == (0.83, Basis.MODEL)
    assert known(UUID, "another", "1.2").keys() == {"dram", "fp32"}


def test_the_larger_share_of_the_peak_counts_and_the_own_traffic() -> None:
    model = of_model("NVIDIA H200")
    assert model is not None
    half = model.reached["pcie_to_gpu"] / 2
    store(MADE.changed(reached={"fp16": model.reached["fp16"] - 0.1, "pcie_to_gpu": half}))
    found = known(UUID, "NVIDIA H200", "1.2")
    assert found["fp16"] == (model.reached["fp16"], Basis.MODEL)
    assert found["pcie_to_gpu"] == (half, Basis.CALIBRATION)


@pytest.mark.parametrize("text", ["", "{}", "[", '{"schema": "stallscope.calibration/9"}'])
def test_a_damaged_file_is_none(text: str) -> None:
    user_state.write(f"calibration-{UUID}.json", text)
    assert load(UUID, "1.2") is None


@pytest.mark.parametrize("uuid", ["", "../../etc/passwd", "GPU-"])
def test_what_is_no_uuid_names_no_file(uuid: str) -> None:
    assert load(uuid, "1.2") is None
    assert known(uuid, "another", "1.2") == {}


def test_a_model_is_found_in_its_full_name() -> None:
    assert of_model("NVIDIA H200 NVL") == of_model("NVIDIA H200")
    assert of_model("NVIDIA H100 80GB HBM3") is None
