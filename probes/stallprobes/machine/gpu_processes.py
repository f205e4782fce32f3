"""The processes that use the GPUs of this machine, by NVML, and where it lists none by their open devices.

NVML lists processes with a compute or a graphics context, and clients of MPS. In a container it lists none, or the
processes of the host by ids that mean nothing inside. Then the processes with an open /dev/nvidia* count, as far as
this user may see their files. A reading asks each GPU for three lists and for utilizations: 23 and 1303 us on an H200,
which delays no other process's calls: NVML in a tight loop changed no latency there (driver 580.159.04, 2026-11).
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from stallprobes.errors import NvmlUnavailable, reason_of
from stallprobes.files.codec import Document, Natural, Positive, Text
from stallprobes.machine import nvml, processes
from stallprobes.machine.processes import PROC, ProcessStatus

# Largest age (s) of the samples of processes' utilisation that are read from NVML. Depending on the GPU, NVML makes a
# sample every 1/6 to 1 s.
_SAMPLES_S = 2.0
# Largest share of one CPU core for scanning the open files of all processes. The share limits how often the scan is
# repeated.
_SCAN_SHARE = 0.05
# Time (s) until the next check whether stallscope can attach to a process, if the last check succeeded. Reason for the
# long time: the check reads the process's memory map, which delays the process's mmap calls.
_ALLOWED_S = 30.0
# Time (s) until the next check whether stallscope can attach to a process, if the last check failed. Reason for the
# short time: the obstacle (such as a debugger) may end.
_REFUSED_S = 5.0
# GPU number of a process that has only /dev/nvidiactl open, and no GPU. This number is larger than every real GPU
# number, which places the process last in the list.
_NO_GPU = 1 << 30
_DEV = Path("/dev")

# Reason why stallscope cannot attach to a process that belongs to the running stallscope.
OWN_REFUSAL = "it belongs to this stallscope, which measures with it: select another process."
# Reason why stallscope cannot attach to a process that NVML lists but /proc does not.
NOT_VISIBLE_REFUSAL = (
    "it is outside this container, hidden from this user, or has ended and its memory stays: run stallscope on the "
    "host, or with sudo."
)


class ProcessSource(StrEnum):
    """How a process was found. ``nvml``: NVML lists the process. ``devices``: the process has an NVIDIA device open."""

    NVML = "nvml"
    DEVICES = "devices"


class ContextKind(StrEnum):
    """Kind of a process's contexts on a GPU. NVML has a list for each kind. ``mps``: contexts of a CUDA MPS client."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


# NVML's function for the list of processes with each kind of context.
_LISTS = {
    ContextKind.COMPUTE: "nvmlDeviceGetComputeRunningProcesses",
    ContextKind.GRAPHICS: "nvmlDeviceGetGraphicsRunningProcesses",
    ContextKind.MPS: "nvmlDeviceGetMPSComputeRunningProcesses",
}


_Percent = Annotated[int, Meta(ge=0, le=100)]


class GpuUse(Document):
    """Use of one GPU by a process."""

    gpu: Natural
    """NVML's index; without NVML the number of the device /dev/nvidiaN."""
    memory_bytes: Natural | None
    # NVML has samples of processes that worked: 0 is for one without beside others, and on an idle GPU.
    utilization_percent: _Percent | None
    """NVML's share of its last sample, of at most a second, in which the SMs worked for the process; null where NVML
    has none: in MIG mode, before its first sample, and of processes known by their open devices."""


class ListedProcess(Document):
    """A process that uses GPUs."""

    pid: Positive
    start_ticks: Natural | None
    """Its start, in clock ticks since boot: no later process with the same pid has it. null if it is not visible
    here."""
    user: Text | None
    """null if the process is not visible here."""
    command: Text | None
    """The command with its arguments, cut after 4096 bytes."""
    kinds: tuple[ContextKind, ...]
    """Of its contexts, by NVML's lists; empty for open devices."""
    gpus: tuple[GpuUse, ...]
    own: bool
    """It was started by the stallscope that made this list."""
    refusal: Text | None
    """Why it cannot be attached and what to do, a sentence; null if it can."""

    @property
    def visible(self) -> bool:
        """True if its files in /proc can be read here."""
        return self.user is not None

    @property
    def key(self) -> tuple[int, int]:
        """Key that no other process has, also later: its id and its start."""
        return self.pid, self.start_ticks or 0

    @property
    def order(self) -> tuple[int, int, int]:
        """By its first GPU, then by its start: a process stays at its place while others come and go."""
        return min(self.gpu_numbers, default=_NO_GPU), self.key[1], self.pid

    @property
    def gpu_numbers(self) -> tuple[int, ...]:
        """NVML's indexes of its GPUs."""
        return tuple(use.gpu for use in self.gpus)

    @property
    def memory_bytes(self) -> int | None:
        """Its memory on all GPUs, None if unknown of one of them."""
        return _all_of([use.memory_bytes for use in self.gpus])

    @property
    def utilization_percent(self) -> float | None:
        """The mean of its utilizations, None if unknown of one GPU."""
        total = _all_of([use.utilization_percent for use in self.gpus])
        return None if total is None else total / len(self.gpus)


