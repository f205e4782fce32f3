"""GPUs under the probes of a live engine: their selection, NVML's values, and who else computes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stallprobes.machine import gpus
from stallprobes.machine.gpus import Gpu, Survey
from stallprobes.machine.telemetry import Telemetry, TelemetrySnapshot
from stallprobes.recording.observation import GpuName
from stallscope.tui.sources.own_processes import OwnProcesses


class SelectedGpus:
    """The selected GPUs. ``survey`` is the last survey of this machine, None before the first."""

    def __init__(self, make_survey: Callable[[], Survey]) -> None:
        self.survey: Survey | None = None
        self._make_survey = make_survey
        self._selected: tuple[Gpu, ...] = ()
        self._telemetry: Telemetry | None = None
        self._own_processes = OwnProcesses()

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
        return () if telemetry is None else self._own_processes.others(telemetry.processes, session_pids)

    def add_own_processes(self, pids: Iterable[int]) -> None:
        """Add the processes of a session to those of this program."""
        self._own_processes.add(pids)

    def select(self, gpu: str | None, count: int) -> tuple[str, ...]:
        """Survey this machine and select ``count`` GPUs, ``gpu`` or the usual ones; the versions of driver and CUDA.

        May block. Raises NoGpu.
        """
        self.survey = survey = self._make_survey()
        self._selected = gpus.choose(gpu, survey, count)
        uuid = self._selected[0].uuid
        if self._telemetry is None or self._telemetry.uuid != uuid:
            self.stop()
            self._telemetry = Telemetry(uuid)
            self._telemetry.start()
        return survey.versions

    def select_more(self, survey: Survey, count: int) -> tuple[GpuName, ...]:
        """Select ``count`` GPUs, of which the present ones are the first. Raises NoGpu."""
        self._selected = gpus.choose(",".join(gpu.uuid for gpu in self._selected) or None, survey, count)
        return tuple(GpuName(gpu.name, gpu.index) for gpu in self._selected[:count])

    def cuda_uuids(self, count: int = 0, sharing_allowed: bool = False) -> str | None:
        """The UUIDs for CUDA, separated by commas; None without a selection.

        If ``count`` GPUs are more than those selected, others on which no process computes are among them, or any with
        ``sharing_allowed``: the machine is then surveyed again, which may block.
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
