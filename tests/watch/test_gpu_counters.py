"""NVML's counters of the GPUs of watched programs, and what they say of the kernels."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from factories.watch_moments import findings
from stallprobes.machine import gpm
from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot, TelemetryState
from stallprobes.watch import gpu_notes
from stallprobes.watch.attribution.findings import ProcessFindings, WatchedGpu
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.limits import Limit
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.result import PhaseDivision, ProcessDivision
from stallprobes.watch.gpu_counters import GpuCounters
from stallprobes.watch.limit_text import limit_label, limit_text
from stallprobes.watch.lines.result import ProgramSequence

SECOND = 1_000_000_000
GPUS = (WatchedGpu(uuid="b", model="NVIDIA H200", driver="580.159.04"),)
ALL, HALF = Figure(1.0, 1.0, 1.0), Figure(0.5, 0.5, 0.5)
COUNTERS = {
    "graphics": 98.0, "sm_active": 92.0, "occupancy": 90.0, "dram": 81.0, "tensor": 0.0, "fp32": 3.0, "fp64": 0.0,
    "fp16": 0.0, "integer": 20.0, "pcie_to_gpu": 10.0, "pcie_from_gpu": 10.0,
}  # fmt: skip


class FakeTelemetry:
    """Telemetry of a GPU whose kernels run from the second second on."""

    now_s = 0
    running: ClassVar[list[FakeTelemetry]] = []

    def __init__(self, uuid: str, fields: Any, on_values: Callable[[], None]) -> None:
        self.uuid, self.on_values = uuid, on_values
        assert {name for each in fields for name in each.names or (each.name,)} == set(gpm.LIMITS)

    def start(self) -> None:
        self.running.append(self)

    def stop(self) -> None:
        self.running.remove(self)

    def snapshot(self) -> TelemetrySnapshot:
        now_ns = self.now_s * SECOND
        values = COUNTERS if self.now_s >= 6 else dict.fromkeys(COUNTERS, 0.0)
        readings = {name: TelemetryReading(value, now_ns, None) for name, value in values.items()}
        return TelemetrySnapshot(self.uuid, now_ns, "live", None, MappingProxyType(readings))


def note_20_s(made: GpuCounters) -> None:
    """Note 20 s of the GPU "b", of whose readings ``made`` is asked only once."""
    made.look(["b"])
    for FakeTelemetry.now_s in range(20):
        FakeTelemetry.running[-1].on_values()


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> GpuCounters:
    """Counters of 20 s."""
    FakeTelemetry.running = []
    monkeypatch.setattr(gpu_notes, "Telemetry", FakeTelemetry)
    made = GpuCounters()
    note_20_s(made)
    assert [each.uuid for each in FakeTelemetry.running] == ["GPU-b"]
    return made


def process(gpu: Figure = ALL, pid: int = 0) -> ProcessFindings:
    """A process that began at 4 s, with a start-up of 1 s."""
    sequence = ProgramSequence(threads=(100,), device=1, verdict=Bound.GPU, gpu=gpu)
    made = findings(8).processes[0]
    return made.changed(
        pid=made.pid + pid, gpus=("a", "b"), began_ns=4 * SECOND, duration_ns=15 * SECOND, sequences=(sequence,),
        division=ProcessDivision(steady=True, start_up_ns=SECOND, start_up={}, other_threads=0),
    )  # fmt: skip


def test_a_sequence_has_the_limit_of_its_gpus_steady_state(counters: GpuCounters) -> None:
    (found,) = counters.noted([process()], GPUS)
    (sequence,) = found.sequences
    assert sequence.limit is not None
    assert (sequence.limit.limit, sequence.limit.samples) == (Limit.DRAM, 14)
    assert limit_label(sequence) == "limited by memory, 83 % in use"
    assert limit_text(sequence) == (
        "Its kernels are limited by the bandwidth of the GPU's memory (in use while they run: memory 83 %, integers "
        "20 %; NVML's counters of the whole GPU, 14 s, beside what GPUs of this model reach). Kernels that are fused, "
        "or numbers of fewer bits, move less data."
    )


def test_a_sequence_with_phases_has_the_limit_of_the_first_of_them(counters: GpuCounters) -> None:
    made = process()
    times = ((5 * SECOND, 8 * SECOND), (10 * SECOND, 12 * SECOND))
    phases = (PhaseDivision(verdict=Bound.GPU, gpu=ALL, times=times),) * 2
    made = made.changed(sequences=(made.sequences[0].changed(phases=phases),))
    (found,) = counters.noted([made], GPUS)
    limit = found.sequences[0].limit
    # Of the seconds that are in one of its times as a whole.
    assert limit is not None
    assert limit.samples == 5


def test_kernels_of_others_have_no_limit(counters: GpuCounters) -> None:
    """The GPU is busy for longer than the process has work there, or another watched process uses it."""
    (found,) = counters.noted([process(HALF)], GPUS)
    both = counters.noted([process(), process(pid=1)], GPUS)
    for sequence in (each.sequences[0] for each in (found, *both)):
        assert sequence.limit is not None
        assert sequence.limit.limit is Limit.SHARED
        assert limit_label(sequence) == "limit not known: the GPU is shared"
        assert limit_text(sequence).startswith("What limits its kernels is not known: others use the GPU too")


@pytest.mark.parametrize(("own", "limit"), [(0.08, Limit.DRAM), (0.06, Limit.UNKNOWN), (0.0, Limit.UNKNOWN)])
def test_counters_of_little_work_are_its_own_or_not_known(
    counters: GpuCounters, monkeypatch: pytest.MonkeyPatch, own: float, limit: Limit
) -> None:
    """Kernels run for 9.8 % of the time: NVML counts gaps between short kernels, and perhaps kernels of others."""
    for name in gpm.LIMITS:
        monkeypatch.setitem(COUNTERS, name, COUNTERS[name] / 10)
    made = GpuCounters()
    note_20_s(made)
    (found,) = made.noted([process(Figure(own, own, own))], GPUS)
    assert found.sequences[0].limit is not None
    assert found.sequences[0].limit.limit is limit


def test_traces_have_the_counters_of_each_second(counters: GpuCounters) -> None:
    tracks = {track.name: track for track in counters.tracks(5 * SECOND, 8 * SECOND)}
    assert tracks.keys() == {"SM active", "memory", "tensor cores", "PCIe to GPU", "PCIe from GPU"}
    assert [(sample.end_ns // SECOND, sample.value) for sample in tracks["memory"].samples] == [
        (6, 81.0), (7, 81.0), (8, 81.0),
    ]  # fmt: skip
    assert counters.tracks(30 * SECOND, 40 * SECOND) == ()


def test_counters_that_lack_most_of_the_work_are_said_to_lack_it(
    counters: GpuCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tool may have them. Kernels run all the time here, and for 49 or 51 % of it by the counters."""
    made = process()
    sequence = made.sequences[0].changed(covered_ns=SECOND, parts={Part.KERNELS: SECOND})
    for graphics, lacks in ((49.0, True), (51.0, False)):
        monkeypatch.setitem(COUNTERS, "graphics", graphics)
        fresh = GpuCounters()
        note_20_s(fresh)
        (found,) = fresh.noted([made.changed(sequences=(sequence,))], GPUS)
        assert (found.sequences[0].limit is None) is lacks
        assert ("another tool" in limit_text(found.sequences[0])) is lacks


