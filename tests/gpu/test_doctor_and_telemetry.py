"""On a real GPU: what the driver and NVML say of it, and that asking leaves no context behind."""

from __future__ import annotations

import os
import time

import pytest

from stallprobes import doctor
from stallprobes.machine import gpus
from stallprobes.machine.telemetry import NAMES, Telemetry

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def found() -> gpus.Survey:
    survey = gpus.survey()
    if survey.nvml_problem is not None:
        pytest.skip(f"NVML: {survey.nvml_problem.reason}")
    return survey


def test_every_gpu_that_cuda_sees_is_one_of_nvmls_by_uuid_and_pci_address(found: gpus.Survey) -> None:
    assert found.driver.problem is None
    for device in found.driver.devices:
        (gpu,) = [gpu for gpu in found.gpus if gpu.cuda_index == device.ordinal]
        assert gpu.pci == gpus.normal_pci(device.pci)
        assert gpu.name == device.name


def test_a_gpu_is_found_by_all_its_names(found: gpus.Survey) -> None:
    (gpu,) = gpus.choose(None, found)
    for name in (str(gpu.nvml_index), gpu.uuid, gpu.pci):
        assert gpus.choose(name, found) == (gpu,)


def test_looking_at_the_gpus_makes_no_context(found: gpus.Survey) -> None:
    for gpu in gpus.survey().gpus:
        assert os.getpid() not in [process.pid for process in gpu.processes or ()]


def test_the_doctor_finds_nothing_wrong_with_the_driver(found: gpus.Survey) -> None:
    levels = {finding.subject: finding.level for finding in doctor.examine(found).findings}
    assert levels["driver"] is doctor.Level.OK
    assert levels["CUDA"] is doctor.Level.OK
    assert levels["NVML"] is doctor.Level.OK


def test_the_doctor_reads_the_gpm_counters_of_each_gpu_or_says_why_not(found: gpus.Survey) -> None:
    findings = {finding.subject: finding.found for finding in doctor.examine(found).findings}
    for gpu in found.gpus:
        assert findings[f"GPU {gpu.index} GPM counters"].startswith(("readable, SM active", "n/a: "))


def test_telemetry_reads_every_field_of_a_real_gpu_or_says_why_not(found: gpus.Survey) -> None:
    (gpu,) = gpus.choose(None, found)
    telemetry = Telemetry(gpu.uuid)
    telemetry.start()
    try:
        deadline = time.monotonic() + 30
        snapshot = telemetry.snapshot()
        while not all(one.at_ns for one in snapshot.readings.values()):
            assert time.monotonic() < deadline, snapshot
            time.sleep(0.05)
            snapshot = telemetry.snapshot()
    finally:
        telemetry.stop()
    assert snapshot.state == "live"
    for name in NAMES:
        reading = snapshot[name]
        assert (reading.value is None) == (reading.why is not None), name
    assert snapshot["memory_total_bytes"].value > 0
    assert 0 <= snapshot["utilisation_percent"].value <= 100