@dataclass(frozen=True)
class GpuProcessList:
    """The processes that use GPUs at one time, in their ``order``.

    ``at_s`` is in seconds since 1970. ``gpus`` are the names of the GPUs by NVML's index. ``nvml_problem`` says why
    NVML cannot be used, and ``gpu_problems`` which GPUs did not answer; "" and () for none. ``has_devices``: there is a
    /dev/nvidiaN. ``host_namespace``: the process ids are the host's.
    """

    at_s: float
    processes: tuple[ListedProcess, ...] = ()
    source: ProcessSource = ProcessSource.NVML
    gpus: Mapping[int, str] = field(default_factory=dict)
    nvml_problem: str = ""
    gpu_problems: tuple[str, ...] = ()
    has_devices: bool = True
    host_namespace: bool = True

    @property
    def usable(self) -> bool:
        """True if anything could be listed: NVML answers, or there are devices that processes may have open."""
        return not self.nvml_problem or self.has_devices


class GpuOfList(Document):
    """A GPU that was asked; ``index`` is NVML's, as in nvidia-smi."""

    index: Natural
    name: Text


class ProcessesDocument(Document):
    """Output of `stallscope watch --json` without a program: the processes that use the GPUs of this machine. The
    process that made the list is left out."""

    schema: Literal["stallscope.processes/2"]
    at: Annotated[Text, Meta(extra_json_schema={"format": "date-time"})]
    """Time of the list, UTC."""
    source: ProcessSource
    """nvml: NVML lists them. devices: they have /dev/nvidia* open, and NVML lists none."""
    gpus: tuple[GpuOfList, ...]
    problems: tuple[Text, ...]
    """A sentence for whatever could not be read."""
    processes: tuple[ListedProcess, ...]

    @classmethod
    def of_list(cls, listing: GpuProcessList, problems: Iterable[str]) -> ProcessesDocument:
        """The document of ``listing``; ``problems`` are sentences about it."""
        at = datetime.datetime.fromtimestamp(listing.at_s, datetime.UTC).isoformat(timespec="milliseconds")
        gpus = tuple(GpuOfList(index, name) for index, name in sorted(listing.gpus.items()))
        return cls("stallscope.processes/2", at, listing.source, gpus, tuple(problems), listing.processes)


