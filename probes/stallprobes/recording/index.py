"""Index of a recording: time and position of each of its observations, moments or traces."""

from __future__ import annotations

from array import array
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stallprobes.errors import MalformedJson, RecordingError
from stallprobes.recording import reader
from stallprobes.recording.line_reader import RecordedLine
from stallprobes.recording.recording_format import TRACE
from stallprobes.traces.trace import Trace

# The time comes first in a line, so that the index is made without decoding all of it.
_TIME = b'{"w":'
MOST_TRACES = 1 << 16


@dataclass(frozen=True)
class RecordedTrace:
    """A trace in a recording: its number, its time since 1970, and that since the first observation, in seconds."""

    number: int
    wall_s: float
    at_s: float


class RecordingIndex:
    """Index of the lines of one kind in the recording ``path``, in the order in which they were recorded.

    ``kind`` is the key of these lines, ``name`` what a message calls one of them. More than ``most`` are refused with
    the sentence ``excess``, by default that the file is damaged. Each takes 16 bytes.
    """

    def __init__(self, path: Path, kind: str, name: str, most: int, excess: str = "") -> None:
        self.start = f'{{"{kind}":'.encode()
        self._time_start = self.start + _TIME
        self._path, self._kind, self._name, self._most = path, kind, name, most
        self._excess = excess or f"{path} is damaged: it has more than {most} {name}s; record again"
        self._wall_s, self._at = array("d"), array("q")

    def __len__(self) -> int:
        return len(self._at)

    def add(self, line: RecordedLine) -> None:
        """Add a line that begins with ``start``. Raises RecordingError for a damaged time, and for too many lines."""
        if len(self._at) == self._most:
            raise RecordingError(self._excess)
        value: float | None = None
        if line.text.startswith(self._time_start):
            with suppress(ValueError):
                value = float(line.text[len(self._time_start) :].partition(b",")[0])
        try:
            self._wall_s.append(reader.wall_s(value, self._kind))
        except MalformedJson as error:
            raise damaged(self._path, f"{self._name} {len(self) + 1}", error) from error
        self._at.append(line.at)

    def position(self, number: int) -> int:
        """The position of line ``number`` in the decompressed text. Raises IndexError for an unknown one."""
        return self._at[number]

    @cached_property
    def _times_s(self) -> NDArray[np.float64]:
        """The times of all lines, once the last is added: a backward step of the clock is no step of the time line."""
        return np.maximum.accumulate(np.array(self._wall_s))

    @property
    def begun_s(self) -> float:
        """Time of the first line, in seconds since 1970."""
        return self._wall_s[0]

    @property
    def seconds(self) -> float:
        """Time from the first line to the last."""
        return self.at_s(len(self) - 1)

    def at_s(self, number: int) -> float:
        """Time from the first line to line ``number``, in seconds."""
        return float(self._times_s[number]) - self.begun_s

    def number_at(self, seconds: float) -> int:
        """The number of the last line at most ``seconds`` after the first one."""
        return max(0, int(np.searchsorted(self._times_s, self.begun_s + seconds, side="right")) - 1)

    def wall_s(self, number: int) -> float:
        """Time of line ``number``, in seconds since 1970."""
        return self._wall_s[number]


class TraceIndex(RecordingIndex):
    """Index of the traces in the recording ``path``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, TRACE, "trace", MOST_TRACES)

    def listed(self, others: RecordingIndex) -> tuple[RecordedTrace, ...]:
        """The traces, in the order in which they were recorded, with their times on the time line of ``others``."""
        begun_s, last_s = others.begun_s, others.seconds
        times = ((number, self.wall_s(number)) for number in range(len(self)))
        return tuple(RecordedTrace(number, at, min(max(at - begun_s, 0.0), last_s)) for number, at in times)

    def decoded(self, number: int, line: bytes) -> Trace:
        """Trace ``number``, whose line is ``line``. Raises RecordingError for a damaged one."""
        try:
            return reader.read_trace(reader.decoded(line))
        except MalformedJson as error:
            raise damaged(self._path, f"trace {number + 1}", error) from error


def damaged(path: Path, where: str, error: Exception) -> RecordingError:
    """The exception for ``path`` with content at ``where`` that cannot be read."""
    return RecordingError(f"{path} is damaged: {where}: {error}; copy it again, or record again")
