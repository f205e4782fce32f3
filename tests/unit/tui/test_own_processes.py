"""Which of the processes that NVML lists on a GPU are this program's."""

from __future__ import annotations

import os
import subprocess
import sys

from stallprobes.machine.gpus import GpuProcess
from stallscope.tui.sources.selected_gpus import OwnProcesses

FOREIGN = GpuProcess(1, "train", None)
NAMELESS = [GpuProcess(pid, "?", None) for pid in (7_000_001, 7_000_002, 7_000_003)]


def test_the_processes_of_a_session_are_own_also_after_they_have_ended() -> None:
    own = OwnProcesses()
    own.add((8_000_001, 8_000_002))
    known = [GpuProcess(pid, "python", None) for pid in (os.getpid(), 8_000_001, 8_000_002)]
    assert own.others([*known, FOREIGN], ()) == ("train (pid 1)",)


def test_children_and_their_children_are_own_without_being_named() -> None:
    source = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    child = subprocess.Popen([sys.executable, "-S", "-c", source], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    try:
        known = [GpuProcess(pid, "python", None) for pid in (child.pid, grandchild)]
        assert OwnProcesses().others([*known, FOREIGN], ()) == ("train (pid 1)",)
    finally:
        os.kill(grandchild, 9)
        child.communicate()


def test_in_a_container_as_many_nameless_processes_are_own_as_the_session_has() -> None:
    own = OwnProcesses()
    own.add((8_000_001, 8_000_002))
    assert own.others([*NAMELESS, FOREIGN], (8_000_001, 8_000_002)) == ("? (pid 7000003)", "train (pid 1)")
    assert own.others(NAMELESS[:1], (8_000_001,)) == ()
    assert own.others(NAMELESS[:1], ()) == ("? (pid 7000001)",)
