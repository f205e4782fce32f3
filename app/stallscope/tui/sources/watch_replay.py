"""Source of a watched program from a recording, with pause and seek."""

from __future__ import annotations

import time
from collections.abc import Callable

from stallprobes.errors import RecordingError
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.recording.index import RecordedTrace
from stallprobes.traces.trace import Trace
from stallprobes.watch.live.live_view import WatchedProgram, WatchMoment
from stallprobes.watch.live.recording import RecordedWatch, WatchRecording
from stallprobes.watch.live.trace_history import TriggeringCall


class WatchReplaySource:
    """Plays ``recording`` in real time. It stops before a damaged moment; ``problem`` is then a sentence."""

    replayed = True
    failure = output_elsewhere = running_text = ""

    def __init__(self, recording: WatchRecording, clock: Callable[[], float] = time.monotonic) -> None:
        self.recording = recording
        self.problem: str | None = None
        self.note = "truncated: what followed is missing" if recording.cut_off else ""
        self.traces: tuple[RecordedTrace, ...] = recording.traces()
        self._clock = clock
        self._at_s = 0.0
        self._since: float | None = None
        self._shown: RecordedWatch = recording.at(0)
        self._number = 0

    @property
    def at_s(self) -> float:
        """The position in seconds from the first moment."""
        played = 0.0 if self._since is None else self._clock() - self._since
        return min(self._at_s + played, self.recording.seconds)

    def start(self) -> None:
        """Start playing."""
        self._since = self._clock()

    def pause(self) -> None:
        """Pause or resume."""
        self._at_s, self._since = self.at_s, (self._clock() if self._since is None else None)

    def seek(self, by_s: float) -> None:
        """Go ``by_s`` seconds forward, or back."""
        self._at_s = min(max(self.at_s + by_s, 0.0), self.recording.seconds)
        if self._since is not None:
            self._since = self._clock()

    def suspend(self) -> None:
        """Pause while the screen is suspended."""
        self._at_s, self._since = self.at_s, None

    def resume(self) -> None:
        """Continue."""
        self.start()

    def close(self) -> None:
        """Close the recording."""
        self.recording.close()

    @property
    def moment(self) -> WatchMoment | None:
        """The moment at the position."""
        number = self.recording.number_at(self.at_s)
        if number != self._number and self.problem is None:
            try:
                self._shown, self._number = self.recording.at(number), number
            except RecordingError as error:
                self.problem = self.failure = str(error)
                self._at_s, self._since = self.at_s, None
        return self._shown.moment

    @property
    def output(self) -> list[str]:
        """The last lines of the program's output."""
        return list(self._shown.output)

    @property
    def telemetry(self) -> TelemetrySnapshot | None:
        """NVML's values; None without any."""
        return self._shown.telemetry

    @property
    def gpu_text(self) -> str:
        """Why there are no values."""
        return "" if self._shown.telemetry is not None else "not recorded"

    @property
    def program_state(self) -> WatchedProgram:
        """The program as it was."""
        return self._shown.moment.program

    @property
    def position_text(self) -> str:
        """Position: ``REPLAY 0:05/0:07``."""
        state = "REPLAY" if self._since is not None else "REPLAY, PAUSED"
        return f"{state} {_minutes(self.at_s)}/{_minutes(self.recording.seconds)}"

    def resize_output(self, columns: int, lines: int) -> None:
        """Set the size of the pane: a recorded program has none."""

    def keep_trace(self, call: TriggeringCall | None) -> None:
        """Keep a trace: a recording has its own, so nothing is kept."""

    def show_present(self) -> None:
        """Show the present: the timeline shows the trace nearest to the position."""

    def nearest_trace(self, at_s: float) -> RecordedTrace | None:
        """The trace nearest to ``at_s`` seconds; None if the recording has none."""
        return min(self.traces, key=lambda one: abs(one.at_s - at_s), default=None)

    def trace(self, recorded: RecordedTrace) -> Trace | None:
        """The trace ``recorded``, decoded; None if it is damaged, with a sentence in ``problem``."""
        try:
            return self.recording.trace(recorded.number)
        except RecordingError as error:
            self.problem = str(error)
            return None


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
