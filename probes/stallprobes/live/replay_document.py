"""JSON document of a replay, published schema ``stallscope.replay/1``: the verdict log and traces of a recording.

The recording is analyzed again, so the verdicts are those of this version. Latencies are microseconds with three
decimals, times are seconds. Unknown values are null.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from stallprobes.errors import RecordingError
from stallprobes.files import codec
from stallprobes.files.codec import Document, Figure, Natural, Positive, Seconds, Text, about
from stallprobes.latency.ratio import PERCENTILES
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import LogEntry
from stallprobes.machine.gpu_state import GpuSamples, GpuStateDocument
from stallprobes.model import Phase, Role
from stallprobes.recording.observation import SIM, Observation
from stallprobes.recording.recording import RecordingStream
from stallprobes.traces.summary import summary
from stallprobes.traces.trace import Trace
from stallprobes.units import rounded, us_of
from stallprobes.verdicts.verdict_document import VerdictDocument, range_us

REPLAY_SCHEMA = "stallscope.replay/1"
# Entries beyond this number are counted only; the oldest ones are dropped.
MOST_ENTRIES = 10_000
_MOST_PROBE_SETS = 1_000
MOST_TRACES = 1_000


@dataclass
class _SetPart:
    """The part of a recording that one probe set takes: its number, its analyzer, and the times of its observations.

    ``switches`` are the times at which the timeline was switched, first on or off as in the first observation.
    ``samples`` are the GPU's values without and with an aggressor on.
    """

    number: int
    analyzer: Analyzer
    first_s: float
    last_s: float
    switches: list[tuple[float, bool]] = field(default_factory=list)
    samples: tuple[GpuSamples, GpuSamples] = field(default_factory=lambda: (GpuSamples(), GpuSamples()))

    def add(self, observation: Observation) -> None:
        """Note the time, the timeline and the GPU's values of the next observation."""
        self.last_s = observation.wall_s
        if observation.telemetry is not None and observation.snapshot is not None:
            aggressors = [probe.name for probe in observation.probe_set.probes if probe.role is Role.AGGRESSOR]
            on = any(observation.snapshot.probes[name].on for name in aggressors)
            self.samples[on].add(observation.telemetry)
        if not self.switches or observation.timeline not in (None, self.switches[-1][1]):
            self.switches.append((observation.wall_s, bool(observation.timeline)))

    def timeline(self, wall_s: float) -> bool:
        """Whether the timeline was on at a time."""
        return self.switches[max(bisect_right(self.switches, (wall_s, True)) - 1, 0)][1]


_TIMELINE = about("Whether the timeline was on, which makes each call 1 to 10 µs longer.")
_NUMBER = about("Index in probe_sets.")
Time = Annotated[Text, Meta(extra_json_schema={"format": "date-time"})]


class ReplayProbe(Document):
    """A probe of a probe set."""

    name: Text
    title: Text
    role: Role
    context: Text
    stream: Text
    period_us: Figure


class ReplayRange(Document):
    """How much a figure of a victim varies between windows of one second without an aggressor."""

    probe: Text
    phase: Phase
    op: Annotated[Text | None, about("Label of the operation; null for all operations of the phase.")]
    quantile: Literal["p50", "p99"]
    range_us: tuple[Figure, Figure]
    spread: Annotated[Annotated[float, Meta(ge=1)] | None, about("The highest percentile over the lowest one.")]
    windows: Positive
    timeline: Annotated[bool, _TIMELINE]


class ReplayGpuStates(Document):
    """State of the GPU without an aggressor on, and with one; null where it was not recorded."""

    baseline: GpuStateDocument | None
    aggressors: GpuStateDocument | None


class ReplayProbeSet(Document):
    """A probe set of the recording."""

    title: Text
    backend: Literal["cuda", "simulated", "host"]
    gpus: list[Text]
    details: Annotated[list[Text], about("Driver and CUDA version, or profile and seed of the simulated GPU.")]
    pattern: Text | None
    variant: Text | None
    why_simulated: Text | None
    at_s: Annotated[float, about("When its first observation was made.")]
    seconds: Seconds
    probes: list[ReplayProbe]
    ranges: list[ReplayRange]
    gpu_state: ReplayGpuStates

    @classmethod
    def of_part(cls, part: _SetPart, begun_s: float) -> ReplayProbeSet:
        """The document of the probe set of ``part``."""
        probe_set = part.analyzer.probe_set
        return cls.of(
            probe_set,
            backend="simulated" if probe_set.backend == SIM else probe_set.backend,
            gpus=[gpu.label for gpu in probe_set.gpus],
            pattern=probe_set.pattern or None,
            variant=probe_set.variant or None,
            at_s=round(part.first_s - begun_s, 3),
            seconds=round(part.last_s - part.first_s, 3),
            probes=[ReplayProbe.of(probe, period_us=probe.period_ns / 1000) for probe in probe_set.probes],
            ranges=list(_ranges(part.analyzer)),
            gpu_state=ReplayGpuStates(*(samples.state().document() if samples else None for samples in part.samples)),
        )


