"""Image of a process: the memory of the program that it executes, opened once.

The descriptors belong to that program: where the process executes another one, the memory reads as empty, and where it
ends and its number is used again, the descriptor of the process is still that of the one that has ended.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from types import TracebackType
from typing import Self

# Largest address in a process that is read. Reason: an address is the offset in /proc/PID/mem, which is a signed 64-bit
# number.
_MAX_ADDRESS = (1 << 63) - 1


class ProcessImage:
    """The memory of a process, and the process itself as a descriptor. A context manager.

    ``memory`` is opened for reading and writing; ``descriptor`` is -1 before Linux 5.3.
    """

    def __init__(self, memory: int, descriptor: int) -> None:
        """Both descriptors pass to this object."""
        self.memory, self.descriptor = memory, descriptor

    @classmethod
    def of(cls, pid: int) -> Self:
        """The image of the process ``pid``. Raises OSError where it is not there, or this process may not trace it."""
        descriptor = -1
        with suppress(OSError, AttributeError):
            descriptor = os.pidfd_open(pid)
        try:
            memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
            # Opened in between, the memory may be that of the next process with this number.
            if descriptor >= 0:
                signal.pidfd_send_signal(descriptor, 0)
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            raise
        return cls(memory, descriptor)

    def read(self, address: int, size: int) -> bytes:
        """At most ``size`` bytes from an address on. Raises OSError where there is no memory, or another program."""
        if not 0 <= address <= _MAX_ADDRESS - size or size < 0:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        content = os.pread(self.memory, size, address)
        if size and not content:
            raise OSError(errno.ESRCH, "it has executed another program")
        return content

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close both descriptors."""
        for descriptor in (self.memory, self.descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self.memory = self.descriptor = -1