def _all_of(values: Sequence[int | None]) -> int | None:
    """The sum of ``values``; None without any, or if one is None."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers and len(numbers) == len(values) else None


@dataclass
class _NvmlReading:
    """Answers of NVML for all GPUs: uses and kinds by process, names by index, index by minor number."""

    uses: dict[int, list[GpuUse]] = field(default_factory=dict)
    kinds: dict[int, set[ContextKind]] = field(default_factory=dict)
    gpus: dict[int, str] = field(default_factory=dict)
    minors: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class GpuProcessLister:
    """Makes lists of the processes that use GPUs, one ``read`` after the other.

    ``refusal`` says why a process cannot be attached, None if it can; it is asked once in some seconds for each. This
    process itself is left out: it reads NVML, and has no context. ``load`` returns the NVML module; ``proc``, ``dev``,
    ``own_pid``, ``clock`` and ``wall`` (seconds, since 1970) describe this machine.
    """

    def __init__(
        self,
        refusal: Callable[[int], str | None],
        *,
        load: Callable[[], Any] = nvml.load,
        proc: Path = PROC,
        dev: Path = _DEV,
        own_pid: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._refusal, self._load = refusal, load
        self._proc, self._dev, self._clock, self._wall = proc, dev, clock, wall
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._module: Any = None
        # By id and start: when to ask again, and the answer; whether it is a descendant of this process.
        self._refusals: dict[tuple[int, int], tuple[float, str | None]] = {}
        self._own: dict[tuple[int, int], bool] = {}
        # Open devices by process, which has an id and a start, and when to look again.
        self._opened: dict[tuple[int, int], frozenset[str]] = {}
        self._scan_due_s = -1.0
        # Ids that were visible at the last reading.
        self._visible: set[int] = set()

    def read(self) -> GpuProcessList:
        """The processes now. It blocks while the driver does."""
        at_s, host_namespace = self._wall(), processes.in_host_namespace(self._proc)
        reading, problem = _NvmlReading(), ""
        try:
            self._module = self._module or self._load()
        except NvmlUnavailable as error:
            problem = f"{error.reason}; {error.remedy}"
        else:
            reading = _ask_nvml(self._module, at_s)
            if not reading.gpus:
                # A driver that was loaded again needs another start of NVML.
                self._module = None
        by_nvml = (self._listed(pid, reading, host_namespace) for pid in reading.uses if pid != self._own_pid)
        # One that has just ended may be in NVML's list once more.
        listed = [process for process in by_nvml if process.visible or process.pid not in self._visible]
        source = ProcessSource.NVML
        if not any(process.visible for process in listed):
            opened = self._by_devices(reading.minors)
            source = ProcessSource.DEVICES if opened or problem else ProcessSource.NVML
            listed += opened
        listed.sort(key=lambda process: process.order)
        self._visible = {process.pid for process in listed if process.visible}
        self._forget({process.key for process in listed})
        return GpuProcessList(
            at_s,
            tuple(map(self._with_refusal, listed)),
            source,
            reading.gpus,
            problem,
            tuple(reading.problems),
            any(name.removeprefix("nvidia").isdecimal() for name in _names(self._dev) if name.startswith("nvidia")),
            host_namespace,
        )

    def _listed(self, pid: int, reading: _NvmlReading, host_namespace: bool) -> ListedProcess:
        """The process that NVML calls ``pid``."""
        status = processes.status(pid, self._proc)
        if not host_namespace and processes.nvidia_devices(pid, self._proc) == frozenset():
            # The id is the host's; here another process has it, which uses no GPU.
            status = None
        kinds = tuple(kind for kind in ContextKind if kind in reading.kinds[pid])
        return self._process(pid, tuple(reading.uses[pid]), kinds, status)

    def _process(
        self, pid: int, uses: tuple[GpuUse, ...], kinds: tuple[ContextKind, ...], status: ProcessStatus | None
    ) -> ListedProcess:
        return ListedProcess(
            pid=pid,
            start_ticks=None if status is None else status.start_ticks,
            user=None if status is None else status.user,
            command=None if status is None else status.command,
            kinds=kinds,
            gpus=uses,
            own=self._is_own(status),
            refusal=None,
        )

    def _by_devices(self, minors: Mapping[int, int]) -> list[ListedProcess]:
        """The processes that have a device open; ``minors`` are NVML's indexes by the numbers of the devices."""
        if self._clock() >= self._scan_due_s:
            began_s = time.thread_time()
            self._opened = dict(self._scan())
            self._scan_due_s = self._clock() + (time.thread_time() - began_s) / _SCAN_SHARE
        listed = []
        for (pid, start_ticks), devices in self._opened.items():
            status = processes.status(pid, self._proc)
            if status is not None and status.start_ticks == start_ticks:
                numbers = sorted(int(device) for device in devices if device.isdecimal())
                uses = tuple(
                    GpuUse(gpu, None, None) for gpu in sorted(minors.get(number, number) for number in numbers)
                )
                listed.append(self._process(pid, uses, (), status))
        return listed

    def _scan(self) -> Iterator[tuple[tuple[int, int], frozenset[str]]]:
        """The processes that have a device open, by id and start."""
        for pid in processes.pids(self._proc):
            devices = processes.nvidia_devices(pid, self._proc) if pid != self._own_pid else None
            status = processes.status(pid, self._proc) if devices else None
            if devices and status is not None:
                yield (pid, status.start_ticks), devices

    def _is_own(self, status: ProcessStatus | None) -> bool:
        if status is None:
            return False
        key = status.pid, status.start_ticks
        if key not in self._own:
            self._own[key] = processes.is_descendant(status, self._own_pid, self._proc)
        return self._own[key]

    def _with_refusal(self, process: ListedProcess) -> ListedProcess:
        if process.own or not process.visible:
            return process.changed(refusal=OWN_REFUSAL if process.own else NOT_VISIBLE_REFUSAL)
        due_s, refusal = self._refusals.get(process.key, (-1.0, None))
        if self._clock() >= due_s:
            refusal = answer_of(self._refusal, process.pid)
            due_s = self._clock() + (_ALLOWED_S if refusal is None else _REFUSED_S)
            self._refusals[process.key] = due_s, refusal
        return process.changed(refusal=refusal)

    def _forget(self, keys: set[tuple[int, int]]) -> None:
        """Forget what is known of processes that have ended."""
        self._refusals = {key: value for key, value in self._refusals.items() if key in keys}
        self._own = {key: value for key, value in self._own.items() if key in keys}


