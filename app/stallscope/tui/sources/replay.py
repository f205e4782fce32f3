"""A recording as a source of frames, with pause and seek; it drives the same screen as the live engine does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from stallprobes.live.analyzer import Baseline
from stallprobes.live.observation import Observation
from stallprobes.live.recording import Recording

# How much before the place that was gone to is read again, so that there is a history to see.
LEAD_S = 20.0


class Replay:
    """Plays ``recording`` on the clock of the wall."""

    replayed = True

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic) -> None:
        self.recording = recording
        self._clock = clock
        self._frames: Iterator[Observation] = iter(())
        self._next = 0
        self._at_s = 0.0
        self._since: float | None = None
        self.fresh = True
        self.seek(0.0)

    @property
    def at_s(self) -> float:
        """Where the recording is, in seconds from its beginning."""
        played = 0.0 if self._since is None else self._clock() - self._since
        return min(self._at_s + played, self.recording.seconds)

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._since is None

    def start(self) -> None:
        """Begin to play."""
        self._since = self._clock()

    def pause(self) -> None:
        """Stand still, or go on."""
        self._at_s, self._since = self.at_s, (self._clock() if self._since is None else None)

    def seek(self, seconds: float) -> None:
        """Go to ``seconds`` from the beginning; the frames of the time before it come again."""
        self._at_s = min(max(seconds, 0.0), self.recording.seconds)
        if self._since is not None:
            self._since = self._clock()
        self._next = self.recording.number_at(max(0.0, self._at_s - LEAD_S))
        self._frames = self.recording.play(self._next)
        self.fresh = True

    def take(self) -> list[Observation]:
        """The frames that are due."""
        until = self.recording.number_at(self.at_s)
        found = []
        while self._next <= until:
            observation = next(self._frames, None)
            if observation is None:
                break
            found.append(observation)
            self._next += 1
        return found

    def baselines(self) -> Mapping[str, Baseline]:
        """The quiet bases that were known at the last frame taken."""
        return self.recording.baselines(max(self._next - 1, 0))

    def close(self) -> None:
        """Nothing is held."""
