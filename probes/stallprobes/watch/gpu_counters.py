"""NVML's counters of the GPUs of watched processes (GPM), which say what limits their kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stallprobes.machine import gpm, gpu_reach
from stallprobes.machine.gpu_reach import Known
from stallprobes.machine.telemetry import TelemetryField
from stallprobes.traces.counters import LIMIT_COUNTERS
from stallprobes.traces.trace import CounterSample, CounterTrack
from stallprobes.watch.attribution.findings import ProcessFindings, WatchedGpu
from stallprobes.watch.division.limits import GRAPHICS, Limit, limit_of
from stallprobes.watch.division.parts import Part
from stallprobes.watch.gpu_notes import PERIOD_S, GpuNotes, Note
from stallprobes.watch.gpu_sharers import is_shared, share_a_gpu
from stallprobes.watch.lines.result import ProgramSequence

# Largest share of the time in which kernels run beyond that in which the process's own work does, if nobody else
# computes, and the same as a part of its own work. NVML's time has the gaps between short kernels, too. Between the two
# the counters may be those of others, and the limit is not known.
_MOST_OF_OTHERS, _MOST_PART = 0.1, 0.5
# Smallest share of the time in which kernels run, and the largest part of it that the counters may lack: beyond it they
# are not those of the kernels.
_LEAST_MISSING, _MOST_MISSING = 0.3, 0.5
_NOT_COUNTED = "they lack most of its work, as if another tool had them (DCGM, a profiler)"
# Time (ns) that a note is of.
_PERIOD_NS = round(PERIOD_S * 1e9)


class GpuCounters(GpuNotes):
    """Notes the counters of GPUs while processes run.

    A reading takes NVML some 2 ms, and at most 0.06 % of a program's step (tests/benchmarks/bench_counter_cost.py).
    """

    def __init__(self) -> None:
        super().__init__(_fields, tuple(gpm.LIMITS))

    def noted(self, processes: Iterable[ProcessFindings], gpus: Iterable[WatchedGpu]) -> tuple[ProcessFindings, ...]:
        """``processes`` with what limits the kernels of their sequences in the steady state; ``gpus`` are theirs."""
        every = tuple(processes)
        reach = {gpu.uuid: gpu_reach.known(gpu.uuid, gpu.model, gpu.driver) for gpu in gpus}
        return tuple(
            process.changed(
                sequences=tuple(self._with_limit(each, process, every, reach) for each in process.sequences)
            )
            for process in every
        )

    def tracks(self, begin_ns: int, end_ns: int) -> tuple[CounterTrack, ...]:
        """The counters of all GPUs in a span (ns, CLOCK_MONOTONIC), for a trace."""
        uuids = [uuid for uuid, _ in self.every()]
        tracks = (
            CounterTrack(f"GPU {number} {name}" if len(uuids) > 1 else name, unit, _samples(notes, counter))
            for number, uuid in enumerate(uuids)
            for notes in (self.between(uuid, begin_ns, end_ns + _PERIOD_NS),)
            for counter, (name, unit) in LIMIT_COUNTERS.items()
        )
        return tuple(track for each in tracks if (track := each.between(begin_ns, end_ns)).samples)

    def _with_limit(
        self,
        sequence: ProgramSequence,
        process: ProcessFindings,
        every: tuple[ProcessFindings, ...],
        reach: Mapping[str, Mapping[str, Known]],
    ) -> ProgramSequence:
        device = sequence.device
        if not sequence.divided or device is None or device >= len(process.gpus):
            return sequence
        uuid = process.gpus[device]
        start_up_ns = process.division.start_up_ns if process.division else 0
        times = sequence.phases[0].times if sequence.phases else ((start_up_ns, process.duration_ns),)
        # A sample is of the second before it.
        spans = [(process.began_ns + begin + PERIOD_S * 1e9, process.began_ns + end) for begin, end in times]
        samples = [values for at_ns, values in self.of(uuid) if any(begin <= at_ns <= end for begin, end in spans)]
        copies = sequence.share(Part.COPIES) / max(sequence.gpu.share, 1e-9)
        others = (other for other in every if other is not process)
        is_alone = not is_shared(process) and not any(share_a_gpu(process, other) for other in others)
        limit = limit_of(samples, reach.get(uuid, {}), copies=copies, is_alone=is_alone)
        if why := self._why_nothing(uuid, samples, sequence):
            return sequence.changed(limit=None, no_limit=why)
        own = self._own_work(process, device)
        if limit is not None and limit.limit is not Limit.SHARED:
            if limit.graphics > own + _MOST_OF_OTHERS:
                limit = limit.changed(limit=Limit.SHARED, units=())
            elif limit.graphics > own * (1 + _MOST_PART):
                limit = limit.changed(limit=Limit.UNKNOWN, units=())
        return sequence.changed(limit=limit)

    def _why_nothing(self, uuid: str, samples: Sequence[Mapping[str, Any]], sequence: ProgramSequence) -> str:
        """Why the counters of a GPU say nothing of a sequence's kernels; "" if they do."""
        kernels = sequence.share(Part.KERNELS)
        used = [each for sample in samples if (each := sample[GRAPHICS]) is not None]
        if not used or len(sequence.phases) > 1 or kernels < _LEAST_MISSING:
            return self.why(uuid)
        return _NOT_COUNTED if sum(used) / len(used) / 100 < kernels * (1 - _MOST_MISSING) else ""

    @staticmethod
    def _own_work(process: ProcessFindings, device: int) -> float:
        """The largest share of the time in which the process's work may run on one of its GPUs."""
        return sum(each.gpu.high for each in process.sequences if each.device == device and each.divided)


def _samples(notes: Iterable[Note], counter: str) -> tuple[CounterSample, ...]:
    """The values of a counter, each of the time since the note before it, at most PERIOD_S."""
    samples, last_ns = [], 0
    for at_ns, values in notes:
        begin_ns, last_ns = max(at_ns - _PERIOD_NS, last_ns), at_ns
        if (value := values[counter]) is not None:
            samples.append(CounterSample(begin_ns, at_ns, value))
    return tuple(samples)


def _fields() -> tuple[TelemetryField, ...]:
    read = gpm.GpmCounters(gpm.LIMITS).read
    return (TelemetryField("gpm", PERIOD_S, read, slow=True, names=tuple(gpm.LIMITS)),)
