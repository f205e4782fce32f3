"""Recording of a watched program: its moments and traces, read with a check of every value, from any moment on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stallprobes.errors import FileNotRead, RecordingError
from stallprobes.files import input_file
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.recording.indexed_recording import IndexedRecording, damage
from stallprobes.recording.recording_format import LONGEST_HEAD, Head
from stallprobes.watch.attribution.findings import ExplainedCall, WatchFindings
from stallprobes.watch.live.live_view import LiveRows, WatchMoment
from stallprobes.watch.live.recorder import MomentLine, SlowCallKey, call_key

# Largest number of moments (states of the watched program, one a line) in a recording.
MOST_MOMENTS = 1 << 22
# Number of moments that are read before the target of a jump in a recording. The screen also shows the slow calls and
# the output of these moments.
LEAD = 30
# Largest number of slow calls that the screen of a recording keeps of past and present moments: the last calls.
MOST_CALLS = 10_000
# Largest number of lines of output that the screen of a recording keeps of past and present moments: the last lines.
MOST_OUTPUT = 2000


def is_watch_recording(path: Path) -> bool:
    """True if the file ``path`` begins as the recording of a watched program does; False if it cannot be read."""
    try:
        # What is read of a pipe is gone.
        if not path.is_file():
            return False
        with input_file.opened(path) as file:
            return Head.of_text(path, file.readline(LONGEST_HEAD)).kind == MomentLine.key
    except (OSError, ValueError, FileNotRead, RecordingError):
        return False


@dataclass(frozen=True, eq=False)
class RecordedWatch:
    """A moment of a recording, the last lines of the program's output until then, and NVML's values, if recorded."""

    moment: WatchMoment
    output: tuple[str, ...]
    telemetry: TelemetrySnapshot | None = None


class _State:
    """Sum of the lines up to one."""

    def __init__(self) -> None:
        self._calls: dict[SlowCallKey, ExplainedCall] = {}
        self._output: list[str] = []
        self._before: WatchFindings | None = None

    def add(self, line: MomentLine) -> RecordedWatch:
        """Add a line. Returns the moment."""
        for process in line.findings.processes:
            self._calls |= {call_key(process, call): call for call in process.slow_calls}
        for key in list(self._calls)[: max(len(self._calls) - MOST_CALLS, 0)]:
            del self._calls[key]
        self._output = [*self._output, *line.output][-MOST_OUTPUT:]
        calls: dict[tuple[int, int], list[ExplainedCall]] = {}
        for key, call in self._calls.items():
            calls.setdefault(key[:2], []).append(call)
        processes = tuple(
            process.changed(
                slow_calls=tuple(sorted(calls.get((process.pid, process.image), ()), key=lambda call: call.end_ns)),
            )
            for process in line.findings.processes
        )
        whole = line.findings.changed(processes=processes)
        rows = LiveRows().recorded(whole, self._before)
        self._before = whole
        moment = WatchMoment(line.at_ns, line.wall_s, line.program, whole, rows)
        telemetry = None if line.telemetry is None else line.telemetry.telemetry()
        return RecordedWatch(moment, tuple(self._output), telemetry)


class WatchRecording(IndexedRecording):
    """An open recording of a watched program. ``damage`` is a sentence once ``last`` met a damaged moment."""

    _last: RecordedWatch

    def __init__(self, path: Path, progress: Callable[[float], None] = lambda _: None) -> None:
        """Open it as ``IndexedRecording`` does. Raises RecordingError."""
        self._next, self._state = 0, _State()
        self.damage: str | None = None
        super().__init__(path, MomentLine, "moment of a watched program", MOST_MOMENTS, progress)

    def _read_first(self) -> None:
        self.at(0)

    def at(self, number: int) -> RecordedWatch:
        """Moment ``number``, with the slow calls and the output of the LEAD before it."""
        if not self._next - 1 <= number < self._next + LEAD:
            self._next, self._state = max(number - LEAD, 0), _State()
        return self._read_to(number)

    def last(self, progress: Callable[[float], None] = lambda _: None) -> RecordedWatch:
        """The last moment before a damaged one, with all slow calls of the recording that a moment may have.

        ``progress`` is called with the share (0 to 1) of the moments that are read.
        """
        self._next, self._state = 0, _State()
        try:
            return self._read_to(len(self) - 1, progress)
        except RecordingError as error:
            # The first moment was read before.
            self.damage = str(error)
            return self._last

    def _read_to(self, number: int, progress: Callable[[float], None] = lambda _: None) -> RecordedWatch:
        for index, text in self._entry_lines(self._next, number + 1):
            progress(index / (number + 1))
            with damage(self.path, f"moment {index + 1}"):
                line = MomentLine.of_text(text)
            self._last, self._next = self._state.add(line), index + 1
        return self._last
