"""Atomic file writer: writes a file with a temporary name in the same folder, syncs it to disk, then renames it.

A process that is killed (SIGKILL) meanwhile leaves a hidden file ``.stallscope-….tmp``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from stallprobes.errors import FileNotWritten, reason_of
from stallprobes.files.ending_signals import unwound_by_signals

# Error numbers of link() on a file system without hard links. The new file is then renamed instead.
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

    It creates an empty file in the folder and removes it at once, since permissions alone do not say that this is
    possible.
    """
    _refuse(path, force=force)
    folder = _real(path).parent
    try:
        with _temporary(folder):
            pass
    except OSError as error:
        raise FileNotWritten(
            f"{path} cannot be written: no file can be created in {folder} ({error.strerror})"
        ) from error


def _refuse(path: Path, *, force: bool) -> None:
    """Raise FileNotWritten for a path that is no file, exists without ``force``, or is in no folder."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        _folder(path)
        return
    except (OSError, ValueError) as error:
        raise _sentence(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise FileNotWritten(f"{path} is a folder: name a file in it")
    # Replacing /dev/null, say, would break the machine.
    if not stat.S_ISREG(status.st_mode):
        raise FileNotWritten(f"{path} is not a regular file: name a regular file or a new one")
    if not force:
        raise FileNotWritten(f"{path} already exists: name another file, or overwrite it with --force")
    _folder(path)


def write(path: Path, chunks: Iterable[bytes], *, force: bool, mode: int | None = None, durable: bool = True) -> None:
    """Write ``chunks`` to the file ``path``, atomically: other programs see all of it or nothing.

    With ``force`` an existing file is replaced (for a symbolic link, its target). The permissions are ``mode``, or
    those of the user's umask. A file that is not ``durable`` is not synced to disk, which can take seconds. Raises
    FileNotWritten; no temporary file remains.
    """
    try:
        with unwound_by_signals(), created(path, force=force) as descriptor:
            if mode is not None:
                os.fchmod(descriptor, mode)
            with open(descriptor, "wb", closefd=False) as file:
                file.writelines(chunks)
            if durable:
                os.fsync(descriptor)
        if durable:
            _sync_folder(_real(path).parent)
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
    with contextlib.ExitStack() as stack:
        try:
            temporary, descriptor = stack.enter_context(_temporary(target.parent))
        except OSError as error:
            raise _sentence(path, error) from error
        yield descriptor
        try:
            _rename(temporary, target, force=force)
        except OSError as error:
            raise _sentence(path, error) from error


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[tuple[Path, int]]:
    """A new file of ``folder`` with a temporary name that is removed at the end, and its descriptor."""
    path, descriptor = folder / f".stallscope-{os.urandom(8).hex()}.tmp", -1
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        yield path, descriptor
    finally:
        # It may be there without a descriptor: a signal comes at any moment.
        with contextlib.suppress(OSError):
            path.unlink()
        if descriptor >= 0:
            os.close(descriptor)


def _rename(temporary: Path, target: Path, *, force: bool) -> None:
    """Give a file the name ``target``. Raises FileExistsError without ``force`` if another file has that."""
    if not force:
        # A link, unlike a rename, never replaces a file that was created in the meantime.
        try:
            os.link(temporary, target)
            return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        _refuse(target, force=False)
    os.replace(temporary, target)


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


def _sentence(path: Path, error: Exception) -> FileNotWritten:
    if isinstance(error, FileExistsError):
        return FileNotWritten(f"{path} already exists: name another file, or overwrite it with --force")
    return FileNotWritten(f"{path} cannot be written: {reason_of(error)}")
