"""A process that may be attached, as /proc describes it."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stallprobes.foreign_text import printable
from stallprobes.machine.processes import MOST_BYTES_OF_MAPS, pids
from stallprobes.native.layouts.attaching import CONTROL_NAME
from stallprobes.watch.attaching.rights import Identity
from stallprobes.watch.reading.proc_files import content, stat_fields

# Name of libcuda's own thread, which sleeps in poll and holds no lock.
EVENT_THREAD = "cuda-EvtHandlr"
# Largest number of characters of a process's name that are shown.
_LONGEST_NAME = 64
# Numbers of the system calls (x86-64) in which a thread sleeps and holds no lock: poll, ppoll, epoll_wait, epoll_pwait,
# select, pselect6, accept, accept4, clock_nanosleep.
_SLEEPING = frozenset({7, 271, 232, 281, 23, 270, 43, 288, 230})
# The attacher loads the library in a sleeping thread of the process. _LOOKS: number of searches for such a thread.
# _LOOK_PAUSE_S: pause (s) between two searches.
_LOOKS, _LOOK_PAUSE_S = 20, 0.005
# Flag in /proc/PID/stat of a thread that has begun to exit (the kernel's PF_EXITING).
_EXITING = 0x4
# A line of /proc/PID/maps, with names of its fields.
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
        text = content(self.folder / "status").decode(errors="replace")
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
        fields = self._stat()
        return int(fields[19]) if fields else 0

    def _stat(self) -> list[bytes]:
        """The fields of its stat from its state on; none where there is no such process."""
        fields = stat_fields(self.folder)
        return fields if len(fields) > 19 else []

    @property
    def has_memory(self) -> bool:
        """True if it runs a program: the kernel's own have no memory, nor have those that are ending."""
        return bool(self.field("VmSize"))

    @property
    def has_ended(self) -> bool:
        """True if the process has ended.

        It has not while other threads run: its first thread may have ended, or may just be replaced by one that
        executes another program. One that exits has ended: to close a GPU's files takes it a while.
        """
        fields = self._stat()
        if fields and not int(fields[17]):
            # Of a first thread that was just released: the next look finds the one that took its place, or none.
            fields = self._stat()
        return not fields or (int(fields[17]) <= 1 and (fields[0] in (b"Z", b"X") or int(fields[6]) & _EXITING != 0))

    def mappings(self) -> Iterator[Mapping]:
        """The parts of its memory. Raises OSError where they cannot be read, EFBIG where they are too many."""
        with (self.folder / "maps").open("rb") as file:
            lines = file.read(MOST_BYTES_OF_MAPS + 1)
        if len(lines) > MOST_BYTES_OF_MAPS:
            raise OSError(errno.EFBIG, "it has too many mappings")
        for line in lines.splitlines():
            fields = _MAPPING.match(line.decode(errors="replace"))
            if fields:
                yield Mapping(
                    int(fields["start"], 16),
                    int(fields["end"], 16),
                    fields["mode"],
                    int(fields["offset"], 16),
                    fields["path"],
                )

    @property
    def has_library(self) -> bool:
        """True if the injected library is in the program that it executes. Raises OSError if that is not known."""
        return any(CONTROL_NAME in mapping.path for mapping in self.mappings())

    def sleeping_threads(self) -> list[int]:
        """The threads that sleep where they can be borrowed, libcuda's own first and the main thread last.

        A thread that is just awake is looked for again for a moment. Raises OSError where there is no such process.
        """
        for _ in range(_LOOKS):
            if threads := self._asleep():
                return threads
            time.sleep(_LOOK_PAUSE_S)
        return []

    def _asleep(self) -> list[int]:
        threads = []
        for folder in (self.folder / "task").iterdir():
            name = content(folder / "comm").decode(errors="replace").strip()
            call = content(folder / "syscall").partition(b" ")[0]
            if name and call.isdigit() and int(call) in _SLEEPING:
                number = int(folder.name)
                threads.append((name != EVENT_THREAD, number == self.pid, number))
        return [number for *_, number in sorted(threads)]

    @property
    def identity(self) -> Identity | None:
        """Its ids; None where it is not there, or has several users or groups (a set-uid or set-gid program)."""
        users, groups = self.numbers("Uid"), self.numbers("Gid")
        if not users or not groups or len({*users}) > 1 or len({*groups}) > 1:
            return None
        return Identity(users[0], groups[0], tuple(sorted(self.numbers("Groups"))))

    def shares_files(self) -> bool:
        """True if paths mean the same in it as here. Nothing of its file system is looked at for that."""
        try:
            same_mounts = os.readlink(self.folder / "ns" / "mnt") == os.readlink("/proc/self/ns/mnt")
            return same_mounts and os.readlink(self.folder / "root") == os.readlink("/proc/self/root")
        except OSError:
            return False

    def is_foreign(self) -> bool:
        """True if it has other rights than this process: another user, or another root where this process is of root.

        This process then uses no name that it controls.
        """
        return self.owner()[0] != os.geteuid() or (os.geteuid() == 0 and not self.shares_files())

    def owner(self) -> tuple[int, int]:
        """The numbers of its effective user and group."""
        users, groups = self.numbers("Uid"), self.numbers("Gid")
        return (users[1] if len(users) > 1 else -1), (groups[1] if len(groups) > 1 else -1)

    @property
    def has_own_numbers(self) -> bool:
        """True if it is in a PID namespace below this one, so that its threads have numbers of their own."""
        return len(self.numbers("NSpid")) > len(Target(os.getpid()).numbers("NSpid"))

    def threads_here(self) -> dict[int, int]:
        """The numbers here of its threads by those in its PID namespace. Raises OSError if there is no such process."""
        tasks = self.folder / "task"
        return {Target(int(name), tasks).own_pid: int(name) for name in os.listdir(tasks)}

    def first_of_namespace(self) -> Target | None:
        """First process (number 1) of its PID namespace; None where it is not visible."""
        with suppress(OSError):
            space = os.readlink(self.folder / "ns" / "pid")
            for pid in pids():
                target = Target(pid)
                with suppress(OSError):
                    if target.own_pid == 1 and os.readlink(target.folder / "ns" / "pid") == space:
                        return target
        return None


def replaced_sentence(title: str) -> str:
    """The sentence on a process that executed another program before the library was in it."""
    return f"{title} has executed another program meanwhile and was left as it was: try again."


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, int] = {}
    for each in pids():
        if fields := stat_fields(Path(f"/proc/{each}")):
            parents[each] = int(fields[1])
    members = [pid]
    for parent in members:
        members += [child for child, starter in parents.items() if starter == parent]
    return members


def user_name(number: int) -> str:
    """A user by name, or by number where it has none here."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def group_name(number: int) -> str:
    """A group by name, or by number where it has none here."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def remedy_for_rights() -> str:
    """Remedy that gives this process the right to trace others; root may lack it in a container."""
    if os.geteuid():
        return "run stallscope with sudo"
    return "root needs CAP_SYS_PTRACE here, as `docker run --cap-add SYS_PTRACE` gives it"
