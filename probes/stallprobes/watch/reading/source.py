"""Source of a reading: the files of watched processes, and what the system says of these processes.

The numbers of processes and threads are those that they know of themselves, as their files have them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from stallprobes.errors import WatchError
from stallprobes.foreign_text import printable
from stallprobes.watch.reading.folder import MOST_FILES, check_folder
from stallprobes.watch.reading.library_versions import names_of_folder
from stallprobes.watch.reading.map_reader import MapFile, watch_files
from stallprobes.watch.reading.process_rank import environment_of
from stallprobes.watch.reading.py_spy import PySpyRun, find_py_spy, started_here
from stallprobes.watch.reading.stack_reader import StackReader
from stallprobes.watch.reading.untrusted_parser import UntrustedParser

# Reason why there are no call stacks by py-spy.
NO_PY_SPY = "py-spy is not installed (pip install py-spy)"


class WatchSource(Protocol):
    """Files of watched processes, and access to these processes from outside."""

    def files(self) -> list[Path]:
        """The names of the files. Raises WatchError if they cannot be read, or are too many."""

    def open(self, path: Path) -> MapFile:
        """A file, open for reading. Raises IncompleteFile, and WatchError if it cannot be read."""

    def process(self, pid: int) -> Path | None:
        """The folder of a process in /proc; None if it is not known."""

    def thread(self, pid: int, thread: int) -> Path | None:
        """The folder of a thread in /proc; None if it is not known."""

    def environment(self, pid: int) -> Mapping[str, str]:
        """The environment with which the program of a process was started; empty where it cannot be read."""

    def names_in(self, pid: int, folder: str) -> Iterable[str]:
        """The names in a folder that has the name ``folder`` in a process; none where that may be another one here."""

    def stack_reader(self, path: Path) -> StackReader:
        """A reader of the call stacks in a file, which opens the files of its process's code."""

    @property
    def no_spy(self) -> str:
        """Why py-spy cannot be run on the processes, as a clause; "" if it can be."""

    def spy(self, pid: int) -> PySpyRun:
        """A run of py-spy on a process, which has begun; only where ``no_spy`` is ""."""


class FolderSource:
    """Source of a private folder, to which processes of this user write.

    ``py_spy`` is the program; None: the one that is installed, if any. ``parser`` reads the files of code; None: that
    of names.
    """

    def __init__(
        self,
        folder: Path,
        proc: Path = Path("/proc"),
        py_spy: Path | None = None,
        parser: UntrustedParser | None = None,
    ) -> None:
        self._folder, self._proc, self._parser = folder, proc, parser
        self._py_spy = py_spy or find_py_spy()

    def files(self) -> list[Path]:
        """The files of the folder. Raises WatchError if it is not private or has too many."""
        check_folder(self._folder)
        paths = list(watch_files(self._folder))
        if len(paths) > MOST_FILES:
            raise WatchError(f"{printable(str(self._folder))} has {len(paths)} files; at most {MOST_FILES} are read.")
        return paths

    def open(self, path: Path) -> MapFile:
        """A file of the folder. Raises IncompleteFile and WatchError."""
        return MapFile(path)

    def process(self, pid: int) -> Path | None:
        """The folder of the process with this number here."""
        return self._proc / str(pid)

    def thread(self, pid: int, thread: int) -> Path | None:
        """The folder of the thread with this number here."""
        return self._proc / str(pid) / "task" / str(thread)

    def environment(self, pid: int) -> Mapping[str, str]:
        """The environment of a process, empty where it cannot be read."""
        return environment_of(pid, self._proc)

    def names_in(self, pid: int, folder: str) -> Iterable[str]:
        """The names in a folder; none for a process that has another root."""
        with suppress(OSError):
            if os.path.samefile(self._proc / str(pid) / "root", "/"):
                return names_of_folder(folder)
        return ()

    def stack_reader(self, path: Path) -> StackReader:
        """A reader that opens files by their names here."""
        return StackReader(self._parser)

    @property
    def no_spy(self) -> str:
        """A clause where py-spy is not installed, else ""."""
        return "" if self._py_spy is not None else NO_PY_SPY

    def spy(self, pid: int) -> PySpyRun:
        """A run of py-spy on the process with this number here."""
        assert self._py_spy is not None, NO_PY_SPY
        return PySpyRun(started_here(self._py_spy, pid))
