"""Calls of a watched process, made of the rows of its file, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.foreign_text import printable
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.watch.reading.process import DriverCall, SlowDriverCall
from stallprobes.watch.reading.words import MEMORY

# Largest stream handle, and largest number of bytes, of a call in flight or a slow call. A larger value is replaced by
# this limit. Reason: a program may pass any value in a call that fails.
_MOST = np.uint64(2**62)
# Flags of a call in flight or a slow call. _STREAM: the call has a stream. _BYTES: the call has a number of bytes.
_STREAM, _BYTES = int(CallFlag.STREAM), int(CallFlag.BYTES)
# Name of a function by its number in the file.
Functions = Callable[[int], str]


def driver_calls(rows: NDArray[Any], thread: int, functions: Functions) -> Iterator[DriverCall]:
    """The calls of ``rows`` (Call), which ``thread`` made. Raises what ``functions`` does."""
    for fields in _fields(rows, [thread] * len(rows), functions):
        yield DriverCall(**fields)


def slow_calls(rows: NDArray[Any], functions: Functions) -> list[SlowDriverCall]:
    """The calls of ``rows`` (SlowCall), which end after their begins. Raises what ``functions`` does."""
    calls = rows["call"]
    durations = rows["end_ns"] - calls["start_ns"]
    columns = (durations, rows["result"], rows["range"], rows["stack"])
    others = zip(*(column.tolist() for column in columns), strict=True)
    return [
        SlowDriverCall(**fields, duration_ns=duration, result=result, range=file_text(text), stack=stack)
        for fields, (duration, result, text, stack) in zip(
            _fields(calls, rows["thread"].tolist(), functions), others, strict=True
        )
    ]


def file_text(raw: bytes) -> str:
    """Text of the watched process: to its first zero, without control characters."""
    if not raw:
        return ""
    return printable(bytes(raw).split(b"\0", 1)[0].decode("utf-8", "replace"))


def _fields(rows: NDArray[Any], threads: list[int], functions: Functions) -> Iterator[dict[str, Any]]:
    """The fields of a DriverCall for each of ``rows``."""
    streams, sizes = np.minimum(rows["stream"], _MOST), np.minimum(rows["bytes"], _MOST)
    columns = [rows[name] for name in ("api", "start_ns", "flags", "source", "target", "context", "correlation")]
    for thread, stream, size, api, begin_ns, flags, source, target, context, correlation in zip(
        threads, *(column.tolist() for column in (streams, sizes, *columns)), strict=True
    ):
        yield {
            "function": functions(api),
            "thread": thread,
            "begin_ns": begin_ns,
            "stream": stream if flags & _STREAM else None,
            "bytes": size if flags & _BYTES else None,
            "source": MEMORY.get(source),
            "target": MEMORY.get(target),
            "context": context,
            "correlation": correlation,
        }
