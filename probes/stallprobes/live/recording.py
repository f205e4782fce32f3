"""Recordings of observations: writer and reader of the file format.

The file is one line of JSON (format and version), then a zlib stream of lines of JSON. The stream is flushed after each
line, so that a truncated file loses its last lines only. Each line is a checksum and a probe set, baselines, or an
observation, whose histograms are differences from the observation before it, so that a reader can start anywhere.
"""

from __future__ import annotations

import json
import queue
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np

from stallprobes.catalog import entries
from stallprobes.engine.backend import ProbeFailure
from stallprobes.engine.board import EngineState, ProbeErrorCode, ProbeSnapshot, ProbeState, Snapshot
from stallprobes.errors import RecordingError
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import BUCKETS, Histogram
from stallprobes.latency.ratio import PERCENTILES
from stallprobes.latency.window import NO_CALLS, ChannelMap, InFlight
from stallprobes.live.observation import EngineCondition, EngineStatus, GpuName, Observation, ProbeSet
from stallprobes.machine.gpus import GpuProcess
from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot
from stallprobes.model import Channel, Context, Op, Phase, Probe, Program, Role, SlotGroup, Word

FORMAT = "stallscope.recording"
VERSION = 1

_OBSERVATION = b'{"f":{"w":'
_QUEUE = 100
# A baseline is extended every second, and a reader that starts anywhere needs one that is recent.
_BASELINES_EVERY_S = 10.0


class Recorder:
    """Writes observations to ``path`` in its own thread, so that a slow disk delays nothing else.

    ``dropped`` counts observations lost to a full queue; ``problem`` is a sentence once writing has failed. Raises
    RecordingError where the file exists or cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped = 0
        self.problem: str | None = None
        try:
            self._file: BinaryIO = path.open("xb")
        except FileExistsError:
            raise RecordingError(f"{path} exists; a recording never overwrites a file") from None
        except OSError as error:
            raise RecordingError(f"{path} cannot be written: {error.strerror}") from error
        self._queue: queue.Queue[tuple[Observation, Mapping[str, Baseline]] | None] = queue.Queue(_QUEUE)
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

    def close(self, seconds: float = 1.0) -> None:
        """Write the queued observations, for at most ``seconds``."""
        try:
            self._queue.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            with self._file:
                writer = _Writer(self._file)
                while (item := self._queue.get()) is not None:
                    writer.write(*item)
                writer.finish()
        except OSError as error:
            self.problem = f"{self.path} cannot be written: {error.strerror}"
            while self._queue.get() is not None:
                self.dropped += 1


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._zlib = zlib.compressobj(6)
        self._probe_set: ProbeSet | None = None
        self._baselines: dict[str, Baseline] = {}
        self._baselines_s = 0.0
        self._before: Snapshot | None = None
        head = {"format": FORMAT, "version": VERSION, "begun_s": time.time()}
        file.write(json.dumps(head).encode() + b"\n")
        file.flush()

    def write(self, observation: Observation, baselines: Mapping[str, Baseline]) -> None:
        if observation.probe_set is not self._probe_set:
            self._probe_set, self._before, self._baselines = observation.probe_set, None, {}
            self._line({"bench": _probe_set_out(observation.probe_set)})
        if self._baselines_due(observation.wall_s, baselines):
            self._baselines, self._baselines_s = dict(baselines), observation.wall_s
            self._line(_baselines_out(baselines))
        self._line({"f": _observation_out(observation, self._before)})
        if observation.snapshot is not None:
            self._before = observation.snapshot

    def _baselines_due(self, wall_s: float, baselines: Mapping[str, Baseline]) -> bool:
        """Whether one is new or was discarded, or they were extended and have not been written for a while."""
        begun, known = ({name: one.at_ns for name, one in each.items()} for each in (baselines, self._baselines))
        extended = any(one is not self._baselines.get(name) for name, one in baselines.items())
        return begun != known or (extended and wall_s - self._baselines_s >= _BASELINES_EVERY_S)

    def finish(self) -> None:
        self._file.write(self._zlib.flush(zlib.Z_FINISH))

    def _line(self, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
        text = f"{zlib.crc32(text):08x} ".encode() + text + b"\n"
        self._file.write(self._zlib.compress(text) + self._zlib.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()


@dataclass(frozen=True)
class _Place:
    """Line numbers of an observation and of the probe set and baselines that belong to it."""

    line: int
    wall_s: float
    probe_set: int
    baselines: int | None


class Recording:
    """A recording in memory. ``cut_off`` is True where the end of the file is missing."""

    def __init__(self, path: Path) -> None:
        """Raises RecordingError for an unreadable file, another format, and a newer version."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise RecordingError(f"{path} cannot be read: {error.strerror}") from error
        head, _, body = data.partition(b"\n")
        self.path = path
        check_head(path, head)
        decompressor = zlib.decompressobj()
        text = _decompress(decompressor, body)
        self.cut_off = not decompressor.eof
        # Without a newline at its end the last line is incomplete.
        self._lines = list(_checked_lines(text.split(b"\n")[:-1]))
        self.cut_off |= len(self._lines) < text.count(b"\n")
        self._places = list(self._index())
        self._times_s = np.array([place.wall_s for place in self._places])
        self._probe_sets: dict[int, ProbeSet] = {}
        self._baselines: dict[int, dict[str, Baseline]] = {}
        if not self._places:
            raise RecordingError(f"{path} contains no observation")

    def __len__(self) -> int:
        return len(self._places)

    @property
    def begun_s(self) -> float:
        """Time of the first observation, in seconds since 1970."""
        return self._places[0].wall_s

    @property
    def seconds(self) -> float:
        """Time from the first observation to the last."""
        return self._places[-1].wall_s - self.begun_s

    def number_at(self, seconds: float) -> int:
        """The number of the last observation at most ``seconds`` after the first one."""
        return max(0, int(np.searchsorted(self._times_s, self.begun_s + seconds, side="right")) - 1)

    def at_s(self, number: int) -> float:
        """Time from the first observation to observation ``number``, in seconds."""
        return self._places[number].wall_s - self.begun_s

    def baselines(self, number: int) -> dict[str, Baseline]:
        """The baselines that were known at observation ``number``."""
        line = self._places[number].baselines
        if line is None:
            return {}
        if line not in self._baselines:
            self._baselines[line] = baselines_in(json.loads(self._lines[line]))
        return self._baselines[line]

    def play(self, number: int = 0) -> Iterator[Observation]:
        """The observations from ``number`` on. Their histograms count from there: use differences only."""
        before: Snapshot | None = None
        probe_set_line = -1
        for place in self._places[number:]:
            if place.probe_set != probe_set_line:
                probe_set_line, before = place.probe_set, None
                if probe_set_line not in self._probe_sets:
                    self._probe_sets[probe_set_line] = probe_set_in(json.loads(self._lines[probe_set_line])["bench"])
            observation = observation_in(
                json.loads(self._lines[place.line])["f"], self._probe_sets[probe_set_line], before
            )
            before = observation.snapshot or before
            yield observation

    def _index(self) -> Iterator[_Place]:
        probe_set, baselines = -1, None
        for number, line in enumerate(self._lines):
            if line.startswith(_OBSERVATION):
                if probe_set >= 0:
                    yield _Place(number, float(line[len(_OBSERVATION) : line.index(b",")]), probe_set, baselines)
            elif line.startswith(b'{"bench"'):
                probe_set, baselines = number, None
            elif line.startswith(b'{"quiet"'):
                baselines = number


