"""Resolver of libc and native functions, and the host memory of probes, for every backend that executes real calls.

The memory (words, C strings, pageable buffers, and the data of host functions) lives as long as its HostMemory.
Addresses are integers, as op tables hold them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stallprobes.errors import Unsupported, reason_of
from stallprobes.model import Arg, Buffer, HostFunction, KernelArgs, Op, Resource, Space, Text, Word
from stallprobes.native.library import core

# Size (bytes) of a cache line, to which blocks of memory are aligned.
CACHE_LINE = 64


class HostMemory:
    """The host memory of one probe; shared resources come from ``shared``, the memory of the session."""

    def __init__(self, shared: HostMemory | None = None) -> None:
        self._shared = shared
        self._words: dict[Word, int] = {}
        self._lines: list[NDArray[np.int64]] = []
        self._texts: dict[Text, ctypes.Array[ctypes.c_char]] = {}
        self._maps: dict[Buffer, tuple[mmap.mmap, int]] = {}
        self._functions: dict[HostFunction, tuple[int, int]] = {}

    def word(self, word: Word) -> int:
        """The address of ``word``, initially 0. Each word has a cache line of its own, against false sharing."""
        if word.shared and self._shared is not None:
            return self._shared.word(word)
        if word not in self._words:
            self._words[word] = self._line()
        return self._words[word]

    def text(self, text: Text) -> int:
        """The address of the NUL-terminated string."""
        if text not in self._texts:
            self._texts[text] = ctypes.create_string_buffer(text.value.encode())
        return ctypes.addressof(self._texts[text])

    def pageable(self, buffer: Buffer) -> int:
        """The address of a pageable buffer, written once so that all of its pages exist.

        Raises MemoryError or OSError if the memory cannot be allocated.
        """
        if buffer.shared and self._shared is not None:
            return self._shared.pageable(buffer)
        if buffer not in self._maps:
            mapped = mmap.mmap(-1, max(buffer.nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
            ctypes.memset(address, 1, buffer.nbytes)
            self._maps[buffer] = mapped, address
        return self._maps[buffer][1]

    def host_function(self, function: HostFunction, word: int, forced: int, timeout_ns: int) -> int:
        """The address of the argument of a host function: the addresses of its two words and its timeout in ns."""
        if function not in self._functions:
            line = self._line()
            for number, value in enumerate((word, forced, timeout_ns)):
                write(line + 8 * number, value)
            self._functions[function] = line, word
        return self._functions[function][0]

    def open_gates(self) -> None:
        """End the waits of all host functions of this memory for good."""
        for function, (_, word) in self._functions.items():
            if function.open_value is not None:
                write(word, function.open_value)

    def _line(self) -> int:
        """The address of a new cache line of zeros."""
        block = np.zeros(2 * CACHE_LINE // 8, dtype=np.int64)
        self._lines.append(block)
        start = int(block.ctypes.data)
        return start + -start % CACHE_LINE


def read(address: int) -> int:
    """The signed 64-bit word at ``address``."""
    return ctypes.c_int64.from_address(address).value


def write(address: int, value: int) -> None:
    """Store ``value`` as the signed 64-bit word at ``address``."""
    ctypes.c_int64.from_address(address).value = value


@cache
def libc_address(name: str) -> int:
    """The address of a function of the C library. Raises KeyError for an unknown name."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        raise KeyError(name) from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class HostResolver:
    """Maps the functions and resources of one probe's program to addresses: libc and native functions, host memory.

    A subclass adds the functions and resources of CUDA.
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
        """The arguments of the C function, for an op whose arguments differ from it (such as cuLaunchKernel).

        None: the op's arguments are the function's. The result may contain resources and Loads.
        """
        return None

    def _pageable(self, buffer: Buffer) -> int:
        try:
            return self.memory.pageable(buffer)
        except (OSError, MemoryError) as error:
            raise Unsupported(
                f"{buffer.nbytes} bytes of memory for {buffer.name} cannot be allocated: {reason_of(error)}"
            ) from error


def error_text(op: Op, code: int) -> str:
    """The meaning of an unexpected code of a libc or native op: strerror's text for an errno value."""
    if op.fn in ("native:wait", "native:lock"):
        return "timed out"
    if op.fn.startswith("libc:") and code > 0:
        return os.strerror(code)
    return "0 was expected"
