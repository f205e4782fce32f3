"""Recorder of a watched program: a line for each analysis, and traces of slow calls, in the format of all recordings.

A line has all rows as they are, so that a reader can start at any, and the slow calls that are new or have another
cause than in the lines before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stallprobes.errors import MalformedJson
from stallprobes.files.json_reader import Node, clean
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.recording.line_writer import LONGEST_TEXT_OF_LINE, LineWriter, encoded
from stallprobes.recording.recorder import created, telemetry_out, try_to_create
from stallprobes.recording.recording_format import FORMAT, VERSION
from stallprobes.traces import codec
from stallprobes.traces.trace import Trace
from stallprobes.watch.attribution.findings import ExplainedCall, ProcessFindings, WatchFindings
from stallprobes.watch.live import value_codec
from stallprobes.watch.live.live_view import MOST_ROWS, WatchMoment, slow_calls
from stallprobes.watch.live.trace_history import TriggeringCall

# The key of the lines, and of the first line, which says what the recording is of.
WATCH, KIND = "watch", "kind"
# A cause may change until so much after the call's end.
CHANGES_NS = 10_000_000_000
MOST_CALLS_IN_LINE = 2000
MOST_OUTPUT_IN_LINE = 500
_LONGEST_OUTPUT = 1000
# Traces of slow calls: at most one in this time.
TRACE_EVERY_NS = 10_000_000_000
# A trace shows what follows the call too.
_TRACE_AFTER_NS = 1_000_000_000

_CallKey = tuple[int, int, int, int, str]


@dataclass(frozen=True, eq=False)
class OutputLines:
    """The last lines of a program's output, and how many there were before the first of them."""

    before: int
    lines: Sequence[str]


