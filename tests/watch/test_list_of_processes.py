"""The list of GPU processes with the reasons of attaching itself: real processes, which a made-up NVML lists."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.gpu_machine import MIB, FakeGpu, FakeProcessNvml
from factories.waiting import wait_until
from stallprobes.machine.gpu_processes import GpuProcessLister, ListedProcess
from stallscope.tui.sources.gpu_processes import GpuProcessSource, refusal_of


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses no CUDA."""
    with subprocess.Popen(["sleep", "600"]) as process:
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
    assert process.status is not None
    assert process.status.command == "sleep 600"
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