def _decompress(decompressor: Any, body: bytes) -> bytes:
    """Everything up to the end of the stream or to its first error."""
    parts = []
    for start in range(0, len(body), 4096):
        try:
            parts.append(decompressor.decompress(body[start : start + 4096]))
        except zlib.error:
            break
    return b"".join(parts)


def _checked_lines(lines: list[bytes]) -> Iterator[bytes]:
    """The lines without their checksums, up to the first damaged one, which zlib detects only later."""
    for line in lines:
        checksum, _, text = line.partition(b" ")
        if checksum != f"{zlib.crc32(text):08x}".encode():
            return
        yield text


def check_head(path: Path, head: bytes) -> None:
    """Raise RecordingError unless ``head``, the first line of ``path``, is that of a readable recording."""
    try:
        known = json.loads(head)
        version = known["version"] if known["format"] == FORMAT else None
    except (ValueError, TypeError, KeyError):
        version = None
    if not isinstance(version, int):
        raise RecordingError(f"{path} is not a recording of stallscope")
    if version > VERSION:
        raise RecordingError(
            f"{path} has version {version} of the format; this stallscope reads up to {VERSION}: upgrade it"
        )


def _baselines_out(baselines: Mapping[str, Baseline]) -> dict[str, Any]:
    # Earlier versions read "quiet" alone.
    return {
        "quiet": {name: [one.at_ns, _channels_out(one.channels, None)] for name, one in baselines.items()},
        "windows": {
            name: {
                "ns": one.duration_ns,
                "shared": one.shared,
                **{str(quantile): _channels_out(channels, None) for quantile, channels in one.percentiles.items()},
            }
            for name, one in baselines.items()
        },
    }


