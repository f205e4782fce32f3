"""Files of a process's code, opened by the names that they have in the process.

A name that a process controls may lead anywhere. It is resolved within the root of the process, through no link of
/proc, to a place only, and opened by that place once it is known to be a regular file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from contextlib import suppress

# Number of the system call openat2 (from Linux 5.6, the same on x86-64 and AArch64).
_OPENAT2 = 437
# Flags RESOLVE_NO_MAGICLINKS and RESOLVE_IN_ROOT of openat2.
_NO_MAGIC_LINKS, _IN_ROOT = 0x02, 0x10
# Flags with which a module's file is opened for reading.
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Largest number of characters of a module's path (PATH_MAX).
_MAX_PATH = 4096


def open_module(pid: int, path: str) -> int:
    """A descriptor of the regular file that has the name ``path`` in the process ``pid``. Raises OSError."""
    if not path.startswith("/") or len(path) > _MAX_PATH or "\0" in path:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    place = -1
    try:
        place = place_in_root(root, path)
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return os.open(f"/proc/self/fd/{place}", _READING)
    finally:
        for descriptor in (root, place):
            if descriptor >= 0:
                os.close(descriptor)


def place_in_root(root: int, path: str) -> int:
    """The place (O_PATH) of an absolute name within the folder ``root``. Raises OSError.

    Before Linux 5.6 no link is followed at all.
    """
    # struct open_how: flags, mode and resolve.
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, _NO_MAGIC_LINKS | _IN_ROOT)
    library = ctypes.CDLL(None, use_errno=True)
    place = library.syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(root), ctypes.c_char_p(os.fsencode(path)), ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )  # fmt: skip
    if place >= 0:
        return int(place)
    number = ctypes.get_errno()
    if number != errno.ENOSYS:
        raise OSError(number, os.strerror(number))
    return _step_by_step(root, path)


def _step_by_step(root: int, path: str) -> int:
    place = os.dup(root)
    for name in path.split("/"):
        if name in ("", "."):
            continue
        try:
            # A parent of the root is outside of it.
            if name == "..":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            following = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
        finally:
            with suppress(OSError):
                os.close(place)
        place = following
        if stat.S_ISLNK(os.fstat(place).st_mode):
            os.close(place)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return place
