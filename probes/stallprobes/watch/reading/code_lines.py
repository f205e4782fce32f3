"""Source lines of a program's code by address, with the functions that the compiler has inlined there.

They are read by symbolic from the debugging information (DWARF 2 to 5) that compilers write with -g. The file may be
damaged, or made by a hostile program: only the process that parses files loads symbolic.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import re
from collections import OrderedDict
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from stallprobes.foreign_text import printable

# Longest name (bytes) of a function or of a source file.
LONGEST_SYMBOL = 4096
# Largest number of source lines that are kept for a code address: one line for each function that is inlined there, and
# one for the outermost function. Lines of outer functions beyond the limit are left out, except the outermost line.
MAX_INLINED = 64
# Number of files whose lines stay in memory: those that were asked for last.
_KEPT_FILES = 2
# Pattern of the paths of source files of the system, the compiler, CUDA, Eigen, Rust's library and Rust's packages.
# Lines of these files do not count as lines of the program, even if the compiler inlines them.
LIBRARY_SOURCE = re.compile(
    r"^/usr/(?:include|lib|local/cuda)|/include/c\+\+/|/targets/[^/]+/include/|/site-packages/|/Eigen/src/|^/rustc/"
    r"|/\.cargo/registry/"
)


class CodeLine(NamedTuple):
    """A line of a source file, in a function. ``function`` is its mangled name, "" if that is not known."""

    function: str
    file: str
    line: int


_Identity = tuple[int, int, int, int]
# The tables of lines by the file's identity; None for a file without lines.
_tables: OrderedDict[_Identity, Any] = OrderedDict()


@cache
def load_symbolic() -> Any:
    """The modules of symbolic that read files; None where it is not installed."""
    try:
        return importlib.import_module("symbolic.debuginfo"), importlib.import_module("symbolic._lowlevel")
    except ImportError:
        return None


def inlined_lines(descriptor: int, base: int, addresses: Iterable[int]) -> dict[int, tuple[CodeLine, ...]]:
    """The lines at each of ``addresses`` of an open file: the innermost inlined function's first.

    ``base`` is the address of the file's first segment. Empty for a file without lines, or without symbolic.
    """
    table = _table(descriptor)
    if table is None:
        return {}
    lines = {}
    for address in addresses:
        found = () if address < base else tuple(map(_line, table.lookup(address - base)))
        if found and all(line.line for line in found):
            lines[address] = found if len(found) <= MAX_INLINED else (*found[: MAX_INLINED - 1], found[-1])
    return lines


def _table(descriptor: int) -> Any:
    """The table of lines of an open file; None if it has none."""
    status = os.fstat(descriptor)
    identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if identity not in _tables:
        _tables[identity] = _read(descriptor)
        while len(_tables) > _KEPT_FILES:
            _tables.popitem(last=False)
    _tables.move_to_end(identity)
    return _tables[identity]


def _read(descriptor: int) -> Any:
    modules = load_symbolic()
    if modules is None:
        return None
    debuginfo, lowlevel = modules
    # Whatever symbolic raises, for instance for a damaged file, the file has no lines.
    with contextlib.suppress(Exception), mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as content:
        view = lowlevel.ffi.from_buffer("uint8_t[]", content)
        try:
            return next(debuginfo.Archive.from_bytes(view).iter_objects()).make_symcache()
        finally:
            lowlevel.ffi.release(view)
    return None


def _line(location: Any) -> CodeLine:
    names = (location.symbol or "", location.full_path or "")
    function, file = (printable(name) if len(name.encode()) <= LONGEST_SYMBOL else "" for name in names)
    return CodeLine(function, file, location.line if file and 0 < location.line < 1 << 31 else 0)
