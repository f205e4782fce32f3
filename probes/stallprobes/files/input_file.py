"""Files that the user names, opened for reading without waiting for anybody."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from stallprobes.errors import FileMissing, FileNotRead, FileReplaced, OversizedData, reason_of


def opened(path: Path | str) -> BinaryIO:
    """The regular file ``path``, open for reading.

    A pipe that is open already, as /dev/stdin or the shell's <(…), and /dev/null are opened too. Raises FileMissing
    where there is no file, and FileNotRead for anything else: the open of a named pipe would wait for a writer, that of
    a device may act on it, and its content may have no end.
    """
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            known = os.fstat(place)
            _require_file(path, place, known)
            # Another file may have got the name meanwhile.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        finally:
            os.close(place)
        if not os.path.samestat(known, os.fstat(descriptor)):
            os.close(descriptor)
            raise FileReplaced(f"{path} was replaced while it was opened: try again")
        os.set_blocking(descriptor, True)
        return open(descriptor, "rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileMissing(f"{path} cannot be read: {reason_of(error)}") from error
    except (OSError, ValueError) as error:
        raise FileNotRead(f"{path} cannot be read: {reason_of(error)}") from error


def read(path: Path | str, most: int) -> bytes:
    """The content of the file ``path``, at most ``most`` bytes. Raises FileMissing, FileNotRead and OversizedData."""
    with opened(path) as file:
        try:
            data = file.read(most + 1)
        except OSError as error:
            raise FileNotRead(f"{path} cannot be read: {reason_of(error)}") from error
    if len(data) > most:
        raise OversizedData(f"it has more than {most >> 10} KiB")
    return data


def _require_file(path: Path | str, descriptor: int, known: os.stat_result) -> None:
    if stat.S_ISDIR(known.st_mode):
        raise FileNotRead(f"{path} is a folder: name a file in it")
    if not (stat.S_ISREG(known.st_mode) or _is_open_pipe(descriptor, known) or _is_null_device(known)):
        raise FileNotRead(
            f"{path} is neither a regular file nor a pipe that is open already: name a file, or /dev/stdin with a pipe"
        )


def _is_null_device(known: os.stat_result) -> bool:
    """True if it is /dev/null, the usual name of a file without content."""
    return stat.S_ISCHR(known.st_mode) and known.st_rdev == os.makedev(1, 3)


def _is_open_pipe(descriptor: int, known: os.stat_result) -> bool:
    if not stat.S_ISFIFO(known.st_mode):
        return False
    with suppress(OSError):
        # A pipe without a name in a folder: a process has made it, with both ends.
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:"):
            return True
    with suppress(OSError):
        return os.path.samestat(known, os.fstat(0))
    return False
