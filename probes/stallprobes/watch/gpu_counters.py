"""NVML's counters of the GPUs of watched processes (GPM), which say what limits their kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stallprobes.machine import gpm
from stallprobes.machine.telemetry import Telemetry, TelemetryField
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.division.limits import limit_of
from stallprobes.watch.division.parts import Part
from stallprobes.watch.gpu_sharers import is_shared, share_a_gpu
from stallprobes.watch.lines.result import ProgramSequence

# Time (s) between two samples of a GPU's counters. A sample takes NVML 0.25 ms, and no time of the watched process.
_PERIOD_S = 1.0
# Largest number of samples of a GPU that are kept. If there are more, every second sample is dropped. The distance
# between later samples that are kept doubles, too.
_MOST_SAMPLES = 2048
# Largest share of the time in which kernels run beyond that in which the process's own work does, for the counters to
# be of its kernels alone.
_MOST_OF_OTHERS = 0.1
# Name of the reading with the model of a GPU, and the time (s) between two of them.
_MODEL, _MODEL_S = "model", 600.0


class _Sample(NamedTuple):
    """Values of the counters (percentages, and MiB/s) of the second before a time (ns, CLOCK_MONOTONIC)."""

    at_ns: int
    values: Mapping[str, float | None]


class GpuCounters:
    """Notes the counters of GPUs while processes run. NVML is read in threads, since its calls can hang."""

    def __init__(self) -> None:
        self._telemetry: dict[str, Telemetry] = {}
        self._samples: dict[str, list[_Sample]] = {}
        self._models: dict[str, str] = {}
        self._step_ns: dict[str, int] = {}

    def look(self, uuids: Iterable[str]) -> None:
        """Note the counters of the GPUs with these UUIDs (without GPU-); others are not read any more."""
        wanted = set(uuids)
        for uuid in self._telemetry.keys() - wanted:
            self._telemetry.pop(uuid).stop()
        for uuid in wanted - self._telemetry.keys():
            self._telemetry[uuid] = Telemetry(f"GPU-{uuid}", fields=_fields())
            self._telemetry[uuid].start()
        for uuid, telemetry in self._telemetry.items():
            readings = telemetry.snapshot().readings
            values = {name: readings[name].value for name in gpm.LIMITS}
            if any(value is not None for value in values.values()):
                self._note(uuid, _Sample(max(readings[name].at_ns for name in gpm.LIMITS), values))
            self._models[uuid] = readings[_MODEL].value or self._models.get(uuid, "")

    def noted(self, processes: Iterable[ProcessFindings]) -> tuple[ProcessFindings, ...]:
        """``processes`` with what limits the kernels of their sequences in the steady state."""
        every = tuple(processes)
        return tuple(
            process.changed(sequences=tuple(self._with_limit(each, process, every) for each in process.sequences))
            for process in every
        )

    def _note(self, uuid: str, sample: _Sample) -> None:
        samples = self._samples.setdefault(uuid, [])
        if samples and sample.at_ns - samples[-1].at_ns < self._step_ns.get(uuid, 1):
            return
        samples.append(sample)
        if len(samples) > _MOST_SAMPLES:
            self._samples[uuid] = samples[::2]
            self._step_ns[uuid] = 2 * max(self._step_ns.get(uuid, 0), round(_PERIOD_S * 1e9 * 0.9))

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
        spans = [(process.began_ns + begin + _PERIOD_S * 1e9, process.began_ns + end) for begin, end in times]
        samples = [
            each.values
            for each in self._samples.get(uuid, ())
            if any(begin <= each.at_ns <= end for begin, end in spans)
        ]
        copies, works = sequence.share(Part.COPIES), max(sequence.gpu.share, 1e-9)
        beside = any(share_a_gpu(process, other) for other in every if other is not process)
        limit = limit_of(
            samples, self._models.get(uuid, ""), copies=copies / works, is_alone=not beside and not is_shared(process)
        )
        if limit is not None and limit.graphics > self._own_work(process, device) + _MOST_OF_OTHERS:
            limit = limit_of(samples, self._models.get(uuid, ""), copies=copies / works, is_alone=False)
        return sequence.changed(limit=limit)

    @staticmethod
    def _own_work(process: ProcessFindings, device: int) -> float:
        """The largest share of the time in which the process's work may run on one of its GPUs."""
        return sum(each.gpu.high for each in process.sequences if each.device == device and each.divided)


def _fields() -> tuple[TelemetryField, ...]:
    counters = gpm.GpmCounters(gpm.LIMITS)
    return (
        TelemetryField("gpm", _PERIOD_S, counters.read, slow=True, names=tuple(gpm.LIMITS)),
        TelemetryField(_MODEL, _MODEL_S, lambda module, handle: str(module.nvmlDeviceGetName(handle)), slow=True),
    )
