"""The GPUs of this machine as NVML and CUDA list them, and the selection of some. No CUDA context is created.

NVML lists all GPUs in PCI order, CUDA the visible ones in its own order; they are matched by UUID. An index given by
the user is NVML's, as in nvidia-smi; without NVML it is CUDA's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stallprobes.errors import NoGpu, NvmlUnavailable
from stallprobes.machine import libcuda_survey, nvml

# Words for the driver's compute modes.
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
# Longest wait (s) for the answer of libcuda. The wait for the answer of NVML has the same limit.
_ANSWER_S = 20.0
# Longest time (s) of the survey of all GPUs, which asks libcuda and NVML one after the other.
SURVEY_S = 2 * _ANSWER_S
# PCI address: domain (optional), bus, device, function (optional).
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)


@dataclass(frozen=True)
class GpuProcess:
    """A process with a compute context on a GPU. ``memory_bytes`` is None if unknown."""

    pid: int
    name: str
    memory_bytes: int | None


@dataclass(frozen=True)
class Gpu:
    """One GPU. Unknown values are None.

    ``nvml_index`` is None without NVML, ``cuda_index`` if CUDA does not see the GPU. ``cuda_uuid`` is the UUID in CUDA,
    with MIG on a MIG device's. ``mig_uuids`` are the MIG devices that NVML lists. ``processes`` includes this process.
    """

    uuid: str
    pci: str
    name: str
    nvml_index: int | None = None
    cuda_index: int | None = None
    cuda_uuid: str | None = None
    memory_bytes: int | None = None
    mig: bool | None = None
    mig_uuids: tuple[str, ...] = ()
    compute_mode: str | None = None
    processes: tuple[GpuProcess, ...] | None = None

    @property
    def index(self) -> int | None:
        """Its number on this machine: NVML's, else CUDA's."""
        return self.nvml_index if self.nvml_index is not None else self.cuda_index

    @property
    def label(self) -> str:
        """``NVIDIA H200 (GPU 0)``."""
        return f"{self.name} (GPU {self.index})"


@dataclass(frozen=True)
class Survey:
    """The GPUs of this machine in NVML's order, the answer of libcuda, and versions.

    ``nvml_problem`` is why NVML cannot be used, with a remedy; None if it can.
    """

    gpus: tuple[Gpu, ...]
    driver: libcuda_survey.DriverReport
    driver_version: str | None = None
    nvml_version: str | None = None
    nvml_problem: NvmlUnavailable | None = None

    @property
    def versions(self) -> tuple[str, str]:
        """``driver 580.159.04`` and ``CUDA 13.0``."""
        return f"driver {self.driver_version or 'n/a'}", f"CUDA {self.driver.cuda_version_text}"


def survey(timeout_s: float = _ANSWER_S) -> Survey:
    """Query libcuda and NVML, each for at most ``timeout_s`` seconds. Errors are in the result, not raised."""
    report = libcuda_survey.ask(timeout_s)
    try:
        return nvml.answer_within(timeout_s, lambda: _survey(report))
    except NvmlUnavailable as problem:
        return Survey(tuple(_by_cuda_alone(device) for device in report.devices), report, nvml_problem=problem)


def _survey(report: libcuda_survey.DriverReport) -> Survey:
    module = nvml.load()
    return Survey(
        tuple(_by_nvml(module, report.devices)),
        report,
        driver_version=_maybe(module, lambda: nvml.text(module.nvmlSystemGetDriverVersion())),
        nvml_version=_maybe(module, lambda: nvml.text(module.nvmlSystemGetNVMLVersion())),
    )


def choose(spec: str | None, surveyed: Survey, count: int = 1) -> tuple[Gpu, ...]:
    """The GPUs in ``spec`` (indexes, UUIDs or PCI addresses, separated with commas), then others up to ``count``.

    The others are the first ones in CUDA's order; there may be fewer than ``count``. Raises NoGpu if a named GPU does
    not exist or is hidden from CUDA, or if there is none.
    """
    if surveyed.driver.problem is not None:
        raise NoGpu(surveyed.driver.problem)
    chosen = (
        [_named(part.strip(), surveyed.gpus) for part in spec.split(",") if part.strip()] if spec is not None else []
    )
    if spec is not None and not chosen:
        raise NoGpu("the name of the GPU is empty")
    for gpu in chosen:
        if gpu.cuda_index is None:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            why = f": CUDA_VISIBLE_DEVICES={visible} hides it" if visible is not None else ""
            raise NoGpu(f"CUDA does not see {gpu.label}{why}")
    usable = sorted((gpu for gpu in surveyed.gpus if gpu.cuda_index is not None), key=lambda gpu: gpu.cuda_index or 0)
    chosen.extend([gpu for gpu in usable if gpu not in chosen][: max(0, count - len(chosen))])
    if not chosen:
        raise NoGpu("CUDA sees no GPU")
    return tuple(dict.fromkeys(chosen))


def uuids(chosen: Iterable[Gpu]) -> str | None:
    """UUIDs of ``chosen`` as a session takes them, separated with commas; None for no GPU."""
    return ",".join(gpu.cuda_uuid or gpu.uuid for gpu in chosen) or None


def others(gpu: Gpu) -> tuple[GpuProcess, ...]:
    """The processes with a context on ``gpu``, without this one."""
    return tuple(process for process in gpu.processes or () if process.pid != os.getpid())


def other_names(chosen: Iterable[Gpu]) -> tuple[str, ...]:
    """The other processes on ``chosen``, ``NAME (pid N)`` each."""
    return tuple(dict.fromkeys(f"{process.name} (pid {process.pid})" for gpu in chosen for process in others(gpu)))


def normal_pci(address: str) -> str | None:
    """``00000000:1B:00.0`` and ``1b:00`` as ``0000:1b:00.0``; None for other text."""
    match = _PCI.fullmatch(address.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or '0'}".lower()


def same_uuid(first: str, second: str) -> bool:
    """True if two UUIDs are equal, ignoring the prefixes ``GPU-`` and ``MIG-``."""
    return bare_uuid(first) == bare_uuid(second)


def bare_uuid(uuid: str) -> str:
    """``uuid`` in lower case without the prefix ``GPU-`` or ``MIG-``."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _named(name: str, gpus: Sequence[Gpu]) -> Gpu:
    if name.isdecimal() and len(name) < 10:
        for gpu in gpus:
            if gpu.index == int(name):
                return gpu
        there = ", ".join(str(g.index) for g in gpus)
        raise NoGpu(f"there is no GPU {name}; available: {there or 'none'}")
    pci = normal_pci(name)
    wanted = bare_uuid(name)
    for gpu in gpus:
        if pci is not None and gpu.pci == pci:
            return gpu
        if any(same_uuid(name, uuid) for uuid in (gpu.uuid, *gpu.mig_uuids)):
            return gpu
    if re.fullmatch(r"[0-9a-f-]{4,}", wanted):
        begun = [gpu for gpu in gpus if bare_uuid(gpu.uuid).startswith(wanted)]
        if len(begun) == 1:
            return begun[0]
    raise NoGpu(f'no GPU has the index, UUID or PCI address "{name}"')


