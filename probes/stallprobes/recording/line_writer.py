"""Writer of a recording's lines: each has a checksum and is flushed, so that a truncated file loses its last lines."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

from stallprobes.recording.recording_format import LONGEST_LINE, TRACE
from stallprobes.traces import codec
from stallprobes.traces.trace import Trace

# Of all traces of a recording, compressed. One takes some 10 KB, at most some 300.
_MOST_TRACE_BYTES = 1 << 26
# With its checksum, a line is within what readers accept.
LONGEST_TEXT_OF_LINE = LONGEST_LINE - 64


class LineWriter:
    """Writes the first line ``head`` to ``file``, then lines. Methods raise OSError, or ValueError for NaN."""

    def __init__(self, file: BinaryIO, head: Mapping[str, Any]) -> None:
        self._file = file
        self._zlib = zlib.compressobj(6)
        self._trace_bytes = 0
        self._put(json.dumps(head).encode() + b"\n")

    def put(self, value: Mapping[str, Any]) -> int:
        """Write a line. Returns its size in the file."""
        return self.put_encoded(encoded(value))

    def put_encoded(self, text: bytes) -> int:
        """Write the line ``text``. Returns its size in the file."""
        line = f"{zlib.crc32(text):08x} ".encode() + text + b"\n"
        data = self._zlib.compress(line) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
        self._put(data)
        return len(data)

    def put_trace(self, trace: Trace) -> bool:
        """Write a trace; False if the traces have become too large, so that it is left out."""
        text, most = encoded(_trace_line(codec.cut(trace))), codec.MOST_ROWS
        while len(text) > LONGEST_TEXT_OF_LINE and most:
            most //= 2
            text = encoded(_trace_line(codec.cut(trace, most)))
        if len(text) > LONGEST_TEXT_OF_LINE or self._trace_bytes > _MOST_TRACE_BYTES:
            return False
        self._trace_bytes += self.put_encoded(text)
        return True

    def finish(self) -> None:
        """Write the end."""
        self._put(self._zlib.flush(zlib.Z_FINISH))

    def _put(self, data: bytes) -> None:
        # On a disk that is almost full, a part is written.
        while data:
            data = data[self._file.write(data) :]


def encoded(value: Mapping[str, Any]) -> bytes:
    """The text of a line. Raises ValueError for a value that JSON cannot hold."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _trace_line(trace: Trace) -> dict[str, Any]:
    at_ns = trace.end_ns if trace.trigger is None else trace.trigger.returned_ns
    return {TRACE: {"w": round(trace.wall_s(at_ns), 4), **codec.trace_out(trace)}}