def baselines_in(known: Mapping[str, Any]) -> dict[str, Baseline]:
    """The baselines of a decoded line by probe; one of an earlier version is a single window."""
    found = {}
    for name, (at_ns, channels) in known["quiet"].items():
        whole, windows = _channel_map(channels), known.get("windows", {}).get(name)
        if windows is None:
            found[name] = Baseline.of([whole], at_ns=at_ns)
        else:
            percentiles = {quantile: _channel_map(windows[str(quantile)]) for quantile in PERCENTILES}
            found[name] = Baseline(whole, percentiles, windows["ns"], at_ns, windows["shared"])
    return found


def _channel_map(known: list[Any]) -> dict[Channel, Histogram]:
    return {channel: histogram for channel, histogram, _ in _channels_in(known)}


def _probe_set_out(probe_set: ProbeSet) -> dict[str, Any]:
    return {
        "title": probe_set.title,
        "backend": probe_set.backend,
        "gpu": probe_set.gpus[0].label if probe_set.gpus else "",
        "more_gpus": [gpu.label for gpu in probe_set.gpus[1:]],
        "facts": probe_set.details,
        "pattern": probe_set.pattern,
        "variant": probe_set.variant,
        "watch": probe_set.expect,
        "why_simulated": probe_set.why_simulated,
        "probes": [
            {
                "name": probe.name,
                "title": probe.title,
                "role": probe.role,
                "entry": probe.entry,
                "context": probe.context,
                "stream": probe.stream,
                "period_ns": probe.period_ns,
                "slot_group": probe.slot_group,
                "proof": probe.program.proof is not None,
                "ops": [[op.fn, op.phase and op.phase.name_1, op.label] for op in probe.program.ops],
            }
            for probe in probe_set.probes
        ],
    }


def probe_set_in(known: Mapping[str, Any]) -> ProbeSet:
    """The probe set of a decoded line."""
    # A later version may have more keys. The first recordings lack some of these.
    labels = [label for label in (known.get("gpu", ""), *known.get("more_gpus", ())) if label]
    return ProbeSet(
        title=known["title"],
        probes=tuple(_probe_in(probe) for probe in known["probes"]),
        backend=known["backend"],
        gpus=tuple(GpuName.of_label(label) for label in labels),
        details=tuple(known.get("facts", ())),
        pattern=known.get("pattern", ""),
        variant=known.get("variant", ""),
        expect=known.get("watch", ""),
        why_simulated=known.get("why_simulated"),
    )


def _probe_in(known: Mapping[str, Any]) -> Probe:
    """The probe without the arguments of its calls, which a view does not need."""
    ops = tuple(
        Op(fn, phase=None if phase is None else Phase.named(phase), label=label) for fn, phase, label in known["ops"]
    )
    program = Program(ops, context=None, proof=Word("proof") if known["proof"] else None)
    names = ("name", "title", "period_ns", "entry", "context", "stream")
    # The format has no short title: it follows from the title, as the catalogue composes it.
    short = _short_title(known["title"], known["stream"])
    return Probe(
        role=Role(known["role"]),
        program=program,
        short_title=short,
        slot_group=_slot_group(known),
        **{name: known[name] for name in names},
    )


def _slot_group(known: Mapping[str, Any]) -> SlotGroup | None:
    """The slot group of a recorded probe; from the catalogue if the recording is older than slots."""
    if "slot_group" in known:
        group = known["slot_group"]
        return None if group is None else (group[0], group[1])
    context, _, gpu = known["context"].partition(" of GPU ")
    if known["entry"] not in entries() or context == "none":
        return None
    return entries()[known["entry"]].slot_group(Context(context, int(gpu or 1) - 1))


def _short_title(title: str, stream: str) -> str:
    """``title`` without the stream if the probe has its own, else without the word "stream"."""
    suffix = f" · {stream} stream"
    if not title.endswith(suffix):
        return title
    return title[: -len(suffix)] + ("" if stream == "own" else f" · {stream}")


def _channels_out(channels: ChannelMap, before: ChannelMap | None) -> list[Any]:
    out = []
    for channel, hist in channels.items():
        counts = hist.counts if before is None else hist.counts - before[channel].counts
        used = np.flatnonzero(counts)
        pairs = np.stack((used, counts[used].astype(np.int64)), axis=1).ravel().tolist()
        out.append([channel.phase.name_1, channel.label, hist.max_ns, pairs])
    return out


def _channels_in(known: list[Any]) -> Iterator[tuple[Channel, Histogram, int]]:
    for phase, label, max_ns, pairs in known:
        counts = np.zeros(BUCKETS, dtype=np.uint64)
        counts[pairs[::2]] = pairs[1::2]
        yield Channel(Phase.named(phase), label), Histogram(counts, max_ns), max_ns


