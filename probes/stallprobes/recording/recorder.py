"""Recorder: writes observations to a file as they come, so that the file stays readable, whatever ends the recorder.

The file is one line of JSON (format and version), then a zlib stream of lines of JSON. The stream is flushed after each
line, so that a truncated file loses its last lines only. Each line is a checksum and a probe set, baselines, a trace,
or an observation. The histograms of an observation are differences from the observation before it, so that a reader can
start anywhere.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from stallprobes.engine.snapshot import Snapshot
from stallprobes.errors import kind_and_text
from stallprobes.latency.baseline import Baseline
from stallprobes.recording.line_writer import LineWriter, not_written, readable_rest
from stallprobes.recording.lines import BaselinesLine, ObservationLine, ProbeSetLine
from stallprobes.recording.observation import Observation, ProbeSet
from stallprobes.traces.trace import Trace

# Largest number of observations and traces that wait to be written to a recording.
_QUEUE = 100
# Shortest time (s) after which baselines that were only extended are written to a recording again. New baselines are
# written at once. Reason: a reader that starts anywhere in the recording needs recent baselines.
_BASELINES_EVERY_S = 10.0


class Recorder:
    """Writes observations to ``path`` in its own thread, so that a slow disk delays nothing else.

    The first observation creates the file, so that no empty one is left behind. ``written`` counts the observations in
    it, ``dropped`` those lost to a full queue or a failed disk; ``traces`` and ``traces_dropped`` count traces, which
    are also lost beyond 64 MiB in total and before the first observation. ``problem`` is a sentence once writing has
    failed. Raises RecordingError where the file exists or cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self.dropped = 0
        self.traces = 0
        self.traces_dropped = 0
        self.problem: str | None = None
        self._lines = LineWriter(path)
        self._queue: queue.Queue[tuple[Observation, Mapping[str, Baseline]] | Trace | None] = queue.Queue(_QUEUE)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def put(self, observation: Observation, baselines: Mapping[str, Baseline]) -> None:
        """Record an observation and the baselines known with it. Never blocks; if the queue is full, it is dropped."""
        try:
            self._queue.put_nowait((observation, dict(baselines)))
        except queue.Full:
            self.dropped += 1

    def put_blocking(self, observation: Observation, baselines: Mapping[str, Baseline]) -> None:
        """Record an observation; blocks while the queue is full."""
        self._queue.put((observation, dict(baselines)))

    def put_trace(self, trace: Trace) -> None:
        """Record a trace, or the part around its trigger if it has many rows. Never blocks; a full queue drops it."""
        try:
            self._queue.put_nowait(trace)
        except queue.Full:
            self.traces_dropped += 1

    def put_trace_blocking(self, trace: Trace) -> None:
        """Record a trace; blocks while the queue is full."""
        self._queue.put(trace)

    def close(self, seconds: float = 1.0) -> None:
        """Write the queued observations, for at most ``seconds``; then ``problem`` is final."""
        until = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=seconds)
        self._thread.join(max(until - time.monotonic(), 0.0))
        if self._thread.is_alive() and self.problem is None:
            self.problem = f"{self.path} is incomplete: the disk took longer than {seconds:g} s{self._rest}"

    @property
    def _rest(self) -> str:
        return readable_rest(self.written, "observation")

    def _run(self) -> None:
        try:
            self._write_all()
        except OSError as error:
            self.problem = f"{not_written(self.path, error)}{self._rest}"
        except Exception as error:
            # A value that the format cannot hold. Who puts observations must not wait for a thread that has ended.
            self.problem = f"{self.path} cannot be written: {kind_and_text(error)}{self._rest}"
        else:
            return
        while (item := self._queue.get()) is not None:
            if isinstance(item, Trace):
                self.traces_dropped += 1
            else:
                self.dropped += 1

    def _write_all(self) -> None:
        observations, complete = _ObservationWriter(self._lines), False
        try:
            while (item := self._queue.get()) is not None:
                if isinstance(item, Trace):
                    written = self.written > 0 and self._lines.put_trace(item)
                    self.traces, self.traces_dropped = self.traces + written, self.traces_dropped + (not written)
                else:
                    observations.write(*item)
                    self.written += 1
            complete = True
        finally:
            self._lines.close(complete=complete, keep=self.written > 0)


class _ObservationWriter:
    """Writes observations, and what a reader needs before them: the probe set, and baselines that are recent."""

    def __init__(self, lines: LineWriter) -> None:
        self._lines = lines
        self._probe_set: ProbeSet | None = None
        self._baselines: Mapping[str, Baseline] = {}
        self._baselines_s = 0.0
        self._timeline = False
        self._before: Snapshot | None = None

    def write(self, observation: Observation, baselines: Mapping[str, Baseline]) -> None:
        """Write an observation and the baselines known with it."""
        if observation.probe_set is not self._probe_set:
            self._probe_set, self._before, self._baselines = observation.probe_set, None, {}
            self._lines.put(ProbeSetLine.of(observation.probe_set).text())
        switched = observation.timeline not in (None, self._timeline)
        self._timeline = self._timeline if observation.timeline is None else observation.timeline
        if switched or self._baselines_due(observation.wall_s, baselines):
            self._baselines, self._baselines_s = baselines, observation.wall_s
            self._lines.put(BaselinesLine.of(baselines).text())
        self._lines.put(ObservationLine.of(observation, self._before).text())
        self._before = observation.snapshot or self._before

    def _baselines_due(self, wall_s: float, baselines: Mapping[str, Baseline]) -> bool:
        """True if one is new or was discarded, or they were extended and have not been written for a while."""
        begun, written = ({name: part.at_ns for name, part in each.items()} for each in (baselines, self._baselines))
        extended = any(baseline is not self._baselines.get(name) for name, baseline in baselines.items())
        return begun != written or (extended and wall_s - self._baselines_s >= _BASELINES_EVERY_S)
