"""Processes that share a GPU with a watched one: other watched processes, and those that NVML lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stallprobes.errors import NvmlUnavailable
from stallprobes.foreign_text import printable
from stallprobes.machine import nvml
from stallprobes.machine.gpus import processes_by_gpu
from stallprobes.watch.attribution.findings import GpuSharer, ProcessFindings
from stallprobes.watch.division.parts import Part

# Smallest share of a sequence's time (threads that call by turns) that other contexts or processes have as time-slices,
# for the report to name the other processes on the GPU.
LEAST_SHARE = 0.05
# Period (ns) of the queries to NVML. Reason: a query takes milliseconds, and processes start and end rarely.
PAUSE_NS = 5_000_000_000
# Smallest number of context switches on the GPUs of a watched process at which NVML is asked for other processes. With
# fewer switches, time-slices of other processes are negligible.
LEAST_SWITCHES = 64


class GpuSharers:
    """Notes, while processes run, who else computes on their GPUs."""

    def __init__(self) -> None:
        self._module: Any = None
        self._due_ns = 0
        self._seen: dict[int, dict[int, str]] = {}

    def look(self, pids: Sequence[int], now_ns: int) -> None:
        """Ask NVML which processes are on the GPUs of the running processes ``pids``, unless it was just asked."""
        if not pids or now_ns < self._due_ns:
            return
        self._due_ns = now_ns + PAUSE_NS
        try:
            self._module = self._module or nvml.load()
        except NvmlUnavailable:
            self._due_ns = 2**62
            return
        for gpu in processes_by_gpu(self._module):
            present = {process.pid: process.name for process in gpu}
            # In a container, NVML may list the process ids of the host: then a process is not in its own list.
            for pid in present.keys() & set(pids):
                others = {other: name for other, name in present.items() if other != pid}
                self._seen.setdefault(pid, {}).update(others)

    def named(self, processes: Iterable[ProcessFindings]) -> tuple[ProcessFindings, ...]:
        """``processes`` with the names of those that take time-slices of them."""
        every = tuple(processes)
        return tuple(each.changed(sharers=self._of(each, every)) if is_shared(each) else each for each in every)

    def _of(self, process: ProcessFindings, every: Sequence[ProcessFindings]) -> tuple[GpuSharer, ...]:
        sharers = (other for other in every if other.pid != process.pid and share_a_gpu(process, other))
        watched = {other.pid for other in every}
        seen = sorted(self._seen.get(process.pid, {}).items())
        return (
            *(GpuSharer(pid=other.pid, name=other.name, watched=True) for other in sharers),
            *(GpuSharer(pid=pid, name=printable(name), watched=False) for pid, name in seen if pid not in watched),
        )


def is_shared(process: ProcessFindings) -> bool:
    """True if time-slices of others take a part of the time of a sequence of the process."""
    return any(sequence.share(Part.SHARED) >= LEAST_SHARE for sequence in process.sequences)


def share_a_gpu(process: ProcessFindings, other: ProcessFindings) -> bool:
    """True if both worked on the same GPU at the same time: by its UUID, or where that is not known by its number."""
    known = bool(process.gpus and other.gpus)
    own, others = ({_gpu(each, device, known) for device in _devices(each)} for each in (process, other))
    first_ns = max(process.began_ns, other.began_ns)
    last_ns = min(process.began_ns + process.duration_ns, other.began_ns + other.duration_ns)
    return bool(own & others) and first_ns < last_ns


def _devices(process: ProcessFindings) -> set[int]:
    return {sequence.device for sequence in process.sequences if sequence.divided and sequence.device is not None}


def _gpu(process: ProcessFindings, device: int, known: bool) -> str:
    return process.gpus[device] if known and device < len(process.gpus) else str(device)
