"""What the tests of engine and session share: probes of the host, and who and what is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallprobes.model import Op, Probe, Program, Role

ROOT = Path(__file__).resolve().parents[2]

MakeProbe = Callable[..., Probe]
Gone = Callable[[int], bool]
Parent = Callable[[str], "subprocess.Popen[str]"]


def _probe(name: str, *ops: Op, period_ns: int = 1_000_000, setup: tuple[Op, ...] = ()) -> Probe:
    program = Program(ops or (Op("native:nothing"),), context=None, setup=setup)
    return Probe(name, name, Role.HOST, program, period_ns, name)


def _is_gone(pid: int) -> bool:
    """Whether a process has ended; one that only waits to be reaped by somebody else has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def _gone_within(pid: int, seconds: float = 2.0) -> bool:
    until = time.monotonic() + seconds
    while not _is_gone(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def make_probe() -> MakeProbe:
    """Makes a host probe: a name and ops (by default one that does nothing)."""
    return _probe


@pytest.fixture
def gone() -> Gone:
    """Whether a process ends within 2 s."""
    return _gone_within


@pytest.fixture
def parent() -> Iterator[Parent]:
    """Runs Python source as a process of its own, with the package at hand; killed at the end if it lives."""
    started = []

    def run(source: str) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "probes")}
        process = subprocess.Popen(
            [sys.executable, "-c", source], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails when a test leaves a descriptor, a child process or a block of shared memory behind."""

    def seen() -> tuple[list[str], list[str]]:
        descriptors = [os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors()]
        return sorted(descriptors), sorted(os.listdir("/dev/shm"))

    before = seen()
    yield
    after = seen()
    assert after == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def _descriptors() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue
        found.append(int(name))
    return found
