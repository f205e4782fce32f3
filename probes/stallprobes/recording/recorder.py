"""Recorder: writes observations to a file as they come, so that whatever ends it, what was written is readable.

The file is one line of JSON (format and version), then a zlib stream of lines of JSON. The stream is flushed after each
line, so that a truncated file loses its last lines only. Each line is a checksum and a probe set, baselines, a
trace, or an observation, whose histograms are differences from the observation before it, so that a reader can start
anywhere.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stallprobes.engine.snapshot import Snapshot
from stallprobes.errors import RecordingError
from stallprobes.files.json_reader import clean
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.window import ChannelMap
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import Channel
from stallprobes.recording.line_writer import LineWriter
from stallprobes.recording.observation import Observation, ProbeSet
from stallprobes.recording.recording_format import (
    BASELINES,
    FORMAT,
    LONGEST_TEXT,
    MOST_ITEMS,
    OBSERVATION,
    PROBE_SET,
    VERSION,
)
from stallprobes.traces.trace import Trace

_QUEUE = 100
# A baseline is extended every second, and a reader that starts anywhere needs one that is recent.
_BASELINES_EVERY_S = 10.0


class Recorder:
    """Writes observations to ``path`` in its own thread, so that a slow disk delays nothing else.

    The file is created with the first observation, so that none without one is left behind. ``written`` counts the
    observations in it, ``dropped`` those lost to a full queue or a failed disk; ``traces`` and ``traces_dropped`` count
    traces, which are also lost beyond 64 MiB in total and before the first observation. ``problem`` is a sentence once
    writing has failed. Raises RecordingError where the file exists or cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self.dropped = 0
        self.traces = 0
        self.traces_dropped = 0
        self.problem: str | None = None
        try_to_create(path)
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
        return f"; the {self.written} observations before are readable" if self.written else ""

    def _run(self) -> None:
        try:
            self._write_all()
        except OSError as error:
            self.problem = f"{self.path} cannot be written: {error.strerror or error}{self._rest}"
        except Exception as error:
            # A value that the format cannot hold. Who puts observations must not wait for a thread that has ended.
            self.problem = f"{self.path} cannot be written: {type(error).__name__}: {error}{self._rest}"
        else:
            return
        while (item := self._queue.get()) is not None:
            self._count_lost(item)

    def _count_lost(self, item: tuple[Observation, Mapping[str, Baseline]] | Trace) -> None:
        if isinstance(item, Trace):
            self.traces_dropped += 1
        else:
            self.dropped += 1

    def _write_all(self) -> None:
        while isinstance(item := self._queue.get(), Trace):
            self.traces_dropped += 1
        if item is None:
            return
        file = created(self.path)
        try:
            with file:
                writer = _Writer(file)
                while item is not None:
                    if isinstance(item, Trace):
                        written = writer.write_trace(item)
                        self.traces, self.traces_dropped = self.traces + written, self.traces_dropped + (not written)
                    else:
                        writer.write(*item)
                        self.written += 1
                    item = self._queue.get()
                writer.finish()
        except BaseException:
            if not self.written:
                self.path.unlink(missing_ok=True)
            raise


def created(path: Path) -> BinaryIO:
    """The new file ``path``. Raises OSError."""
    # Without a buffer, whose rest would be written again when the file is closed on a full disk.
    return path.open("xb", buffering=0)


