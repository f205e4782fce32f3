"""Processes of this machine as /proc shows them: owner, command, start, parent, and open NVIDIA devices.

A process that ends meanwhile is None, never an error. ``spawn`` starts one.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from stallprobes.foreign_text import printable

PROC = Path("/proc")
# Name of the PID namespace of the host: Linux numbers it PROC_PID_INIT_INO (include/linux/proc_ns.h).
_HOST_NAMESPACE = "pid:[4026531836]"
# Largest size (bytes) of a process's list of mappings (/proc/PID/maps) that is read. Reason: the list of a hostile
# process can be gigabytes long.
MOST_BYTES_OF_MAPS = 1 << 25
# Largest number of bytes that are read of a process's command line. Reason: no screen shows more.
_COMMAND_BYTES = 4096
# Longest wait (s) for the read of a process's command line, which usually takes microseconds. After this wait, the
# command line counts as empty. Reason: the read can block without end.
_COMMAND_S = 1.0
# Processes (folder in /proc, start time) whose command line could not be read within _COMMAND_S. The command lines of
# these processes are not read again. Reason: the thread of the first read still waits.
_WAITING: set[tuple[Path, int]] = set()
# Pattern of the path of an NVIDIA device file. The last part is the number of a GPU, ctl (driver) or -uvm (unified
# memory).
_DEVICE = re.compile(r"/dev/nvidia(\d+|ctl|-uvm)")
# Shell that runs a script whose first line names no interpreter.
_SHELL = "/bin/sh"


@dataclass(frozen=True)
class ProcessStatus:
    """A process. ``start_ticks``, clock ticks since boot, tells it from a later one with the same ``pid``.

    ``user`` is the name of its real user, else the number. ``command`` has its arguments; a process without any is
    ``[name]``.
    """

    pid: int
    start_ticks: int
    parent: int
    user: str
    command: str


def status(pid: int, proc: Path = PROC) -> ProcessStatus | None:
    """The process ``pid``; None if there is none, or if it is hidden from this user (the mount option hidepid)."""
    folder = proc / str(pid)
    try:
        # The name is in parentheses and may contain some itself.
        fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        lines = (folder / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        members = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
        parent, start_ticks, uid = int(fields[1]), int(fields[19]), int(members["Uid"].split()[0])
    except (OSError, IndexError, KeyError, ValueError):
        return None
    words = _words_of((folder, start_ticks))
    command = words.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace").strip()
    return ProcessStatus(pid, start_ticks, parent, _user(uid), printable(command or f"[{members.get('Name', '?')}]"))


def pids(proc: Path = PROC) -> Iterator[int]:
    """The ids of all processes that are visible here."""
    with suppress(OSError), os.scandir(proc) as entries:
        for entry in entries:
            if entry.name.isdecimal():
                yield int(entry.name)


def nvidia_devices(pid: int, proc: Path = PROC) -> frozenset[str] | None:
    """Open /dev/nvidia* files of the process ``pid``: minor numbers of GPUs, ``ctl``, ``-uvm``.

    None if this user may not see its files, or if it has ended.
    """
    opened = set()
    try:
        with os.scandir(proc / str(pid) / "fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    device = _DEVICE.fullmatch(os.readlink(entry.path))
                    if device is not None:
                        opened.add(device[1])
    except OSError:
        return None
    return frozenset(opened)


def is_descendant(process: ProcessStatus, ancestor: int, proc: Path = PROC) -> bool:
    """True if ``process`` is the process ``ancestor`` or was started by it, directly or by others."""
    seen: set[int] = set()
    pid, parent = process.pid, process.parent
    while pid != ancestor and parent > 0 and pid not in seen:
        seen.add(pid)
        above = status(parent, proc)
        if above is None:
            return parent == ancestor
        pid, parent = above.pid, above.parent
    return pid == ancestor


def in_host_namespace(proc: Path = PROC) -> bool:
    """True if this process has the host's process ids; False in a container with ids of its own."""
    try:
        return os.readlink(proc / "self" / "ns" / "pid") == _HOST_NAMESPACE
    except OSError:
        return False


@lru_cache(maxsize=256)
def _user(uid: int) -> str:
    # A name service, which may be remote, answers only once.
    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def _words_of(process: tuple[Path, int]) -> bytes:
    """The command of a process, by its folder and its start; empty where it cannot be read.

    The kernel reads the words from the process's memory; this can block without end.
    """
    words: list[bytes] = []

    def read() -> None:
        with suppress(OSError), open(process[0] / "cmdline", "rb") as file:
            words.append(file.read(_COMMAND_BYTES))

    if process not in _WAITING:
        thread = threading.Thread(target=read, name="command of a process", daemon=True)
        thread.start()
        thread.join(_COMMAND_S)
        if thread.is_alive():
            _WAITING.add(process)
    return words[0] if words else b""


def spawn(arguments: Sequence[str], environment: Mapping[str, str], **attributes: Any) -> int:
    """Process id of a started program, found in PATH as shells do; ``attributes`` are those of ``os.posix_spawnp``.

    Raises OSError or ValueError if it cannot be started.
    """
    try:
        return os.posix_spawnp(arguments[0], list(arguments), environment, **attributes)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without a first line that names its interpreter, which shells run themselves.
    words = [_SHELL, shutil.which(arguments[0]) or arguments[0], *arguments[1:]]
    return os.posix_spawn(_SHELL, words, environment, **attributes)