def _observation_out(observation: Observation, before: Snapshot | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "w": round(observation.wall_s, 4),
        "e": [observation.engine.state, round(observation.engine.age_s, 2), observation.engine.sentence],
    }
    if observation.waiting:
        out["held"] = sorted(observation.waiting)
    if observation.other_processes:
        out["others"] = observation.other_processes
    if observation.probe_failures:
        out["troubles"] = [[t.probe, t.op, t.code, t.text, t.fatal] for t in observation.probe_failures]
    if observation.telemetry is not None:
        out["nvml"] = _telemetry_out(observation.telemetry)
    if observation.snapshot is not None:
        out["s"] = _snapshot_out(observation.snapshot, before)
    return out


def observation_in(known: Mapping[str, Any], probe_set: ProbeSet, before: Snapshot | None) -> Observation:
    """The observation of a decoded line; its histograms count from the first one with ``before`` None."""
    state, age_s, sentence = known["e"]
    return Observation(
        wall_s=known["w"],
        probe_set=probe_set,
        engine=EngineStatus(EngineCondition(state), age_s, sentence),
        snapshot=_snapshot_in(known["s"], before) if "s" in known else None,
        telemetry=_telemetry_in(known["nvml"]) if "nvml" in known else None,
        probe_failures=tuple(ProbeFailure(*failure) for failure in known.get("troubles", ())),
        waiting=frozenset(known.get("held", ())),
        other_processes=tuple(known.get("others", ())),
    )


def _telemetry_out(telemetry: TelemetrySnapshot) -> dict[str, Any]:
    readings = {}
    for name, reading in telemetry.readings.items():
        value = reading.value
        if name == "processes" and value is not None:
            value = [[process.pid, process.name, process.memory_bytes] for process in value]
        readings[name] = [value, reading.at_ns, reading.why]
    return {
        "uuid": telemetry.uuid,
        "at": telemetry.at_ns,
        "state": telemetry.state,
        "why": telemetry.why,
        "r": readings,
    }


def _telemetry_in(known: Mapping[str, Any]) -> TelemetrySnapshot:
    readings = {}
    for name, (value, at_ns, why) in known["r"].items():
        if name == "processes" and value is not None:
            value = tuple(GpuProcess(*process) for process in value)
        elif isinstance(value, list):
            value = tuple(value)
        readings[name] = TelemetryReading(value, at_ns, why)
    return TelemetrySnapshot(known["uuid"], known["at"], known["state"], known["why"], MappingProxyType(readings))


def _snapshot_out(snapshot: Snapshot, before: Snapshot | None) -> dict[str, Any]:
    probes = {}
    for name, part in snapshot.probes.items():
        flight, error = part.in_flight, part.error
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
            _channels_out(part.channels, None if before is None else before.probes[name].channels),
            [part.first_ns.get(channel) for channel in part.channels],
        ]
    out = {
        "at": snapshot.at_ns,
        "state": int(snapshot.engine_state),
        "beat": snapshot.engine_heartbeat_ns,
        "p": probes,
    }
    # Apart from the probes' words, which have a fixed number for older readers.
    slots = {
        name: [part.allowed_ns, part.not_alone_ns, part.in_flight.allowed_ns if part.in_flight is not None else 0]
        for name, part in snapshot.probes.items()
        if part.in_slots
    }
    return out | {"slots": slots} if slots else out


def _in_flight_in(known: list[int], at_ns: int, slot: list[int] | None) -> InFlight:
    op, since_ns, age_ns, due_ns = known
    return InFlight(op, since_ns, age_ns, due_ns, at_ns - due_ns if slot is None else slot[2])


def _snapshot_in(known: Mapping[str, Any], before: Snapshot | None) -> Snapshot:
    probes = {}
    for name, (words, period_ns, flight, error, channels, first) in known["p"].items():
        state, on, iterations, on_since_ns, heartbeat_ns, missed, proof = words
        slot = known.get("slots", {}).get(name)
        by_channel: dict[Channel, Histogram] = {}
        for channel, hist, max_ns in _channels_in(channels):
            earlier = None if before is None else before.probes[name].channels[channel].counts
            by_channel[channel] = hist if earlier is None else Histogram(hist.counts + earlier, max_ns)
        probes[name] = ProbeSnapshot(
            name=name,
            at_ns=known["at"],
            state=ProbeState(state),
            on=bool(on),
            iterations=iterations,
            on_since_ns=on_since_ns,
            heartbeat_ns=heartbeat_ns,
            in_flight=None if flight is None else _in_flight_in(flight, known["at"], slot),
            error=None if error is None else ProbeErrorCode(*error),
            missed=missed,
            proof=proof,
            period_ns=period_ns,
            channels=by_channel,
            first_ns=dict(zip(by_channel, first, strict=True)),
            ring=NO_CALLS,
            ring_head=0,
            allowed_ns=known["at"] if slot is None else slot[0],
            in_slots=slot is not None,
            not_alone_ns=0 if slot is None else slot[1],
        )
    return Snapshot(known["at"], EngineState(known["state"]), known["beat"], probes)
