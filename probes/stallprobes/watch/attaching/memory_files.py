"""Memory files (memfd) of another process: the ones that the injected library makes, taken and checked.

The process chooses what is at a number among its descriptors, and may change it at any time. A descriptor is therefore
opened once, as a place only (O_PATH, which opens neither a device nor a pipe and waits for nothing), checked, and
opened for reading or writing by that place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

from stallprobes.watch.attaching.target import Target

# Largest number of descriptors of a process that is searched: the highest limit that Linux allows a process by default
# (fs.nr_open).
MAX_DESCRIPTORS = 1 << 20
# Beginning of a link in /proc/PID/fd to a memfd, before its name.
_PREFIX = "/memfd:"


def numbers_of(target: Target, name: str) -> Iterator[tuple[int, str]]:
    """The descriptors of a process that are memfds whose names begin with ``name``: numbers and names.

    Raises OSError where the descriptors of the process cannot be listed.
    """
    with os.scandir(target.folder / "fd") as entries:
        for count, entry in enumerate(entries):
            if count == MAX_DESCRIPTORS:
                return
            with suppress(OSError):
                link = os.readlink(entry.path)
                if link.startswith(f"{_PREFIX}{name}"):
                    yield int(entry.name), link.removeprefix(_PREFIX).removesuffix(" (deleted)")


def name_of(memory: int) -> str:
    """The name of a memfd, by a descriptor of this process. Raises OSError."""
    return os.readlink(f"/proc/self/fd/{memory}").removeprefix(_PREFIX).removesuffix(" (deleted)")


def take(target: Target, number: int, flags: int) -> int:
    """A descriptor of this process for the memfd at ``number`` among those of another process.

    ``flags`` are O_RDONLY, O_WRONLY or O_RDWR. Raises OSError where there is none, or something else than a memfd of
    the process's user.
    """
    place = os.open(target.folder / "fd" / str(number), os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(place)
        is_memory = stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == _memory_device()
        if not is_memory or status.st_uid != target.owner()[0]:
            raise OSError(errno.EBADF, "it is no memory of the process")
        return os.open(f"/proc/self/fd/{place}", flags | os.O_CLOEXEC)
    finally:
        os.close(place)


def seals(descriptor: int) -> int:
    """The seals (fcntl.F_SEAL_*) of a memfd, none for a file that cannot have any."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        return 0


@cache
def _memory_device() -> int:
    """The device number of all memfds; hugetlbfs, whose files are no such, has another one."""
    descriptor = os.memfd_create("stallscope-device")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
