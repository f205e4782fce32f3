"""Host memory of probes: words, C strings, pageable buffers, and the data of host functions.

The memory lives as long as its HostMemory. Addresses are integers, as op tables hold them.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

from stallprobes.model import Buffer, HostFunction, Text, Word

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
