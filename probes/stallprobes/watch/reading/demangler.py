"""Demangler of the C++ library, for a process with limits: a short mangled name may stand for one of gigabytes.

Each substitution in a mangled name may double the name, so that its length does not limit the memory and the time that
the C++ library takes for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from stallprobes.foreign_text import printable
from stallprobes.watch.reading.parser_messages import LimitExceeded

# Longest demangled name (bytes) of a function: names of templates in CUTLASS have some thousand bytes.
LONGEST_DEMANGLED = 1 << 14
# Libraries with __cxa_demangle, the most frequent one first.
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")
# Result code of __cxa_demangle for a name that is not mangled.
_INVALID_NAME = -2


def demangled_within_limits(name: str) -> str:
    """``name`` as in the source; unchanged if it is not valid, or there is no C++ library. Raises LimitExceeded."""
    demangle = demangler()
    text = None if demangle is None else demangle(name.encode())
    return name if text is None else printable(text.decode("utf-8", "replace"))


@cache
def demangler() -> Callable[[bytes], bytes | None] | None:
    """The demangler, which returns None for a name that is not valid; None without a C++ library."""
    for library in _LIBRARIES:
        try:
            function = ctypes.CDLL(library).__cxa_demangle
            free, strnlen = ctypes.CDLL(None).free, ctypes.CDLL(None).strnlen
        except (OSError, AttributeError):
            continue
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        function.restype = ctypes.c_void_p
        free.argtypes, free.restype = [ctypes.c_void_p], None
        strnlen.argtypes, strnlen.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_size_t
        return partial(_demangle, function, free, strnlen)
    return None


def _demangle(function: Any, free: Any, strnlen: Any, name: bytes) -> bytes | None:
    status = ctypes.c_int()
    address = function(name, None, None, ctypes.byref(status))
    if not address:
        if status.value == _INVALID_NAME:
            return None
        raise LimitExceeded
    try:
        length = strnlen(address, LONGEST_DEMANGLED + 1)
        if length > LONGEST_DEMANGLED:
            raise LimitExceeded
        return ctypes.string_at(address, length)
    finally:
        free(address)
