"""Attaching to programs on a real GPU: they compute the same, everything is recorded, and nothing of it remains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from factories.attached_gpu import GpuProgram, attach_once, build_loop, detach_hanging
from factories.attaching import NOBODY, open_to_all
from stallprobes.watch.attaching.attached_processes import AttachedProcesses
from stallprobes.watch.environment import WatchOptions

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

EVERYTHING, CALLS_ONLY = WatchOptions(cost=1.0), WatchOptions(calls_only=True, cost=1.0)
TIMES, SECONDS = 3, 0.5
# Number of attachments to programs of another user.
FOREIGN_TIMES = 20
# A profiler of the program itself, after stallscope has detached.
PROFILED = """\
import sys, torch
values = torch.ones(1024, device="cuda")
print("ready", flush=True)
for _ in sys.stdin:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(50):
            values = values + 1
        torch.cuda.synchronize()
    kernels = [one for one in found.events() if one.device_type == torch.autograd.DeviceType.CUDA]
    print("ok", len(kernels), 0, 0, flush=True)
"""
# The same in a program that makes calls all the time, so that some are in flight when stallscope attaches and detaches.
PROFILED_MEANWHILE = """\
import select, sys, torch
cell, values = torch.nn.LSTMCell(128, 128).cuda(), torch.randn(8, 128, device="cuda")
def step():
    state = None
    with torch.no_grad():
        for _ in range(50):
            state = cell(values, state)
    torch.cuda.synchronize()
step()
print("ready", flush=True)
while True:
    step()
    if not select.select([sys.stdin], [], [], 0)[0]:
        continue
    if not sys.stdin.readline():
        break
    for _ in range(200):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            step()
    kernels = [one for one in found.events() if one.device_type == torch.autograd.DeviceType.CUDA]
    print("ok", len(kernels), 0, 0, flush=True)
"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launch loop."""
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    return build_loop(tmp_path_factory.mktemp("loop"))


@pytest.mark.parametrize("words", ["loop", "threads 200"])
def test_a_launch_loop_is_recorded_again_and_again(loop: Path, words: str) -> None:
    with GpuProgram([str(loop), *words.split()]) as program:
        for number in range(TIMES):
            found = attach_once(program, SECONDS, EVERYTHING)
            assert (found.stopped_ns > 0) is (number == 0)
            assert found.calls > 0
            assert found.records > 0
        program.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_root_attaches_to_a_program_of_another_user_again_and_again(loop: Path) -> None:
    """By a helper that has become that user. Each second process is a new one."""
    open_to_all(loop.parent)
    for _ in range(FOREIGN_TIMES // 2):
        with GpuProgram([str(loop), "loop"], NOBODY) as program:
            for _ in range(2):
                found = attach_once(program, SECONDS, EVERYTHING)
                assert found.calls > 0
                assert found.records > 0
            program.end()


@pytest.mark.parametrize("kind", ["generation", "graphs", "arrays"])
def test_a_framework_computes_the_same(kind: str) -> None:
    pytest.importorskip({"graphs": "jax", "arrays": "cupy"}.get(kind, "torch"))
    if kind == "generation":
        pytest.importorskip("transformers")
    with GpuProgram.python(kind) as program:
        for _ in range(TIMES):
            found = attach_once(program, SECONDS, EVERYTHING)
            assert found.calls > 0
            assert found.records > 0
        program.end()


@pytest.mark.parametrize("kind", ["loop", "generation", "graphs"])
def test_work_is_recorded_after_calls_alone(loop: Path, kind: str) -> None:
    """CUPTI has left the process after a recording of calls alone, unless work was recorded before."""
    if kind != "loop":
        pytest.importorskip("jax" if kind == "graphs" else "transformers")
    with GpuProgram([str(loop), "loop"]) if kind == "loop" else GpuProgram.python(kind) as program:
        for options in (CALLS_ONLY, CALLS_ONLY, EVERYTHING, CALLS_ONLY, EVERYTHING):
            found = attach_once(program, SECONDS, options)
            assert found.calls > 0
            assert (found.records > 0) is not options.calls_only
        program.end()


@pytest.mark.parametrize("options", [WatchOptions(), WatchOptions(calls_only=True)], ids=["default", "calls only"])
def test_python_at_low_addresses_computes_the_same(options: WatchOptions) -> None:
    """In a process that had no other recording: the library then has nothing of its own to give back."""
    pytest.importorskip("torch")
    with GpuProgram.python("training") as program:
        for _ in range(TIMES):
            assert attach_once(program, 1.0, options).calls > 0
        program.end()


def test_a_program_that_hangs_can_be_attached() -> None:
    with GpuProgram.python("gate") as program:
        for _ in range(3):
            processes = AttachedProcesses()
            attached = processes.attach(program.pid, EVERYTHING)
            # It opens the gate, and closes it again: calls then begin and end while they are recorded.
            program.ask()
            program.ask()
            # CUPTI waits for the lock that what hangs holds: as a detach says, it ends once that does.
            detach_hanging(program, attached)
            processes.close()
        program.ask()
        program.end()


def test_the_profiler_of_pytorch_works_after_detaching() -> None:
    pytest.importorskip("torch")
    with GpuProgram([sys.executable, "-c", PROFILED]) as program:
        attach_once(program, SECONDS, EVERYTHING, asks=False)
        assert program.ask().done >= 50
        program.end()


@pytest.mark.parametrize("options", [WatchOptions(), EVERYTHING, WatchOptions(calls_only=True, cost=0.03)])
def test_the_profiler_of_pytorch_works_after_detaching_between_calls(options: WatchOptions) -> None:
    """CUPTI gives later launches one number where it missed the end of a call: the profiler then fails."""
    pytest.importorskip("torch")
    with GpuProgram([sys.executable, "-c", PROFILED_MEANWHILE]) as program:
        for _ in range(TIMES):
            attach_once(program, 3 * SECONDS, options, asks=False)
        assert program.ask().done >= 50
        program.end()


def test_a_report_of_ten_seconds_has_verdict_lines_and_causes_and_the_training_computes_the_same(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "calls.json"
    with GpuProgram.python("training") as program:
        done = subprocess.run(
            [sys.executable, "-m", "stallscope", "watch", "--pid", str(program.pid), "--seconds", "10", "--headless",
             "--json", str(file)],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        program.ask()
        program.end()
    (process,) = json.loads(file.read_text())["processes"]
    assert process["division"]["steady"]
    assert process["sequences"][0]["lines"]
