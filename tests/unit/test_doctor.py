"""The doctor: what it finds wrong, how bad that is, and that it always says what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from factories.documents import validate
from stallprobes import doctor
from stallprobes.doctor import Finding, Level
from stallprobes.errors import NvmlUnavailable
from stallprobes.files import codec
from stallprobes.machine import fingerprint, gpm, nvml, perf_events
from stallprobes.machine.gpu_settings import GpuSettings, PcieLink, ask
from stallprobes.machine.gpus import Gpu, GpuProcess, Survey
from stallprobes.machine.libcuda_survey import DriverReport
from stallprobes.records.libcupti import LibraryFile, ask_version

GPU = Gpu(
    "GPU-aaaa1111-0000-0000-0000-000000000001",
    "0000:1b:00.0",
    "NVIDIA H200",
    nvml_index=0,
    cuda_index=0,
    memory_bytes=141 << 30,
    mig=False,
    compute_mode="default",
    processes=(),
)
GONE = NvmlUnavailable("gone", "fetch it")
FINE = Survey((GPU,), DriverReport(cuda_version=13000, loading_mode="lazy"), driver_version="580.159.04")


@pytest.fixture(autouse=True)
def _no_driver_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "kernel_module_version", lambda: None)
    monkeypatch.setattr(fingerprint, "mps_running", lambda: False)
    for name in (*doctor.SLOWING_ENVIRONMENT, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def look(survey: Survey, subject: str) -> Finding:
    found = [finding for finding in doctor.examine(survey).findings if finding.subject == subject]
    assert len(found) == 1, subject
    return found[0]


def test_a_machine_in_order_has_no_problem() -> None:
    assert doctor.examine(FINE).level is not Level.PROBLEM
    gpu = look(FINE, "GPU 0")
    for part in (GPU.uuid, GPU.pci, "NVML index 0", "CUDA index 0", "141 GiB"):
        assert part in gpu.found
    assert look(FINE, "module loading").level is Level.OK


@pytest.mark.parametrize(
    ("survey", "subject", "level", "words"),
    [
        (
            replace(FINE, driver=DriverReport(error="library", problem="no driver")),
            "driver",
            Level.PROBLEM,
            "no driver",
        ),
        (replace(FINE, driver=DriverReport(cuda_version=11040)), "CUDA", Level.PROBLEM, "11.4"),
        (replace(FINE, driver=DriverReport()), "CUDA", Level.PROBLEM, "did not answer"),
        (replace(FINE, nvml_problem=GONE), "NVML", Level.WARN, "gone"),
        (replace(FINE, gpus=(replace(GPU, cuda_index=None),)), "GPU 0", Level.WARN, "hidden from CUDA"),
        (replace(FINE, gpus=(replace(GPU, mig=True),)), "GPU 0 MIG", Level.PROBLEM, "without a MIG device"),
        (replace(FINE, gpus=(replace(GPU, mig=True, mig_uuids=("MIG-1",)),)), "GPU 0 MIG", Level.WARN, "1 devices"),
        (
            replace(FINE, gpus=(replace(GPU, compute_mode="prohibited"),)),
            "GPU 0 compute mode",
            Level.PROBLEM,
            "prohibited",
        ),
        (
            replace(FINE, gpus=(replace(GPU, compute_mode="exclusive process"),)),
            "GPU 0 compute mode",
            Level.WARN,
            "one process",
        ),
        (
            replace(FINE, gpus=(replace(GPU, processes=(GpuProcess(1, "train", None),)),)),
            "GPU 0 processes",
            Level.WARN,
            "train (1)",
        ),
        (replace(FINE, gpus=(replace(GPU, processes=None),)), "GPU 0 processes", Level.WARN, "n/a"),
    ],
)
def test_each_disorder_has_its_level_and_a_cure(survey: Survey, subject: str, level: Level, words: str) -> None:
    finding = look(survey, subject)
    assert finding.level is level
    assert words in finding.found
    assert finding.do


@pytest.mark.parametrize(
    ("answer", "mig", "level", "words"),
    [
        ({"sm_active_percent": 0.7, "dram_percent": 81.0}, False, Level.OK, "readable, SM active 0.7 %"),
        ({"sm_active_percent": 0.7, "dram_percent": None}, False, Level.OK, "without a value: dram_percent"),
        (NvmlUnavailable(gpm.UNSUPPORTED, ""), False, Level.OK, "from Hopper on"),
        (NvmlUnavailable(gpm.NO_FUNCTION, "upgrade it"), False, Level.WARN, "nvidia-ml-py"),
        (NvmlUnavailable("no permission", "be root"), True, Level.WARN, "no permission (with MIG on"),
    ],
)
def test_the_gpm_counters_can_be_read_or_the_reason_is_there(
    answer: gpm.GpmAnswer, mig: bool, level: Level, words: str
) -> None:
    survey = replace(FINE, gpus=(replace(GPU, mig=mig, mig_uuids=("MIG-1",)),))
    (found,) = doctor._counters(survey, lambda uuids: [answer for _ in uuids])
    assert (found.subject, found.level) == ("GPU 0 GPM counters", level)
    assert words in found.found
    assert bool(found.do) == (level is not Level.OK)


def test_without_a_gpu_or_nvml_nothing_is_asked() -> None:
    for survey, why in ((replace(FINE, gpus=()), "no GPU"), (replace(FINE, nvml_problem=GONE), "NVML unavailable")):
        (found,) = doctor._counters(survey, lambda _: pytest.fail("it was asked"))
        assert found.level is Level.OK
        assert f"n/a ({why}); a simulated GPU has" in found.found


def test_everything_that_is_not_ok_says_what_to_do() -> None:
    broken = Survey((), DriverReport(error="library", problem="no driver"))
    for finding in (*doctor.examine(broken).findings, *doctor.examine(FINE).findings):
        assert bool(finding.do) == (finding.level is not Level.OK), finding


def test_libraries_and_kernel_module_of_different_versions_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "kernel_module_version", lambda: "570.1")
    assert look(FINE, "driver versions").level is Level.PROBLEM


def test_bindings_newer_than_the_driver_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "version_of", lambda name: "13.3.1")
    old = replace(FINE, driver=DriverReport(cuda_version=12080))
    assert "newer functions are missing" in look(old, "cuda-bindings and driver").found


def test_the_fork_of_pynvml_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "fork", lambda: "11.5.3")
    assert "pip uninstall pynvml" in look(FINE, "package pynvml").do


def test_a_missing_package_is_a_problem_unless_it_is_nvmls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "version_of", lambda name: None)
    assert look(FINE, "package simpy").level is Level.PROBLEM
    assert look(FINE, "package nvidia-ml-py").level is Level.WARN


def test_settings_that_slow_calls_down_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setattr(fingerprint, "mps_running", lambda: True)
    assert look(FINE, "CUDA_LAUNCH_BLOCKING").level is Level.WARN
    assert look(FINE, "MPS").level is Level.WARN


@pytest.mark.parametrize(
    ("governor", "level"), [("powersave", Level.WARN), ("performance", Level.OK), (None, Level.OK)]
)
def test_a_governor_that_lets_the_cpu_doze_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, governor: str | None, level: Level
) -> None:
    monkeypatch.setattr(fingerprint, "scaling_governors", lambda: governor)
    assert look(FINE, "CPU governor").level is level


def test_the_document_keeps_to_its_schema() -> None:
    document = codec.plain(doctor.examine(FINE))
    validate(document, doctor.DOCTOR_SCHEMA)


def test_a_fingerprint_explains_everything_it_does_not_know() -> None:
    of_gpu = fingerprint.fingerprint(GPU.uuid, {}, FINE)
    assert (of_gpu["gpu"], of_gpu["driver"], of_gpu["cuda"]) == ("NVIDIA H200", "580.159.04", "13.0")
    for found in (of_gpu, fingerprint.fingerprint(None, {}), fingerprint.fingerprint("GPU-other", {}, FINE)):
        unknown = found["unknown"]
        assert isinstance(unknown, dict)
        assert set(unknown) == {key for key, value in found.items() if value is None}
        assert all(unknown.values())


def test_what_the_engine_saw_goes_before_what_was_found_here() -> None:
    assert fingerprint.fingerprint(GPU.uuid, {"module_loading": "eager", "other": 1}, FINE)["module_loading"] == "eager"


def timeline_finding(version: int | None, cuda: int = 13_000, majors: tuple[int, ...] = (13,)) -> Finding:
    found = [LibraryFile(f"/x/libcupti.so.{major}", major, "Python package") for major in majors]
    [finding] = doctor._timeline(DriverReport(cuda_version=cuda), lambda: found, lambda _: version)
    return finding


@pytest.mark.parametrize(
    ("finding", "level", "found", "do"),
    [
        (timeline_finding(130_101), Level.OK, "libcupti 13.1", ""),
        (timeline_finding(130_001), Level.WARN, "no context switches: libcupti is older than 13.1", "--upgrade"),
        (timeline_finding(28, 12_090, (12,)), Level.OK, "libcupti 12.9", ""),
        (timeline_finding(None), Level.WARN, "does not start", "driver"),
        (timeline_finding(130_101, 12_090), Level.WARN, "too new", "nvidia-cuda-cupti-cu12"),
        (timeline_finding(130_101, majors=()), Level.WARN, "not found", "pip install nvidia-cuda-cupti"),
    ],
)
def test_the_timeline_has_a_finding(finding: Finding, level: Level, found: str, do: str) -> None:
    assert finding.subject == "timeline"
    assert finding.level is level
    assert found in finding.found
    assert do in finding.do


def test_without_a_driver_the_timeline_has_no_finding() -> None:
    assert not list(doctor._timeline(DriverReport(error="library")))


def test_a_library_that_crashes_its_process_gives_no_version(tmp_path: Path) -> None:
    path = tmp_path / "libcupti.so.13"
    path.write_bytes(b"no ELF file")
    assert ask_version(str(path)) is None


def test_events_that_the_kernel_refuses_are_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_events, "_SYSTEM_CALL", None)
    assert perf_events.refusal() == "the number of the system call is not known"
    refused = doctor._events(lambda: "Permission denied")
    assert (refused.level, refused.subject) == (Level.WARN, "perf events")
    assert refused.found.startswith("refused (Permission denied)")
    assert "perf_event_paranoid=2" in refused.do
    assert doctor._events(lambda: "").level is Level.OK


FULL = GpuSettings(
    performance_state=0, utilisation=100, sm_clock=1980, most_sm_clock=1980, application_clock=1980,
    default_application_clock=1980, clock_reasons=(), power_limit=700.0, default_power_limit=700.0,
    link=PcieLink(5, 16), most_link=PcieLink(5, 16),
)  # fmt: skip


def of_settings(settings: GpuSettings | NvmlUnavailable) -> dict[str, Finding]:
    found = doctor._gpu_settings(FINE, lambda _: [settings])
    return {finding.subject.removeprefix("GPU 0 "): finding for finding in found}


@pytest.mark.parametrize(
    ("changes", "subject", "level", "words"),
    [
        ({}, "clocks", Level.OK, "SM clock 1980 MHz of at most 1980 MHz"),
        ({"sm_clock": 345, "clock_reasons": ("idle",), "utilisation": 0}, "clocks", Level.OK, "idle"),
        ({"sm_clock": 1200, "clock_reasons": ("power cap",)}, "clocks", Level.WARN, "limited by power cap"),
        ({"clock_reasons": ("thermal (hardware)", "hardware slowdown")}, "clocks", Level.WARN, "hardware slowdown"),
        ({"application_clock": 1410}, "clocks", Level.WARN, "the applications clock is set to 1410 MHz"),
        ({"sm_clock": 1410}, "clocks", Level.WARN, "they may be locked"),
        # Without load a low clock says nothing.
        ({"sm_clock": 1410, "utilisation": 3}, "clocks", Level.OK, "SM clock 1410 MHz"),
        ({"sm_clock": None}, "clocks", Level.OK, "n/a"),
        ({}, "power limit", Level.OK, "700 W, the default"),
        ({"power_limit": 400.0}, "power limit", Level.WARN, "400 W, below the default of 700 W"),
        ({"default_power_limit": None}, "power limit", Level.OK, "700 W"),
        ({}, "PCIe", Level.OK, "gen 5 ×16"),
        ({"link": PcieLink(5, 8)}, "PCIe", Level.WARN, "gen 5 ×8, but the GPU and its slot have gen 5 ×16"),
        ({"link": PcieLink(1, 16)}, "PCIe", Level.WARN, "gen 1 ×16"),
        ({"link": PcieLink(1, 16), "performance_state": 8}, "PCIe", Level.OK, "gen 1 ×16 of gen 5 ×16"),
        ({"link": None}, "PCIe", Level.OK, "n/a"),
    ],
)
def test_what_makes_a_gpu_slower_is_named(changes: dict[str, object], subject: str, level: Level, words: str) -> None:
    finding = of_settings(replace(FULL, **changes))[subject]  # type: ignore[arg-type]
    assert finding.level is level
    assert words in finding.found
    assert bool(finding.do) is (level is Level.WARN)


def test_without_nvml_nothing_is_said_of_clocks() -> None:
    assert of_settings(GONE)["clocks"].found == "n/a: gone"
    assert not list(doctor._gpu_settings(replace(FINE, nvml_problem=GONE)))


class SettingsNvml:
    """NVML that knows the clock, the link and the state alone."""

    NVML_CLOCK_SM = 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != GPU.uuid:
            raise ValueError("Not Found")
        return uuid

    def nvmlDeviceGetClockInfo(self, _handle: str, kind: int) -> int:
        return 1980 * kind

    def nvmlDeviceGetCurrPcieLinkGeneration(self, _handle: str) -> int:
        return 4

    def nvmlDeviceGetCurrPcieLinkWidth(self, _handle: str) -> int:
        return 8

    def nvmlDeviceGetPerformanceState(self, _handle: str) -> int:
        raise RuntimeError("Not Supported")


def test_a_setting_that_nvml_lacks_is_not_known() -> None:
    found, other = ask([GPU.uuid, "GPU-0"], SettingsNvml)
    assert found == GpuSettings(sm_clock=1980, link=PcieLink(4, 8))
    assert isinstance(other, NvmlUnavailable)
