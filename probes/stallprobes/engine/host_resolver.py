"""Resolver of libc and native functions and of host memory, for every backend that executes real calls."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache

from stallprobes.engine.host_memory import HostMemory
from stallprobes.errors import Unsupported
from stallprobes.model import Arg, Buffer, HostFunction, KernelArgs, Op, Resource, Space, Text, Word
from stallprobes.native.library import core


@cache
def libc_address(name: str) -> int:
    """The address of a function of the C library. Raises KeyError for an unknown name."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        raise KeyError(name) from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class HostResolver:
    """Resolver of libc and native functions and of host memory.

    The CUDA resolver uses it for everything that is not CUDA's.
    """

    def __init__(self, memory: HostMemory, watchdog_ns: int | None = None) -> None:
        """``watchdog_ns``: timeout in ns of every host function that waits, in place of its own; None keeps that."""
        self.memory = memory
        self._watchdog_ns = watchdog_ns

    def function(self, fn: str) -> int:
        """The address of ``libc:NAME`` or ``native:NAME``. Raises Unsupported for any other name."""
        kind, _, name = fn.partition(":")
        try:
            if kind == "libc" and name:
                return libc_address(name)
            if kind == "native" and name:
                return core().helper(name)
        except KeyError:
            raise Unsupported(f"this machine has no {fn}") from None
        raise Unsupported(f"{fn} needs a GPU")

    def value(self, resource: Resource | KernelArgs) -> int:
        """The address of a word, text, pageable buffer or host function's data. Raises Unsupported for the rest."""
        match resource:
            case Word():
                return self.word(resource)
            case Text():
                return self.memory.text(resource)
            case Buffer(space=Space.PAGEABLE):
                return self._pageable(resource)
            case HostFunction(_, word, forced, timeout_ns):
                watchdog_ns = self._watchdog_ns if resource.open_value is not None else None
                limit_ns = timeout_ns if watchdog_ns is None else watchdog_ns
                return self.memory.host_function(resource, self.word(word), self.word(forced), limit_ns)
            case _:
                raise Unsupported(f"a {type(resource).__name__.lower()} needs a GPU")

    def word(self, word: Word) -> int:
        """The address of ``word``. Raises Unsupported for a mapped word, which only a GPU needs."""
        if word.mapped:
            raise Unsupported("a word that a kernel writes needs a GPU")
        return self.memory.word(word)

    def lower(self, op: Op) -> Sequence[Arg] | None:
        """None: host ops have the arguments of their functions."""
        return None

    def _pageable(self, buffer: Buffer) -> int:
        try:
            return self.memory.pageable(buffer)
        except (OSError, MemoryError) as error:
            raise Unsupported(
                f"{buffer.nbytes} bytes of memory for {buffer.name} cannot be allocated: {error}"
            ) from error


def error_text(op: Op, code: int) -> str:
    """The meaning of an unexpected code of a libc or native op: strerror's text for an errno value."""
    if op.fn in ("native:wait", "native:lock"):
        return "timed out"
    if op.fn.startswith("libc:") and code > 0:
        return os.strerror(code)
    return "0 was expected"
