"""A machine with GPUs made up for a test: NVML, /proc and /dev with processes that use them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stallprobes.machine import nvml
from stallprobes.machine.gpu_process_reader import GpuProcessReader
from stallprobes.machine.gpu_processes import GpuProcessLister

NOW_S = 1_780_000_000.0
OWN_PID = 500
HOST_NAMESPACE, CONTAINER_NAMESPACE = "pid:[4026531836]", "pid:[4026532841]"
MIB = 1 << 20


class FakeNvmlError(Exception):
    """An error of NVML with its code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass(eq=False)
class FakeGpu:
    """A GPU: memory by process for each list, and samples (pid, age in s, percent). ``mig`` are its MIG devices.

    ``percent`` is its utilization by all processes together.
    """

    name: str = "NVIDIA H200"
    compute: dict[int, int | None] = field(default_factory=dict)
    graphics: dict[int, int | None] = field(default_factory=dict)
    mps: dict[int, int | None] = field(default_factory=dict)
    samples: list[tuple[int, float, int]] = field(default_factory=list)
    mig: list[FakeGpu] = field(default_factory=list)
    minor: int | None = None
    percent: int = 0


class FakeProcessNvml:
    """The functions of NVML that list processes. ``broken``: the code that a function raises, by its name, or by
    (name, index of the GPU)."""

    NVMLError = FakeNvmlError

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.broken: dict[str | tuple[str, int], int] = {}

    def _check(self, function: str, gpu: FakeGpu | None = None) -> None:
        keys: list[str | tuple[str, int]] = [function]
        if gpu in self.gpus:
            keys.append((function, self.gpus.index(gpu)))
        for key in keys:
            if key in self.broken:
                raise FakeNvmlError(self.broken[key])

    def nvmlDeviceGetCount(self) -> int:
        self._check("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._check("nvmlDeviceGetHandleByIndex", self.gpus[index])
        return self.gpus[index]

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> bytes:
        return gpu.name.encode()

    def nvmlDeviceGetMinorNumber(self, gpu: FakeGpu) -> int:
        return self.gpus.index(gpu) if gpu.minor is None else gpu.minor

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        self._check("nvmlDeviceGetMigMode")
        return [int(bool(gpu.mig)), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, _: FakeGpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:
        if index >= len(gpu.mig):
            raise FakeNvmlError(nvml.NOT_FOUND)
        return gpu.mig[index]

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        self._check("nvmlDeviceGetComputeRunningProcesses", gpu)
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in list(gpu.compute.items())]

    def nvmlDeviceGetGraphicsRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        self._check("nvmlDeviceGetGraphicsRunningProcesses", gpu)
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in list(gpu.graphics.items())]

    def nvmlDeviceGetMPSComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        self._check("nvmlDeviceGetMPSComputeRunningProcesses", gpu)
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in list(gpu.mps.items())]

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(gpu=gpu.percent, memory=0)

    def nvmlDeviceGetProcessUtilization(self, gpu: FakeGpu, since_us: int) -> list[Any]:
        self._check("nvmlDeviceGetProcessUtilization", gpu)
        taken = [(pid, int((NOW_S - age_s) * 1e6), percent) for pid, age_s, percent in gpu.samples]
        newer = [SimpleNamespace(pid=pid, timeStamp=at, smUtil=percent) for pid, at, percent in taken if at > since_us]
        if not newer:
            # As the package does for an empty answer.
            raise FakeNvmlError(nvml.NOT_FOUND)
        return newer


class FakeMachine:
    """NVML, /proc and /dev in ``folder``; processes are added and ended. ``refusals`` are sentences by process id."""

    def __init__(self, folder: Path, *gpus: FakeGpu, namespace: str = HOST_NAMESPACE) -> None:
        self.proc, self.dev = folder / "proc", folder / "dev"
        self.nvml = FakeProcessNvml(*gpus)
        self.refusals: dict[int, str] = {}
        self.asked: list[int] = []
        self.now_s = 0.0
        (self.proc / "self" / "ns").mkdir(parents=True)
        os.symlink(namespace, self.proc / "self" / "ns" / "pid")
        self.dev.mkdir()
        for number in range(len(gpus)):
            (self.dev / f"nvidia{number}").touch()
        self.add(OWN_PID, ["stallscope", "watch"], devices=["/dev/nvidiactl", "/dev/nvidia0"])

    def add(
        self,
        pid: int,
        words: Sequence[str],
        *,
        parent: int = 1,
        uid: int | None = None,
        start: int | None = None,
        devices: Sequence[str] = (),
        name: str = "python3",
    ) -> None:
        """Add a process with ``devices`` open."""
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True)
        after_name = ["S", str(parent), *["0"] * 17, str(pid if start is None else start), "0"]
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(after_name)}\n", encoding="utf-8")
        owner = os.getuid() if uid is None else uid
        (folder / "status").write_text(f"Name:\t{name}\nUid:\t{owner}\t{owner}\t{owner}\t{owner}\n", encoding="utf-8")
        (folder / "cmdline").write_bytes(b"".join(word.encode(errors="surrogatepass") + b"\0" for word in words))
        for number, target in enumerate(["/dev/null", "socket:[1]", *devices]):
            os.symlink(target, folder / "fd" / str(number))

    def end(self, pid: int) -> None:
        """End a process, also in NVML's lists."""
        for gpu in self.nvml.gpus:
            gpu.compute.pop(pid, None)
            gpu.graphics.pop(pid, None)
            gpu.mps.pop(pid, None)
        folder = self.proc / str(pid)
        for file in [*folder.glob("fd/*"), *folder.glob("*")]:
            if file.is_dir() and not file.is_symlink():
                file.rmdir()
            else:
                file.unlink()
        folder.rmdir()

    def refusal(self, pid: int) -> str | None:
        """Why the process cannot be attached."""
        self.asked.append(pid)
        return self.refusals.get(pid)

    def lister(self, load: Callable[[], Any] | None = None) -> GpuProcessLister:
        """A lister of this machine."""
        return GpuProcessLister(
            self.refusal,
            load=load or (lambda: self.nvml),
            proc=self.proc,
            dev=self.dev,
            own_pid=OWN_PID,
            clock=lambda: self.now_s,
            wall=lambda: NOW_S,
        )

    def reader(self) -> GpuProcessReader:
        """A reader of this machine that reads often."""
        return GpuProcessReader(self.lister().read, period_s=0.02)
