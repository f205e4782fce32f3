"""Python's garbage collector in another process, as its memory shows it.

The main interpreter's state lies within ``_PyRuntime``, and its collector (``struct _gc_runtime_state``) within that.
From CPython 3.13 on, the table of offsets for debuggers (``_Py_DebugOffsets``) at the begin of ``_PyRuntime`` says
where. In 3.11 and 3.12 the collector is known by a pointer to its own first generation behind the three generations; a
flag behind its statistics is set while it collects.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Largest size (bytes) of _PyRuntime (CPython's global state) that is read. Its size in CPython 3.11 to 3.15 is 0.2 to
# 0.7 MB.
_MOST_BYTES = 1 << 22
# Sizes (bytes) in the collector's structure (_gc_runtime_state). _POINTER: size of a pointer. _GENERATIONS: size of the
# three generations together. _TO_FLAG: distance from the field ``generation0`` to the field ``collecting``, which is
# set during a collection.
_POINTER, _GENERATIONS, _TO_FLAG = 8, 72, 104
# Offsets (bytes) of the thresholds (int32) of the three generations from the begin of the first generation.
_THRESHOLDS = (16, 40, 64)
# Largest number (objects) that can be the threshold of a generation. Memory with a larger number there is not the
# collector's structure. Programs set up to some hundred thousand objects.
_MOST_THRESHOLD = 1 << 28
# First bytes of the table of offsets.
_COOKIE = b"xdebugpy"
# Positions of words in the table of offsets that all versions have alike. _HEAD: offset in _PyRuntime of the address of
# the newest interpreter. _NEXT: offset in an interpreter of the address of the next older one.
_VERSION, _FREE_THREADED, _HEAD, _NEXT = 1, 2, 5, 8
# Positions by the upper half of the version: of the offset of the collector in an interpreter, which that of the next
# field follows; and of the first word behind the section on strings.
_PLACES = {0x030D: (10, 71), 0x030E: (11, 81), 0x030F: (11, 93)}
# Limits for the section on the collector, which begins with its size (bytes) and the offset of the flag. _MOST_AHEAD:
# largest number of positions that are tried. _MOST_UNUSED: largest number of bytes behind the collector in an
# interpreter.
_MOST_AHEAD, _MOST_UNUSED = 4, 64
# Largest number of interpreters in a process that are followed to the oldest one, the main interpreter.
_MOST_INTERPRETERS = 64


def find_flag(process: Path, runtime: range) -> int | None:
    """The address of the flag in a process that is set while Python collects garbage; None if it is not known.

    ``process`` is its folder in /proc, ``runtime`` the addresses of its ``_PyRuntime``.
    """
    if not 0 < len(runtime) <= _MOST_BYTES or sys.byteorder != "little":
        return None
    content = _read(process, runtime.start, len(runtime))
    words = np.frombuffer(content[: len(content) // _POINTER * _POINTER], dtype="<u8")
    if content.startswith(_COOKIE):
        return _published(process, runtime, words)
    addresses = np.arange(len(words), dtype=np.uint64) * np.uint64(_POINTER) + np.uint64(runtime.start)
    found = [
        int(place) * _POINTER
        for place in np.flatnonzero(words + np.uint64(_GENERATIONS) == addresses)
        if int(place) * _POINTER >= _GENERATIONS
    ]
    found = [at for at in found if at + _TO_FLAG + 4 <= len(content) and _has_thresholds(content, at - _GENERATIONS)]
    return runtime.start + found[0] + _TO_FLAG if len(found) == 1 else None


def is_set(process: Path, flag: int) -> bool | None:
    """Whether the flag at an address is set; None if it cannot be read."""
    content = _read(process, flag, 4)
    return bool(int.from_bytes(content, "little")) if len(content) == 4 else None


def _published(process: Path, runtime: range, words: NDArray[np.uint64]) -> int | None:
    """The address of the flag by the table of offsets in the ``words`` of ``_PyRuntime``; None if that is not known."""
    table: list[int] = words[:128].tolist()
    places = _PLACES.get(table[_VERSION] >> 16) if len(table) == 128 and not table[_FREE_THREADED] else None
    if places is None:
        return None
    collector, first = places
    room = table[collector + 1] - table[collector]
    sections = (table[at : at + 2] for at in range(first, first + _MOST_AHEAD))
    flags = (flag for size, flag in sections if 0 <= room - size <= _MOST_UNUSED and flag % 4 == 0 and flag + 4 <= size)
    flag, head = next(flags, None), table[_HEAD] // _POINTER
    if flag is None or head >= len(words):
        return None
    main = address = int(words[head])
    for _ in range(_MOST_INTERPRETERS):
        if not address:
            break
        main, address = address, int.from_bytes(_read(process, address + table[_NEXT], _POINTER), "little")
    found = main + table[collector] + flag
    return found if not address and found in runtime else None


def _has_thresholds(content: bytes, generations: int) -> bool:
    thresholds = (
        int.from_bytes(content[at : at + 4], "little", signed=True)
        for at in (generations + each for each in _THRESHOLDS)
    )
    return all(0 <= each <= _MOST_THRESHOLD for each in thresholds)


def _read(process: Path, address: int, length: int) -> bytes:
    """So many bytes of a process's memory at an address, or fewer; none where it cannot be read."""
    try:
        memory = os.open(process / "mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(memory, length, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(memory)