class ReplayEntry(VerdictDocument):
    """An entry of the verdict log."""

    number: Positive
    probe_set: Annotated[Natural, _NUMBER]
    at_s: float
    at: Time
    duration_s: Annotated[Seconds, about("Until it ended, else until the last observation of its probe set.")]
    ended: bool
    cut_off_by: Annotated[Text | None, about("What happened where its end was not observed: duration_s is until then.")]
    onset: Annotated[Text, about("When it began, by switches; empty if that is not known.")]
    timeline: Annotated[bool, _TIMELINE]

    @classmethod
    def of_entry(cls, entry: LogEntry, part: _SetPart, begun_s: float) -> ReplayEntry:
        """The document of ``entry`` in ``part``."""
        end_s = part.last_s if entry.ended_s is None else entry.ended_s
        return cls.of_verdict(
            entry.verdict,
            number=entry.number,
            probe_set=part.number,
            at_s=round(entry.began_s - begun_s, 3),
            at=_utc(entry.began_s),
            duration_s=round(max(end_s - entry.began_s, 0.0), 3),
            ended=entry.ended_s is not None,
            cut_off_by=entry.cut_off or None,
            onset=entry.onset,
            timeline=part.timeline(entry.began_s),
        )


class ReplayTrace(Document):
    """A trace of the timeline."""

    probe_set: Annotated[Natural, _NUMBER]
    at_s: Annotated[float, about("When the slow call began, in seconds from the first observation.")]
    at: Time
    span_us: Annotated[Figure | None, about("The length of the trace.")]
    probe: Annotated[Text | None, about("The probe of the slow call; null for a trace without one.")]
    call: Annotated[Text | None, about("The operation of the slow call; null if it is unknown.")]
    phase: Annotated[
        Phase | None,
        about(
            "What delay_us measures: start from the call's return to the start on the GPU, otherwise the call itself."
        ),
    ]
    delay_us: Figure | None
    in_flight: Annotated[bool, about("Whether the call had not returned.")]
    cause: Annotated[Text, about("What the delay was due to; empty if that is not known.")]
    calls: Annotated[Natural, about("Number of host calls in the trace.")]
    gpu_work: Annotated[Natural, about("Number of pieces of GPU work in the trace.")]
    lost: Annotated[Natural, about("Number of records that the timeline had lost by then.")]

    @classmethod
    def of_trace(cls, trace: Trace, probe_set: int, begun_s: float) -> ReplayTrace:
        """The document of ``trace``."""
        found = summary(trace)
        at_s = trace.wall_s(trace.end_ns) if found is None else found.wall_s
        return cls(
            probe_set=probe_set,
            at_s=round(at_s - begun_s, 6),
            at=_utc(at_s),
            span_us=us_of(trace.span_ns),
            probe=None if found is None else found.probe,
            call=None if found is None else found.call or None,
            phase=None if found is None else found.phase,
            delay_us=None if found is None else us_of(found.ns),
            in_flight=found is not None and found.in_flight,
            cause="" if found is None else found.cause,
            calls=len(trace.calls),
            gpu_work=len(trace.work),
            lost=trace.losses.lost,
        )


class ReplayDocument(Document):
    """Output of `stallscope replay FILE --json`: the verdict log of a recording, analyzed again, and its traces.
    Latencies are microseconds, times are seconds from the first observation. Unknown values are null."""

    schema: Literal["stallscope.replay/1"]
    began_at: Annotated[Time, about("Time of the first observation.")]
    seconds: Annotated[Seconds, about("Time from the first observation to the last.")]
    observations: Positive
    cut_off: Annotated[bool, about("Whether the end of the file is missing or damaged: what follows is not there.")]
    damage: Annotated[str | None, about("The damaged place in the file as a sentence, null if there is none.")]
    probe_sets: Annotated[
        list[ReplayProbeSet], Meta(min_length=1, description="The probe sets in the order of the recording.")
    ]
    verdicts: Annotated[
        list[ReplayEntry], about("The entries of the verdict log in the order in which they were logged.")
    ]
    verdicts_dropped: Annotated[Natural, about("Number of older entries that are left out.")]
    traces: Annotated[list[ReplayTrace], about("The traces of the timeline in the order in which they were recorded.")]
    traces_dropped: Annotated[Natural, about("Number of later traces that are left out.")]


