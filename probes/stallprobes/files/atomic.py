"""Atomic file writer: writes a file without a name in the same folder, syncs it to disk, then links it to its name.

A process that is killed meanwhile leaves nothing of such a file. Only to replace another file it has a temporary name,
from the link to the rename, and from the start where the file system has no files without a name.
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
# Size (bytes) of one part of a copied file.
_PIECE = 1 << 20


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

    It creates an empty file in the folder, without a name or removed at once, since permissions alone do not say that
    this is possible.
    """
    _refuse(path, force=force)
    folder = _real(path).parent
    new = _NewFile(folder)
    try:
        new.create()
    except OSError as error:
        raise FileNotWritten(
            f"{path} cannot be written: no file can be created in {folder} ({error.strerror})"
        ) from error
    finally:
        new.discard()


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


def write(path: Path, chunks: Iterable[bytes], *, force: bool, mode: int | None = None) -> None:
    """Write ``chunks`` to the file ``path``, atomically: other programs see all of it or nothing.

    With ``force`` an existing file is replaced (for a symbolic link, its target). The permissions are ``mode``, or
    those of the user's umask. Raises FileNotWritten; no temporary file remains.
    """
    _refuse(path, force=force)
    target = _real(path) if force else path
    new = _NewFile(target.parent)
    try:
        with unwound_by_signals():
            try:
                new.create()
                new.fill(chunks, mode)
                new.put_whole(target, force=force)
            finally:
                new.discard()
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
    new = _NewFile(target.parent)
    try:
        try:
            new.create()
        except OSError as error:
            raise _sentence(path, error) from error
        yield new.descriptor
        try:
            new.put(target, force=force)
        except OSError as error:
            raise _sentence(path, error) from error
    finally:
        new.discard()


class _NewFile:
    """A file that is made in ``folder`` and gets its name when it is complete. The methods raise OSError.

    ``named``: it has a temporary name from the start.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f".stallscope-{os.urandom(8).hex()}.tmp"
        self.named = False
        self.descriptor = -1

    def create(self) -> None:
        """Create it, empty and open for writing."""
        unnamed = _unnamed(self._folder)
        self.named = unnamed is None
        self.descriptor = self._with_a_name() if unnamed is None else unnamed

    def _with_a_name(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def fill(self, chunks: Iterable[bytes], mode: int | None) -> None:
        """Write ``chunks``, and sync them to disk. The permissions are ``mode``, unless it is None."""
        with open(self.descriptor, "wb", closefd=False) as file:
            if mode is not None:
                os.fchmod(self.descriptor, mode)
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(self.descriptor)

    def put_whole(self, target: Path, *, force: bool) -> None:
        """As ``put``, for a file that nobody writes any more: where it cannot be linked, a copy of it gets the name."""
        try:
            self.put(target, force=force)
        except FileExistsError:
            raise
        except OSError:
            if self.named:
                raise
            self._copy()
            self.put(target, force=force)

    def _copy(self) -> None:
        """Continue with a copy that has a temporary name."""
        before = self.descriptor
        with open(_name_of(before), "rb") as source:
            self.named = True
            self.descriptor = self._with_a_name()
            os.close(before)
            os.fchmod(self.descriptor, stat.S_IMODE(os.fstat(source.fileno()).st_mode))
            self.fill(iter(lambda: source.read(_PIECE), b""), None)

    def put(self, target: Path, *, force: bool) -> None:
        """Give it the name ``target``. Raises FileExistsError without ``force`` if another file has that."""
        # A link, unlike a rename, never replaces a file that was created in the meantime.
        if not self.named:
            try:
                self._link(target)
                return
            except FileExistsError:
                if not force:
                    raise
            self._link(self._path)
        elif not force:
            try:
                os.link(self._path, target)
                return
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                _refuse(target, force=False)
        os.replace(self._path, target)

    def _link(self, path: Path) -> None:
        # Only with src_dir_fd Python calls linkat, which follows the link in /proc. The kernel ignores the descriptor,
        # since the name is absolute.
        os.link(_name_of(self.descriptor), path, src_dir_fd=self.descriptor, follow_symlinks=True)

    def discard(self) -> None:
        """Close it, and remove its temporary name, which a signal may have left at any moment."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _unnamed(folder: Path) -> int | None:
    """The descriptor of a new file without a name in ``folder``; None where there is no such file, or no /proc."""
    try:
        descriptor = os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, _creation_mode(folder))
    except (OSError, ValueError):
        return None
    if os.path.exists(_name_of(descriptor)):
        return descriptor
    os.close(descriptor)
    return None


def _creation_mode(folder: Path) -> int:
    """The permissions with which to create a file without a name in ``folder``.

    Before Linux 6.0 the umask does not apply to these files on a file system without access control lists. A default
    list of the folder replaces the umask. Raises ValueError where the umask is not known.
    """
    with contextlib.suppress(OSError):
        os.getxattr(folder, "system.posix_acl_default")
        return 0o666
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return 0o666 & ~int(line.split()[1], 8)
    raise ValueError("/proc/self/status has no umask")


def _name_of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


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
