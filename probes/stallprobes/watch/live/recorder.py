"""Recorder of a watched program: a line for each analysis, and traces of slow calls, in the format of all recordings.

A line has all rows as they are, so that a reader can start at any, and the slow calls that are new or have another
cause than in the lines before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from stallprobes.errors import MalformedJson
from stallprobes.files.codec import Nanoseconds, WallSeconds
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.recording.common_lines import StoredTelemetry
from stallprobes.recording.line_writer import LONGEST_TEXT_OF_LINE, LineWriter, not_written, readable_rest
from stallprobes.recording.recording_format import Line
from stallprobes.traces.trace import Trace
from stallprobes.units import plural
from stallprobes.watch.attribution.findings import ExplainedCall, ProcessFindings, WatchFindings
from stallprobes.watch.live.live_view import MOST_ROWS, WatchedProgram, WatchMoment, slow_calls
from stallprobes.watch.live.trace_history import TriggeringCall

# Longest time (ns) after a slow call's end in which changes of the call's cause are written to a recording. Afterwards,
# the recorded cause counts as final.
CHANGES_NS = 10_000_000_000
# Largest number of new or changed slow calls of each process in a recorded moment (a line): the last calls.
_MOST_CALLS_IN_LINE = 2000
# Largest number of lines of the program's output in one line (a moment) of a recording: the last lines of output.
_MOST_OUTPUT_IN_LINE = 500
# Largest number of characters that a recording keeps of a line of the program's output.
_LONGEST_OUTPUT = 1000
# Largest number of words of the watched program's command line that a recording keeps.
MOST_WORDS = 20_000
# Shortest time (ns) between two traces of slow calls in a recording. The trace at the end of a recording may follow
# sooner.
TRACE_EVERY_NS = 10_000_000_000
# Shortest time (ns) from a slow call's end until its trace is recorded. Reason: the records that the trace shows have
# been read by then. At the end of a recording, the limit does not apply.
_TRACE_AFTER_NS = 1_000_000_000

# Identity of a slow call: process, program of the process, thread, begin and function.
SlowCallKey = tuple[int, int, int, int, str]


class MomentLine(Line, frozen=True):
    """A moment of a watched program, with the output since the one before."""

    key: ClassVar[str] = "moment"

    wall_s: WallSeconds
    at_ns: Nanoseconds
    program: WatchedProgram
    findings: WatchFindings
    output: tuple[str, ...] = ()
    telemetry: StoredTelemetry | None = None


@dataclass(frozen=True, eq=False)
class OutputLines:
    """The last lines of a program's output, and how many there were before the first of them."""

    before: int
    lines: Sequence[str]