@pytest.mark.parametrize("state", ["live", "unavailable"])
def test_nvml_says_why_a_gpu_has_no_counters(monkeypatch: pytest.MonkeyPatch, state: TelemetryState) -> None:
    """A GPU before Hopper, and one that NVML does not find by its UUID, as a MIG device."""
    why = TelemetryReading(None, SECOND, gpm.UNSUPPORTED)

    def snapshot(self: FakeTelemetry) -> TelemetrySnapshot:
        readings = MappingProxyType(dict.fromkeys(COUNTERS, why))
        return TelemetrySnapshot(
            self.uuid, SECOND, state, gpm.UNSUPPORTED if state == "unavailable" else None, readings
        )

    monkeypatch.setattr(gpu_notes, "Telemetry", FakeTelemetry)
    monkeypatch.setattr(FakeTelemetry, "snapshot", snapshot)
    made = GpuCounters()
    made.look(["b"])
    if state == "live":
        FakeTelemetry.running[-1].on_values()
    made.look(["b"])
    made.look(())
    (sequence,) = made.noted([process()], GPUS)[0].sequences
    assert sequence.limit is None
    assert limit_text(sequence) == f"What limits its kernels is not known. NVML's counters: {gpm.UNSUPPORTED}."


def test_counters_that_were_not_read_say_nothing() -> None:
    (found,) = GpuCounters().noted([process()], GPUS)
    (sequence,) = found.sequences
    assert (sequence.limit, limit_text(sequence), limit_label(sequence)) == (None, "", "")


@pytest.mark.parametrize("limit", Limit)
def test_every_limit_has_a_sentence_and_a_label(counters: GpuCounters, limit: Limit) -> None:
    (found,) = counters.noted([process()], GPUS)
    (sequence,) = found.sequences
    assert sequence.limit is not None
    sequence = sequence.changed(limit=sequence.limit.changed(limit=limit))
    assert limit_text(sequence).endswith(".")
    assert limit_label(sequence)
