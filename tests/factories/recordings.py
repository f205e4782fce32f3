"""Recordings of the simulated GPU; run as a program it writes the one in tests/screen/data anew."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from factories.traces import handmade_trace
from stallprobes.catalog import entries
from stallprobes.engine.backend import Options, ProbeFailure
from stallprobes.engine.gpu_work import timeline_channels
from stallprobes.engine.snapshot import ProbeErrorCode, ProbeSnapshot, Snapshot
from stallprobes.files import codec
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import NO_SAMPLES, InFlight
from stallprobes.live.capture import capture
from stallprobes.machine.gpus import GpuProcess
from stallprobes.machine.telemetry import NAMES, TelemetryReading, TelemetrySnapshot
from stallprobes.model import Probe, Role
from stallprobes.native.layouts.board import EngineState, ProbeState
from stallprobes.patterns import patterns
from stallprobes.recording.observation import CUDA, SIM, EngineCondition, EngineStatus, GpuName, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording_format import VERSION, Head

# What the clock on the wall shows when a recording begins.
WALL_S = 1_800_000_000.0
STALL = Path(__file__).parents[1] / "screen" / "data" / "stall.rec"


def probe_set_of(pattern: str, variant: str) -> ProbeSet:
    """The probe set of a pattern's variant on the simulated GPU."""
    what = patterns()[pattern].variant(variant)
    return ProbeSet(
        title=f"{pattern} · {variant}",
        probes=what.probes,
        backend=SIM,
        pattern=pattern,
        variant=variant,
        expect=what.expect,
    )


def record_stall(path: Path) -> None:
    """Record a copy in a second context: its baseline, then 3 s stalled by a kernel in the first context."""
    probe_set = probe_set_of("secondary-context-d2d", "kernel-other-context")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stallprobes.live.capture.time", SimpleNamespace(time=lambda: WALL_S))
        capture(probe_set, path, options=Options(profile="h200"), seconds=3.0)


def lines_of(data: bytes) -> list[Any]:
    """The decoded lines of a recording after its head."""
    text = zlib.decompressobj().decompress(data.partition(b"\n")[2])
    return [json.loads(line.partition(b" ")[2]) for line in text.splitlines()]


def encoded(line: Any) -> bytes:
    """``line`` as a recording has it, without its checksum."""
    # Not every mutant is text in UTF-8.
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")


def recording_of(content: Any, known: Mapping[int, bytes] = MappingProxyType({})) -> bytes:
    """A recording with right checksums whose decoded lines are ``content``, whatever that is.

    ``known`` has lines that are encoded already, by their ``id``.
    """
    lines = content if isinstance(content, list) else [content]
    return sealed(known.get(id(line)) or encoded(line) for line in lines)


def sealed(lines: Iterable[bytes]) -> bytes:
    """A recording of encoded ``lines`` with right checksums."""
    text = b"".join(b"%08x %s\n" % (zlib.crc32(line), line) for line in lines)
    return codec.encoded(Head("stallscope.recording", VERSION)) + b"\n" + zlib.compress(text, 1)


def record_every_kind(path: Path) -> None:
    """Record a victim and an aggressor for two seconds by hand, with a value of every kind that the format has.

    The file is small: it is the base of thousands of mutants.
    """
    known = entries()
    probes = (known["launch"].probe(), known["spin"].probe())
    probe_set = ProbeSet(
        title="by hand",
        probes=probes,
        backend=CUDA,
        gpus=(GpuName("GPU", 0), GpuName("GPU", 1)),
        details=("driver 1",),
        pattern="readback",
        variant="x",
        expect="a stall",
        why_simulated="none",
    )
    window = {channel: Histogram.of([3000] * 30) for channel in probes[0].program.channels}
    baseline = Baseline.of([window, window], duration_ns=2 * 10**9, at_ns=2 * 10**9)
    more = {channel: Histogram.of([2000] * 30) for channel in timeline_channels(probes[0].program)}
    traced = Baseline.of([window | more, window | more], duration_ns=2 * 10**9, at_ns=3 * 10**9)
    recorder = Recorder(path)
    for number, state in enumerate((EngineCondition.READY,) * 5 + (EngineCondition.LOST,)):
        at_ns = 10**9 + number * 400_000_000
        snapshot = Snapshot(
            at_ns, EngineState.READY, at_ns, {probe.name: _part(probe, number, at_ns) for probe in probes}
        )
        observation = Observation(
            wall_s=WALL_S + at_ns / 1e9,
            probe_set=probe_set,
            engine=EngineStatus(state, 0.5, "" if state is EngineCondition.READY else "the engine ended"),
            snapshot=snapshot if number else None,
            telemetry=_telemetry(at_ns) if number == 1 else None,
            probe_failures=(ProbeFailure("spin", "cuLaunchKernel", 700, "illegal address", True),)
            if number == 4
            else (),
            waiting=frozenset({"spin"}) if number == 1 else frozenset(),
            other_processes=("train (pid 7)",) if number == 2 else (),
            experiment=number == 4,
            timeline=number > 3,
        )
        known_baselines = {"launch": traced if observation.timeline else baseline} if number > 1 else {}
        recorder.put_blocking(observation, known_baselines)
    recorder.put_trace_blocking(handmade_trace(*probes, wall_s=WALL_S + 2.0))
    recorder.close(10.0)


def _part(probe: Probe, number: int, at_ns: int) -> ProbeSnapshot:
    channels = probe.program.channels + (timeline_channels(probe.program) if number > 3 else ())
    histogram = Histogram.of([3000] * 40 * number + [9000] * number)
    return ProbeSnapshot(
        name=probe.name,
        at_ns=at_ns,
        state=ProbeState.RUNNING,
        on=probe.role is not Role.AGGRESSOR or number > 2,
        iterations=41 * number,
        on_since_ns=10**9,
        heartbeat_ns=at_ns,
        in_flight=InFlight(0, at_ns - 5000, 5000, at_ns - 6000, 6000) if probe.role is Role.VICTIM else None,
        error=ProbeErrorCode(700, 1, at_ns) if number == 5 and probe.role is Role.AGGRESSOR else None,
        missed=number,
        proof=number,
        period_ns=probe.period_ns,
        channels=dict.fromkeys(channels, histogram),
        first_ns=dict.fromkeys(channels, 80_000),
        samples=NO_SAMPLES,
        sample_count=0,
        not_alone_ns=0,
        allowed_ns=at_ns // 2 if probe.role is Role.VICTIM else at_ns,
        in_slots=probe.role is Role.VICTIM,
        polled_ns=1000 * number,
        paused_ns=100 * number,
    )


def _telemetry(at_ns: int) -> TelemetrySnapshot:
    values: dict[str, Any] = dict.fromkeys(NAMES, 7)
    values |= {"power_w": 70.5, "performance_state": "P0", "clock_reasons": ("idle",), "pcie_to_gpu_kb_s": None}
    values["processes"] = (GpuProcess(7, "train", 2**30), GpuProcess(8, "\x1b[2Jodd", None))
    readings = {name: TelemetryReading(value, at_ns, None if value else "n/a") for name, value in values.items()}
    return TelemetrySnapshot("GPU-1", at_ns, "live", None, MappingProxyType(readings))


if __name__ == "__main__":
    STALL.unlink(missing_ok=True)
    record_stall(STALL)