def _by_cuda_alone(device: libcuda_survey.DriverDevice) -> Gpu:
    return Gpu(
        uuid=f"GPU-{device.uuid}",
        pci=normal_pci(device.pci) or device.pci,
        name=device.name,
        cuda_index=device.ordinal,
        cuda_uuid=device.uuid,
        memory_bytes=device.memory_bytes,
    )


def _by_nvml(module: Any, devices: Sequence[libcuda_survey.DriverDevice]) -> list[Gpu]:
    count = _maybe(module, module.nvmlDeviceGetCount) or 0
    # An error of one GPU must not hide the others.
    gpus = (_maybe(module, lambda index=index: _one(module, index, devices)) for index in range(count))
    return [gpu for gpu in gpus if gpu is not None]


def _one(module: Any, index: int, devices: Sequence[libcuda_survey.DriverDevice]) -> Gpu:
    handle = module.nvmlDeviceGetHandleByIndex(index)
    uuid = nvml.text(module.nvmlDeviceGetUUID(handle))
    memory = _maybe(module, lambda: module.nvmlDeviceGetMemoryInfo(handle))
    mig = _maybe(module, lambda: bool(module.nvmlDeviceGetMigMode(handle)[0]))
    instances = tuple(_mig_uuids(module, handle)) if mig else ()
    address = nvml.text(module.nvmlDeviceGetPciInfo(handle).busId)
    mode = _maybe(module, lambda: module.nvmlDeviceGetComputeMode(handle))
    device = next((d for d in devices if any(same_uuid(d.uuid, listed) for listed in (uuid, *instances))), None)
    return Gpu(
        uuid=uuid,
        pci=normal_pci(address) or address,
        name=nvml.text(module.nvmlDeviceGetName(handle)),
        nvml_index=index,
        cuda_index=None if device is None else device.ordinal,
        cuda_uuid=None if device is None else device.uuid,
        memory_bytes=None if memory is None else int(memory.total),
        mig=mig,
        mig_uuids=instances,
        compute_mode=None if mode is None else COMPUTE_MODES.get(mode, f"mode {mode}"),
        processes=_maybe(module, lambda: processes_on(module, handle)),
    )


def processes_on(module: Any, handle: Any) -> tuple[GpuProcess, ...]:
    """The processes with a compute context on a GPU. Raises NVMLError."""
    processes = module.nvmlDeviceGetComputeRunningProcesses(handle)
    return tuple(
        GpuProcess(
            process.pid,
            _process_name(process.pid),
            None if process.usedGpuMemory is None else int(process.usedGpuMemory),
        )
        for process in processes
    )


def processes_by_gpu(module: Any) -> Iterator[tuple[GpuProcess, ...]]:
    """The processes with a compute context on each GPU whose processes NVML lists."""
    try:
        count = module.nvmlDeviceGetCount()
    except module.NVMLError:
        return
    for index in range(count):
        try:
            yield processes_on(module, module.nvmlDeviceGetHandleByIndex(index))
        except module.NVMLError:
            continue


def shares_gpu(pid: int) -> bool:
    """True if NVML lists another process on a GPU of the process ``pid``; False where NVML cannot be used."""
    try:
        gpus = [{process.pid for process in gpu} for gpu in processes_by_gpu(nvml.load())]
    except NvmlUnavailable:
        return False
    return any(pid in pids and len(pids) > 1 for pids in gpus)


def _process_name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"  # a process of another user or container


def _mig_uuids(module: Any, handle: Any) -> list[str]:
    count = _maybe(module, lambda: module.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0
    devices = (
        _maybe(module, lambda index=index: module.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        for index in range(count)
    )
    return [nvml.text(module.nvmlDeviceGetUUID(device)) for device in devices if device is not None]


def _maybe(module: Any, call: Any) -> Any:
    try:
        return call()
    except module.NVMLError:
        return None