class WatchRecorder:
    """Writes moments to ``path``, a new file that is created with the first of them.

    ``trace_of`` makes the trace of a slow call. ``problem`` is a sentence once writing has failed; then nothing more is
    written. ``left_out`` counts the moments with values that no reader accepts, as a damaged file of a process may give
    them; they are not written. Raises RecordingError where the file exists or cannot be created.
    """

    def __init__(self, path: Path, trace_of: Callable[[TriggeringCall], Trace] | None = None) -> None:
        self.path = path
        self.written = self.traces = self.left_out = 0
        self.problem = ""
        self._lines = LineWriter(path, MomentLine.key)
        self._trace_of = trace_of
        self._calls: dict[SlowCallKey, ExplainedCall] = {}
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
        if not self.problem:
            self._guarded(lambda: self._put(moment, output, telemetry, last))

    def close(self) -> None:
        """Write the end. A file without a moment is removed."""
        complete = not self.problem
        self._guarded(lambda: self._lines.close(complete=complete, keep=self.written > 0))

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (OSError, ValueError) as error:
            self.problem = f"{not_written(self.path, error)}{readable_rest(self.written, 'moment')}"

    @property
    def left_out_text(self) -> str:
        """The sentence, without its end, about the moments that are left out; empty without any."""
        if not self.left_out:
            return ""
        left_out = f"{plural(self.left_out, 'moment')} {'is' if self.left_out == 1 else 'are'} not in {self.path}"
        return f"{left_out}: what a process wrote of itself has values that no reader accepts"

    def _put(
        self, moment: WatchMoment, output: OutputLines | None, telemetry: TelemetrySnapshot | None, last: bool
    ) -> None:
        text = self._line(moment, output, telemetry, _MOST_CALLS_IN_LINE)
        if len(text) > LONGEST_TEXT_OF_LINE:
            text = self._line(moment, None, None, 0)
        if len(text) > LONGEST_TEXT_OF_LINE:
            raise ValueError("a moment is larger than a line may be")
        if not _is_readable(text):
            self.left_out += 1
            return
        self._lines.put(text)
        self.written += 1
        if output is not None:
            self._output = output.before + len(output.lines)
        self._keep(moment.findings, moment.at_ns)
        self._put_trace(moment, last)

    def _line(
        self, moment: WatchMoment, output: OutputLines | None, telemetry: TelemetrySnapshot | None, most: int
    ) -> bytes:
        new: list[str] = []
        if output is not None:
            new = list(output.lines)[max(self._output - output.before, 0) :][-_MOST_OUTPUT_IN_LINE:]
        return MomentLine(
            moment.wall_s,
            moment.at_ns,
            replace(moment.program, words=moment.program.words[:MOST_WORDS]),
            _trimmed(self._with_changes(moment.findings, most)),
            tuple(line[:_LONGEST_OUTPUT] for line in new),
            None if telemetry is None else StoredTelemetry.of(telemetry),
        ).text()

    def _with_changes(self, findings: WatchFindings, most: int) -> WatchFindings:
        """``findings`` with only the slow calls that are new or changed since the lines before."""

        def changed(process: ProcessFindings) -> ProcessFindings:
            calls = [call for call in process.slow_calls if self._calls.get(call_key(process, call)) != call]
            new = tuple(call for call in calls if call.end_ns >= self._border_ns)
            return process.changed(slow_calls=new[-most:] if most else ())

        return findings.changed(processes=tuple(changed(process) for process in findings.processes))

    @property
    def _border_ns(self) -> int:
        """Time before which ended calls have been written with their final cause."""
        return self._last_ns - CHANGES_NS

    def _keep(self, findings: WatchFindings, at_ns: int) -> None:
        self._last_ns = at_ns
        border = self._border_ns
        self._calls = {
            call_key(process, call): call
            for process in findings.processes
            for call in process.slow_calls
            if call.end_ns >= border
        }

    def _put_trace(self, moment: WatchMoment, last: bool) -> None:
        """Write the trace of the slowest call that ended 1 s ago or earlier; at most one trace in 10 s."""
        if self._trace_of is None:
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
            self.traces += self._lines.put_trace(self._trace_of(TriggeringCall.of(slowest)))


def _is_readable(text: bytes) -> bool:
    """True if a reader accepts the line of a moment."""
    try:
        MomentLine.of_text(text)
    except MalformedJson:
        return False
    return True


def call_key(process: ProcessFindings, call: ExplainedCall) -> SlowCallKey:
    """The key of a slow call of ``process``."""
    return process.pid, process.image, call.thread, call.begin_ns, call.function


def _trimmed(findings: WatchFindings) -> WatchFindings:
    """``findings`` with at most MOST_ROWS rows, those that lost and used most time."""
    rows = [row for process in findings.processes for thread in process.threads for row in thread.rows]
    if len(rows) <= MOST_ROWS:
        return findings
    kept = {id(row) for row in sorted(rows, key=lambda row: (-row.lost_ns, -row.total_ns))[:MOST_ROWS]}
    processes = []
    for process in findings.processes:
        threads = [
            thread.changed(rows=tuple(row for row in thread.rows if id(row) in kept)) for thread in process.threads
        ]
        processes.append(process.changed(threads=tuple(thread for thread in threads if thread.rows)))
    return findings.changed(processes=tuple(processes))
