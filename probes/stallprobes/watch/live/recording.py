"""Recording of a watched program: its moments and traces, read with a check of every value, from any moment on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stallprobes.errors import MalformedJson, RecordingError
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.recording import reader
from stallprobes.recording import recorded_values as values
from stallprobes.recording.index import RecordedTrace, RecordingIndex, TraceIndex, damaged
from stallprobes.recording.line_reader import RecordingLines
from stallprobes.recording.recording_format import LONGEST_HEAD
from stallprobes.traces.trace import Trace
from stallprobes.watch.attribution.findings import ExplainedCall, WatchFindings
from stallprobes.watch.live import value_codec
from stallprobes.watch.live.live_view import WatchedProgram, WatchMoment, recorded_rows
from stallprobes.watch.live.recorder import KIND, MOST_OUTPUT_IN_LINE, WATCH

MOST_MOMENTS = 1 << 22
# A seek reads so many moments before its target, for the slow calls and the output of that time.
LEAD = 30
MOST_CALLS, MOST_OUTPUT = 10_000, 2000
_LATEST_NS = 2**62
_CallKey = tuple[int, int, int, int, str]


def is_watch_recording(path: Path) -> bool:
    """Whether the file ``path`` begins as the recording of a watched program does; False if it cannot be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            known = json.loads(file.readline(LONGEST_HEAD))
        return isinstance(known, dict) and known.get(KIND) == WATCH
    except (OSError, ValueError, RecursionError):
        return False


@dataclass(frozen=True, eq=False)
class RecordedWatch:
    """A moment of a recording, the last lines of the program's output until then, and NVML's values, if recorded."""

    moment: WatchMoment
    output: tuple[str, ...]
    telemetry: TelemetrySnapshot | None = None


@dataclass(frozen=True, eq=False)
class _MomentLine:
    """What a line of a moment has; ``output`` is new."""

    wall_s: float
    at_ns: int
    program: WatchedProgram
    findings: WatchFindings
    output: list[str]
    telemetry: TelemetrySnapshot | None


class _State:
    """What the lines until one add up to."""

    def __init__(self) -> None:
        self._calls: dict[_CallKey, ExplainedCall] = {}
        self._output: list[str] = []
        self._before: WatchFindings | None = None

    def add(self, line: _MomentLine) -> None:
        """Add a line."""
        found = line.findings
        for process in found.processes:
            for call in process.slow_calls:
                self._calls[process.pid, process.image, call.thread, call.begin_ns, call.function] = call
        for key in list(self._calls)[: max(len(self._calls) - MOST_CALLS, 0)]:
            del self._calls[key]
        self._output = [*self._output, *line.output][-MOST_OUTPUT:]
        of_process: dict[tuple[int, int], list[ExplainedCall]] = {}
        for key, call in self._calls.items():
            of_process.setdefault(key[:2], []).append(call)
        processes = tuple(
            replace(
                process,
                slow_calls=tuple(
                    sorted(of_process.get((process.pid, process.image), ()), key=lambda call: call.end_ns)
                ),
            )
            for process in found.processes
        )
        whole = replace(found, processes=processes)
        rows = recorded_rows(whole, self._before)
        self._before = whole
        moment = WatchMoment(line.at_ns, line.wall_s, line.program, whole, rows)
        self.last = RecordedWatch(moment, tuple(self._output), line.telemetry)


class WatchRecording:
    """An open recording. ``cut_off`` is True where the end of the file is missing.

    A moment is decoded when it is read: ``at`` and ``trace`` raise RecordingError for damage.
    """

    def __init__(self, path: Path) -> None:
        """Raises RecordingError for an unreadable or damaged file, another format, and a newer version."""
        self.path = path
        self._lines = RecordingLines(path)
        self._moments, self._traces = RecordingIndex(path, WATCH, "moment", MOST_MOMENTS), TraceIndex(path)
        self._number, self._state = -1, _State()
        try:
            self._index()
            if not len(self):
                raise RecordingError(f"{path} contains no moment of a watched program")
            self.at(0)
        except RecordingError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def __len__(self) -> int:
        return len(self._moments)

    @property
    def cut_off(self) -> bool:
        """Whether the end of the file is missing."""
        return self._lines.cut_off

    @property
    def seconds(self) -> float:
        """Time from the first moment to the last."""
        return self._moments.seconds

    def number_at(self, seconds: float) -> int:
        """The number of the last moment at most ``seconds`` after the first one."""
        return self._moments.number_at(seconds)

    def at(self, number: int, *, whole: bool = False) -> RecordedWatch:
        """Moment ``number``, with the slow calls and the output of the LEAD before it, or with ``whole`` of all."""
        if number < self._number or number > self._number + LEAD or (whole and self._number < 0):
            self._number, self._state = (-1 if whole else max(number - LEAD, 0) - 1), _State()
        if number > self._number:
            for line in self._read(self._number + 1, number):
                self._state.add(line)
                self._number += 1
        return self._state.last

    def last(self) -> RecordedWatch:
        """The last moment, with all slow calls of the recording that a moment may have."""
        self._number, self._state = -1, _State()
        for line in self._read(0, len(self) - 1):
            self._state.add(line)
        self._number = len(self) - 1
        return self._state.last

    def traces(self) -> tuple[RecordedTrace, ...]:
        """The traces, in the order in which they were recorded."""
        return self._traces.listed(self._moments)

    def trace(self, number: int) -> Trace:
        """Trace ``number``, decoded. Raises IndexError for an unknown one."""
        return self._traces.decoded(number, self._lines.line(self._traces.position(number)))

    def _read(self, first: int, last: int) -> Iterator[_MomentLine]:
        lines = self._lines.read(self._moments.position(first))
        for number in range(first, last + 1):
            at = self._moments.position(number)
            line = next((line for line in lines if line.at == at), None)
            if line is None:
                raise RecordingError(f"{self.path} has changed since it was opened")
            try:
                yield _decoded(line.text)
            except MalformedJson as error:
                raise damaged(self.path, f"moment {number + 1}", error) from error

    def _index(self) -> None:
        for line in self._lines.read():
            for index in (self._moments, self._traces):
                if line.text.startswith(index.start):
                    index.add(line)


def _decoded(text: bytes) -> _MomentLine:
    """The line of a moment. Raises MalformedJson."""
    known = values.member(reader.decoded(text), WATCH).some(
        "w", "at", "program", "findings", optional=("output", "nvml")
    )
    return _MomentLine(
        known["w"].number(reader.LATEST_S),
        known["at"].whole(0, _LATEST_NS),
        value_codec.decoded(known["program"], WatchedProgram),
        value_codec.decoded(known["findings"], WatchFindings),
        [values.text(one) for one in known["output"].items(MOST_OUTPUT_IN_LINE)] if "output" in known else [],
        reader.read_telemetry(known["nvml"]) if "nvml" in known else None,
    )
