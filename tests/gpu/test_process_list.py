"""On a real GPU: a program that computes is in the list with its memory, and the list makes no context."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallprobes.machine import processes
from stallprobes.machine.gpu_processes import GpuProcessList, GpuProcessLister, ListedProcess, ProcessSource

pytestmark = pytest.mark.gpu
PROGRAM = Path(__file__).parents[1] / "programs" / "many_launches.py"
_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def computing() -> Iterator[int]:
    """The process id of a program that launches kernels."""
    with subprocess.Popen([sys.executable, str(PROGRAM), "2", "600"]) as program:
        yield program.pid
        program.kill()


def listed(lister: GpuProcessLister, pid: int, wanted: Callable[[ListedProcess], bool]) -> GpuProcessList:
    """The first list in which process ``pid`` is as wanted."""
    end = time.monotonic() + _LIMIT_S
    while True:
        listing = lister.read()
        if any(process.pid == pid and wanted(process) for process in listing.processes):
            return listing
        assert time.monotonic() < end, listing
        time.sleep(0.2)


def test_a_program_that_computes_is_listed_with_what_it_uses(computing: int) -> None:
    # The program is a child of this process, which is not the lister's own.
    lister = GpuProcessLister(lambda pid: None, own_pid=1 << 30)
    listing = listed(lister, computing, lambda process: bool(process.gpus))
    (process,) = [process for process in listing.processes if process.pid == computing]
    status = processes.status(computing)
    assert status is not None
    assert "many_launches.py" in status.command
    assert (process.start_ticks, process.user, process.command) == (status.start_ticks, status.user, status.command)
    if listing.source is ProcessSource.DEVICES:
        pytest.skip("NVML lists no process here, as in containers; the program was found by its open devices")
    assert len(process.gpus) == 1
    assert process.memory_bytes is not None
    assert process.memory_bytes > 1 << 20
    if process.utilization_percent is not None:
        listed(lister, computing, lambda process: (process.utilization_percent or 0) > 0)


def test_its_open_devices_name_it_too(computing: int) -> None:
    listed(GpuProcessLister(lambda pid: None, own_pid=1 << 30), computing, lambda process: bool(process.gpus))
    devices = processes.nvidia_devices(computing)
    assert devices is not None
    assert {"ctl", "-uvm"} <= devices
    assert any(device.isdecimal() for device in devices)


def test_the_list_makes_no_context_and_children_are_own(computing: int) -> None:
    lister = GpuProcessLister(lambda pid: None)
    listing = listed(lister, computing, lambda process: bool(process.gpus))
    (process,) = [process for process in listing.processes if process.pid == computing]
    assert process.own
    assert os.getpid() not in [process.pid for process in listing.processes]
