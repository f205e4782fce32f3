"""Lines of a recording of probes: the types from which the codec derives the text, and what the program makes of them.

A line with a right checksum may still have any content. What the methods return is consistent: the rest of the program
indexes channels, operations and probes without checks. They raise ValueError for what is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from stallprobes.engine.snapshot import ProbeFigures, ProbeSnapshot, Snapshot
from stallprobes.files.codec import Name, Nanoseconds, attributes
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import MOST, Histogram
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.latency.window import NO_SAMPLES, ChannelMap, difference, merged_groups
from stallprobes.model import TIMELINE_PHASES, Channel, Op, Phase, Probe, Process, Program, Role, SlotGroup, Word
from stallprobes.native.layouts.board import EngineState
from stallprobes.recording.common_lines import StoredTelemetry
from stallprobes.recording.observation import NONE_WAITING, Observation, ObservationHead, ProbeSet, ProbeSetHead
from stallprobes.recording.recording_format import Line

# Largest number of channels (kinds of latency, each with a histogram) of all probes in a probe set of a recording. A
# screen has at most 16 probes, and a probe at most 12 channels.
_MOST_CHANNELS = 256
# Largest value of each member of a call in flight in a recording. A larger value is rejected. Reason: every time (ns)
# in a real recording is smaller.
_LARGEST_MEMBER = 2**62

Channels = tuple[tuple[Channel, Histogram], ...]


# Probe sets.


class StoredOp(Struct, frozen=True, array_like=True):
    """An operation without the arguments of its call, which a view does not need."""

    fn: Name
    phase: Phase | None
    label: str


class StoredProgram(Struct, frozen=True, omit_defaults=True):
    """The operations of a program, and what a view needs beside them."""

    ops: tuple[StoredOp, ...]
    proof: Word | None = None
    process: Process = Process.ENGINE


class StoredProbe(Struct, frozen=True, omit_defaults=True):
    """A probe, without the arguments of its calls."""

    name: Name
    title: str
    role: Role
    entry: str
    context: str
    stream: str
    period_ns: Nanoseconds
    program: StoredProgram
    slot_group: SlotGroup | None = None
    baseline_period_ns: Nanoseconds | None = None

    def probe(self) -> Probe:
        """The probe."""
        ops = tuple(Op(**asdict(op)) for op in self.program.ops)
        return Probe(**asdict(self) | {"program": Program(**asdict(self.program) | {"ops": ops, "context": None})})


class ProbeSetLine(ProbeSetHead, Line, frozen=True, kw_only=True):
    """The probe set of the observations that follow."""

    key: ClassVar[str] = "probe_set"

    probes: tuple[StoredProbe, ...]

    @classmethod
    def of(cls, probe_set: ProbeSet) -> ProbeSetLine:
        """The line of ``probe_set``."""
        return msgspec.convert(probe_set, cls, from_attributes=True)

    def probe_set(self) -> ProbeSet:
        """The probe set, whose probes have names of their own."""
        probes = tuple(stored.probe() for stored in self.probes)
        if len({probe.name for probe in probes}) < len(probes):
            raise ValueError("probes have a duplicate name")
        if sum(len(probe.program.channels) for probe in probes) > _MOST_CHANNELS:
            raise ValueError(f"probes have more than {_MOST_CHANNELS} channels")
        return ProbeSet(**asdict(self) | {"probes": probes})


# Baselines.


class StoredBaseline(Struct, frozen=True):
    """A baseline, whose channels are lists."""

    channels: Channels
    percentiles: dict[Quantile, Channels]
    duration_ns: Nanoseconds
    at_ns: Nanoseconds
    shared: bool

    @classmethod
    def of(cls, baseline: Baseline) -> StoredBaseline:
        """The stored form of ``baseline``."""
        percentiles = {quantile: tuple(channels.items()) for quantile, channels in baseline.percentiles.items()}
        channels = tuple(baseline.channels.items())
        return cls(**attributes(baseline, cls) | {"channels": channels, "percentiles": percentiles})

    def baseline(self) -> Baseline:
        """The baseline."""
        percentiles = {quantile: dict(channels) for quantile, channels in self.percentiles.items()}
        if percentiles.keys() != set(PERCENTILES):
            raise ValueError("a baseline lacks a percentile")
        return Baseline(**asdict(self) | {"channels": dict(self.channels), "percentiles": percentiles})


class BaselinesLine(Line, frozen=True):
    """The baselines that are known from here on, by probe."""

    key: ClassVar[str] = "baselines"

    probes: dict[str, StoredBaseline]

    @classmethod
    def of(cls, baselines: Mapping[str, Baseline]) -> BaselinesLine:
        """The line of ``baselines``."""
        return cls({name: StoredBaseline.of(baseline) for name, baseline in baselines.items()})

    def baselines(self, probe_set: ProbeSet) -> dict[str, Baseline]:
        """The baselines, of probes of ``probe_set``."""
        if not self.probes.keys() <= {probe.name for probe in probe_set.probes}:
            raise ValueError("a baseline is not of a probe of the set")
        return {name: stored.baseline() for name, stored in self.probes.items()}


# Observations.


class StoredPart(ProbeFigures, frozen=True, array_like=True):
    """The figures of a probe. The histograms are differences to those of the observation before."""

    channels: tuple[tuple[Channel, Histogram, Nanoseconds | None], ...]

    @classmethod
    def of(cls, part: ProbeSnapshot, before: ProbeSnapshot | None) -> StoredPart:
        """The stored form of ``part``; ``before`` is that of the observation before."""
        channels = part.channels if before is None else difference(part.channels, before.channels)
        own = {
            "allowed_ns": part.allowed_ns if part.in_slots else 0,
            "channels": tuple((channel, added, part.first_ns.get(channel)) for channel, added in channels.items()),
        }
        return cls(**attributes(part, cls) | own)

    def part(self, probe: Probe, at_ns: int, channels: ChannelMap, before: ProbeSnapshot | None) -> ProbeSnapshot:
        """The figures of ``probe`` at ``at_ns``; ``channels`` are the sums of its histograms."""
        first_ns = {channel: first_ns for channel, _, first_ns in self.channels}
        expected = {*probe.program.channels, *(() if before is None else before.channels)}
        if len(first_ns) < len(self.channels) or not expected <= first_ns.keys():
            raise ValueError(f"{probe.name} lacks a channel, or has one twice")
        labels = {"", *(op.label for op in probe.program.ops)}
        if any(key.phase not in TIMELINE_PHASES or key.label not in labels for key in first_ns.keys() - expected):
            raise ValueError(f"{probe.name} has a channel that the timeline does not fill")
        if before is not None and (self.iterations < before.iterations or self.missed < before.missed):
            raise ValueError(f"{probe.name} has fewer iterations than in the observation before")
        flight = self.in_flight
        if flight and not (min(flight) >= 0 and flight.op < len(probe.program.ops) and max(flight) <= _LARGEST_MEMBER):
            raise ValueError(f"{probe.name} has no such call in flight")
        if any(histogram.count > MOST for histogram in channels.values()):
            raise ValueError(f"{probe.name} has more than 2**53 calls")
        own = {"channels": channels, "first_ns": first_ns} | ({} if self.in_slots else {"allowed_ns": at_ns})
        return ProbeSnapshot(name=probe.name, at_ns=at_ns, samples=NO_SAMPLES, sample_count=0, **asdict(self) | own)


class StoredSnapshot(Struct, frozen=True):
    """A snapshot of the board."""

    at_ns: Nanoseconds
    engine_state: EngineState
    engine_heartbeat_ns: Nanoseconds
    probes: dict[str, StoredPart]

    @classmethod
    def of(cls, snapshot: Snapshot, before: Snapshot | None) -> StoredSnapshot:
        """The stored form of ``snapshot``; ``before`` is that of the observation before."""
        earlier: Mapping[str, ProbeSnapshot] = {} if before is None else before.probes
        probes = {name: StoredPart.of(part, earlier.get(name)) for name, part in snapshot.probes.items()}
        return cls(**attributes(snapshot, cls) | {"probes": probes})

    def snapshot(self, probe_set: ProbeSet, before: Snapshot | None) -> Snapshot:
        """The snapshot. Its histograms are those of ``before`` and what was added; None counts from here."""
        if before is not None and self.at_ns < before.at_ns:
            raise ValueError("the snapshot is before that of the observation before")
        if self.probes.keys() != {probe.name for probe in probe_set.probes}:
            raise ValueError("the snapshot has other probes than the set")
        earlier: Mapping[str, ProbeSnapshot] = {} if before is None else before.probes
        # All at once: one after the other takes twice as long.
        channels = merged_groups(
            [
                {channel: added for channel, added, _ in self.probes[probe.name].channels},
                *([earlier[probe.name].channels] if before is not None else ()),
            ]
            for probe in probe_set.probes
        )
        probes = {
            probe.name: self.probes[probe.name].part(probe, self.at_ns, sums, earlier.get(probe.name))
            for probe, sums in zip(probe_set.probes, channels, strict=True)
        }
        return Snapshot(**asdict(self) | {"probes": probes})


class ObservationLine(ObservationHead, Line, frozen=True, kw_only=True):
    """An observation of the probe set before it."""

    key: ClassVar[str] = "observation"

    snapshot: StoredSnapshot | None = None
    telemetry: StoredTelemetry | None = None

    @classmethod
    def of(cls, observation: Observation, before: Snapshot | None) -> ObservationLine:
        """The line of ``observation``; ``before`` is the snapshot of the observation before."""
        snapshot, telemetry = observation.snapshot, observation.telemetry
        own: dict[str, Any] = {
            "snapshot": None if snapshot is None else StoredSnapshot.of(snapshot, before),
            "telemetry": None if telemetry is None else StoredTelemetry.of(telemetry),
            # Of a set, the order would differ from process to process.
            "waiting": tuple(sorted(observation.waiting)) or NONE_WAITING,
        }
        return cls(**attributes(observation, cls) | own)

    def observation(self, probe_set: ProbeSet, before: Snapshot | None) -> Observation:
        """The observation. Its histograms are those of ``before`` and what was added; None counts from here."""
        own = {
            "probe_set": probe_set,
            "snapshot": None if self.snapshot is None else self.snapshot.snapshot(probe_set, before),
            "telemetry": None if self.telemetry is None else self.telemetry.telemetry(),
        }
        return Observation(**asdict(self) | own)
