"""NVML's values: their ages, their n/a, and what happens when NVML or the GPU goes away or hangs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from factories.waiting import wait_until
from stallprobes.errors import NvmlUnavailable
from stallprobes.machine import nvml
from stallprobes.machine.gpm import METRICS, NO_FUNCTION
from stallprobes.machine.gpus import GpuProcess
from stallprobes.machine.telemetry import HANGING_AFTER_S, NAMES, Telemetry, TelemetryField, TelemetrySnapshot


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """The functions that telemetry calls, of one GPU; ``broken`` names functions with the code they raise."""

    NVMLError = FakeError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1

    def __init__(self) -> None:
        self.broken: dict[str, int] = {}
        self.calls: list[str] = []
        self.values: dict[str, Any] = {
            "nvmlDeviceGetHandleByUUID": "handle",
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97),
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetPowerUsage": 124_500,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetTemperature": 33,
            "nvmlDeviceGetPerformanceState": 0,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x40,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4 | 0x40,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3 << 30, total=141 << 30),
            "nvmlDeviceGetPcieThroughput": 12_300,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=1, usedGpuMemory=None)],
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self.values:
            raise AttributeError(name)

        def call(*_: object) -> Any:
            self.calls.append(name)
            if name in self.broken:
                raise FakeError(self.broken[name])
            return self.values[name]

        return call


@contextmanager
def reading(load: Callable[[], Any], **options: Any) -> Iterator[Telemetry]:
    telemetry = Telemetry("GPU-1", load=load, retry_s=0.01, **options)
    telemetry.start()
    try:
        yield telemetry
    finally:
        telemetry.stop()


def until(telemetry: Telemetry, wanted: Callable[[TelemetrySnapshot], bool]) -> TelemetrySnapshot:
    found: list[TelemetrySnapshot] = []

    def reached() -> bool:
        found.append(telemetry.snapshot())
        return wanted(found[-1])

    wait_until(reached, "NVML's values are as wanted")
    return found[-1]


def complete(snapshot: TelemetrySnapshot) -> bool:
    return snapshot.state == "live" and all(reading.at_ns for reading in snapshot.readings.values())


def test_every_value_comes_with_its_age_and_unit() -> None:
    with reading(FakeNvml) as telemetry:
        snapshot = until(telemetry, complete)
    assert set(snapshot.readings) == set(NAMES)
    assert snapshot["power_w"].value == 124.5
    assert snapshot["memory_used_bytes"].value == 3 << 30
    assert snapshot["clock_reasons"].value == ("power cap", "thermal (hardware)")
    assert snapshot["performance_state"].value == "P0"
    assert [process.pid for process in snapshot.processes] == [1]
    for name, one in snapshot.readings.items():
        age = one.age_s(snapshot.at_ns)
        # The made-up module has none of their functions, as an old one.
        assert one.why == (NO_FUNCTION if name in METRICS else None)
        assert age is not None
        assert age >= 0


def test_nothing_is_asked_before_start() -> None:
    asked = []
    telemetry = Telemetry("GPU-1", load=lambda: asked.append(1))
    snapshot = telemetry.snapshot()
    assert not asked
    assert snapshot.state == "starting"
    assert snapshot["power_w"].why == "not read yet"
    assert snapshot["power_w"].age_s(snapshot.at_ns) is None


def test_a_snapshot_cannot_be_changed() -> None:
    snapshot = Telemetry("GPU-1", load=FakeNvml).snapshot()
    with pytest.raises(AttributeError):
        snapshot.state = "live"  # type: ignore[misc]
    with pytest.raises(TypeError):
        snapshot.readings["power_w"] = snapshot["power_w"]  # type: ignore[index]


def test_an_unsupported_value_is_na_with_a_reason_and_the_others_go_on() -> None:
    fake = FakeNvml()
    fake.broken = {"nvmlDeviceGetUtilizationRates": nvml.NOT_SUPPORTED, "nvmlDeviceGetPcieThroughput": 4}
    with reading(lambda: fake) as telemetry:
        snapshot = until(telemetry, complete)
    assert snapshot["utilisation_percent"].value is None
    assert snapshot["utilisation_percent"].why == "not supported by this GPU"
    assert snapshot["pcie_to_gpu_kb_s"].why == "no permission"
    assert snapshot["temperature_c"].value == 33


def test_an_older_driver_is_asked_by_the_older_name() -> None:
    fake = FakeNvml()
    fake.broken = {"nvmlDeviceGetCurrentClocksEventReasons": 13}
    with reading(lambda: fake) as telemetry:
        assert until(telemetry, complete)["clock_reasons"].value == ("power cap", "thermal (hardware)")


def test_a_structure_that_package_and_driver_disagree_about_is_one_na() -> None:
    fake = FakeNvml()
    fake.values["nvmlDeviceGetUtilizationRates"] = SimpleNamespace()
    with reading(lambda: fake) as telemetry:
        snapshot = until(telemetry, complete)
    assert "AttributeError" in (snapshot["utilisation_percent"].why or "")
    assert snapshot["power_w"].value == 124.5


def test_a_lost_gpu_leaves_no_value_standing_and_comes_back_after_a_reset() -> None:
    fake = FakeNvml()
    with reading(lambda: fake) as telemetry:
        until(telemetry, complete)
        fake.broken = dict.fromkeys(fake.values, nvml.GPU_IS_LOST)
        lost = until(telemetry, lambda snapshot: snapshot.state == "lost")
        assert all(one.value is None and one.why == "the GPU is lost" for one in lost.readings.values())
        assert lost.processes == ()
        fake.broken = {}
        until(telemetry, complete)


def test_without_nvml_every_value_says_why() -> None:
    def load() -> Any:
        raise NvmlUnavailable("no NVIDIA driver", "install it")

    with reading(load) as telemetry:
        snapshot = until(telemetry, lambda snapshot: snapshot.state == "unavailable")
    assert snapshot.why == "no NVIDIA driver"
    assert {one.why for one in snapshot.readings.values()} == {"no NVIDIA driver"}


def test_a_call_that_hangs_is_said_with_its_age_and_holds_nobody_up() -> None:
    fake, never, ahead_ns = FakeNvml(), threading.Event(), 0

    def hang(_module: Any, _handle: Any) -> int:
        never.wait()
        return 0

    def clock() -> int:
        return time.monotonic_ns() + ahead_ns

    fields = (TelemetryField("fast", 0.01, lambda m, h: 1), TelemetryField("stuck", 1.0, hang, slow=True))
    try:
        with reading(lambda: fake, fields=fields, clock=clock) as telemetry:
            until(telemetry, lambda snapshot: snapshot["fast"].value == 1)
            ahead_ns = int(5 * HANGING_AFTER_S * 1e9)
            before = until(telemetry, lambda snapshot: snapshot.state == "hanging")
            assert "stuck" in (before.why or "")
            # The other thread's values stay fresh meanwhile.
            until(telemetry, lambda snapshot: snapshot["fast"].at_ns > before.at_ns)
            # The call never returns: neither of these waits for it.
            telemetry.stop()
            telemetry.snapshot()
    finally:
        never.set()


def test_slow_fields_are_asked_less_often_than_fast_ones() -> None:
    fake = FakeNvml()
    with reading(lambda: fake) as telemetry:
        until(telemetry, lambda _: fake.calls.count("nvmlDeviceGetPowerUsage") >= 4)
    power, processes = (
        fake.calls.count(name) for name in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses")
    )
    assert processes * 2 <= power


def test_whoever_wants_each_reading_is_called_for_each() -> None:
    fake = FakeNvml()
    heard: list[Any] = []
    field = TelemetryField("gpm", 0.01, lambda module, handle: {"a": len(heard), "b": len(heard)}, names=("a", "b"))
    telemetry = Telemetry(
        "GPU-1", load=lambda: fake, fields=(field,), on_values=lambda: heard.append(telemetry.snapshot().readings)
    )
    telemetry.start()
    try:
        wait_until(lambda: len(heard) >= 3, "three readings are heard of")
    finally:
        telemetry.stop()
    assert [(readings["a"].value, readings["b"].value) for readings in heard[:3]] == [(0, 0), (1, 1), (2, 2)]
    assert all(readings["a"].at_ns == readings["b"].at_ns for readings in heard)


def test_the_fork_in_the_place_of_the_module_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    fork = ModuleType("pynvml")
    fork.nvmlInit = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", fork)
    with pytest.raises(NvmlUnavailable, match="not nvidia-ml-py's") as caught:
        nvml.load()
    assert "pip uninstall pynvml" in caught.value.remedy


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlUnavailable, match="not installed"):
        nvml.load()


@pytest.mark.parametrize(
    ("code", "words"),
    [(12, "no NVIDIA driver"), (9, "not loaded"), (18, "different versions"), (4, "permission"), (999, "999")],
)
def test_each_way_nvml_fails_to_start_has_its_own_words(monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    fake = FakeNvml()
    fake.values |= dict.fromkeys((*nvml.NEEDED, "nvmlInit"))
    fake.broken = {"nvmlInit": code}
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    with pytest.raises(NvmlUnavailable, match=words) as caught:
        nvml.load()
    assert caught.value.remedy


@pytest.mark.parametrize(("version", "shadowed"), [("11.5.3", True), ("8.0.4", True), ("13.0.1", False), (None, False)])
def test_only_the_pynvml_package_with_a_module_of_its_own_is_wrong(
    monkeypatch: pytest.MonkeyPatch, version: str | None, shadowed: bool
) -> None:
    monkeypatch.setattr(nvml, "version_of", lambda name: version)
    assert nvml.fork() == (version if shadowed else None)


def test_a_process_of_another_user_still_counts() -> None:
    fake = FakeNvml()
    fake.values["nvmlDeviceGetComputeRunningProcesses"] = [SimpleNamespace(pid=2**30, usedGpuMemory=1024)]
    with reading(lambda: fake) as telemetry:
        assert until(telemetry, complete).processes == (GpuProcess(2**30, "?", 1024),)
