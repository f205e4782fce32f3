"""Which GPU is meant: by index, UUID or PCI address, in NVML's order and in CUDA's."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stallprobes.errors import NoGpu
from stallprobes.machine import gpus, libcuda_survey, nvml
from stallprobes.machine.gpus import Gpu, GpuProcess, Survey, choose
from stallprobes.machine.libcuda_survey import DriverDevice, DriverReport

ONE = Gpu("GPU-aaaa1111-0000-0000-0000-000000000001", "0000:1b:00.0", "NVIDIA H200", nvml_index=0, cuda_index=1)
TWO = Gpu("GPU-bbbb2222-0000-0000-0000-000000000002", "0000:3d:00.0", "NVIDIA H200", nvml_index=1, cuda_index=0)
HIDDEN = Gpu("GPU-cccc3333-0000-0000-0000-000000000003", "0000:5e:00.0", "NVIDIA T4", nvml_index=2)
MACHINE = Survey((ONE, TWO, HIDDEN), DriverReport(cuda_version=13000))


def test_the_name_of_a_process_is_read_as_it_is() -> None:
    own = Path("/proc/self/comm")
    before = own.read_text()
    own.write_text("a\x1b[2Jb")
    try:
        assert gpus._process_name(os.getpid()) == "a\x1b[2Jb"
    finally:
        own.write_text(before.strip())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("0", ONE),
        ("1", TWO),
        (ONE.uuid, ONE),
        (ONE.uuid.upper(), ONE),
        ("bbbb2222-0000-0000-0000-000000000002", TWO),
        ("GPU-bbbb", TWO),
        ("0000:3d:00.0", TWO),
        ("00000000:3D:00.0", TWO),
        ("3d:00.0", TWO),
        (" 1 ", TWO),
    ],
)
def test_a_gpu_is_found_by_index_uuid_and_pci_address(spec: str, expected: Gpu) -> None:
    assert choose(spec, MACHINE) == (expected,)


def test_without_a_name_it_is_the_first_one_that_cuda_sees_not_nvmls_first() -> None:
    assert choose(None, MACHINE) == (TWO,)


def test_two_are_named_by_a_comma_or_filled_up_in_cudas_order() -> None:
    assert choose("0,1", MACHINE) == (ONE, TWO)
    assert choose("0", MACHINE, count=2) == (ONE, TWO)
    assert choose(None, MACHINE, count=2) == (TWO, ONE)


def test_where_only_one_can_be_used_two_are_not_made_up() -> None:
    assert choose(None, Survey((ONE, HIDDEN), DriverReport()), count=2) == (ONE,)


@pytest.mark.parametrize("spec", ["7", "GPU-dddd", "nonsense", "ff:00.0", "", ",", "9" * 5000])
def test_a_gpu_that_is_not_there_is_said_in_a_sentence(spec: str) -> None:
    with pytest.raises(NoGpu):
        choose(spec, MACHINE)


def test_a_gpu_hidden_from_cuda_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(NoGpu, match="CUDA_VISIBLE_DEVICES=0,1 hides it"):
        choose("2", MACHINE)


def test_a_driver_that_does_not_work_is_the_reason() -> None:
    with pytest.raises(NoGpu, match="broken"):
        choose(None, Survey((ONE,), DriverReport(problem="broken")))


def test_a_mig_device_stands_for_the_gpu_it_is_on() -> None:
    instance = "MIG-11112222-3333-4444-5555-666677778888"
    gpu = Gpu("GPU-1", "0000:1b:00.0", "NVIDIA H200", nvml_index=0, cuda_index=0, mig=True, mig_uuids=(instance,))
    assert choose(instance, Survey((gpu,), DriverReport())) == (gpu,)


@pytest.mark.parametrize(
    ("text", "normal"), [("1b:00", "0000:1b:00.0"), ("10001:AF:1f.7", "10001:af:1f.7"), ("1b", None)]
)
def test_pci_addresses_have_one_form(text: str, normal: str | None) -> None:
    assert gpus.normal_pci(text) == normal


def test_other_processes_are_those_that_are_not_this_one() -> None:
    mine, theirs = GpuProcess(os.getpid(), "pytest", 1), GpuProcess(1, "init", None)
    assert gpus.others(Gpu("GPU-1", "", "", processes=(mine, theirs))) == (theirs,)
    assert gpus.others(Gpu("GPU-1", "", "", processes=None)) == ()


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


def fake_nvml(count: int, sick: int | None = None) -> Any:
    def uuid(index: int) -> str:
        if index == sick:
            raise FakeError(nvml.GPU_IS_LOST)
        return f"GPU-00000000-0000-0000-0000-{index:012}"

    def refuse(*_: object) -> Any:
        raise FakeError(nvml.NOT_SUPPORTED)

    return SimpleNamespace(
        NVMLError=FakeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetUUID=uuid,
        nvmlDeviceGetName=lambda handle: b"NVIDIA H200",
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"00000000:{handle:02X}:00.0"),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=1 << 37, used=1 << 30),
        nvmlDeviceGetMigMode=refuse,
        nvmlDeviceGetComputeMode=lambda handle: 3,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [],
        nvmlSystemGetDriverVersion=lambda: "580.159.04",
        nvmlSystemGetNVMLVersion=refuse,
    )


def device(ordinal: int, index: int) -> DriverDevice:
    return DriverDevice(
        ordinal, "NVIDIA H200", f"00000000-0000-0000-0000-{index:012}", f"0000:{index:02x}:00.0", 1 << 37
    )


def test_nvmls_order_and_cudas_are_matched_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcuda_survey, "ask", lambda _: DriverReport(devices=(device(0, 2), device(1, 0))))
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(3))
    found = gpus.survey()
    assert [(gpu.nvml_index, gpu.cuda_index) for gpu in found.gpus] == [(0, 1), (1, None), (2, 0)]
    assert found.gpus[0].compute_mode == "exclusive process"
    assert found.gpus[0].mig is None
    assert found.driver_version == "580.159.04"
    assert found.nvml_version is None


def test_where_mig_is_on_cuda_knows_the_gpu_by_its_mig_device(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_nvml(1)
    module.nvmlDeviceGetMigMode = lambda handle: (1, 1)
    module.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 1
    module.nvmlDeviceGetMigDeviceHandleByIndex = lambda handle, index: 7
    plain = module.nvmlDeviceGetUUID
    module.nvmlDeviceGetUUID = lambda handle: plain(handle).replace("GPU", "MIG") if handle == 7 else plain(handle)
    monkeypatch.setattr(libcuda_survey, "ask", lambda _: DriverReport(devices=(device(0, 7),)))
    monkeypatch.setitem(sys.modules, "pynvml", module)
    (gpu,) = gpus.survey().gpus
    assert (gpu.mig, gpu.cuda_index, gpu.cuda_uuid) == (True, 0, device(0, 7).uuid)


def test_one_sick_gpu_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcuda_survey, "ask", lambda _: DriverReport(devices=(device(0, 0), device(1, 2))))
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(3, sick=1))
    assert [gpu.nvml_index for gpu in gpus.survey().gpus] == [0, 2]


def test_without_nvml_cuda_alone_tells_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcuda_survey, "ask", lambda _: DriverReport(devices=(device(0, 5),)))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = gpus.survey()
    assert found.nvml_problem is not None
    assert choose("0", found) == found.gpus
    assert found.gpus[0].processes is None


def test_an_nvml_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    module = fake_nvml(1)
    module.nvmlInit = never.wait
    monkeypatch.setattr(libcuda_survey, "ask", lambda _: DriverReport(devices=(device(0, 5),)))
    monkeypatch.setitem(sys.modules, "pynvml", module)
    try:
        found = gpus.survey(timeout_s=0.05)
    finally:
        never.set()
    assert found.nvml_problem is not None
    assert "did not answer" in found.nvml_problem.reason
    assert len(found.gpus) == 1


def test_a_driver_that_hangs_or_crashes_does_so_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "child.py"
    monkeypatch.setattr(libcuda_survey, "__file__", str(script))
    script.write_text("import time; time.sleep(60)")
    assert libcuda_survey.ask(timeout_s=0.2).error == "hang"
    script.write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    crashed = libcuda_survey.ask()
    assert crashed.error == "crash"
    assert "signal 11" in (crashed.problem or "")


@pytest.mark.parametrize(
    ("code", "visible", "words"),
    [
        (100, "", "CUDA_VISIBLE_DEVICES is empty"),
        (100, "9", "CUDA_VISIBLE_DEVICES=9"),
        (100, None, "CUDA sees no GPU"),
        (803, None, "different versions"),
        (802, None, "not ready"),
        (999, None, "CUDA_ERROR_UNKNOWN"),
    ],
)
def test_each_way_the_driver_fails_has_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, visible: str | None, words: str
) -> None:
    script = tmp_path / "child.py"
    script.write_text(f'print(\'{{"devices": [], "code": {code}, "error": "CUDA_ERROR_UNKNOWN"}}\')')
    monkeypatch.setattr(libcuda_survey, "__file__", str(script))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert words in (libcuda_survey.ask().problem or "")
