"""Attached processes: one or more, of one or more users, and the files in which they record, as a source of readings.

A file is a memfd of its process. Its descriptor is taken once and kept, so that it can be read to its end after the
process has gone. Numbers of a PID namespace are translated by this machine's own /proc.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stallprobes.errors import WatchError
from stallprobes.native.layouts.attaching import RECORDING_NAME
from stallprobes.watch.attaching import memory_files
from stallprobes.watch.attaching.access import OwnAccess
from stallprobes.watch.attaching.attachment import Attachment, attach
from stallprobes.watch.attaching.helper import TargetAccess, TargetHelper
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.in_flight import ThreadInDriver, blocked_threads, described
from stallprobes.watch.attaching.rights import Identity
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.folder import MOST_FILES
from stallprobes.watch.reading.library_versions import names_of_folder
from stallprobes.watch.reading.map_reader import FILE_NAME, MapFile
from stallprobes.watch.reading.py_spy import PySpyRun
from stallprobes.watch.reading.source import NO_PY_SPY
from stallprobes.watch.reading.stack_reader import StackReader

# Shortest time (s) between two searches of an attached process for the numbers that its threads have in
# stallscope's PID namespace.
_SEARCH_S = 1.0


@dataclass
class _Recorded:
    """A process with a file: its file's descriptor, and the numbers of its threads here by their own."""

    target: Target
    memory: int
    access: TargetAccess
    has_own_numbers: bool
    threads: Mapping[int, int] = field(default_factory=dict)
    searched_s: float = 0.0


class AttachedProcesses:
    """The attachments of processes, and their files. Closed by ``close``."""

    def __init__(self) -> None:
        self.attachments: dict[int, Attachment] = {}
        self._own: OwnAccess | None = None
        self._helpers: dict[Identity, TargetHelper] = {}
        self._files: dict[Path, _Recorded] = {}

    def attach(self, pid: int, options: WatchOptions) -> Attachment:
        """Attach a process. Raises WatchError; then the process is as it was."""
        target = Target(pid)
        attachment = attach(target, options, self.access_to(target))
        self.attachments[pid] = attachment
        memory = attachment.take_file()
        if memory is not None:
            self._add(target, memory, attachment.access)
        return attachment

    def access_to(self, target: Target) -> TargetAccess:
        """The way to a process: this process itself, or a helper that has become its user. Raises WatchError."""
        if not target.is_foreign():
            self._own = self._own or OwnAccess()
            return self._own
        identity = target.identity
        if identity is None:
            raise WatchError(f"{target.title} has ended, or changes its user: try again.")
        helper = self._helpers.get(identity)
        if helper is None:
            helper = self._helpers[identity] = TargetHelper(identity)
        # The number may be that of another process by now, or the process may have changed its user.
        if target.identity != identity:
            raise WatchError(f"{target.title} has ended, or changes its user: try again.")
        return helper

    def in_driver(self, target: Target) -> list[ThreadInDriver]:
        """The threads of a process that are blocked inside the driver; none where that cannot be known."""
        try:
            pointers = blocked_threads(target)
            with ProcessImage.of(target.pid) as image:
                return described(target, self.access_to(target).in_driver(target, image, pointers))
        except (OSError, WatchError):
            return []

    @property
    def problems(self) -> list[str]:
        """What was lost on the way to the processes, as sentences."""
        return [helper.problem for helper in self._helpers.values() if helper.problem]

    def files(self) -> list[Path]:
        """The files of the processes. Raises WatchError if there are too many."""
        if len(self._files) > MOST_FILES:
            raise WatchError(f"the processes have {len(self._files)} recordings; at most {MOST_FILES} are read.")
        return list(self._files)

    def open(self, path: Path) -> MapFile:
        """A file, open for reading. Raises IncompleteFile and WatchError."""
        recorded = self._files[path]
        return MapFile(path, os.fstat(recorded.memory).st_uid, recorded.memory)

    def process(self, pid: int) -> Path | None:
        """The folder in /proc of the process that knows itself as ``pid``."""
        recorded = self._recorded(pid)
        return None if recorded is None else recorded.target.folder

    def thread(self, pid: int, thread: int) -> Path | None:
        """The folder in /proc of the thread that its process knows as ``thread``."""
        recorded = self._recorded(pid)
        if recorded is None:
            return None
        if not recorded.has_own_numbers:
            return recorded.target.folder / "task" / str(thread)
        if thread not in recorded.threads and time.monotonic() - recorded.searched_s >= _SEARCH_S:
            recorded.searched_s = time.monotonic()
            with suppress(OSError):
                recorded.threads = recorded.target.threads_here()
        here = recorded.threads.get(thread)
        return None if here is None else recorded.target.folder / "task" / str(here)

    def environment(self, pid: int) -> Mapping[str, str]:
        """The environment of a process; empty where it cannot be read."""
        recorded = self._recorded(pid)
        return {} if recorded is None else recorded.access.environment(recorded.target)

    def names_in(self, pid: int, folder: str) -> Iterable[str]:
        """The names in a folder; none for a process whose names may lead to another place here."""
        recorded = self._recorded(pid)
        own = recorded is not None and not recorded.target.is_foreign() and recorded.target.shares_files()
        return names_of_folder(folder) if own else ()

    def stack_reader(self, path: Path) -> StackReader:
        """A reader that opens the files of a process's code on the way to the process."""
        recorded = self._files[path]
        return StackReader(opener=partial(recorded.access.open_module, recorded.target))

    @property
    def no_spy(self) -> str:
        """Why py-spy cannot be run, as a clause; "" if it can be."""
        attached = next(iter(self.attachments.values()), None)
        return NO_PY_SPY if attached is None else self._no_spy(attached.target, attached.access)

    def spy(self, pid: int) -> PySpyRun:
        """A run of py-spy on the process that knows itself as ``pid``."""
        recorded = self._recorded(pid)
        assert recorded is not None, "a process is known once it has a file"
        return recorded.access.spy(recorded.target)

    def close(self) -> None:
        """Close the files, and end the helpers."""
        for recorded in self._files.values():
            os.close(recorded.memory)
        self._files.clear()
        for helper in self._helpers.values():
            helper.close()

    def _no_spy(self, target: Target, access: TargetAccess) -> str:
        # It would look for the interpreter's files by names, in another root, and report other numbers of threads.
        return access.no_spy if target.shares_files() else "py-spy reads no process with another root"

    def _recorded(self, pid: int) -> _Recorded | None:
        name = f"{pid}-"
        return next((file for path, file in self._files.items() if path.name.startswith(name)), None)

    def _add(self, target: Target, memory: int, access: TargetAccess) -> None:
        """Keep the file of a process, unless that says to be something else."""
        name = FILE_NAME.fullmatch(memory_files.name_of(memory).removeprefix(RECORDING_NAME))
        if name is None or int(name[1]) != target.own_pid:
            os.close(memory)
            return
        path = Path(f"process-{target.pid}", name[0])
        self._files[path] = _Recorded(target, memory, access, target.has_own_numbers)