def answer_of(refusal: Callable[[int], str | None], pid: int) -> str | None:
    """Answer of ``refusal`` for process ``pid``; a sentence also if its files cannot be read.

    A process that ends while it is looked at hides no other one.
    """
    try:
        return refusal(pid)
    except OSError as error:
        return f"its files in /proc cannot be read ({reason_of(error)}): it may have ended."


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _ask_nvml(module: Any, at_s: float) -> _NvmlReading:
    """Answers of NVML for all GPUs at ``at_s``, seconds since 1970. A GPU that fails hides no other one."""
    reading = _NvmlReading()
    try:
        count = module.nvmlDeviceGetCount()
    except module.NVMLError as error:
        reading.problems.append(f"NVML lists no GPU: {nvml.error_text(error)}")
        return reading
    for index in range(count):
        try:
            handle = module.nvmlDeviceGetHandleByIndex(index)
            reading.gpus[index] = nvml.text(module.nvmlDeviceGetName(handle))
            memory = _memory_by_process(module, handle, reading.kinds)
        except module.NVMLError as error:
            reading.problems.append(f"GPU {index}: {nvml.error_text(error)}")
            continue
        minor = _or_none(module, "nvmlDeviceGetMinorNumber", handle)
        if minor is not None:
            reading.minors[minor] = index
        utilization = _utilization(module, handle, at_s) if memory else None
        for pid, memory_bytes in memory.items():
            percent = None if utilization is None else utilization.get(pid, 0)
            reading.uses.setdefault(pid, []).append(GpuUse(index, memory_bytes, percent))
    return reading


def _memory_by_process(module: Any, handle: Any, kinds: dict[int, set[ContextKind]]) -> dict[int, int | None]:
    """Memory of each process on a GPU; adds its kinds of contexts to ``kinds``. Raises NVMLError.

    In MIG mode, NVML lists the processes of the whole GPU for a privileged user only, and the processes of its devices
    for all users.
    """
    memory: dict[int, int | None] = {}
    failed: list[Exception] = []
    handles = [handle, *_mig_devices(module, handle)]
    for each in handles:
        for kind, function in _LISTS.items():
            try:
                running = getattr(module, function)(each)
            except (module.NVMLError, AttributeError) as error:
                # A GPU, a driver or a package without the other lists has that of computing processes all the same.
                failed += [error] if kind is ContextKind.COMPUTE else []
                continue
            for process in running:
                kinds.setdefault(process.pid, set()).add(kind)
                sizes = [size for size in (memory.get(process.pid), process.usedGpuMemory) if size is not None]
                # Each list states all memory of a process.
                memory[process.pid] = max(map(int, sizes), default=None)
    if len(failed) == len(handles):
        raise failed[0]
    return memory


def _mig_devices(module: Any, handle: Any) -> Iterable[Any]:
    """The MIG devices of a GPU."""
    mode = _or_none(module, "nvmlDeviceGetMigMode", handle)
    count = _or_none(module, "nvmlDeviceGetMaxMigDeviceCount", handle) if mode is not None and mode[0] else None
    for index in range(count or 0):
        device = _or_none(module, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if device is not None:
            yield device


def _utilization(module: Any, handle: Any, at_s: float) -> dict[int, int] | None:
    """The utilization of each process that has worked since shortly before ``at_s``; None if unknown.

    NVML's reference (nvmlDeviceGetProcessUtilization): a process has a sample, with a time in microseconds since 1970,
    if its utilization was not zero in the last period; without any sample the answer is "not found".
    """
    since_us = int((at_s - _SAMPLES_S) * 1e6)
    try:
        samples = module.nvmlDeviceGetProcessUtilization(handle, since_us)
    except module.NVMLError as error:
        # The package raises an error without a reason (0) for an empty answer. There is none where nothing worked; but
        # also where NVML has no samples yet.
        empty = getattr(error, "value", None) in (0, nvml.NOT_FOUND)
        rates = _or_none(module, "nvmlDeviceGetUtilizationRates", handle) if empty else None
        return {} if rates is not None and rates.gpu == 0 else None
    except AttributeError:
        # An older package.
        return None
    newest: dict[int, tuple[int, int]] = {}
    for sample in samples:
        # Of a GPU without work some drivers fill the samples with other values.
        if sample.timeStamp > max(since_us, newest.get(sample.pid, (0, 0))[0]) and sample.smUtil <= 100:
            newest[sample.pid] = sample.timeStamp, int(sample.smUtil)
    return {pid: percent for pid, (_, percent) in newest.items()}


def _or_none(module: Any, function: str, *arguments: Any) -> Any:
    """Result of a function of NVML; None if it fails, or if the package lacks it."""
    try:
        return getattr(module, function)(*arguments)
    except (module.NVMLError, AttributeError):
        return None
