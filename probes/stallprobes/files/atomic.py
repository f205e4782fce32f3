"""Atomic file writer: writes a temporary file in the same folder, syncs it to disk, then links or renames it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from stallprobes.errors import FileNotWritten
from stallprobes.files.ending_signals import unwound_by_signals

# Errors of file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def named_file(name: str) -> Path:
    """The path of the file ``name``. Raises FileNotWritten for an empty name, and for that of a folder (``name/``)."""
    if not name:
        raise FileNotWritten("the name of the file is empty: name a file")
    # A path drops the slash, and a file would be written that was not meant.
    if not os.path.basename(name):
        raise FileNotWritten(f"{name} is a folder: name a file in it")
    return Path(name)


def ready(path: Path, *, force: bool) -> None:
    """Raise FileNotWritten if ``write`` would refuse ``path`` now. To be called before work that takes long.

    It creates and removes an empty file in the folder, since permissions alone do not say that this is possible.
    """
    _refuse(path, force=force)
    beside = _beside(_real(path).parent)
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FileNotWritten(
            f"{path} cannot be written: no file can be created in {beside.parent} ({error.strerror})"
        ) from error
    try:
        os.close(handle)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def _refuse(path: Path, *, force: bool) -> None:
    """Raise FileNotWritten for what is no file, exists without ``force``, or is in no folder."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        _folder(path)
        return
    except (OSError, ValueError) as error:
        raise _sentence(path, error) from error
    if stat.S_ISDIR(found.st_mode):
        raise FileNotWritten(f"{path} is a folder: name a file in it")
    # Replacing /dev/null, say, would break the machine.
    if not stat.S_ISREG(found.st_mode):
        raise FileNotWritten(f"{path} is not a regular file: name a regular file or a new one")
    if not force:
        raise FileNotWritten(f"{path} already exists: name another file, or overwrite it with --force")
    _folder(path)


def write(path: Path, chunks: Iterable[bytes], *, force: bool, mode: int | None = None) -> None:
    """Write ``chunks`` to the file ``path``, atomically: other programs see all of it or nothing.

    With ``force`` an existing file is replaced (for a symbolic link, its target). The permissions are ``mode``, or
    those of the user's umask. Raises FileNotWritten; no temporary file remains.
    """
    _refuse(path, force=force)
    target = _real(path) if force else path
    beside = _beside(target.parent)
    try:
        with unwound_by_signals():
            try:
                _fill(beside, chunks, mode)
                _put(beside, target, force)
            except BaseException:
                with contextlib.suppress(OSError):
                    beside.unlink()
                raise
        _sync_folder(target.parent)
    except OSError as error:
        raise _sentence(path, error) from error


@contextlib.contextmanager
def created(path: Path, *, force: bool) -> Iterator[int]:
    """The descriptor of a new, empty file, which gets its name ``path`` at the end of the block.

    If the block raises, nothing has changed. With ``force`` an existing file is replaced (for a symbolic link, its
    target). Raises FileNotWritten.
    """
    _refuse(path, force=force)
    target = _real(path) if force else path
    beside = _beside(target.parent)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _sentence(path, error) from error
    try:
        yield descriptor
        try:
            os.replace(beside, target)
        except OSError as error:
            raise _sentence(path, error) from error
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    finally:
        os.close(descriptor)


def _fill(beside: Path, chunks: Iterable[bytes], mode: int | None) -> None:
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _put(beside: Path, target: Path, force: bool) -> None:
    if not force:
        # A link, unlike a rename, never replaces a file that was created in the meantime.
        try:
            os.link(beside, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _refuse(target, force=False)
        else:
            beside.unlink()
            return
    os.replace(beside, target)


def _sync_folder(folder: Path) -> None:
    # Some file systems cannot sync a folder; the file itself is already on disk.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _folder(path: Path) -> None:
    folder = _real(path).parent
    if not folder.is_dir():
        raise FileNotWritten(f"{path} cannot be written: the folder {folder} does not exist")


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError as error:
        raise FileNotWritten(f"{path} cannot be written: the current folder does not exist any more") from error


def _beside(folder: Path) -> Path:
    return folder / f".stallscope-{os.urandom(8).hex()}.tmp"


def _sentence(path: Path, error: Exception) -> FileNotWritten:
    if isinstance(error, FileExistsError):
        return FileNotWritten(f"{path} already exists: name another file, or overwrite it with --force")
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return FileNotWritten(f"{path} cannot be written: {why}")
