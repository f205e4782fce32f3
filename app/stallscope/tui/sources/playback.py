"""Recording played in real time: the position in it, and its traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self, TypeVar

from stallprobes.errors import RecordingError
from stallprobes.recording.indexed_recording import IndexedRecording
from stallprobes.traces.trace import RecordedTrace, Trace

Played = TypeVar("Played", bound=IndexedRecording)


class Playback(Generic[Played]):
    """Position in ``recording``. ``problem`` is a sentence once something of it could not be read."""

    engine = program = None
    report_s = 0.0
    slow_calls_only = False

    def __init__(self, recording: Played, clock: Callable[[], float]) -> None:
        """``clock`` returns seconds; the position is at the beginning, and stands still until ``start``."""
        self.recording = recording
        self.problem: str | None = None
        self.traces = recording.traces()
        self._clock = clock
        self._at_s = 0.0
        self._since: float | None = None

    @property
    def playback(self) -> Self:
        """The source itself."""
        return self

    # The timeline shows the traces of the recording.
    recorded_traces = playback

    @property
    def at_s(self) -> float:
        """The position in seconds from the first entry."""
        played = 0.0 if self._since is None else self._clock() - self._since
        return min(self._at_s + played, self.recording.seconds)

    @property
    def state_text(self) -> str:
        """State of the replay in words: playing or paused."""
        return "REPLAY" if self._since is not None else "REPLAY, PAUSED"

    @property
    def position_text(self) -> str:
        """State and position: ``REPLAY 0:05/0:07``."""
        return f"{self.state_text} {_minutes(self.at_s)}/{_minutes(self.recording.seconds)}"

    def start(self) -> None:
        """Start playing."""
        self._since = self._clock()

    def suspend(self) -> None:
        """Stand still."""
        self._at_s, self._since = self.at_s, None

    def pause(self) -> None:
        """Pause or resume."""
        self._at_s, self._since = self.at_s, (self._clock() if self._since is None else None)

    def seek(self, seconds: float) -> None:
        """Go to ``seconds``, or to the nearest end."""
        self._at_s = min(max(seconds, 0.0), self.recording.seconds)
        if self._since is not None:
            self._since = self._clock()

    def nearest_trace(self, at_s: float) -> RecordedTrace | None:
        """The trace nearest to ``at_s`` seconds; None if the recording has none."""
        return min(self.traces, key=lambda trace: abs(trace.at_s - at_s), default=None)

    def trace(self, recorded: RecordedTrace) -> Trace | None:
        """The trace ``recorded``, decoded; None if it is damaged, with a sentence in ``problem``."""
        try:
            return self.recording.trace(recorded.number)
        except RecordingError as error:
            self.problem = str(error)
            return None

    def close(self) -> None:
        """Close the recording."""
        self.recording.close()


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
