"""Source of a watched program from a recording, with pause and seek."""

from __future__ import annotations

import time
from collections.abc import Callable

from stallprobes.errors import RecordingError
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.watch.live.live_view import WatchedProgram, WatchMoment
from stallprobes.watch.live.recording import RecordedWatch, WatchRecording
from stallscope.tui.sources.pane_program import ShownOutput
from stallscope.tui.sources.playback import Playback


class WatchReplaySource(Playback[WatchRecording]):
    """Plays ``recording`` in real time. It stops before a damaged moment."""

    kept_traces = trial = None
    slow_calls_only = True
    failure = running_text = ""

    def __init__(self, recording: WatchRecording, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(recording, clock)
        self.note = "truncated: what followed is missing" if recording.cut_off else ""
        self._shown: RecordedWatch = recording.at(0)
        self._number = 0

    def resume(self) -> None:
        """Continue."""
        self.start()

    @property
    def moment(self) -> WatchMoment | None:
        """The moment at the position."""
        number = self.recording.number_at(self.at_s)
        if number != self._number and self.problem is None:
            try:
                self._shown, self._number = self.recording.at(number), number
            except RecordingError as error:
                self.problem = self.failure = str(error)
                self.suspend()
        return self._shown.moment

    @property
    def output(self) -> ShownOutput:
        """The program's output."""
        return ShownOutput(self._shown.output)

    @property
    def gpu_values(self) -> tuple[TelemetrySnapshot | None, str]:
        """NVML's values, or None and why there are none."""
        return self._shown.telemetry, "" if self._shown.telemetry is not None else "not recorded"

    @property
    def program_state(self) -> WatchedProgram:
        """The program as it was."""
        return self._shown.moment.program
