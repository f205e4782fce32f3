"""The list of GPU processes and attaching together: real processes, which a made-up NVML lists."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.attaching import RunningProgram
from factories.command_line import ROOTS
from factories.gpu_machine import MIB, FakeGpu, FakeProcessNvml
from factories.stand_in import StandIn
from factories.terminal import OpenTerminal, Terminal
from factories.waiting import wait_until
from stallprobes.machine.gpu_processes import GpuProcessLister, ListedProcess
from stallscope.tui.sources.gpu_processes import GpuProcessSource, refusal_of


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses no CUDA."""
    with subprocess.Popen(["sleep", "600"]) as process:
        # For an instant after its start the kernel has no command line of it.
        wait_until(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes(), "it has a command line")
        yield process
        process.kill()


def lister_of(gpu: FakeGpu, dev: Path) -> GpuProcessLister:
    # No process is a descendant of the lister's own.
    return GpuProcessLister(refusal_of, load=lambda: FakeProcessNvml(gpu), dev=dev, own_pid=1 << 30)


def listed(lister: GpuProcessLister, pid: int) -> ListedProcess | None:
    return next((process for process in lister.read().processes if process.pid == pid), None)


def test_why_a_process_cannot_be_attached_is_in_its_row(sleeping: subprocess.Popen[bytes], tmp_path: Path) -> None:
    gpu = FakeGpu(compute={sleeping.pid: MIB})
    process = listed(lister_of(gpu, tmp_path), sleeping.pid)
    assert process is not None
    assert process.command == "sleep 600"
    assert process.refusal == refusal_of(sleeping.pid)
    assert process.refusal is not None
    assert "has not loaded libcuda" in process.refusal


def test_a_process_that_ends_is_gone(sleeping: subprocess.Popen[bytes], tmp_path: Path) -> None:
    lister = lister_of(FakeGpu(compute={sleeping.pid: MIB}), tmp_path)
    assert listed(lister, sleeping.pid) is not None
    os.kill(sleeping.pid, signal.SIGKILL)
    sleeping.wait()
    # NVML's list is older than its end.
    assert listed(lister, sleeping.pid) is None


def test_the_look_before_attaching_is_the_same(sleeping: subprocess.Popen[bytes]) -> None:
    answer = GpuProcessSource().refusal(sleeping.pid)
    wait_until(answer.done, "the process was looked at")
    assert answer.result() == refusal_of(sleeping.pid)


# A module pynvml with one GPU, on which the process LISTED computes.
NVML = """
import os
from types import SimpleNamespace

class NVMLError(Exception):
    value = 3

def __getattr__(name):
    if not name.startswith("nvml"):
        raise AttributeError(name)
    def unsupported(*_):
        raise NVMLError("not supported")
    return unsupported

def nvmlInit():
    pass

def nvmlDeviceGetCount():
    return 1

def nvmlDeviceGetHandleByIndex(index):
    return index

def nvmlDeviceGetName(handle):
    return "made-up GPU"

def nvmlDeviceGetComputeRunningProcesses(handle):
    return [SimpleNamespace(pid=int(os.environ["LISTED"]), usedGpuMemory=300 << 20)]
"""


@pytest.fixture
def program(stand_in: StandIn) -> Iterator[RunningProgram]:
    """A program that makes calls."""
    with RunningProgram(stand_in, "poll") as started:
        yield started


@pytest.fixture
def machine(program: RunningProgram, settings: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Variables of a machine on whose GPU the program computes."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    (folder / "pynvml.py").write_text(NVML, encoding="utf-8")
    path = os.pathsep.join((str(folder), *ROOTS, *filter(None, [os.environ.get("PYTHONPATH")])))
    return {**settings, "PYTHONPATH": path, "LISTED": str(program.pid)}


def check_report(shown: Terminal, program: RunningProgram) -> None:
    """The screen of the attached program, its report, and that the program is as before."""
    shown.wait_for("cuLaunchKernel")
    assert shown.quit() == 0
    assert "Attaching and detaching held a call up for" in shown.text()
    program.launches()
    assert program.end() == (0, "", "")


def test_a_program_is_attached_from_the_list(
    program: RunningProgram, machine: dict[str, str], terminal: OpenTerminal
) -> None:
    shown = terminal("watch", size=(120, 40), **machine)
    shown.wait_for("listed by NVML")
    shown.wait_for("300 MiB")
    shown.wait_for("enter attaches")
    shown.press("\r")
    check_report(shown, program)


def test_a_program_is_attached_from_the_monitor_whose_engine_ends_first(
    program: RunningProgram, machine: dict[str, str], terminal: OpenTerminal
) -> None:
    shown = terminal("--sim", size=(120, 40), **machine)
    shown.wait_for("d2d@secondary")
    # Once: a second one returns to the monitor.
    shown.press("P")
    shown.wait_for("listed by NVML")
    shown.wait_for("enter attaches")
    shown.press("\r")
    shown.wait_for(f"Attach process {program.pid}, attached poll?")
    engines = shown.children()
    assert engines
    shown.press("y")
    check_report(shown, program)
    assert not [pid for pid in engines if Path(f"/proc/{pid}").exists()]
