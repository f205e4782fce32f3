"""Clocks of GPUs beside the phases of a program."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from factories.watch_moments import findings
from stallprobes.machine.gpu_settings import PcieLink
from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot
from stallprobes.watch import gpu_notes
from stallprobes.watch.attribution.findings import ProcessFindings, WatchedGpu
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.division.result import PhaseDivision
from stallprobes.watch.division_text import verdict_text
from stallprobes.watch.gpu_clocks import GpuClocks
from stallprobes.watch.lines.result import ProgramSequence

SECOND = 1_000_000_000
ALL = Figure(1.0, 1.0, 1.0)
HEAD: dict[str, Any] = {"model": "NVIDIA H200", "driver": "580.159.04", "cuda": "13.0"}


class FakeTelemetry:
    """Telemetry of a GPU whose clock is 1980 MHz for 10 s, and 1410 MHz afterwards."""

    now_s = idle_s = 0
    running: ClassVar[list[FakeTelemetry]] = []

    def __init__(self, uuid: str, fields: Any, on_values: Callable[[], None]) -> None:
        self.uuid, self.on_values = uuid, on_values
        assert {name for each in fields for name in each.names or (each.name,)} == {
            *HEAD,
            "sm_clock_mhz",
            "clock_reasons",
            "power_limit_w",
            "pcie_link",
        }

    def start(self) -> None:
        self.running.append(self)

    def stop(self) -> None:
        self.running.remove(self)

    def snapshot(self) -> TelemetrySnapshot:
        now_ns = self.now_s * SECOND
        high = self.now_s < 10
        values: dict[str, object] = {
            "sm_clock_mhz": 345 if self.now_s < self.idle_s else 1980 if high else 1410,
            "clock_reasons": ("idle",) if self.now_s < self.idle_s else () if high else ("power cap",),
            "power_limit_w": 700.0 if high else 400.0,
            "pcie_link": PcieLink(5, 16 if high else 8),
        }
        values |= HEAD
        readings = {name: TelemetryReading(value, now_ns, None) for name, value in values.items()}
        return TelemetrySnapshot(self.uuid, now_ns, "live", None, MappingProxyType(readings))


def note(made: GpuClocks, seconds: int) -> None:
    """Note so many seconds of the GPU "b", of whose readings ``made`` is asked only once."""
    made.look(["b"])
    for FakeTelemetry.now_s in range(seconds):
        FakeTelemetry.running[-1].on_values()


@pytest.fixture(autouse=True)
def _telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTelemetry.running = []
    monkeypatch.setattr(gpu_notes, "Telemetry", FakeTelemetry)


def process() -> ProcessFindings:
    """A process that began at 5 s, with a phase until 10 s and then another one."""
    spans = ((5, 15), (0, 5))
    phases = tuple(
        PhaseDivision(verdict=Bound.GPU, gpu=ALL, step_ns=step, times=((begin * SECOND, end * SECOND),))
        for (begin, end), step in zip(spans, (14_000_000, 10_000_000), strict=True)
    )
    sequence = ProgramSequence(threads=(100,), device=1, verdict=Bound.GPU, gpu=ALL, phases=phases)
    return findings(8).processes[0].changed(gpus=("a", "b"), began_ns=5 * SECOND, sequences=(sequence,))


def test_a_phase_has_the_clock_of_its_times() -> None:
    clocks = GpuClocks()
    note(clocks, 20)
    assert [each.uuid for each in FakeTelemetry.running] == ["GPU-b"]
    assert clocks.gpus() == (
        WatchedGpu(uuid="b", **HEAD, sm_clock_mhz=1695.0, clock_reasons=("power cap",), power_limit_w=400.0),
    )
    found = clocks.noted(process())
    (sequence,) = found.sequences
    assert [(phase.sm_clock_mhz, phase.clock_reasons) for phase in sequence.phases] == [
        (1410, ("power cap",)),
        (1980, ()),
    ]
    assert verdict_text(sequence, found) == (
        "Since 5.00 s (steps of 14.0 ms, SM clock 1410 MHz: power cap, power limit 400 W, PCIe ×8), MainThread is "
        "GPU-bound: the GPU works nearly all the time. Until 5.00 s, it was GPU-bound (steps of 10.0 ms, SM clock 1980 "
        "MHz, power limit 700 W, PCIe ×16). "
        "Figures and lines are of the first of these times."
    )
    clocks.look([])
    assert FakeTelemetry.running == []


@pytest.mark.parametrize(("idle_s", "mhz"), [(9, 1410.0), (20, 345.0)])
def test_an_idle_gpu_has_the_clock_of_its_work(monkeypatch: pytest.MonkeyPatch, idle_s: int, mhz: float) -> None:
    monkeypatch.setattr(FakeTelemetry, "idle_s", idle_s)
    clocks = GpuClocks()
    note(clocks, 20)
    assert [(gpu.sm_clock_mhz, gpu.clock_reasons) for gpu in clocks.gpus()] == [
        (mhz, ("power cap",) if mhz > 345 else ())
    ]


def test_a_gpu_that_is_not_read_has_no_clock() -> None:
    clocks = GpuClocks()
    clocks.look(["a"])
    (sequence,) = clocks.noted(process()).sequences
    assert [phase.sm_clock_mhz for phase in sequence.phases] == [None, None]
    assert clocks.noted(process().changed(gpus=())).sequences[0].phases[0].sm_clock_mhz is None


def test_long_runs_keep_a_limited_number_of_readings() -> None:
    clocks = GpuClocks()
    note(clocks, 20_000)
    kept = clocks.of("b")
    assert 2048 <= len(kept) <= 4096
    assert kept[-1][0] >= 19_990 * SECOND
