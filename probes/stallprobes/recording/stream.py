"""Stream over a recording: read once from its beginning, in memory that does not depend on its length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stallprobes.engine.snapshot import Snapshot
from stallprobes.errors import MalformedJson
from stallprobes.latency.baseline import Baseline
from stallprobes.recording import reader
from stallprobes.recording.index import damaged
from stallprobes.recording.line_reader import RecordingLines
from stallprobes.recording.observation import Observation, ProbeSet
from stallprobes.recording.recording_format import BASELINES, OBSERVATION, PROBE_SET, TRACE
from stallprobes.traces.trace import Trace


@dataclass(frozen=True, eq=False)
class RecordedMoment:
    """An observation and the baselines that the recording knew then, by probe."""

    observation: Observation
    baselines: dict[str, Baseline]


class RecordingStream:
    """The moments of the recording ``path``, in order. ``cut_off`` is True once a missing or damaged end was met."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_off = False

    def __iter__(self) -> Iterator[RecordedMoment]:
        """The moments alone; traces are not decoded. Raises what ``items`` raises."""
        return (item for item in self._read(with_traces=False) if isinstance(item, RecordedMoment))

    def items(self) -> Iterator[RecordedMoment | Trace]:
        """The moments and traces in the order in which they were written: a trace comes after the time that it shows.

        Raises RecordingError for an unreadable or damaged file, another format, and a newer version.
        """
        return self._read(with_traces=True)

    def _read(self, with_traces: bool) -> Iterator[RecordedMoment | Trace]:
        lines = RecordingLines(self.path)
        try:
            yield from self._items(lines, with_traces)
            self.cut_off = lines.cut_off
        finally:
            lines.close()

    def _items(self, lines: RecordingLines, with_traces: bool) -> Iterator[RecordedMoment | Trace]:
        probe_set: ProbeSet | None = None
        baselines: dict[str, Baseline] = {}
        before: Snapshot | None = None
        number = trace = 1
        for line in lines.read():
            where = f"observation {number}"
            try:
                known = reader.decoded(line.text)
                if PROBE_SET in known.value:
                    where = f"the probe set of {where}"
                    probe_set, baselines, before = reader.read_probe_set(known), {}, None
                elif probe_set is None:
                    continue
                elif BASELINES in known.value:
                    where = f"the baselines of {where}"
                    baselines = reader.read_baselines(known, probe_set)
                elif OBSERVATION in known.value:
                    observation = reader.read_observation(known, probe_set, before)
                    before, number = observation.snapshot or before, number + 1
                    yield RecordedMoment(observation, baselines)
                elif TRACE in known.value and with_traces:
                    where, trace = f"trace {trace}", trace + 1
                    yield reader.read_trace(known)
            except MalformedJson as error:
                raise damaged(self.path, where, error) from error
