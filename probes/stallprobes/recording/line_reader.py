"""Lines of a recording: checked by their checksums, read again from any line, in memory that the file does not set."""

from __future__ import annotations

import shutil
import stat
import tempfile
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from os import fstat
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar, cast

from stallprobes.errors import DamagedData, FileNotRead, OversizedData, RecordingError, reason_of
from stallprobes.files import input_file
from stallprobes.files.compression import Compression, DecompressedStream
from stallprobes.recording.recording_format import LONGEST_HEAD, LONGEST_LINE, Head, Line

# Largest compression ratio of a recording. A file with a larger ratio is damaged. Reason: the usual ratio is 5, and 100
# if only the time differs from line to line.
_HIGHEST_RATIO = 250
# Number of bytes at the beginning of a recording's text for which the compression ratio has no limit.
_FREE_BYTES = 1 << 26
# Limit of the decompressed size (bytes) that no recording reaches.
_UNLIMITED = 1 << 62
# Initial distance (bytes of text) between points at which decompression can resume, to read a line again. The distance
# doubles each time that the number of points exceeds _MOST_POINTS.
_POINT_BYTES = 1 << 22
# Largest number of points at which decompression can resume. Each point takes some 50 KiB.
_MOST_POINTS = 256

_Kind = TypeVar("_Kind", bound=Line)


class RecordedLine(NamedTuple):
    """A line without its checksum. ``at`` is its position in the decompressed text."""

    at: int
    text: bytes

    def is_of(self, kind: type[Line]) -> bool:
        """True if it is a line of ``kind``."""
        return self.text.startswith(kind.start)


@dataclass(frozen=True)
class _Point:
    """A position from which decompression can continue: in the text, in the file, and the state there."""

    at: int
    file_at: int
    stream: DecompressedStream


class RecordingLines:
    """The checked lines of the recording ``path``. Raises RecordingError as all its methods do.

    ``cut_off`` is True once a missing or damaged end was met.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_off = False
        self._distance = _POINT_BYTES
        try:
            self._file = _seekable(path)
            head = self._file.readline(LONGEST_HEAD)
        except FileNotRead as error:
            raise RecordingError(str(error)) from error
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error
        try:
            Head.of_text(path, head)
        except RecordingError:
            self._file.close()
            raise
        self._start = len(head)
        self._size, self._read_at = fstat(self._file.fileno()).st_size, self._start
        self._points = [_Point(0, self._start, DecompressedStream(self._file, Compression.ZLIB, _UNLIMITED))]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def share(self) -> float:
        """The share (0 to 1) of the file before the place at which it was read last."""
        return self._read_at / max(self._size, 1)

    def read(self, at: int = 0) -> Iterator[RecordedLine]:
        """The lines from the position ``at`` on, up to the first damaged one."""
        point = self._points[bisect_right(self._points, at, key=lambda entry: entry.at) - 1]
        stream = point.stream.fork()
        rest, begin, skip = b"", at, at - point.at
        for piece in self._pieces(stream, point.file_at):
            text, skip = piece[skip:], max(skip - len(piece), 0)
            *lines, rest = (rest + text).split(b"\n")
            for line in lines:
                checked = _checked(line)
                if checked is None:
                    self.cut_off = True
                    return
                yield RecordedLine(begin, checked)
                begin += len(line) + 1
            if len(rest) > LONGEST_LINE:
                self.cut_off = True
                return
        # Without a newline at its end the last line is incomplete.
        self.cut_off = self.cut_off or bool(rest) or not stream.complete

    def line(self, at: int, kind: type[_Kind]) -> _Kind:
        """The line of ``kind`` at the position ``at``. Raises MalformedJson, too."""
        line = next(self.read(at), None)
        if line is None:
            raise RecordingError(f"{self.path} has changed since it was opened")
        return kind.of_text(line.text)

    def _pieces(self, stream: DecompressedStream, file_at: int) -> Iterator[bytes]:
        """Content of ``stream`` from position ``file_at`` of the file on; several streams read the file."""
        while True:
            self._add_point(stream, file_at)
            try:
                self._file.seek(file_at)
                piece = stream.read()
                file_at = self._read_at = self._file.tell()
            except (DamagedData, OversizedData):
                return
            except (OSError, ValueError) as error:
                raise _unreadable(self.path, error) from error
            if not piece:
                return
            if stream.size > _FREE_BYTES and stream.size > _HIGHEST_RATIO * (file_at - self._start):
                raise RecordingError(
                    f"{self.path} is damaged: it is compressed to less than 1/{_HIGHEST_RATIO}, which no recording is; "
                    "copy it again, or record again"
                )
            yield piece

    def _add_point(self, stream: DecompressedStream, file_at: int) -> None:
        if stream.size - self._points[-1].at < self._distance:
            return
        self._points.append(_Point(stream.size, file_at, stream.fork()))
        if len(self._points) > _MOST_POINTS:
            self._distance *= 2
            self._points = self._points[::2]


def _seekable(path: Path) -> BinaryIO:
    """``path``, opened; what comes out of a pipe is copied to a temporary file first."""
    with ExitStack() as opened:
        file = opened.enter_context(input_file.opened(path))
        if stat.S_ISREG(fstat(file.fileno()).st_mode):
            opened.pop_all()
            return file
        head = file.readline(LONGEST_HEAD)
        Head.of_text(path, head)
        copied = cast(BinaryIO, opened.enter_context(tempfile.TemporaryFile()))
        copied.write(head)
        shutil.copyfileobj(file, copied)
        copied.seek(0)
        opened.pop_all()
        file.close()
        return copied


def _checked(line: bytes) -> bytes | None:
    """``line`` without its checksum; None if the checksum is wrong, which zlib detects only later."""
    checksum, _, text = line.partition(b" ")
    return text if checksum == b"%08x" % zlib.crc32(text) else None


def _unreadable(path: Path, error: Exception) -> RecordingError:
    return RecordingError(f"{path} cannot be read: {reason_of(error)}")
