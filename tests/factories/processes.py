"""Processes that a test starts, and whether they have ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from factories.waiting import wait_until

# Starts Python source in a process of its own.
Parent = Callable[..., "subprocess.Popen[str]"]


def has_ended(pid: int) -> bool:
    """Whether a process has ended; a zombie has, unless threads of it are left beside the first one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except (FileNotFoundError, ProcessLookupError):
        return True
    return threads <= 1 and stat.rpartition(")")[2].split()[0] in ("Z", "X")


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended."""
    wait_until(lambda: has_ended(pid), f"process {pid} has ended")


def children(pid: int, ended: bool = False) -> list[int]:
    """The running children of a process; with ``ended`` also those that ended and were not waited for."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and (ended or fields[0] not in "ZX"):
                found.append(int(entry.name))
    return found


def engines(pid: int) -> list[int]:
    """The engines of stallscope that a process has started and that run their program."""
    found = []
    for child in children(pid):
        # One may end meanwhile.
        with suppress(OSError):
            if b"stallprobes.engine.main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found
