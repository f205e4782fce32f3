"""Source of observations from a recording, with pause and seek."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from stallprobes.errors import RecordingError
from stallprobes.latency.baseline import Baseline
from stallprobes.recording.observation import Observation
from stallprobes.recording.recording import Recording
from stallscope.tui.sources.playback import Playback

# After a seek, the recording is read again from this time (s) before the target. Reason: the heat map and the
# histograms need values from before the target.
LEAD_S = 20.0


class ReplaySource(Playback[Recording]):
    """Plays ``recording`` in real time; ``restarted`` is True from a seek until the next analyzer is made.

    It stops before a damaged observation; seeking goes past it. ``damaged_here`` is True where playing has stopped at
    one.
    """

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(recording, clock)
        self._observations: Iterator[Observation] = iter(())
        self._next = 0
        # Numbers of the observations that cannot be read.
        self._damaged: set[int] = set()
        self.seek(0.0)

    @property
    def state_text(self) -> str:
        """State of the replay in words: playing, paused, or stopped at damage."""
        return "REPLAY, DAMAGED HERE" if self.damaged_here else super().state_text

    def seek(self, seconds: float) -> None:
        """Go to ``seconds``; ``observations`` then returns the observations before it again."""
        super().seek(seconds)
        target = self.recording.number_at(self._at_s)
        lead = self.recording.number_at(max(0.0, self._at_s - LEAD_S))
        self._next = max([lead, *(number + 1 for number in self._damaged if number <= target)])
        self._observations = self.recording.play(self._next)
        self.restarted, self.damaged_here = True, False

    def observations(self) -> list[Observation]:
        """The observations that are due."""
        until = self.recording.number_at(self.at_s)
        observations = []
        while self._next <= until:
            try:
                observation = next(self._observations, None)
            except RecordingError as error:
                self._stop_at_damage(error)
                break
            if observation is None:
                break
            observations.append(observation)
            self._next += 1
        return observations

    def baselines(self, observation: Observation) -> Mapping[str, Baseline]:
        """The baselines that the recording knew at ``observation``, by probe."""
        # The sum of both ends is rounded.
        after_s = observation.wall_s - self.recording.begun_s + 1e-6
        try:
            return self.recording.baselines(self.recording.number_at(after_s))
        except RecordingError as error:
            self.problem = str(error)
            return {}

    def _stop_at_damage(self, error: RecordingError) -> None:
        self.problem, self.damaged_here = str(error), True
        self._damaged.add(self._next)
        self._at_s, self._since = self.recording.at_s(self._next), None
