"""NVML's counters of the GPUs of watched processes (GPM), which say what limits their kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stallprobes.machine import gpm, gpu_reach, nvml
from stallprobes.machine.telemetry import TelemetryField, TelemetryReading
from stallprobes.traces.counters import LIMIT_COUNTERS
from stallprobes.traces.trace import CounterSample, CounterTrack
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.division.limits import Limit, limit_of
from stallprobes.watch.division.parts import Part
from stallprobes.watch.gpu_notes import PERIOD_S, GpuNotes, Note
from stallprobes.watch.gpu_sharers import is_shared, share_a_gpu
from stallprobes.watch.lines.result import ProgramSequence

# Largest share of the time in which kernels run beyond that in which the process's own work does, if nobody else
# computes, and the same as a part of its own work. NVML's time has the gaps between short kernels, too. Between the two
# the counters may be those of others, and the limit is not known.
_MOST_OF_OTHERS, _MOST_PART = 0.1, 0.5
# Time (ns) that a note is of.
_PERIOD_NS = round(PERIOD_S * 1e9)
# Names of the readings with the model of a GPU and with the version of the driver, and the time (s) between two.
_MODEL, _DRIVER, _NAMES_S = "model", "driver", 600.0


class _Sample(NamedTuple):
    """Values of the counters (percentages, and MiB/s) of the second before, the model of the GPU, and the driver."""

    values: Mapping[str, float | None]
    model: str
    driver: str


class GpuCounters:
    """Notes the counters of GPUs while processes run. A sample takes NVML 0.25 ms, and no time of the process."""

    def __init__(self) -> None:
        self._notes = GpuNotes(_fields, _sample)

    def look(self, uuids: Iterable[str]) -> None:
        """Note the counters of the GPUs with these UUIDs (without GPU-); others are not read any more."""
        self._notes.look(uuids)

    def noted(self, processes: Iterable[ProcessFindings]) -> tuple[ProcessFindings, ...]:
        """``processes`` with what limits the kernels of their sequences in the steady state."""
        every = tuple(processes)
        return tuple(
            process.changed(sequences=tuple(self._with_limit(each, process, every) for each in process.sequences))
            for process in every
        )

    def tracks(self, begin_ns: int, end_ns: int) -> tuple[CounterTrack, ...]:
        """The counters of all GPUs in a span (ns, CLOCK_MONOTONIC), for a trace."""
        uuids = self._notes.uuids
        tracks = (
            CounterTrack(f"GPU {number} {name}" if len(uuids) > 1 else name, unit, _samples(notes, counter))
            for number, uuid in enumerate(uuids)
            for notes in (self._notes.between(uuid, begin_ns, end_ns + _PERIOD_NS),)
            for counter, (name, unit) in LIMIT_COUNTERS.items()
        )
        return tuple(track for each in tracks if (track := each.between(begin_ns, end_ns)).samples)

    def _with_limit(
        self, sequence: ProgramSequence, process: ProcessFindings, every: tuple[ProcessFindings, ...]
    ) -> ProgramSequence:
        device = sequence.device
        if not sequence.divided or device is None or device >= len(process.gpus):
            return sequence
        uuid = process.gpus[device]
        start_up_ns = process.division.start_up_ns if process.division else 0
        times = sequence.phases[0].times if sequence.phases else ((start_up_ns, process.duration_ns),)
        # A sample is of the second before it.
        spans = [(process.began_ns + begin + PERIOD_S * 1e9, process.began_ns + end) for begin, end in times]
        notes = self._notes.of(uuid)
        samples = [each.value.values for each in notes if any(begin <= each.at_ns <= end for begin, end in spans)]
        reach = gpu_reach.known(uuid, notes[-1].value.model, notes[-1].value.driver) if notes else {}
        copies, works = sequence.share(Part.COPIES), max(sequence.gpu.share, 1e-9)
        beside = any(share_a_gpu(process, other) for other in every if other is not process)
        limit = limit_of(samples, reach, copies=copies / works, is_alone=not beside and not is_shared(process))
        own = self._own_work(process, device)
        if limit is not None and limit.limit is not Limit.SHARED:
            if limit.graphics > own + _MOST_OF_OTHERS:
                limit = limit.changed(limit=Limit.SHARED, units=())
            elif limit.graphics > own * (1 + _MOST_PART):
                limit = limit.changed(limit=Limit.UNKNOWN, units=())
        return sequence.changed(limit=limit)

    @staticmethod
    def _own_work(process: ProcessFindings, device: int) -> float:
        """The largest share of the time in which the process's work may run on one of its GPUs."""
        return sum(each.gpu.high for each in process.sequences if each.device == device and each.divided)


def _samples(notes: Iterable[Note[_Sample]], counter: str) -> tuple[CounterSample, ...]:
    """The values of a counter, each of the time since the note before it, at most PERIOD_S."""
    samples, last_ns = [], 0
    for note in notes:
        value, begin_ns = note.value.values[counter], max(note.at_ns - _PERIOD_NS, last_ns)
        last_ns = note.at_ns
        if value is not None:
            samples.append(CounterSample(begin_ns, note.at_ns, value))
    return tuple(samples)


def _fields() -> tuple[TelemetryField, ...]:
    counters = gpm.GpmCounters(gpm.LIMITS)
    return (
        TelemetryField("gpm", PERIOD_S, counters.read, slow=True, names=tuple(gpm.LIMITS)),
        TelemetryField(_MODEL, _NAMES_S, lambda m, handle: nvml.text(m.nvmlDeviceGetName(handle)), slow=True),
        TelemetryField(_DRIVER, _NAMES_S, lambda m, _: nvml.text(m.nvmlSystemGetDriverVersion()), slow=True),
    )


def _sample(readings: Mapping[str, TelemetryReading]) -> Note[_Sample] | None:
    values = {name: readings[name].value for name in gpm.LIMITS}
    if all(value is None for value in values.values()):
        return None
    model, driver = (readings[name].value or "" for name in (_MODEL, _DRIVER))
    return Note(max(readings[name].at_ns for name in gpm.LIMITS), _Sample(values, model, driver))
