"""Python's garbage collector in another process, as its memory shows it.

The main interpreter's state lies within ``_PyRuntime``. Its collector (CPython 3.11 to 3.13, ``struct
_gc_runtime_state``) is known by a pointer to its own first generation behind the three generations; a flag behind its
statistics is set while it collects.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

# Largest size (bytes) of _PyRuntime (CPython's global state) that is read. Its size in CPython 3.11 to 3.13 is 0.2 to
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


def find_flag(process: Path, runtime: range) -> int | None:
    """The address of the flag in a process that is set while Python collects garbage; None if it is not known.

    ``process`` is its folder in /proc, ``runtime`` the addresses of its ``_PyRuntime``.
    """
    if not 0 < len(runtime) <= _MOST_BYTES or sys.byteorder != "little":
        return None
    content = _read(process, runtime.start, len(runtime))
    words = np.frombuffer(content[: len(content) // _POINTER * _POINTER], dtype="<u8")
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
