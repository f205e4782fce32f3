"""The state of the GPU beside calls after idle times."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from stallprobes.files import codec
from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot
from stallprobes.measurement import gpu_state
from stallprobes.measurement.document import state_document
from stallprobes.measurement.gpu_state import GpuState, GpuStateRecorder
from stallprobes.measurement.plan import plan, selection


def snapshot(clock: int | None, power: float | None, state: str | None) -> TelemetrySnapshot:
    values = {"sm_clock_mhz": clock, "power_w": power, "performance_state": state}
    readings = {name: TelemetryReading(value, 1, None) for name, value in values.items()}
    return TelemetrySnapshot("GPU-1", 1, "live", None, MappingProxyType(readings))


def test_a_state_is_a_range_of_values_and_the_performance_states_in_order() -> None:
    taken = [snapshot(1980, 120.04, "P0"), snapshot(345, 70.5, "P12"), snapshot(None, None, "P8")]
    found = GpuState.of(taken)
    assert found == GpuState((345, 1980), (70.5, 120.04), ("P0", "P8", "P12"))
    assert codec.plain(state_document(found)) == {
        "sm_clock_mhz": [345, 1980],
        "power_w": [70.5, 120.0],
        "performance_states": ["P0", "P8", "P12"],
    }


def test_what_nvml_does_not_know_is_null() -> None:
    assert GpuState.of([snapshot(None, None, None)]) == GpuState()
    assert codec.plain(state_document(GpuState())) == {"sm_clock_mhz": None, "power_w": None, "performance_states": []}


def test_nvml_is_read_where_it_is_wanted_and_only_while_the_variant_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []

    class ScriptedTelemetry:
        def __init__(self, uuid: str, *, fields: tuple[Any, ...]) -> None:
            calls.append((uuid, sorted(field.name for field in fields)))

        def start(self) -> None:
            calls.append("start")

        def stop(self) -> None:
            calls.append("stop")

        def snapshot(self) -> TelemetrySnapshot:
            return snapshot(1980, 100.0, "P0")

    monkeypatch.setattr(gpu_state, "Telemetry", ScriptedTelemetry)
    session: Any = SimpleNamespace(backend="cuda", info={"devices": [{"uuid": "GPU-1"}]})
    with GpuStateRecorder(session, wanted=True) as recorder:
        recorder.sample()
        assert recorder.take() == GpuState((1980, 1980), (100.0, 100.0), ("P0",))
        assert recorder.take() == GpuState()
    assert calls == [("GPU-1", ["performance_state", "power_w", "sm_clock_mhz"]), "start", "stop"]
    with GpuStateRecorder(session, wanted=False) as recorder:
        recorder.sample()
        assert recorder.take() is None
    with GpuStateRecorder(SimpleNamespace(backend="host", info={"devices": []}), wanted=True) as recorder:  # type: ignore[arg-type]
        assert recorder.take() is None
    assert calls[3:] == []


@pytest.mark.parametrize(
    ("variant", "seconds", "length"),
    [("after-1ms", 2.0, 2.0), ("after-100ms", 0.1, 0.4), ("after-1s", 2.0, 4.0), ("after-5s", 30.0, 30.0)],
)
def test_a_window_has_four_calls_after_idle_times(variant: str, seconds: float, length: float) -> None:
    (planned,) = plan(selection(["idle-wakeup"], [variant]), seconds=seconds).variants
    assert planned.window_s == length
