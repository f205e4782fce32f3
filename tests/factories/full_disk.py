"""A disk without room: no file of this process grows beyond a size."""

from __future__ import annotations

import resource
import sys
from types import TracebackType


class FullDisk:
    """Context manager; from ``fill`` until its end, the system refuses to write beyond ``size`` bytes of any file."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._bytecode = sys.dont_write_bytecode

    def __enter__(self) -> FullDisk:
        # A module that is imported meanwhile would be written in part.
        sys.dont_write_bytecode = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)
        sys.dont_write_bytecode = self._bytecode

    def fill(self) -> None:
        """Use up the room."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._before[1]))
