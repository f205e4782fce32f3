"""Recording that is read by number: time and position of each line of one kind, and of the traces beside them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stallprobes.errors import MalformedJson, RecordingError
from stallprobes.recording.common_lines import TraceLine
from stallprobes.recording.line_reader import RecordedLine, RecordingLines
from stallprobes.recording.recording_format import Line
from stallprobes.traces.trace import RecordedTrace, Trace

# Text between the kind and the time (s) at the start of a line of a recording. Reason: with the time first, the
# recording is indexed without decoding lines.
_TIME = b'{"wall_s":'
# Latest time (s since 1970) that is accepted in a line of a recording: the year 2286. A later time shows that the line
# is damaged.
_LATEST_S = 1e10
# Largest number of traces in a recording.
_MOST_TRACES = 1 << 16


class LineIndex:
    """Times (seconds since 1970) and positions of the lines of one kind in the recording ``path``, in their order.

    More than ``most`` are refused. Each takes 16 bytes.
    """

    def __init__(self, path: Path, kind: type[Line], most: int) -> None:
        self.kind = kind
        self._time_start = kind.start + _TIME
        self._path, self._most = path, most
        self.wall_s, self.at = array("d"), array("q")

    def __len__(self) -> int:
        return len(self.at)

    def add(self, line: RecordedLine) -> None:
        """Add a line of the kind. Raises RecordingError for a damaged time, and for too many lines."""
        if len(self) == self._most:
            raise RecordingError(f"{self._path} has more than {self._most} {self.kind.key}s; record a shorter time")
        wall_s = -1.0
        with suppress(ValueError):
            wall_s = float(line.text.removeprefix(self._time_start).partition(b",")[0])
        if not 0 <= wall_s <= _LATEST_S:
            with damage(self._path, f"{self.kind.key} {len(self) + 1}"):
                raise MalformedJson(f"wall_s: expected a number from 0 to {_LATEST_S:g}")
        self.wall_s.append(wall_s)
        self.at.append(line.at)

    @cached_property
    def times_s(self) -> NDArray[np.float64]:
        """The times of all lines, once the last is added: a backward step of the clock is no step of the time line."""
        return np.maximum.accumulate(np.array(self.wall_s))


class IndexedRecording:
    """An open recording of lines of ``kind``, its entries. ``cut_off`` is True where the end of the file is missing.

    An entry is decoded when it is read: the methods that return decoded content also raise RecordingError, for damage
    unknown to the constructor.
    """

    def __init__(
        self,
        path: Path,
        kind: type[Line],
        content: str,
        most: int,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Read the whole file once; ``progress`` is called with the share (0 to 1) of it that is read.

        ``content`` is what a message says is missing. Raises RecordingError for an unreadable or damaged file, another
        format, and a newer version.
        """
        self.path = path
        self._lines = RecordingLines(path)
        self._entries = LineIndex(path, kind, most)
        self._traces = LineIndex(path, TraceLine, _MOST_TRACES)
        try:
            for line in self._lines.read():
                self._note(line)
                progress(self._lines.share)
            if not len(self):
                raise RecordingError(f"{path} contains no {content}")
            self._read_first()
        except RecordingError:
            self.close()
            raise

    def _note(self, line: RecordedLine) -> None:
        """Add a line to the index."""
        if line.is_of(self._entries.kind):
            self._entries.add(line)
        elif line.is_of(TraceLine):
            self._traces.add(line)

    def _read_first(self) -> None:
        """Read the first entry, which raises RecordingError if it is damaged."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def cut_off(self) -> bool:
        """True if the end of the file is missing."""
        return self._lines.cut_off

    @property
    def begun_s(self) -> float:
        """Time of the first entry, in seconds since 1970."""
        return self._entries.wall_s[0]

    @property
    def seconds(self) -> float:
        """Time from the first entry to the last."""
        return self.at_s(len(self) - 1)

    def at_s(self, number: int) -> float:
        """Time from the first entry to entry ``number``, in seconds."""
        return float(self._entries.times_s[number]) - self.begun_s

    def number_at(self, seconds: float) -> int:
        """The number of the last entry at most ``seconds`` after the first one."""
        return max(0, int(np.searchsorted(self._entries.times_s, self.begun_s + seconds, side="right")) - 1)

    def traces(self) -> tuple[RecordedTrace, ...]:
        """The traces, in the order in which they were recorded."""
        begun_s, last_s = self.begun_s, self.seconds
        return tuple(
            RecordedTrace(number, wall_s, min(max(wall_s - begun_s, 0.0), last_s))
            for number, wall_s in enumerate(self._traces.wall_s)
        )

    def trace(self, number: int) -> Trace:
        """Trace ``number``, decoded. Raises IndexError for an unknown one."""
        at = self._traces.at[number]
        with damage(self.path, f"trace {number + 1}"):
            return self._lines.line(at, TraceLine).trace.trace()

    def _entry_lines(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Numbers and texts of the entries from ``first`` to before ``end``."""
        lines = self._lines.read(self._entries.at[first]) if first < end else iter(())
        for number in range(first, end):
            at = self._entries.at[number]
            line = next((line for line in lines if line.at == at), None)
            if line is None:
                raise RecordingError(f"{self.path} has changed since it was opened")
            yield number, line.text


@contextmanager
def damage(path: Path, where: str) -> Iterator[None]:
    """Raise RecordingError for an error in content of ``path``, with its sentence and ``where`` it is."""
    try:
        yield
    except (MalformedJson, ValueError) as error:
        raise RecordingError(f"{path} is damaged: {where}: {error}; copy it again, or record again") from error
