"""JSON document of a run, published schema ``stallscope.run/2``.

Latencies are microseconds with three decimals. Histograms are complete, with bounds in nanoseconds. Unknown values are
null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from msgspec import UNSET, Meta, UnsetType

from stallprobes.files import codec
from stallprobes.files.codec import Document, Figure, Integer, Natural, Positive, Seconds, Text, about
from stallprobes.latency.ratio import PERCENTILES
from stallprobes.machine.gpu_state import GpuStateDocument
from stallprobes.model import Channel, Kind, Phase, Probe, Role, Source
from stallprobes.records.timeline_document import TimelineDocument
from stallprobes.units import rounded, us_of
from stallprobes.verdicts.blame import BlameOutcome, Conclusion, Interval, sentence
from stallprobes.verdicts.verdict import PercentileSpreads, Verdict

if TYPE_CHECKING:
    from stallprobes.latency.histogram import Histogram
    from stallprobes.latency.window import ChannelMap
    from stallprobes.measurement.result import ProbeResult, RunResult, VariantResult
    from stallprobes.verdicts.blame import AggressorBlame, Blame

RUN_SCHEMA = "stallscope.run/3"
# With fewer values, the p99.9 is the maximum.
P999_NEEDS = 1000
_OPERATION = about("Label of the operation; null for all operations of the phase.")


class RunFigures(Document):
    """Latencies of a channel."""

    source: Annotated[
        Source,
        about(
            "How it is measured. host: clock of the host around the call. events: pairs of CUDA events. timeline: "
            "records of the GPU's work."
        ),
    ]
    count: Natural
    first_us: Annotated[Figure | None, about("The first call, which is not in the histogram.")]
    p50_us: Figure | None
    p90_us: Figure | None
    p99_us: Figure | None
    p999_us: Annotated[Figure | None, about("null for fewer than 1000 values.")]
    max_us: Figure | None
    histogram: Annotated[
        list[tuple[Natural, Positive]],
        about("[[lower bound of the bucket in ns, count], ...], ascending; 64 buckets per octave."),
    ]

    @classmethod
    def of_channel(
        cls, probe: Probe, channel: Channel, histogram: Histogram, first_ns: int | None, **others: Any
    ) -> Self:
        """The figures of a channel of ``probe``; ``others`` are the members that a subclass adds."""
        return cls(
            source=probe.program.source(channel.phase),
            count=histogram.count,
            first_us=us_of(first_ns) if probe.program.measures_first(channel) else None,
            p50_us=us_of(histogram.percentile(50)),
            p90_us=us_of(histogram.percentile(90)),
            p99_us=us_of(histogram.percentile(99)),
            p999_us=us_of(histogram.percentile_or_none(99.9, P999_NEEDS)),
            max_us=us_of(histogram.max_ns) if histogram.count else None,
            histogram=histogram.pairs(),  # type: ignore[arg-type]
            **others,
        )


class RunOp(RunFigures):
    """Latencies of one operation of a program."""

    op: Text
    phase: Phase
    baseline: RunFigures | None


class RunProbe(Document):
    """A probe of a variant."""

    name: Text
    title: Text
    entry: Annotated[Text, about("Name in the catalogue.")]
    role: Role
    context: Text
    stream: Text
    state: Literal["quiet", "drift", "unsteady", "slower", "STALLED", "STARVED", "running", "off", "failed", "n/a"]
    calls: Annotated[Natural, about("Iterations that ended in the window.")]
    starved: Annotated[bool, about("Fewer than 3 calls returned in 0.5 s although more were due.")]
    in_flight_us: Annotated[Figure | None, about("Age of the call in flight at the end of the window.")]
    in_flight_op: Text | None
    error: Annotated[Text | None, about("Op, return code and CUDA's text if an error stopped the probe.")]
    window_s: Seconds
    period_us: Annotated[Figure, about("Time between scheduled starts; 0 means back to back.")]
    gpu_starts: Annotated[
        Natural | None, about("Starts that the GPU counted in the window, if the program counts them.")
    ]
    phases: dict[Phase, RunFigures]
    baseline: Annotated[dict[Phase, RunFigures], about("The same probe with no aggressor running.")]
    ops: list[RunOp]

    @classmethod
    def of_result(cls, result: ProbeResult) -> RunProbe:
        """The document of ``result``."""
        probe, window = result.probe, result.window
        return cls.of(
            probe,
            state=result.state,
            calls=window.iterations,
            starved=result.starved,
            in_flight_us=None if window.in_flight is None else us_of(window.in_flight.age_ns),
            in_flight_op=result.in_flight_op,
            error=result.error,
            window_s=window.seconds,
            period_us=window.period_ns / 1000,
            gpu_starts=None if probe.program.proof is None else window.proof,
            phases=_phases(probe, window.channels, window.first_ns),
            baseline=_phases(probe, result.baseline, {}),
            ops=[_op(result, channel, histogram) for channel, histogram in window.channels.items() if channel.label],
        )


def _op(result: ProbeResult, channel: Channel, histogram: Histogram) -> RunOp:
    baseline = result.baseline.get(channel)
    quiet = None if baseline is None else RunFigures.of_channel(result.probe, channel, baseline, None)
    first_ns = result.window.first_ns.get(channel)
    return RunOp.of_channel(
        result.probe, channel, histogram, first_ns, op=channel.label, phase=channel.phase, baseline=quiet
    )


def _phases(probe: Probe, channels: ChannelMap, first_ns: Mapping[Channel, int | None]) -> dict[Phase, RunFigures]:
    return {
        channel.phase: RunFigures.of_channel(probe, channel, histogram, first_ns.get(channel))
        for channel, histogram in channels.items()
        if not channel.label
    }


class RunAggressor(Document):
    """An aggressor's part in a figure of a victim."""

    aggressor: Text
    alone_us: Annotated[Figure | None, about("With only this aggressor on.")]
    without_us: Annotated[Figure | None, about("With only this aggressor off.")]
    share: Annotated[Interval | None, about("Share of the delay, 1 for all of it, with its 95 % interval.")]
    conclusion: Conclusion


