"""Recording: a file of observations that can be read from any of them, in memory that hardly depends on its length."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from stallprobes.engine.snapshot import Snapshot
from stallprobes.errors import MalformedJson, RecordingError
from stallprobes.latency.baseline import Baseline
from stallprobes.live import recording_reader
from stallprobes.live.observation import Observation, ProbeSet
from stallprobes.live.recording_format import BASELINES, OBSERVATION, PROBE_SET, TRACE
from stallprobes.live.recording_lines import RecordingLines
from stallprobes.traces.trace import Trace

_PROBE_SET_START, _BASELINES_START, _OBSERVATION_START, _TRACE_START = (
    f'{{"{key}":'.encode() for key in (PROBE_SET, BASELINES, OBSERVATION, TRACE)
)
# The time comes first in an observation and in a trace, so that the index is made without decoding all of it.
_TIME = b'{"w":'
# Each takes 32 bytes; four days with ten a second.
MOST_OBSERVATIONS = 1 << 22
MOST_TRACES = 1 << 16
_NONE = -1
_HELD = 4

_Held = TypeVar("_Held")


@dataclass(frozen=True)
class RecordedTrace:
    """A trace in a recording: its number, its time since 1970, and that since the first observation, in seconds."""

    number: int
    wall_s: float
    at_s: float


class Recording:
    """An open recording. ``cut_off`` is True where the end of the file is missing.

    An observation is decoded when it is read, so that all methods that return decoded content raise RecordingError for
    damage that the constructor did not find.
    """

    def __init__(self, path: Path) -> None:
        """Raises RecordingError for an unreadable or damaged file, another format, and a newer version."""
        self.path = path
        self._lines = RecordingLines(path)
        # Of each observation: time, and the positions of its line, its probe set and its baselines.
        self._wall_s, self._at, self._set_at, self._baselines_at = array("d"), array("q"), array("q"), array("q")
        self._trace_wall_s, self._trace_at = array("d"), array("q")
        # A backward step of the clock is no step of the time line.
        self._times_s = np.zeros(0)
        # By position, those read last: an analyzer belongs to one probe set object, and each baseline is large.
        self._probe_sets: dict[int, ProbeSet] = {}
        self._baselines: dict[int, dict[str, Baseline]] = {}
        try:
            self._index()
            if not self._at:
                raise RecordingError(f"{path} contains no observation")
            next(self._decoded(0))
        except RecordingError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def __len__(self) -> int:
        return len(self._at)

    @property
    def cut_off(self) -> bool:
        """Whether the end of the file is missing."""
        return self._lines.cut_off

    @property
    def begun_s(self) -> float:
        """Time of the first observation, in seconds since 1970."""
        return self._wall_s[0]

    @property
    def seconds(self) -> float:
        """Time from the first observation to the last."""
        return self.at_s(len(self) - 1)

    def number_at(self, seconds: float) -> int:
        """The number of the last observation at most ``seconds`` after the first one."""
        return max(0, int(np.searchsorted(self._times_s, self.begun_s + seconds, side="right")) - 1)

    def at_s(self, number: int) -> float:
        """Time from the first observation to observation ``number``, in seconds."""
        return float(self._times_s[number]) - self.begun_s

    def baselines(self, number: int) -> dict[str, Baseline]:
        """The baselines that were known at observation ``number``."""
        at = self._baselines_at[number]
        if at == _NONE:
            return {}
        if at not in self._baselines:
            probe_set = self._probe_set(number)
            try:
                found = recording_reader.read_baselines(recording_reader.decoded(self._line(at)), probe_set)
            except MalformedJson as error:
                raise damaged(self.path, f"the baselines of observation {number + 1}", error) from error
            self._baselines = {**_newest(self._baselines), at: found}
        return self._baselines[at]

    def traces(self) -> tuple[RecordedTrace, ...]:
        """The traces, in the order in which they were recorded."""
        return tuple(
            RecordedTrace(number, wall_s, min(max(wall_s - self.begun_s, 0.0), self.seconds))
            for number, wall_s in enumerate(self._trace_wall_s)
        )

    def trace(self, number: int) -> Trace:
        """Trace ``number``, decoded. Raises IndexError for an unknown one."""
        try:
            return recording_reader.read_trace(recording_reader.decoded(self._line(self._trace_at[number])))
        except MalformedJson as error:
            raise damaged(self.path, f"trace {number + 1}", error) from error

    def play(self, number: int = 0) -> Iterator[Observation]:
        """The observations from ``number`` on. Their histograms count from there: use differences only."""
        return self._decoded(number)

    def _decoded(self, number: int) -> Iterator[Observation]:
        before: Snapshot | None = None
        set_at = _NONE
        if number >= len(self):
            return
        lines = self._lines.read(self._at[number])
        for index in range(number, len(self)):
            if self._set_at[index] != set_at:
                set_at, before = self._set_at[index], None
            line = next((line for line in lines if line.at == self._at[index]), None)
            if line is None:
                raise RecordingError(f"{self.path} has changed since it was opened")
            try:
                probe_set = self._probe_set(index)
                observation = recording_reader.read_observation(recording_reader.decoded(line.text), probe_set, before)
            except MalformedJson as error:
                raise damaged(self.path, f"observation {index + 1}", error) from error
            before = observation.snapshot or before
            yield observation

    def _probe_set(self, number: int) -> ProbeSet:
        at = self._set_at[number]
        if at not in self._probe_sets:
            try:
                found = recording_reader.read_probe_set(recording_reader.decoded(self._line(at)))
            except MalformedJson as error:
                raise damaged(self.path, f"the probe set of observation {number + 1}", error) from error
            self._probe_sets = {**_newest(self._probe_sets), at: found}
        return self._probe_sets[at]

    def _line(self, at: int) -> bytes:
        line = next(self._lines.read(at), None)
        if line is None:
            raise RecordingError(f"{self.path} has changed since it was opened")
        return line.text

    def _index(self) -> None:
        set_at = baselines_at = _NONE
        for line in self._lines.read():
            if line.text.startswith(_OBSERVATION_START):
                if set_at == _NONE:
                    continue
                if len(self) == MOST_OBSERVATIONS:
                    raise RecordingError(
                        f"{self.path} has more than {MOST_OBSERVATIONS} observations; use: stallscope replay --json"
                    )
                where = f"observation {len(self) + 1}"
                self._wall_s.append(self._time_of(line.text, OBSERVATION, _OBSERVATION_START, where))
                self._at.append(line.at)
                self._set_at.append(set_at)
                self._baselines_at.append(baselines_at)
            elif line.text.startswith(_PROBE_SET_START):
                set_at, baselines_at = line.at, _NONE
            elif line.text.startswith(_BASELINES_START):
                baselines_at = line.at
            elif line.text.startswith(_TRACE_START) and set_at != _NONE:
                if len(self._trace_at) == MOST_TRACES:
                    raise RecordingError(f"{self.path} is damaged: it has more than {MOST_TRACES} traces; record again")
                where = f"trace {len(self._trace_at) + 1}"
                self._trace_wall_s.append(self._time_of(line.text, TRACE, _TRACE_START, where))
                self._trace_at.append(line.at)
        self._times_s = np.maximum.accumulate(np.array(self._wall_s))

    def _time_of(self, line: bytes, kind: str, start: bytes, where: str) -> float:
        value: float | None = None
        if line.startswith(start + _TIME):
            with suppress(ValueError):
                value = float(line[len(start + _TIME) :].partition(b",")[0])
        try:
            return recording_reader.wall_s(value, kind)
        except MalformedJson as error:
            raise damaged(self.path, where, error) from error


def _newest(held: dict[int, _Held]) -> dict[int, _Held]:
    """The newest of ``held``, without the oldest where they are many."""
    return dict(list(held.items())[1 - _HELD :])


def damaged(path: Path, where: str, error: Exception) -> RecordingError:
    """The exception for ``path`` with content at ``where`` that cannot be read."""
    return RecordingError(f"{path} is damaged: {where}: {error}; copy it again, or record again")
