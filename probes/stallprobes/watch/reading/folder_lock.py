"""Lock on the private folder of a watched program, and removal of folders whose stallscope was killed.

Who uses a folder holds a shared lock on a file in it, which the kernel releases when the process ends in any way.
Folders without that file, such as those for programs that are started elsewhere, are never removed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from stallprobes.native.layouts.watch_file import LOCK_FILE
from stallprobes.watch.reading.folder import PREFIX, memory_folders
from stallprobes.watch.reading.map_reader import FILE_NAME

# Suffix of the lock file's name until stallscope has locked the file. Then the file is renamed. Thus other processes
# never find a lock file without a lock.
_NEW = ".new"
# Flags for opening a private folder: symbolic links are refused.
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Flags for opening the files of a private folder: symbolic links are refused, and opening a pipe does not wait.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderLock:
    """The shared lock of this process on a folder."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def create(cls, folder: Path) -> FolderLock:
        """The lock on a new folder, which makes it one that may be removed after this process."""
        new, descriptor = folder / f"{LOCK_FILE}{_NEW}", None
        try:
            descriptor = os.open(new, _FILE_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # It has its name once it is locked: no other process finds it without a lock before.
            os.rename(new, folder / LOCK_FILE)
        except OSError:
            # On a file system without locks the folder is as one without the file.
            if descriptor is not None:
                os.close(descriptor)
            new.unlink(missing_ok=True)
            return cls(None)
        return cls(descriptor)

    @classmethod
    def join(cls, folder: Path) -> FolderLock:
        """The lock on a folder of another process."""
        descriptor = None
        try:
            descriptor = os.open(folder / LOCK_FILE, _FILE_FLAGS)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except OSError:
            if descriptor is not None:
                os.close(descriptor)
            return cls(None)
        return cls(descriptor)

    def release(self) -> None:
        """Release it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def places() -> tuple[Path, ...]:
    """The folders in which private folders are made."""
    folders = list(memory_folders())
    # Without a folder for temporary files, none was made there.
    with suppress(FileNotFoundError):
        folders.append(Path(tempfile.gettempdir()))
    return tuple(dict.fromkeys(folders))


def remove_abandoned(parents: Iterable[Path]) -> int:
    """Remove the folders in ``parents`` that no stallscope and no watched process uses any more; their count.

    Only private folders of this user, with the names and the files that stallscope makes; no link is followed.
    """
    return sum(_removed(parent, name) for parent in parents for name in _names(parent))


def _names(parent: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(parent) if name.startswith(PREFIX))
    except OSError:
        return []


def _removed(parent: Path, name: str) -> bool:
    try:
        folder = os.open(parent / name, _FOLDER_FLAGS)
    except OSError:
        return False
    try:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return False
        lock = os.open(LOCK_FILE, _FILE_FLAGS, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(lock).st_mode):
                return False
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            files = os.listdir(folder)
            recorded = [file for file in files if FILE_NAME.fullmatch(file)]
            if len(files) != len(recorded) + 1 or any(_is_open(folder, file) for file in recorded):
                return False
            for file in (*recorded, LOCK_FILE):
                os.unlink(file, dir_fd=folder)
            os.rmdir(parent / name)
        finally:
            os.close(lock)
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _is_open(folder: int, name: str) -> bool:
    """True if any process has a file of ``folder`` open or in its memory, or may have."""
    file = os.open(name, _FILE_FLAGS, dir_fd=folder)
    try:
        # An exclusive lease is refused while another process, of whatever container, has the file. Who opens it during
        # the lease causes a signal, which by default would end this process, except this one.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
