"""Processes by /proc: made up, and this one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from factories.gpu_machine import CONTAINER_NAMESPACE, FakeMachine
from factories.hostile_text import HOSTILE, forbidden
from stallprobes.machine import processes


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_this_process_is_known_by_its_command_and_user() -> None:
    own = processes.status(os.getpid())
    assert own is not None
    assert own.parent == os.getppid()
    assert "pytest" in own.command or "python" in own.command
    assert own == processes.status(os.getpid())
    assert os.getpid() in set(processes.pids())
    assert processes.nvidia_devices(os.getpid()) is not None


def test_an_ended_process_has_no_status_and_no_devices() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    child.wait()
    assert processes.status(child.pid) is None
    assert processes.nvidia_devices(child.pid) is None


def test_a_name_with_parentheses_and_blanks_does_not_move_the_fields(machine: FakeMachine) -> None:
    machine.add(700, [], name="a) S 9 (b", parent=42, start=123456)
    status = processes.status(700, machine.proc)
    assert status is not None
    assert (status.parent, status.start_ticks, status.command) == (42, 123456, "[a) S 9 (b]")


def test_a_command_is_one_printable_line_of_limited_length(machine: FakeMachine) -> None:
    machine.add(700, ["python", HOSTILE, "x" * 10_000])
    status = processes.status(700, machine.proc)
    assert status is not None
    assert not forbidden(status.command)
    assert "\n" not in status.command
    assert len(status.command) <= 4096


def test_a_command_that_is_never_read_is_waited_for_once(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe without a writer, as memory of the process that it answers for itself."""
    monkeypatch.setattr(processes, "_COMMAND_S", 0.01)
    machine.add(700, ["train"], name="train")
    folder = machine.proc / "700"
    (folder / "cmdline").unlink()
    os.mkfifo(folder / "cmdline")
    before = threading.active_count()
    for _ in range(3):
        known = processes.status(700, machine.proc)
        assert known is not None
        assert known.command == "[train]"
    assert threading.active_count() <= before + 1
    # The thread ends.
    os.close(os.open(folder / "cmdline", os.O_RDWR))


def test_a_user_without_a_name_is_a_number(machine: FakeMachine) -> None:
    machine.add(700, ["a"], uid=3_999_999_999)
    status = processes.status(700, machine.proc)
    assert status is not None
    assert status.user == "3999999999"


def test_devices_of_nvidia_and_no_others(machine: FakeMachine) -> None:
    devices = ["/dev/nvidia3", "/dev/nvidia12", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1"]
    machine.add(700, ["a"], devices=[*devices, "/tmp/dev/nvidia4", "/dev/nvme0"])
    assert processes.nvidia_devices(700, machine.proc) == frozenset({"3", "12", "ctl", "-uvm"})


def test_descendants_are_found_over_several_generations_and_circles_end(machine: FakeMachine) -> None:
    machine.add(10, ["stallscope"])
    machine.add(20, ["engine"], parent=10)
    machine.add(30, ["second"], parent=20)
    machine.add(40, ["other"])
    machine.add(50, ["a"], parent=51)
    machine.add(51, ["b"], parent=50)

    def descends(pid: int) -> bool:
        status = processes.status(pid, machine.proc)
        assert status is not None
        return processes.is_descendant(status, 10, machine.proc)

    assert [pid for pid in (10, 20, 30, 40, 50, 51) if descends(pid)] == [10, 20, 30]


def test_process_ids_of_the_host_are_told_from_those_of_a_container(tmp_path: Path) -> None:
    assert processes.in_host_namespace(FakeMachine(tmp_path / "host").proc)
    assert not processes.in_host_namespace(FakeMachine(tmp_path / "container", namespace=CONTAINER_NAMESPACE).proc)
    assert not processes.in_host_namespace(tmp_path / "nothing")
