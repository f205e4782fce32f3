"""Recordings of probes, read and analyzed again as the screen does it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from stallprobes.live.analyzer import Analyzer
from stallprobes.recording.observation import ProbeSet
from stallprobes.recording.recording import Recording


@dataclass(frozen=True, eq=False)
class Replayed:
    """The ``analyzer`` after the last observation; the times of the first and the last one in seconds since 1970."""

    analyzer: Analyzer
    begun_s: float
    last_s: float


def replayed(path: Path, made: Callable[[ProbeSet], Analyzer] = Analyzer) -> Replayed:
    """The recording ``path`` of one probe set, fed to the analyzer that ``made`` returns. Raises RecordingError."""
    with closing(Recording(path)) as recording:
        analyzer: Analyzer | None = None
        for number, observation in enumerate(recording.play()):
            analyzer = analyzer or made(observation.probe_set)
            analyzer.feed(observation)
            analyzer.follow_recorded(recording.baselines(number))
            last_s = observation.wall_s
        assert analyzer is not None
        return Replayed(analyzer, recording.begun_s, last_s)


def read_all(path: Path) -> None:
    """Decode everything in the recording ``path``. Raises RecordingError."""
    with closing(Recording(path)) as recording:
        for number, _ in enumerate(recording.play()):
            recording.baselines(number)
        for trace in recording.traces():
            recording.trace(trace.number)