def try_to_create(path: Path) -> None:
    """Raise RecordingError unless ``path`` can be created. It is not left behind."""
    try:
        created(path).close()
        path.unlink()
    except FileExistsError:
        raise RecordingError(f"{path} exists; a recording never overwrites a file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RecordingError(f"{path} cannot be written: {why}") from error


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self._lines = LineWriter(file, {"format": FORMAT, "version": VERSION, "begun_s": time.time()})
        self._probe_set: ProbeSet | None = None
        self._baselines: dict[str, Baseline] = {}
        self._baselines_s = 0.0
        self._timeline = False
        self._before: Snapshot | None = None

    def write(self, observation: Observation, baselines: Mapping[str, Baseline]) -> None:
        if observation.probe_set is not self._probe_set:
            self._probe_set, self._before, self._baselines = observation.probe_set, None, {}
            self._lines.put({PROBE_SET: _probe_set_out(observation.probe_set)})
        switched = observation.timeline not in (None, self._timeline)
        self._timeline = self._timeline if observation.timeline is None else observation.timeline
        if switched or self._baselines_due(observation.wall_s, baselines):
            self._baselines, self._baselines_s = dict(baselines), observation.wall_s
            self._lines.put(_baselines_out(baselines, observation.probe_set))
        self._lines.put({OBSERVATION: _observation_out(observation, self._before)})
        if observation.snapshot is not None:
            self._before = observation.snapshot

    def write_trace(self, trace: Trace) -> bool:
        """Write a trace; False if the traces have become too large, so that it is left out."""
        return self._lines.put_trace(trace)

    def _baselines_due(self, wall_s: float, baselines: Mapping[str, Baseline]) -> bool:
        """Whether one is new or was discarded, or they were extended and have not been written for a while."""
        begun, known = ({name: one.at_ns for name, one in each.items()} for each in (baselines, self._baselines))
        extended = any(one is not self._baselines.get(name) for name, one in baselines.items())
        return begun != known or (extended and wall_s - self._baselines_s >= _BASELINES_EVERY_S)

    def finish(self) -> None:
        self._lines.finish()


def _baselines_out(baselines: Mapping[str, Baseline], probe_set: ProbeSet) -> dict[str, Any]:
    own = {probe.name: frozenset(probe.program.channels()) for probe in probe_set.probes}
    out: dict[str, Any] = {BASELINES: {}, "windows": {}}
    traced = {}
    for name, one in baselines.items():
        out[BASELINES][name] = [one.at_ns, _channels_out(_of_program(one.channels, own[name]), None)]
        out["windows"][name] = {
            "ns": one.duration_ns,
            "shared": one.shared,
            **{str(q): _channels_out(_of_program(part, own[name]), None) for q, part in one.percentiles.items()},
        }
        whole = _channels_out(_of_timeline(one.channels, own[name]), None)
        if whole:
            parts = {str(q): _channels_out(_of_timeline(part, own[name]), None) for q, part in one.percentiles.items()}
            traced[name] = {"all": whole, **parts}
    return out | ({"traced": traced} if traced else {})


def _of_program(channels: ChannelMap, own: Collection[Channel]) -> ChannelMap:
    """Those of ``channels`` that are in ``own``, the channels of the probe's program."""
    return {channel: histogram for channel, histogram in channels.items() if channel in own}


def _of_timeline(channels: ChannelMap, own: Collection[Channel]) -> ChannelMap:
    """Those of ``channels`` that the timeline fills."""
    return {channel: histogram for channel, histogram in channels.items() if channel not in own}


def _probe_set_out(probe_set: ProbeSet) -> dict[str, Any]:
    return {
        "title": probe_set.title,
        "backend": probe_set.backend,
        "gpu": _foreign(probe_set.gpus[0].label) if probe_set.gpus else "",
        "more_gpus": [_foreign(gpu.label) for gpu in probe_set.gpus[1:]],
        "facts": [_foreign(one) for one in probe_set.details],
        "pattern": probe_set.pattern,
        "variant": probe_set.variant,
        "watch": probe_set.expect,
        "why_simulated": probe_set.why_simulated and _foreign(probe_set.why_simulated),
        "probes": [
            {
                "name": probe.name,
                "title": probe.title,
                "role": probe.role,
                "entry": probe.entry,
                "context": probe.context,
                "stream": probe.stream,
                "period_ns": probe.period_ns,
                **({} if probe.baseline_period_ns is None else {"baseline_period_ns": probe.baseline_period_ns}),
                "slot_group": probe.slot_group,
                "proof": probe.program.proof is not None,
                "ops": [[op.fn, op.phase, op.label] for op in probe.program.ops],
            }
            for probe in probe_set.probes
        ],
    }


def _channels_out(channels: ChannelMap, before: ChannelMap | None) -> list[Any]:
    out = []
    for channel, hist in channels.items():
        # The channels of the timeline begin when it is switched on.
        earlier = None if before is None else before.get(channel)
        counts = hist.counts if earlier is None else hist.counts - earlier.counts
        used = np.flatnonzero(counts)
        pairs = np.stack((used, counts[used].astype(np.int64)), axis=1).ravel().tolist()
        out.append([channel.phase, channel.label, hist.max_ns, pairs])
    return out


def _observation_out(observation: Observation, before: Snapshot | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "w": round(observation.wall_s, 4),
        "e": [observation.engine.state, round(observation.engine.age_s, 2), _foreign(observation.engine.sentence)],
    }
    if observation.waiting:
        out["held"] = sorted(observation.waiting)
    if observation.experiment:
        out["blame"] = True
    if observation.timeline is not False:
        # null while it is being switched.
        out["timeline"] = observation.timeline
    if observation.other_processes:
        out["others"] = [_foreign(one) for one in observation.other_processes[:MOST_ITEMS]]
    if observation.probe_failures:
        out["troubles"] = [[t.probe, t.op, t.code, _foreign(t.text), t.fatal] for t in observation.probe_failures]
    if observation.telemetry is not None:
        out["nvml"] = telemetry_out(observation.telemetry)
    if observation.snapshot is not None:
        out["s"] = _snapshot_out(observation.snapshot, before, observation.probe_set)
    return out


def telemetry_out(telemetry: TelemetrySnapshot) -> dict[str, Any]:
    """NVML's values as JSON types."""
    readings = {}
    for name, reading in telemetry.readings.items():
        value = reading.value
        if name == "processes" and value is not None:
            value = [[one.pid, _foreign(one.name), one.memory_bytes] for one in value[:MOST_ITEMS]]
        readings[name] = [value, reading.at_ns, reading.why and _foreign(reading.why)]
    return {
        "uuid": telemetry.uuid,
        "at": telemetry.at_ns,
        "state": telemetry.state,
        "why": telemetry.why and _foreign(telemetry.why),
        "r": readings,
    }


def _snapshot_out(snapshot: Snapshot, before: Snapshot | None, probe_set: ProbeSet) -> dict[str, Any]:
    probes, traced = {}, {}
    own = {probe.name: frozenset(probe.program.channels()) for probe in probe_set.probes}
    for name, part in snapshot.probes.items():
        flight, error = part.in_flight, part.error
        channels, more = _of_program(part.channels, own[name]), _of_timeline(part.channels, own[name])
        earlier = None if before is None else before.probes[name].channels
        if more:
            traced[name] = [_channels_out(more, earlier), [part.first_ns.get(channel) for channel in more]]
        probes[name] = [
            [
                int(part.state),
                int(part.on),
                part.iterations,
                part.on_since_ns,
                part.heartbeat_ns,
                part.missed,
                part.proof,
            ],
            part.period_ns,
            None if flight is None else [flight.op, flight.since_ns, flight.age_ns, flight.due_ns],
            None if error is None else [error.code, error.op, error.at_ns],
            _channels_out(channels, earlier),
            [part.first_ns.get(channel) for channel in channels],
        ]
    out = {
        "at": snapshot.at_ns,
        "state": int(snapshot.engine_state),
        "beat": snapshot.engine_heartbeat_ns,
        "p": probes,
    }
    # Of few probes, or none: a line without them is shorter.
    slots = {
        name: [part.allowed_ns, part.not_alone_ns, part.in_flight.allowed_ns if part.in_flight is not None else 0]
        for name, part in snapshot.probes.items()
        if part.in_slots
    }
    polls = {name: [part.polled_ns, part.pauses] for name, part in snapshot.probes.items() if part.polled_ns}
    optional = {"slots": slots, "polls": polls, "traced": traced}
    return out | {key: value for key, value in optional.items() if value}


def _foreign(text: str) -> str:
    """``text`` of a driver or another program as a reader accepts it."""
    return clean(text)[:LONGEST_TEXT]
