"""A process that may be attached, as /proc describes it."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stallprobes.foreign_text import printable

# libcuda's own thread, which sleeps in poll and holds no lock.
EVENT_THREAD = "cuda-EvtHandlr"
_LONGEST_NAME = 64
_CAP_SYS_PTRACE = 19
# The system calls of x86-64 in which a thread sleeps and holds no lock: poll, ppoll, epoll_wait, epoll_pwait, select,
# pselect6, accept, accept4, clock_nanosleep.
_SLEEPING = frozenset({7, 271, 232, 281, 23, 270, 43, 288, 230})
_LOOKS, _LOOK_PAUSE_S = 20, 0.005
_MAPPING = re.compile(
    r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) (?P<mode>\S+) (?P<offset>[0-9a-f]+) \S+ (?P<inode>\d+)\s*(?P<path>.*)"
)


@dataclass(frozen=True)
class Mapping:
    """A part of a process's memory, as a line of /proc/PID/maps."""

    start: int
    end: int
    mode: str
    offset: int
    path: str


@dataclass(frozen=True)
class Target:
    """A process by its number ``pid`` here; ``proc`` is where processes are."""

    pid: int
    proc: Path = Path("/proc")

    @property
    def folder(self) -> Path:
        """Its folder in /proc."""
        return self.proc / str(self.pid)

    @property
    def name(self) -> str:
        """Its name, "" if that is not known."""
        return printable(self.field("Name")[:_LONGEST_NAME])

    @property
    def title(self) -> str:
        """``python (process 4711)``."""
        return f"{self.name} (process {self.pid})" if self.name else f"process {self.pid}"

    def field(self, name: str) -> str:
        """A field of its status, "" if there is none."""
        try:
            text = (self.folder / "status").read_text(errors="replace")
        except OSError:
            return ""
        return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{name}:")), "")

    def numbers(self, name: str) -> tuple[int, ...]:
        """The numbers of a field of its status."""
        return tuple(int(word) for word in self.field(name).split() if word.isdigit())

    @property
    def state(self) -> str:
        """The letter of its state, as in /proc; "" if there is no such process."""
        return self.field("State")[:1]

    @property
    def own_pid(self) -> int:
        """Its number in its own PID namespace."""
        return (self.numbers("NSpid") or (self.pid,))[-1]

    @property
    def start_ticks(self) -> int:
        """When it began, in ticks, as in /proc; 0 if that is not known."""
        try:
            # The name, in parentheses, may contain anything.
            return int((self.folder / "stat").read_bytes().rpartition(b")")[2].split()[19])
        except (OSError, IndexError, ValueError):
            return 0

    @property
    def has_memory(self) -> bool:
        """Whether it runs a program: the kernel's own have no memory, nor have those that are ending."""
        return bool(self.field("VmSize"))

    @property
    def has_ended(self) -> bool:
        """Whether there is no such process any more."""
        return self.state in ("", "Z", "X")

    def mappings(self) -> Iterator[Mapping]:
        """The parts of its memory. Raises OSError where they cannot be read."""
        for line in (self.folder / "maps").read_text(errors="replace").splitlines():
            found = _MAPPING.match(line)
            if found:
                yield Mapping(
                    int(found["start"], 16),
                    int(found["end"], 16),
                    found["mode"],
                    int(found["offset"], 16),
                    found["path"],
                )

    def sleeping_threads(self) -> list[int]:
        """The threads that sleep where they can be borrowed, libcuda's own first and the main thread last.

        A thread that is just awake is looked for again for a moment. Raises OSError where there is no such process.
        """
        for _ in range(_LOOKS):
            if found := self._asleep():
                return found
            time.sleep(_LOOK_PAUSE_S)
        return []

    def _asleep(self) -> list[int]:
        found = []
        for folder in (self.folder / "task").iterdir():
            try:
                name = (folder / "comm").read_text(errors="replace").strip()
                call = (folder / "syscall").read_text().split()[0]
            except (OSError, IndexError):
                continue
            if call.isdigit() and int(call) in _SLEEPING:
                number = int(folder.name)
                found.append((name != EVENT_THREAD, number == self.pid, number))
        return [number for *_, number in sorted(found)]

    def shares_files(self) -> bool:
        """Whether paths mean the same in it as here."""
        try:
            same_mounts = os.readlink(self.folder / "ns" / "mnt") == os.readlink("/proc/self/ns/mnt")
            return same_mounts and os.path.samefile(self.folder / "root", "/")
        except OSError:
            return False

    def owner(self) -> tuple[int, int]:
        """The numbers of its effective user and group."""
        users, groups = self.numbers("Uid"), self.numbers("Gid")
        return (users[1] if len(users) > 1 else -1), (groups[1] if len(groups) > 1 else -1)


def may_trace_everything() -> bool:
    """Whether this process has the capability to trace those of other users (CAP_SYS_PTRACE)."""
    own = Target(os.getpid()).field("CapEff")
    return bool(int(own or "0", 16) >> _CAP_SYS_PTRACE & 1)


def remedy_for_rights() -> str:
    """How this process gets the right to trace others; root may lack it in a container."""
    if os.geteuid():
        return "run stallscope with sudo"
    return "root needs CAP_SYS_PTRACE here, as `docker run --cap-add SYS_PTRACE` gives it"


def user_name(number: int) -> str:
    """A user by name, or by number where it has none here."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
