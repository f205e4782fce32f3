"""The state of the GPU beside the calls of a variant."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from stallprobes.files import codec
from stallprobes.machine.gpm import METRICS, PERIOD_S
from stallprobes.machine.gpu_state import STATE_READINGS, GpuSamples, GpuState
from stallprobes.machine.telemetry import NAMES, TelemetryField, TelemetryReading, TelemetrySnapshot
from stallprobes.measurement import gpu_state
from stallprobes.measurement.gpu_state import GpuStateRecorder
from stallprobes.measurement.plan import plan, selection


def snapshot(**values: object) -> TelemetrySnapshot:
    known = dict.fromkeys(NAMES) | values
    readings = {name: TelemetryReading(value, 1, None) for name, value in known.items()}
    return TelemetrySnapshot("GPU-1", 1, "live", None, MappingProxyType(readings))


def state_of(*snapshots: TelemetrySnapshot) -> GpuState:
    samples = GpuSamples()
    for one in snapshots:
        samples.add(one)
    return samples.state()


def known(state: GpuState) -> dict[str, Any]:
    """The JSON members of ``state`` that are not null."""
    return {name: value for name, value in codec.plain(state).items() if value is not None}


def test_a_state_has_ranges_performance_states_in_order_and_medians() -> None:
    found = state_of(
        snapshot(sm_clock_mhz=1980, power_w=120.04, performance_state="P0", utilisation_percent=98),
        snapshot(sm_clock_mhz=345, power_w=70.5, performance_state="P12", utilisation_percent=100),
        snapshot(performance_state="P8", utilisation_percent=0, sm_active_percent=0.7),
    )
    assert known(found) == {
        "sm_clock_mhz": [345, 1980],
        "power_w": [70.5, 120.0],
        "performance_states": ["P0", "P8", "P12"],
        "utilisation_percent": 98,
        "sm_active_percent": 0.7,
    }


def test_what_nvml_does_not_know_is_null() -> None:
    assert known(state_of(snapshot())) == {"performance_states": []}
    assert set(METRICS) < set(GpuState.__struct_fields__)


def test_a_long_time_is_kept_in_limited_memory() -> None:
    samples = GpuSamples()
    for percent in (10, 30, 60):
        for _ in range(10_000):
            samples.add(snapshot(utilisation_percent=percent))
    assert len(samples._rows) < 5_000
    assert known(samples.state()) == {"performance_states": [], "utilisation_percent": 30}


@pytest.mark.parametrize("gpm_counters", [True, False])
def test_nvml_is_read_only_while_the_variant_is_measured(monkeypatch: pytest.MonkeyPatch, gpm_counters: bool) -> None:
    calls: list[object] = []
    read: list[TelemetryField] = []

    class ScriptedTelemetry:
        def __init__(self, uuid: str, *, fields: tuple[TelemetryField, ...]) -> None:
            calls.append(uuid)
            read.extend(fields)

        def start(self) -> None:
            calls.append("start")

        def stop(self) -> None:
            calls.append("stop")

        def snapshot(self) -> TelemetrySnapshot:
            return snapshot(sm_clock_mhz=1980)

    monkeypatch.setattr(gpu_state, "Telemetry", ScriptedTelemetry)
    session: Any = SimpleNamespace(backend="cuda", info={"devices": [{"uuid": "GPU-1"}]})
    with GpuStateRecorder(session, gpm_counters) as recorder:
        recorder.sample()
        assert recorder.take() == state_of(snapshot(sm_clock_mhz=1980))
        assert recorder.take() == state_of()
    assert calls == ["GPU-1", "start", "stop"]
    assert {name for one in read for name in one.names or (one.name,)} == set(STATE_READINGS)
    (counters,) = (one for one in read if one.names)
    assert (counters.period_s == PERIOD_S) == gpm_counters
    with GpuStateRecorder(SimpleNamespace(backend="host", info={"devices": []}), gpm_counters) as recorder:  # type: ignore[arg-type]
        recorder.sample()
        assert recorder.take() is None
    assert calls == ["GPU-1", "start", "stop"]


@pytest.mark.parametrize(
    ("variant", "seconds", "length"),
    [("after-1ms", 2.0, 2.0), ("after-100ms", 0.1, 0.4), ("after-1s", 2.0, 4.0), ("after-5s", 30.0, 30.0)],
)
def test_a_window_has_four_calls_after_idle_times(variant: str, seconds: float, length: float) -> None:
    (planned,) = plan(selection(["idle-wakeup"], [variant]), seconds=seconds).variants
    assert planned.window_s == length