def _aggressor(part: AggressorBlame) -> RunAggressor:
    share = part.share
    ends = () if share is None else (round(float(one), 3) for one in (share.value, share.low, share.high))
    return RunAggressor.of(part, share=None if share is None else Interval(*ends))


class RunBlameFigure(Document):
    """What the experiment found for one figure of one victim."""

    probe: Text
    phase: Phase
    op: Annotated[Text | None, _OPERATION]
    quantile: Literal["p50", "p99"]
    off_us: Annotated[Figure | None, about("With all aggressors off.")]
    on_us: Annotated[Figure | None, about("With all aggressors on.")]
    ratio: Figure | None
    outcome: BlameOutcome
    aggressors: list[RunAggressor]
    sentence: Text


class RunBlame(Document):
    """The experiment that switched each aggressor on and off."""

    aggressors: Annotated[list[Text], Meta(min_length=1)]
    rounds: Annotated[
        Natural, about("Each measures all off, all on, each alone and each off; later ones only what is undecided.")
    ]
    seconds: Seconds | None
    idle: Annotated[list[Text], about("Aggressors that did not run in some of the windows in which they were on.")]
    figures: list[RunBlameFigure]

    @classmethod
    def of_blame(cls, blame: Blame) -> RunBlame:
        """The document of ``blame``."""
        figures = [
            RunBlameFigure.of(
                figure,
                probe=figure.victim,
                phase=figure.channel.phase,
                op=figure.channel.label or None,
                ratio=rounded(figure.ratio),
                aggressors=list(map(_aggressor, figure.aggressors)),
                sentence=sentence(figure),
            )
            for figure in blame.figures
        ]
        return cls.of(blame, seconds=rounded(blame.seconds), figures=figures)


class RunGpuStates(Document):
    """State of the GPU in the baseline, and in the window with the aggressors running."""

    baseline: GpuStateDocument
    window: GpuStateDocument


class RunVariant(Document, kw_only=True):
    """Result of a variant."""

    pattern: Text
    variant: Text
    kind: Kind
    status: Literal["ok", "unsupported", "invalid"]
    reason: Annotated[Text | None, about("Reason why it is unsupported or invalid.")]
    baseline_s: Annotated[Seconds, about("Length of the baseline.")]
    window_s: Annotated[Seconds, about("Length of the window with the aggressors running.")]
    slots: Annotated[bool, about("Whether victims of different contexts ran in slots, one context at a time.")]
    together: Annotated[bool, about("Whether --together switched slots off.")]
    probes: list[RunProbe]
    verdicts: tuple[Verdict, ...]
    blame: RunBlame | None
    spread: PercentileSpreads | None
    gpu_state: RunGpuStates | UnsetType = UNSET

    @classmethod
    def of_result(cls, variant: VariantResult) -> RunVariant:
        """The document of ``variant``."""
        states = variant.gpu_states
        widest = [variant.widest(quantile) for quantile in PERCENTILES]
        return cls.of(
            variant,
            probes=list(map(RunProbe.of_result, variant.probes)),
            blame=None if variant.blame is None else RunBlame.of_blame(variant.blame),
            spread=PercentileSpreads.of_ratios(*(None if one is None else one.ratio for one in widest)),
            gpu_state=UNSET if states is None else RunGpuStates(states.baseline.document(), states.window.document()),
        )


class RunDocument(Document, kw_only=True):
    """Output of `stallscope run --json`. Latencies are microseconds (keys ending in _us), histograms nanoseconds; null
    means unknown or too few values."""

    schema: Literal["stallscope.run/3"]
    backend: Annotated[Literal["cuda", "simulated", "host"], about("host: probes without CUDA.")]
    profile: Annotated[Text | None, about("Profile of the simulated GPU; null on a real GPU.")]
    seed: Annotated[Integer | None, about("Seed of the simulated GPU; null on a real GPU.")]
    started_at: Annotated[Text, about("ISO 8601.")]
    seconds: Annotated[Seconds, about("Requested window length per variant.")]
    timeline: Annotated[bool, about("Whether the timeline was on, which adds to each call.")]
    timeline_status: TimelineDocument | UnsetType = UNSET
    interrupted: Annotated[bool, about("Whether the run was stopped early; results then holds the finished variants.")]
    fingerprint: Annotated[
        dict[str, Any], about("GPU, driver, settings and host. The key unknown gives the reason for each null.")
    ]
    results: list[RunVariant]


def document(result: RunResult) -> dict[str, Any]:
    """``result`` as JSON types."""
    summary = result.timeline_summary
    found: dict[str, Any] = codec.plain(
        RunDocument.of(
            result,
            schema=RUN_SCHEMA,
            backend="simulated" if result.simulated else result.backend,
            timeline_status=UNSET if summary is None else TimelineDocument.of_summary(summary),
            results=list(map(RunVariant.of_result, result.variants)),
        )
    )
    return found
