"""The private folder in which the watched processes write one file each."""

from __future__ import annotations

import os
import stat
import tempfile
from enum import StrEnum
from pathlib import Path

from stallprobes.errors import WatchError
from stallprobes.foreign_text import printable
from stallprobes.machine.processes import MOST_BYTES_OF_MAPS
from stallprobes.native.layouts.attaching import RECORDING_NAME
from stallprobes.watch.reading.proc_files import content, stat_fields
from stallprobes.watch.reading.process import WatchedProcess

# Largest number of process files that are read, of a folder or of attached processes. No program starts as many
# processes.
MOST_FILES = 4096
# Beginning of the names of private folders.
PREFIX = "stallscope-watch-"
# Smallest free space (bytes) of an in-memory file system at which private folders are made there. Reason: other
# programs use the file system too.
_ROOM_BYTES = 1 << 30


class ProcessLife(StrEnum):
    """Life of a watched process.

    ``ended``: by exit, or the reader no longer finds the process. ``replaced``: it executed another program.
    """

    RUNNING = "running"
    ENDED = "ended"
    REPLACED = "replaced"


def create_folder(parent: Path | None = None) -> Path:
    """A new private folder, in ``parent`` or in memory where there is room.

    On a disk, a watched program would sometimes wait for the disk: nobody can write to a page of a mapped file while it
    is written back. Raises WatchError.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent or _in_memory())).resolve()
    except OSError as error:
        raise WatchError(f"no private folder can be made: {error.strerror}; set TMPDIR.") from error


def memory_folders() -> tuple[Path, ...]:
    """Folders of file systems in memory in which private folders are made, in the order in which they are tried."""
    names = (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")
    return tuple(Path(name) for name in names if os.path.isabs(name) and os.access(name, os.W_OK | os.X_OK))


def _in_memory() -> Path | None:
    """A folder of a file system in memory with much room; None if there is none."""
    for folder in memory_folders():
        status = os.statvfs(folder)
        if status.f_bavail * status.f_frsize >= _ROOM_BYTES:
            return folder
    return None


def check_folder(folder: Path) -> None:
    """Raises WatchError unless ``folder`` is a directory of this process's user that nobody else can use."""
    shown = printable(str(folder))
    try:
        status = folder.lstat()
    except OSError as error:
        raise WatchError(f"{shown} cannot be read: {error.strerror}.") from error
    if not stat.S_ISDIR(status.st_mode):
        raise WatchError(f"{shown} is not a folder.")
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise WatchError(f"{shown} can be used by others: name a folder that `stallscope watch --print-env` made.")


def life_of(process: WatchedProcess, folder: Path | None = None) -> ProcessLife:
    """Life of ``process``: whether it runs, and still executes the watched program.

    ``folder`` is its folder in /proc, None for the folder of the number that it knows of itself.
    """
    folder = folder or Path("/proc") / str(process.pid)
    fields = stat_fields(folder)
    # Its first thread may end, or be replaced by one that executes another program, while others run.
    has_ended = len(fields) < 20 or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1)
    if has_ended or int(fields[19]) != process.start_ticks:
        return ProcessLife.ENDED
    maps = content(folder / "maps", MOST_BYTES_OF_MAPS)
    if not maps or len(maps) == MOST_BYTES_OF_MAPS:
        return ProcessLife.RUNNING
    name = f"{process.pid}-{process.image}.watch"
    mapped = any(f"{before}{name}".encode() in maps for before in ("/", f"/memfd:{RECORDING_NAME}"))
    return ProcessLife.RUNNING if mapped else ProcessLife.REPLACED
