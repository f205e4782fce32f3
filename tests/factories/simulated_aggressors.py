"""Aggressors beside a watched program on a machine without a GPU: they run on a simulated one, with an NVML made up.

python -m factories.simulated_aggressors FREE_FILE watch ARGUMENT ...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stallprobes.engine.backend import GIB, Options
from stallprobes.engine.session import Session
from stallprobes.measurement.aggressors import Aggressors
from stallprobes.model import Probe


class FakeNvmlError(Exception):
    """An error of NVML with its code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass
class FakeNvml:
    """The functions of NVML that aggressors ask, for one GPU; its free memory (GiB) is in ``file``, if that exists.

    ``uuid`` is that of the GPU, with GPU- or MIG-; "" for any GPU. ``mig``: the GPU is in MIG mode.
    """

    free_gib: float = 100.0
    total_gib: float = 140.0
    uuid: str = ""
    mode: int = 0
    mig: bool = False
    pids: Sequence[int] = ()
    mhz: int = 1980
    file: Path | None = None
    broken: set[str] = field(default_factory=set)

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM = 1

    def _answer(self, name: str, value: Any) -> Any:
        if name in self.broken:
            raise FakeNvmlError(3)
        return value

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if self.uuid not in ("", uuid):
            raise FakeNvmlError(6)
        return uuid

    def nvmlDeviceGetMigMode(self, _handle: str) -> list[int]:
        return [int(self.mig), int(self.mig)]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, _handle: str) -> str:
        return "whole"

    def nvmlDeviceGetComputeMode(self, _handle: str) -> int:
        return self.mode

    def nvmlDeviceGetMemoryInfo(self, _handle: str) -> SimpleNamespace:
        free = self.free_gib
        if self.file is not None and self.file.exists() and (text := self.file.read_text().strip()):
            free = float(text)
        values = SimpleNamespace(free=free * GIB, total=self.total_gib * GIB)
        return self._answer("nvmlDeviceGetMemoryInfo", values)  # type: ignore[no-any-return]

    def nvmlDeviceGetClockInfo(self, _handle: str, _kind: int) -> int:
        return self.mhz

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: str) -> list[SimpleNamespace]:
        running = [SimpleNamespace(pid=pid, usedGpuMemory=GIB) for pid in self.pids]
        return self._answer("nvmlDeviceGetComputeRunningProcesses", running)  # type: ignore[no-any-return]


def simulated_session(probes: Sequence[Probe], options: Options) -> Session:
    """A session on a simulated GPU, whose time follows the clock."""
    return Session(probes, backend="sim", options=replace(options, gpu=None, paced=True))


def main(free_file: Path) -> None:
    """Run stallscope with such aggressors."""
    from stallscope.cli import entry
    from stallscope.cli.watching import beside

    made: Any = partial(Aggressors, make=simulated_session, load=lambda: FakeNvml(file=free_file))
    # Whoever watches has no place to ask for this.
    setattr(beside, "Aggressors", made)  # noqa: B010
    entry.main()


if __name__ == "__main__":
    path = Path(sys.argv.pop(1))
    sys.argv[0] = "stallscope"
    main(path)
