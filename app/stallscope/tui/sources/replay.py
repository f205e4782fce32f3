"""Source of observations from a recording, with pause and seek."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from stallprobes.errors import RecordingError
from stallprobes.latency.baseline import Baseline
from stallprobes.recording.index import RecordedTrace
from stallprobes.recording.observation import Observation
from stallprobes.recording.recording import Recording
from stallprobes.traces.trace import Trace

# Time before the target of a seek that is read again, so that the view has a history.
LEAD_S = 20.0


class ReplaySource:
    """Plays ``recording`` in real time; ``restarted`` is True from a seek until the next analyzer is made.

    It stops before a damaged observation; seeking goes past it. ``problem`` is a sentence once one was met, and
    ``damaged_here`` is True where playing has stopped at one. ``traces`` are those of the recording, not decoded.
    """

    replayed = True

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic) -> None:
        self.recording = recording
        self._clock = clock
        self._observations: Iterator[Observation] = iter(())
        self._next = 0
        self._at_s = 0.0
        self._since: float | None = None
        self.traces: tuple[RecordedTrace, ...] = recording.traces()
        self.restarted = True
        self.problem: str | None = None
        self.damaged_here = False
        # Numbers of the observations that cannot be read.
        self._damaged: set[int] = set()
        self.seek(0.0)

    @property
    def at_s(self) -> float:
        """The position in seconds from the first observation."""
        played = 0.0 if self._since is None else self._clock() - self._since
        return min(self._at_s + played, self.recording.seconds)

    @property
    def paused(self) -> bool:
        """Whether the position stands still."""
        return self._since is None

    def start(self) -> None:
        """Start playing."""
        self._since = self._clock()

    def pause(self) -> None:
        """Pause or resume."""
        self._at_s, self._since = self.at_s, (self._clock() if self._since is None else None)

    def seek(self, seconds: float) -> None:
        """Go to ``seconds``; ``observations`` then returns those of the time before it again."""
        self._at_s = min(max(seconds, 0.0), self.recording.seconds)
        if self._since is not None:
            self._since = self._clock()
        target = self.recording.number_at(self._at_s)
        lead = self.recording.number_at(max(0.0, self._at_s - LEAD_S))
        self._next = max([lead, *(number + 1 for number in self._damaged if number <= target)])
        self._observations = self.recording.play(self._next)
        self.restarted, self.damaged_here = True, False

    def observations(self) -> list[Observation]:
        """The observations that are due."""
        until = self.recording.number_at(self.at_s)
        found = []
        while self._next <= until:
            try:
                observation = next(self._observations, None)
            except RecordingError as error:
                self._stop_at_damage(error)
                break
            if observation is None:
                break
            found.append(observation)
            self._next += 1
        return found

    def baselines(self, observation: Observation) -> Mapping[str, Baseline]:
        """The baselines that the recording knew at ``observation``, by probe."""
        # The sum of both ends is rounded.
        after_s = observation.wall_s - self.recording.begun_s + 1e-6
        try:
            return self.recording.baselines(self.recording.number_at(after_s))
        except RecordingError as error:
            self.problem = str(error)
            return {}

    def nearest_trace(self, at_s: float) -> RecordedTrace | None:
        """The trace nearest to ``at_s`` seconds from the first observation; None if the recording has none."""
        return min(self.traces, key=lambda one: abs(one.at_s - at_s), default=None)

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

    def _stop_at_damage(self, error: RecordingError) -> None:
        self.problem, self.damaged_here = str(error), True
        self._damaged.add(self._next)
        self._at_s, self._since = self.recording.at_s(self._next), None
