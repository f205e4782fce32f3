"""A recording in memory whose every text is hostile: names, titles, GPUs, operations, failures, processes, reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from msgspec import structs

from factories.hostile_text import HOSTILE, poisoned
from factories.recordings import STALL
from factories.traces import handmade_trace
from stallprobes.engine.backend import ProbeFailure
from stallprobes.latency.baseline import Baseline
from stallprobes.machine.gpus import GpuProcess
from stallprobes.machine.telemetry import NAMES, TelemetryReading, TelemetrySnapshot
from stallprobes.recording.observation import GpuName, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallprobes.traces.trace import RecordedTrace, Trace

# Words that a reader compares with: backends, functions of the driver, and states of NVML.
STRUCTURE = ("cuda", "sim", "host", "lost", "hanging", "unavailable", "ok")


class HostileRecording(Recording):
    """The recording of a stall with ``hostile`` in every text of its observations."""

    def __init__(self, hostile: str = HOSTILE) -> None:
        # The constructor reads the first observation.
        self.hostile = hostile
        super().__init__(STALL)

    @cached_property
    def probe_set(self) -> ProbeSet:
        """The only probe set. It stays the same object, as in a recording."""
        known = next(super().play()).probe_set
        functions = {op.fn for probe in known.probes for op in probe.program.ops}
        made = poisoned(known, {*STRUCTURE, *functions, *(probe.stream for probe in known.probes)}, self.hostile)
        text = self.hostile
        return structs.replace(
            made, gpus=(GpuName(text, 0), GpuName(text, 1)), details=(text, text), why_simulated=text, expect=text
        )

    def play(self, number: int = 0) -> Iterator[Observation]:
        """The observations, with other processes, a failure of the host control, and NVML's values."""
        text = self.hostile
        failures = tuple(ProbeFailure(probe.name, text, 700, text, False) for probe in self.probe_set.probes[-1:])
        readings = {
            **dict.fromkeys(NAMES, TelemetryReading(None, 1, text)),
            "processes": TelemetryReading((GpuProcess(1, text, 1),), 1, None),
            "clock_reasons": TelemetryReading((text,), 1, None),
        }
        telemetry = TelemetrySnapshot(text, 1, "hanging", text, readings)
        for one in super().play(number):
            snapshot = None if one.snapshot is None else poisoned(one.snapshot, STRUCTURE, text)
            yield structs.replace(
                one,
                probe_set=self.probe_set,
                engine=replace(one.engine, sentence=text),
                snapshot=snapshot,
                probe_failures=failures,
                other_processes=(f"{text} (pid 1)", text),
                waiting=frozenset(poisoned(tuple(one.waiting), (), text)),
                telemetry=telemetry,
            )

    def baselines(self, number: int) -> dict[str, Baseline]:
        """The baselines, by the names of the probes."""
        return poisoned(super().baselines(number), STRUCTURE, self.hostile)

    def traces(self) -> tuple[RecordedTrace, ...]:
        """One trace, at the beginning."""
        return (RecordedTrace(0, self.begun_s, 0.0),)

    def trace(self, number: int) -> Trace:
        """A trace of the first two probes, with every name hostile."""
        victim, aggressor, *_ = self.probe_set.probes
        found = handmade_trace(victim, aggressor, wall_s=self.begun_s)
        return poisoned(found, hostile=self.hostile).changed(probes=found.probes)


def write(path: Path, hostile: str = HOSTILE) -> None:
    """Write the recording to ``path``, with failures in every observation."""
    source = HostileRecording(hostile)
    recorder = Recorder(path)
    for number, observation in enumerate(source.play()):
        recorder.put_blocking(observation, source.baselines(number))
    recorder.put_trace_blocking(source.trace(0))
    recorder.close(30)
