"""The calibration of a GPU: its loads, and what is read of the counters while they run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stallprobes.engine.cuda import calibration
from stallprobes.engine.cuda.api import Api, CudaError
from stallprobes.engine.cuda.devices import CudaDevice
from stallprobes.engine.cuda.loads import loads
from stallprobes.errors import EngineFailed
from stallprobes.machine import gpm
from stallprobes.machine.gpu_reach import PCIE, UNITS
from stallprobes.machine.gpus import Gpu

DEVICE = CudaDevice(handle=0, ordinal=0, name="GPU", uuid="u", sms=132, threads_per_sm=2048, clock_khz=1_000_000)
# What the counters show while a load of each runs.
REACHED = {name: 60.0 + number for number, name in enumerate(UNITS)} | dict.fromkeys(PCIE, 50_000.0)


class FakeCuda(Api):
    """A driver on which each load keeps its unit busy for as long as it is submitted."""

    def __init__(self, capability: tuple[int, int], idle: float = 0.0, failing: str = "", code: int = 0) -> None:
        self.failing, self.code = failing.encode(), code
        self.driver = self
        self.CUdevice_attribute = self
        self.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 0, 1
        self.capability, self.idle, self.runs = capability, idle, ""
        self.rounds: list[int] = []

    def call(self, function: str, *args: Any) -> Any:
        match function:
            case "cuDeviceGetAttribute":
                return self.capability[args[0]]
            case "cuModuleGetFunction" if args[1] == self.failing:
                raise CudaError(function, self.code, "made up")
            case "cuModuleGetFunction":
                names = {load.name: load.counter for load in loads(self.capability)}
                return names[args[1].decode()]
            case "cuLaunchKernel":
                self.runs = args[0]
                self.rounds.append(args[9][0][3])
            case "cuMemcpyHtoDAsync" | "cuMemcpyDtoHAsync":
                self.runs = PCIE["DtoH" in function]
        return 1

    def read(self) -> Mapping[str, float | None]:
        values = dict.fromkeys(gpm.LIMITS, 0.0) | {"graphics": self.idle}
        runs, self.runs = self.runs, ""
        return {**values, "graphics": 80.0, runs: REACHED[runs]} if runs else values


class FakeCounters:
    def __init__(self, driver: FakeCuda) -> None:
        self.driver = driver

    def read(self, _module: Any, _handle: Any) -> Mapping[str, float | None]:
        return self.driver.read()


def reach_of(driver: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, float]:
    monkeypatch.setattr(calibration, "_SETTLE_S", 0.001)
    monkeypatch.setattr(calibration, "_SAMPLE_S", 0.001)
    monkeypatch.setattr(gpm, "GpmCounters", lambda _metrics: FakeCounters(driver))
    return calibration.reach(driver, DEVICE, None, None)


@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (12, 0)])
def test_each_unit_has_the_use_of_its_own_load(capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCuda(capability)
    shares = {name: pytest.approx(REACHED[name] / 80, abs=1e-3) for name in UNITS}
    assert reach_of(driver, monkeypatch) == shares | dict.fromkeys(PCIE, 50_000.0)
    assert max(driver.rounds) <= calibration._MOST_ROUNDS


@pytest.mark.parametrize("code", [218, 719])
def test_a_load_that_fails_leaves_the_other_units(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_ERROR_INVALID_PTX, and a launch that fails, after which the context is lost."""
    driver = FakeCuda((9, 0), failing="wgmma", code=code)
    assert reach_of(driver, monkeypatch).keys() == {*UNITS, *PCIE} - {"tensor"}


def test_a_gpu_on_which_others_compute_is_not_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineFailed, match="another process computes on the GPU"):
        reach_of(FakeCuda((9, 0), idle=30.0), monkeypatch)


def test_without_the_gpu_its_process_says_why() -> None:
    with pytest.raises(EngineFailed) as failed:
        calibration.measure(Gpu(uuid="GPU-none", pci="", name="GPU"), "1")
    assert failed.value.sentence


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas of the CUDA toolkit")
@pytest.mark.parametrize(("capability", "target"), [((9, 0), "sm_90a"), ((10, 0), "sm_100"), ((12, 0), "sm_120")])
def test_the_kernels_compile(capability: tuple[int, int], target: str, tmp_path: Path) -> None:
    for load in loads(capability):
        source = tmp_path / f"{load.name}.ptx"
        source.write_text(load.ptx)
        command = ["ptxas", f"-arch={target}", str(source), "-o", str(tmp_path / "made")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "is not defined for option 'gpu-name'" in done.stderr:
            pytest.skip(f"this ptxas does not know {target}")
        assert done.returncode == 0, done.stderr
