"""GPUs under the probes of a live engine: their selection, NVML's values, and who else computes there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from stallprobes.machine import gpus
from stallprobes.machine.gpus import Gpu, GpuProcess, Survey
from stallprobes.machine.telemetry import Telemetry, TelemetrySnapshot, all_fields
from stallprobes.recording.observation import GpuName


class OwnProcesses:
    """This process, the engines that it has started, and their second processes."""

    def __init__(self) -> None:
        self._pids = {os.getpid()}

    def add(self, pids: Iterable[int]) -> None:
        """Add the processes of a session."""
        self._pids.update(pids)

    def others(self, known: Sequence[GpuProcess], session_pids: Sequence[int]) -> tuple[str, ...]:
        """Name and process id of each process of ``known`` that belongs to no session of this program.

        ``session_pids`` are the processes of the running session, empty without one.
        """
        # NVML's list is seconds old, so it may contain an engine that has ended.
        # The engines of a check are children of this process too, and their second processes are children of these.
        for process in known:
            parent = _parent(process.pid)
            if os.getpid() in (parent, None if parent is None else _parent(parent)):
                self._pids.add(process.pid)
        others = [listed for listed in known if listed.pid not in self._pids]
        # In a container NVML has other process ids: the session's are then among the processes without a name.
        if not any(listed.pid in self._pids for listed in known):
            for nameless in [other for other in others if other.name == "?"][: len(session_pids)]:
                others.remove(nameless)
        return tuple(f"{other.name} (pid {other.pid})" for other in others)


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


class SelectedGpus:
    """The selected GPUs. ``survey`` is the last survey of this machine, None before the first.

    ``own_processes`` are the processes of this program. ``gpm_counters``: NVML's GPM counters are read.
    """

    def __init__(self, make_survey: Callable[[], Survey], gpm_counters: bool) -> None:
        self.survey: Survey | None = None
        self._make_survey = make_survey
        self._gpm_counters = gpm_counters
        self._selected: tuple[Gpu, ...] = ()
        self._telemetry: Telemetry | None = None
        self.own_processes = OwnProcesses()

    @property
    def visible(self) -> tuple[Gpu, ...]:
        """The GPUs that CUDA sees; empty before the survey."""
        listed = () if self.survey is None else self.survey.gpus
        return tuple(gpu for gpu in listed if gpu.cuda_index is not None)

    @property
    def telemetry(self) -> TelemetrySnapshot | None:
        """NVML's values of the first GPU; None before one was selected."""
        return None if self._telemetry is None else self._telemetry.snapshot()

    def other_processes(self, session_pids: Sequence[int]) -> tuple[str, ...]:
        """The processes of others on the first GPU, ``NAME (pid N)`` each; ``session_pids`` are the session's."""
        telemetry = self.telemetry
        return () if telemetry is None else self.own_processes.others(telemetry.processes, session_pids)

    def select(self, gpu: str | None, count: int) -> tuple[str, ...]:
        """Survey this machine and select ``count`` GPUs, ``gpu`` or the usual ones; the versions of driver and CUDA.

        May block. Raises NoGpu.
        """
        self.survey = survey = self._make_survey()
        self._selected = gpus.choose(gpu, survey, count)
        uuid = self._selected[0].uuid
        if self._telemetry is None or self._telemetry.uuid != uuid:
            self.stop()
            self._telemetry = Telemetry(uuid, fields=all_fields(self._gpm_counters))
            self._telemetry.start()
        return survey.versions

    def select_more(self, survey: Survey, count: int) -> tuple[GpuName, ...]:
        """Select ``count`` GPUs, the present ones first. Raises NoGpu."""
        self._selected = gpus.choose(",".join(gpu.uuid for gpu in self._selected) or None, survey, count)
        return tuple(GpuName(gpu.name, gpu.index) for gpu in self._selected[:count])

    def cuda_uuids(self, count: int = 0, sharing_allowed: bool = False) -> str | None:
        """The UUIDs for CUDA, separated by commas; None without a selection.

        If ``count`` exceeds the selection, GPUs without a computing process are added, or any GPUs with
        ``sharing_allowed``; this surveys the machine again, which may block.
        """
        idle: list[Gpu] = []
        if count > len(self._selected):
            self.survey = self._make_survey()
            selected = {gpu.uuid for gpu in self._selected}
            idle = [gpu for gpu in self.visible if gpu.uuid not in selected and gpu.processes is not None]
            idle = [gpu for gpu in idle if sharing_allowed or not gpu.processes][: count - len(self._selected)]
        return gpus.uuids((*self._selected, *idle))

    def stop(self) -> None:
        """End the reading of NVML's values."""
        if self._telemetry is not None:
            self._telemetry.stop()