class WatchRecorder:
    """Writes moments to ``path``, a new file that is created with the first of them.

    ``trace_of`` makes the trace of a slow call. ``problem`` is a sentence once writing has failed; then nothing more is
    written. Raises RecordingError where the file exists or cannot be created.
    """

    def __init__(self, path: Path, trace_of: Callable[[TriggeringCall], Trace] | None = None) -> None:
        try_to_create(path)
        self.path = path
        self.written = self.traces = 0
        self.problem = ""
        self._trace_of = trace_of
        self._writer: LineWriter | None = None
        self._file: Any = None
        self._calls: dict[_CallKey, ExplainedCall] = {}
        self._output = self._last_ns = 0
        # When the last trace was written.
        self._traced_ns: int | None = None
        self._last_traced_end_ns = 0

    def put(
        self,
        moment: WatchMoment,
        output: OutputLines | None = None,
        telemetry: TelemetrySnapshot | None = None,
        *,
        last: bool = False,
    ) -> None:
        """Write a moment that has new findings, the output since the last one, and NVML's values.

        The ``last`` one has the trace of the slowest call since the last trace, however recent that one is.
        """
        self._guarded(lambda: self._put(moment, output, telemetry, last))

    def close(self) -> None:
        """Write the end. A file without a moment is removed."""
        if self._file is None:
            return
        if self._writer is not None:
            self._guarded(self._writer.finish)
        self._file.close()
        self._writer = self._file = None
        if not self.written:
            # The disk had no room for the first moment: nothing is left behind.
            self.path.unlink(missing_ok=True)

    def _guarded(self, write: Callable[[], None]) -> None:
        if self.problem:
            return
        try:
            write()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            rest = f"; the {self.written} moments before are readable" if self.written else ""
            self.problem = f"{self.path} cannot be written: {why}{rest}"

    def _put(
        self, moment: WatchMoment, output: OutputLines | None, telemetry: TelemetrySnapshot | None, last: bool
    ) -> None:
        text = self._line(moment, output, telemetry, MOST_CALLS_IN_LINE)
        if len(text) > LONGEST_TEXT_OF_LINE:
            text = self._line(moment, None, None, 0)
        if len(text) > LONGEST_TEXT_OF_LINE:
            raise ValueError("a moment is larger than a line may be")
        if self._writer is None:
            self._file = created(self.path)
            head = {"format": FORMAT, "version": VERSION, "begun_s": time.time(), KIND: WATCH}
            self._writer = LineWriter(self._file, head)
        self._writer.put_encoded(text)
        self.written += 1
        self._keep(moment.findings, moment.at_ns)
        self._put_trace(moment, last)

    def _line(
        self, moment: WatchMoment, output: OutputLines | None, telemetry: TelemetrySnapshot | None, most: int
    ) -> bytes:
        findings = _trimmed(self._with_changes(moment.findings, most))
        program = replace(moment.program, words=moment.program.words[: value_codec.MOST_ITEMS])
        # The time comes first, so that an index is made without decoding the rest.
        line: dict[str, Any] = {
            "w": round(moment.wall_s, 4),
            "at": moment.at_ns,
            "program": value_codec.encoded(program),
            "findings": value_codec.encoded(findings),
        }
        if output is not None:
            new = list(output.lines)[max(self._output - output.before, 0) :][-MOST_OUTPUT_IN_LINE:]
            line["output"] = [clean(one)[:_LONGEST_OUTPUT] for one in new]
            self._output = output.before + len(output.lines)
        if telemetry is not None:
            line["nvml"] = telemetry_out(telemetry)
        return encoded({WATCH: line})

    def _with_changes(self, findings: WatchFindings, most: int) -> WatchFindings:
        """``findings`` with the slow calls alone that are not in the lines before as they are."""

        def changed(process: ProcessFindings) -> ProcessFindings:
            calls = [call for call in process.slow_calls if self._calls.get(_key(process, call)) != call]
            old = self._border_ns
            return replace(
                process, slow_calls=tuple(call for call in calls if call.end_ns >= old)[-most:] if most else ()
            )

        return replace(findings, processes=tuple(changed(process) for process in findings.processes))

    @property
    def _border_ns(self) -> int:
        """Calls that ended before have been written, and have their cause."""
        return self._last_ns - CHANGES_NS

    def _keep(self, findings: WatchFindings, at_ns: int) -> None:
        self._last_ns = at_ns
        border = self._border_ns
        self._calls = {
            _key(process, call): call
            for process in findings.processes
            for call in process.slow_calls
            if call.end_ns >= border
        }

    def _put_trace(self, moment: WatchMoment, last: bool) -> None:
        """Write the trace of the slowest call that ended 1 s ago or earlier; at most one trace in 10 s."""
        if self._trace_of is None or self._writer is None:
            return
        if not last and self._traced_ns is not None and moment.at_ns - self._traced_ns < TRACE_EVERY_NS:
            return
        border_ns = moment.at_ns - (0 if last else _TRACE_AFTER_NS)
        settled = [
            call for call, _ in slow_calls(moment.findings) if self._last_traced_end_ns < call.end_ns <= border_ns
        ]
        if settled:
            slowest = max(settled, key=lambda call: call.duration_ns)
            self._traced_ns, self._last_traced_end_ns = moment.at_ns, slowest.end_ns
            trace = self._trace_of(TriggeringCall.of(slowest))
            self.traces += _is_readable(trace) and self._writer.put_trace(trace)


def _key(process: ProcessFindings, call: ExplainedCall) -> _CallKey:
    return process.pid, process.image, call.thread, call.begin_ns, call.function


def _is_readable(trace: Trace) -> bool:
    """Whether a reader accepts ``trace``: a damaged file of a process may give one beyond the limits of recordings."""
    try:
        codec.read_trace(Node(codec.trace_out(codec.cut(trace)), "trace"))
    except MalformedJson:
        return False
    return True


def _trimmed(findings: WatchFindings) -> WatchFindings:
    """``findings`` with at most MOST_ROWS rows, those that lost and used most time."""
    rows = [row for process in findings.processes for thread in process.threads for row in thread.rows]
    if len(rows) <= MOST_ROWS:
        return findings
    kept = {id(row) for row in sorted(rows, key=lambda row: (-row.lost_ns, -row.total_ns))[:MOST_ROWS]}
    processes = []
    for process in findings.processes:
        threads = [
            replace(thread, rows=tuple(row for row in thread.rows if id(row) in kept)) for thread in process.threads
        ]
        processes.append(replace(process, threads=tuple(thread for thread in threads if thread.rows)))
    return replace(findings, processes=tuple(processes))