def document(path: Path, progress: Callable[[float], None] = lambda _: None) -> dict[str, Any]:
    """The document of the recording ``path`` up to its end or the first damaged place, read once in bounded memory.

    ``progress`` is called with the share (0 to 1) of the file that is analyzed. Raises RecordingError if nothing before
    that place can be read.
    """
    stream = RecordingStream(path, progress)
    begun_s, observations, last_s = None, 0, 0.0
    probe_sets: list[ReplayProbeSet] = []
    entries: list[ReplayEntry] = []
    dropped = 0
    traces: list[ReplayTrace] = []
    traces_found = 0
    part: _SetPart | None = None
    for moment in stream.readable_items():
        if isinstance(moment, Trace):
            if begun_s is not None and part is not None:
                traces_found += 1
                if len(traces) < MOST_TRACES:
                    traces.append(ReplayTrace.of_trace(moment, part.number, begun_s))
            continue
        observation = moment.observation
        begun_s = observation.wall_s if begun_s is None else begun_s
        observations, last_s = observations + 1, max(last_s, observation.wall_s)
        if part is None or observation.probe_set is not part.analyzer.probe_set:
            if part is not None:
                _finish(part, begun_s, probe_sets, entries)
                dropped += part.analyzer.judgement.tracker.dropped
            part = _SetPart(
                0 if part is None else part.number + 1,
                _analyzer(observation, part),
                observation.wall_s,
                observation.wall_s,
            )
        part.analyzer.feed(observation)
        part.analyzer.follow_recorded(moment.baselines)
        part.add(observation)
    if part is None or begun_s is None:
        raise RecordingError(f"{path} contains no observation")
    _finish(part, begun_s, probe_sets, entries)
    dropped += part.analyzer.judgement.tracker.dropped
    found: dict[str, Any] = codec.plain(
        ReplayDocument(
            schema="stallscope.replay/1",
            began_at=_utc(begun_s),
            seconds=round(last_s - begun_s, 3),
            observations=observations,
            cut_off=stream.cut_off,
            damage=stream.damage,
            probe_sets=probe_sets,
            verdicts=entries[-MOST_ENTRIES:],
            verdicts_dropped=dropped + max(0, len(entries) - MOST_ENTRIES),
            traces=traces,
            traces_dropped=traces_found - len(traces),
        )
    )
    return found


def _analyzer(observation: Observation, previous: _SetPart | None) -> Analyzer:
    """An analyzer for the observation's probe set; its entries are numbered after those of the previous one."""
    log = () if previous is None else previous.analyzer.judgement.tracker.ended(observation.wall_s)
    return Analyzer(observation.probe_set, log=log[-1:], log_limit=MOST_ENTRIES)


def _finish(part: _SetPart, begun_s: float, probe_sets: list[ReplayProbeSet], entries: list[ReplayEntry]) -> None:
    first = entries[-1].number + 1 if entries else 1
    new = [entry for entry in part.analyzer.log if entry.number >= first]
    entries.extend(ReplayEntry.of_entry(entry, part, begun_s) for entry in new)
    del entries[:-MOST_ENTRIES]
    if len(probe_sets) < _MOST_PROBE_SETS:
        probe_sets.append(ReplayProbeSet.of_part(part, begun_s))


def _ranges(analyzer: Analyzer) -> Iterator[ReplayRange]:
    """The ranges of all judged channels between the windows of their baselines."""
    for timeline in (False, True):
        for name, baseline in analyzer.baselines_with(timeline).items():
            for channel in baseline.channels:
                if not channel.phase.traits.judged:
                    continue
                for quantile in PERCENTILES:
                    known = range_us(baseline.range_ns(channel, quantile))
                    if known is not None:
                        yield ReplayRange(
                            probe=name,
                            phase=channel.phase,
                            op=channel.label or None,
                            quantile=quantile,  # type: ignore[arg-type]
                            range_us=known,
                            spread=rounded(baseline.spread(channel, quantile)),
                            windows=baseline.windows(channel),
                            timeline=timeline,
                        )


def _utc(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="milliseconds")
