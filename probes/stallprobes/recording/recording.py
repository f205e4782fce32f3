"""Recording: a file of observations that can be read from any of them, in memory that hardly depends on its length."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from stallprobes.engine.snapshot import Snapshot
from stallprobes.errors import MalformedJson, RecordingError
from stallprobes.latency.baseline import Baseline
from stallprobes.recording import reader
from stallprobes.recording.index import RecordedTrace, RecordingIndex, TraceIndex, damaged
from stallprobes.recording.line_reader import RecordingLines
from stallprobes.recording.observation import Observation, ProbeSet
from stallprobes.recording.recording_format import BASELINES, OBSERVATION, PROBE_SET
from stallprobes.traces.trace import Trace

_PROBE_SET_START, _BASELINES_START = (f'{{"{key}":'.encode() for key in (PROBE_SET, BASELINES))
# Each takes 32 bytes; four days with ten a second.
MOST_OBSERVATIONS = 1 << 22
_NONE = -1
_HELD = 4

_Held = TypeVar("_Held")


class Recording:
    """An open recording. ``cut_off`` is True where the end of the file is missing.

    An observation is decoded when it is read, so that all methods that return decoded content raise RecordingError for
    damage that the constructor did not find.
    """

    def __init__(self, path: Path) -> None:
        """Raises RecordingError for an unreadable or damaged file, another format, and a newer version."""
        self.path = path
        self._lines = RecordingLines(path)
        excess = f"{path} has more than {MOST_OBSERVATIONS} observations; use: stallscope replay --json"
        self._observations = RecordingIndex(path, OBSERVATION, "observation", MOST_OBSERVATIONS, excess)
        self._traces = TraceIndex(path)
        # Of each observation, the positions of its probe set and its baselines.
        self._set_at, self._baselines_at = array("q"), array("q")
        # By position, those read last: an analyzer belongs to one probe set object, and each baseline is large.
        self._probe_sets: dict[int, ProbeSet] = {}
        self._baselines: dict[int, dict[str, Baseline]] = {}
        try:
            self._index()
            if not len(self):
                raise RecordingError(f"{path} contains no observation")
            next(self._decoded(0))
        except RecordingError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def __len__(self) -> int:
        return len(self._observations)

    @property
    def cut_off(self) -> bool:
        """Whether the end of the file is missing."""
        return self._lines.cut_off

    @property
    def begun_s(self) -> float:
        """Time of the first observation, in seconds since 1970."""
        return self._observations.begun_s

    @property
    def seconds(self) -> float:
        """Time from the first observation to the last."""
        return self._observations.seconds

    def number_at(self, seconds: float) -> int:
        """The number of the last observation at most ``seconds`` after the first one."""
        return self._observations.number_at(seconds)

    def at_s(self, number: int) -> float:
        """Time from the first observation to observation ``number``, in seconds."""
        return self._observations.at_s(number)

    def baselines(self, number: int) -> dict[str, Baseline]:
        """The baselines that were known at observation ``number``."""
        at = self._baselines_at[number]
        if at == _NONE:
            return {}
        if at not in self._baselines:
            probe_set = self._probe_set(number)
            try:
                found = reader.read_baselines(reader.decoded(self._lines.line(at)), probe_set)
            except MalformedJson as error:
                raise damaged(self.path, f"the baselines of observation {number + 1}", error) from error
            self._baselines = {**_newest(self._baselines), at: found}
        return self._baselines[at]

    def traces(self) -> tuple[RecordedTrace, ...]:
        """The traces, in the order in which they were recorded."""
        return self._traces.listed(self._observations)

    def trace(self, number: int) -> Trace:
        """Trace ``number``, decoded. Raises IndexError for an unknown one."""
        return self._traces.decoded(number, self._lines.line(self._traces.position(number)))

    def play(self, number: int = 0) -> Iterator[Observation]:
        """The observations from ``number`` on. Their histograms count from there: use differences only."""
        return self._decoded(number)

    def _decoded(self, number: int) -> Iterator[Observation]:
        before: Snapshot | None = None
        set_at = _NONE
        if number >= len(self):
            return
        lines = self._lines.read(self._observations.position(number))
        for index in range(number, len(self)):
            if self._set_at[index] != set_at:
                set_at, before = self._set_at[index], None
            at = self._observations.position(index)
            line = next((line for line in lines if line.at == at), None)
            if line is None:
                raise RecordingError(f"{self.path} has changed since it was opened")
            try:
                probe_set = self._probe_set(index)
                observation = reader.read_observation(reader.decoded(line.text), probe_set, before)
            except MalformedJson as error:
                raise damaged(self.path, f"observation {index + 1}", error) from error
            before = observation.snapshot or before
            yield observation

    def _probe_set(self, number: int) -> ProbeSet:
        at = self._set_at[number]
        if at not in self._probe_sets:
            try:
                found = reader.read_probe_set(reader.decoded(self._lines.line(at)))
            except MalformedJson as error:
                raise damaged(self.path, f"the probe set of observation {number + 1}", error) from error
            self._probe_sets = {**_newest(self._probe_sets), at: found}
        return self._probe_sets[at]

    def _index(self) -> None:
        set_at = baselines_at = _NONE
        observations, traces = self._observations, self._traces
        for line in self._lines.read():
            if line.text.startswith(observations.start):
                if set_at != _NONE:
                    observations.add(line)
                    self._set_at.append(set_at)
                    self._baselines_at.append(baselines_at)
            elif line.text.startswith(_PROBE_SET_START):
                set_at, baselines_at = line.at, _NONE
            elif line.text.startswith(_BASELINES_START):
                baselines_at = line.at
            elif line.text.startswith(traces.start) and set_at != _NONE:
                traces.add(line)


def _newest(held: dict[int, _Held]) -> dict[int, _Held]:
    """The newest of ``held``, without the oldest where they are many."""
    return dict(list(held.items())[1 - _HELD :])
