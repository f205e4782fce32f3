"""Shortage of memory, threads or file descriptors: the remaining amounts, and the errors that a shortage explains.

A library that runs out of memory while it is loaded may end the process with a text and an exit code of its own, as
OpenBLAS does; a screen may end in the middle of a change of the terminal. The needed amount is therefore checked
before.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

_MIB = 1 << 20
# Parts of the error messages of dlopen that count as a lack of memory. The first part also occurs if the library is on
# a file system mounted noexec. Reason for the use of messages: dlopen gives no error number.
_UNMAPPED = ("failed to map segment", "cannot allocate memory", "cannot create shared object descriptor")
# Text of Python's error where no thread can be started.
_NO_THREAD = "can't start new thread"


def memory_shortage(needed_bytes: int) -> str | None:
    """Why ``needed_bytes`` of address space are not left for this process, as a clause; None if they are."""
    import mmap

    # A private mapping that cannot be written takes address space only.
    with contextlib.suppress(OSError, MemoryError):
        mmap.mmap(-1, needed_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ).close()
        return None
    return f"{_little_memory()}: {needed_bytes // _MIB} MiB more are needed"


def descriptor_shortage(needed: int) -> str | None:
    """Why ``needed`` further files cannot be opened, as a clause; None if they can."""
    opened: list[int] = []
    short = False
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(needed))
    except OSError as error:
        short = error.errno in (errno.EMFILE, errno.ENFILE)
    finally:
        for fd in opened:
            os.close(fd)
    return f"{_few_files()}: {needed} more are needed" if short else None


def shortage(error: BaseException) -> str | None:
    """The shortage that caused ``error``, as a clause; None if another reason did."""
    for cause in _causes(error):
        number = cause.errno if isinstance(cause, OSError) else None
        text = str(cause).lower() if isinstance(cause, ImportError | OSError) else ""
        if isinstance(cause, MemoryError) or number == errno.ENOMEM or any(words in text for words in _UNMAPPED):
            return f"{_little_memory()}: {_remedy()}"
        if number in (errno.EMFILE, errno.ENFILE):
            return f"{_few_files()}: raise the limit"
        if isinstance(cause, RuntimeError) and _NO_THREAD in str(cause):
            return f"no thread can be started: {_little_memory()}, or too many processes (ulimit -u)"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """``error`` and its causes and contexts, each once. Textual keeps the error of a worker in ``error``."""
    left: list[object] = [error]
    seen: set[int] = set()
    while left:
        cause = left.pop()
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            left += [getattr(cause, "error", None), cause.__context__, cause.__cause__]


def _little_memory() -> str:
    limit = _memory_limit()
    detail = "" if limit is None else f" (limit of the address space, ulimit -v: {limit // _MIB} MiB)"
    return f"too little memory{detail}"


def _remedy() -> str:
    return "end other programs, or use a machine with more" if _memory_limit() is None else "raise the limit"


def _memory_limit() -> int | None:
    """Limit of the address space (bytes), None without one."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _few_files() -> str:
    import resource

    return f"too few file descriptors (limit, ulimit -n: {resource.getrlimit(resource.RLIMIT_NOFILE)[0]})"
