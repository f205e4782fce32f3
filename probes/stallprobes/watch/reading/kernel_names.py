"""Names of kernels as their source has them, by the demangler of the C++ library where there is one."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

from stallprobes.foreign_text import printable

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")
_MANGLED = re.compile(r"_Z[A-Za-z0-9_.$]{1,1000}")
_ANONYMOUS = "(anonymous namespace)"
# A function's own name: the last part before the parameters, once template arguments are left out.
_RETURN_TYPE = re.compile(r"^[\w:<>*&\s]+ (?=[\w:~]+$)")


@lru_cache(maxsize=4096)
def demangled(name: str) -> str:
    """``name`` as in the source: ``void add<float>(float*, int)``. Unchanged if it is not mangled or not valid."""
    demangle = _demangler()
    if demangle is None or not _MANGLED.fullmatch(name):
        return name
    return printable(demangle(name.encode()) or name)


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """A demangled ``name`` without return type, template arguments and parameters: ``at::native::reduce_kernel``."""
    text = name.replace(_ANONYMOUS, "{anonymous}")
    kept, depth = [], 0
    for letter in text:
        if letter in "<(":
            if letter == "(" and depth == 0:
                break
            depth += 1
        elif letter in ">)":
            depth = max(depth - 1, 0)
        elif depth == 0:
            kept.append(letter)
    found = _RETURN_TYPE.sub("", "".join(kept)).strip().replace("{anonymous}::", "")
    return found or name


@cache
def _demangler() -> Callable[[bytes], str | None] | None:
    for library in _LIBRARIES:
        try:
            function = ctypes.CDLL(library).__cxa_demangle
        except (OSError, AttributeError):
            continue
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        function.restype = ctypes.c_void_p
        return partial(_call_demangler, function)
    return None


def _call_demangler(function: Any, name: bytes) -> str | None:
    address = function(name, None, None, ctypes.byref(ctypes.c_int()))
    if not address:
        return None
    try:
        return ctypes.string_at(address).decode("utf-8", "replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(address))
