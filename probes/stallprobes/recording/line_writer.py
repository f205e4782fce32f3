"""Writer of a recording's lines: each has a checksum and is flushed, so that a truncated file loses its last lines."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import BinaryIO

from stallprobes.errors import FileNotWritten, MalformedJson, RecordingError, reason_of
from stallprobes.files import atomic
from stallprobes.files.codec import encoded
from stallprobes.recording.common_lines import TraceLine
from stallprobes.recording.recording_format import LONGEST_LINE, VERSION, Head
from stallprobes.traces import codec
from stallprobes.traces.codec import StoredTrace
from stallprobes.traces.trace import Trace
from stallprobes.units import plural

# Size (bytes, compressed) of a recording's traces after which no more traces are written. A trace usually takes 10 KB,
# at most 300 KB.
_MOST_TRACE_BYTES = 1 << 26
# Largest size (bytes) of the text that is written as one line. The rest of LONGEST_LINE is for the line's checksum.
LONGEST_TEXT_OF_LINE = LONGEST_LINE - 64


class LineWriter:
    """Writes lines to ``path``, a new file that the first line creates; ``kind`` is the kind of the head.

    Raises RecordingError where the file exists or cannot be created; the methods raise OSError.
    """

    def __init__(self, path: Path, kind: str = "") -> None:
        _require_new(path)
        self._path, self._kind = path, kind
        self._file: BinaryIO | None = None
        self._zlib = zlib.compressobj(6)
        self._trace_bytes = 0

    def put(self, text: bytes) -> int:
        """Write the line ``text``. Returns its size in the file."""
        if self._file is None:
            self._file = created(self._path)
            self._put(encoded(Head("stallscope.recording", VERSION, self._kind)) + b"\n")
        line = f"{zlib.crc32(text):08x} ".encode() + text + b"\n"
        data = self._zlib.compress(line) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
        self._put(data)
        return len(data)

    def put_trace(self, trace: Trace) -> bool:
        """Write a trace, or the part around its trigger if it has many rows; False if it is left out.

        Left out are traces that no reader accepts, as a damaged file of a process may give, and all traces once they
        are too large together.
        """
        text, most = _trace_text(trace, codec.MOST_ROWS), codec.MOST_ROWS
        while len(text) > LONGEST_TEXT_OF_LINE and most:
            most //= 2
            text = _trace_text(trace, most)
        if len(text) > LONGEST_TEXT_OF_LINE or self._trace_bytes > _MOST_TRACE_BYTES or not _is_readable(text):
            return False
        self._trace_bytes += self.put(text)
        return True

    def close(self, *, complete: bool, keep: bool) -> None:
        """Close the file, with the end written if it is ``complete``. It stays only with ``keep``."""
        if self._file is None:
            return
        try:
            if complete:
                self._put(self._zlib.flush(zlib.Z_FINISH))
        finally:
            self._file.close()
            self._file = None
            if not keep:
                self._path.unlink(missing_ok=True)

    def _put(self, data: bytes) -> None:
        # On a disk that is almost full, a part is written.
        assert self._file is not None
        while data:
            data = data[self._file.write(data) :]


def _is_readable(text: bytes) -> bool:
    """True if a reader accepts the line of a trace."""
    try:
        TraceLine.of_text(text).trace.trace()
    except (MalformedJson, ValueError):
        return False
    return True


def _trace_text(trace: Trace, most: int) -> bytes:
    """The line of a trace, cut to ``most`` rows."""
    part = codec.cut(trace, most)
    at_ns = part.end_ns if part.trigger is None else part.trigger.returned_ns
    return TraceLine(part.wall_s(at_ns), StoredTrace.of(part)).text()


def created(path: Path) -> BinaryIO:
    """The new file ``path``. Raises OSError."""
    # Without a buffer, whose rest would be written again when the file is closed on a full disk.
    return path.open("xb", buffering=0)


def not_written(path: Path, error: Exception) -> str:
    """The sentence that ``path`` cannot be written because of ``error``."""
    return f"{path} cannot be written: {reason_of(error)}"


def readable_rest(number: int, noun: str) -> str:
    """The clause that the ``number`` of entries before a failure are readable; empty without any."""
    return f"; the {plural(number, noun)} before {'is' if number == 1 else 'are'} readable" if number else ""


def _require_new(path: Path) -> None:
    """Raise RecordingError unless ``path`` can be created."""
    if os.path.lexists(path):
        raise RecordingError(f"{path} exists; a recording never overwrites a file: name another one")
    try:
        atomic.ready(path, force=False)
    except FileNotWritten as error:
        raise RecordingError(str(error)) from error
