"""Files of a watched program's code: opened without harm, and asked what is at their addresses."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection

from stallprobes.watch.reading.elf_symbols import CodePlaces
from stallprobes.watch.reading.kernel_names import present_parser
from stallprobes.watch.reading.untrusted_parser import UntrustedParser

# The descriptor of a file by its path; None where it cannot be opened.
Opener = Callable[[str], "int | None"]
# Result for a file that cannot be read: no places in the code.
_NO_CODE = CodePlaces({}, {})


def open_regular(path: str) -> int | None:
    """The descriptor of a regular file, open for reading; None for anything else.

    A device is not opened, since that alone may have an effect, and a pipe may hold up who opens it.
    """
    try:
        # Names the file without opening it.
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return None
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    finally:
        os.close(place)


class CodeFiles:
    """Reads what is at the addresses of files. ``skipped`` are the paths of those that exceeded the limits."""

    def __init__(self, parser: UntrustedParser | None = None, opener: Opener = open_regular) -> None:
        """``parser`` reads the files; None: that of names. ``opener`` opens them."""
        self._parser, self._opener = parser, opener
        self.skipped: set[str] = set()

    def code(self, path: str, build_id: bytes, addresses: Collection[int]) -> CodePlaces:
        """The code at ``addresses`` of a file as it is linked; without any where it cannot be read."""
        if path in self.skipped or not path.startswith("/"):
            return _NO_CODE
        descriptor = self._opener(path)
        if descriptor is None:
            return _NO_CODE
        try:
            code = (self._parser or present_parser()).code(descriptor, build_id, addresses)
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        if code is None:
            # It takes as long the next time.
            self.skipped.add(path)
            return _NO_CODE
        return code
