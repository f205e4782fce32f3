"""JSON document of a demo, published schema ``stallscope.demo/1``: what was found, beside what the reporters found.

Latencies are microseconds with three decimals. Unknown values are null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from stallprobes.demo.outcome import DemoResult, PatternOutcome, StepLatency
from stallprobes.files import codec
from stallprobes.files.codec import Document, Figure, Text, about
from stallprobes.latency.ratio import Quantile
from stallprobes.model import Phase, ReportedLatency, Symptom
from stallprobes.units import rounded, us_of
from stallprobes.verdicts.kinds import VerdictKind

DEMO_SCHEMA = "stallscope.demo/1"


class DemoStep(Document):
    """What was found while a variant was shown."""

    probe: Text
    phase: Phase | None
    quantile: Quantile
    kind: VerdictKind
    baseline_us: Figure | None
    now_us: Figure | None
    cause: Text | None

    @classmethod
    def of(cls, found: StepLatency) -> DemoStep:
        """The document of ``found``."""
        return cls(
            probe=found.probe,
            phase=found.phase,
            quantile=found.quantile,
            kind=found.kind,
            baseline_us=us_of(found.baseline_ns),
            now_us=us_of(found.now_ns),
            cause=found.cause or None,
        )


class DemoReport(Document):
    """The figures that a report states."""

    gpu: Text
    figure: Annotated[Text, about("What was measured.")]
    baseline_us: Figure | None
    stalled_us: Figure | None
    remedy_us: Figure | None

    @classmethod
    def of(cls, latency: ReportedLatency) -> DemoReport:
        """The document of ``latency``."""
        return cls(
            gpu=latency.gpu,
            figure=latency.figure,
            baseline_us=us_of(latency.baseline_ns),
            stalled_us=us_of(latency.stalled_ns),
            remedy_us=us_of(latency.remedy_ns),
        )


class DemoPattern(Document):
    """A pattern that was shown or skipped."""

    pattern: Text
    symptom: Annotated[Symptom, about("What a user notices of the stall.")]
    stall: Annotated[Text | None, about("The variant that was shown as the stall; null if none was.")]
    remedy: Annotated[Text | None, about("The variant that was shown as the remedy; null if none was.")]
    skipped: Annotated[Text | None, about("Why this machine cannot run the pattern.")]
    no_remedy: Annotated[Text | None, about("Why this machine can run none of its remedies.")]
    problem: Annotated[Text | None, about("A failure while the pattern was shown.")]
    baseline_us: Annotated[
        Figure | None,
        about("The latency without the stall; of a verdict gpu-time or overhead, the time on the GPU."),
    ]
    ratio: Annotated[Figure | None, about("The stalled latency over baseline_us.")]
    stalled: DemoStep | None
    remedied: DemoStep | None
    reported: Annotated[DemoReport | None, about("null if the report states no figures.")]

    @classmethod
    def of(cls, one: PatternOutcome) -> DemoPattern:
        """The document of ``one``."""
        return cls(
            pattern=one.pattern.name,
            symptom=one.pattern.symptom,
            stall=one.stall or None,
            remedy=one.remedy or None,
            skipped=one.skipped or None,
            no_remedy=one.no_remedy or None,
            problem=one.problem or None,
            baseline_us=us_of(one.baseline_ns),
            ratio=rounded(one.ratio),
            stalled=None if one.stalled is None else DemoStep.of(one.stalled),
            remedied=None if one.remedied is None else DemoStep.of(one.remedied),
            reported=None if one.pattern.latency is None else DemoReport.of(one.pattern.latency),
        )


class DemoDocument(Document):
    """Output of `stallscope demo --json`: what was found in each pattern, beside what its reporters found. Latencies
    are microseconds. Unknown values are null."""

    schema: Literal["stallscope.demo/1"]
    backend: Literal["cuda", "simulated", "host"]
    gpus: Annotated[list[Text], about("Empty if no engine was ready.")]
    details: Annotated[list[Text], about("Driver and CUDA version, or profile and seed of the simulated GPU.")]
    patterns: Annotated[list[DemoPattern], about("The patterns that were shown or skipped, in the order of the demo.")]


def document(result: DemoResult) -> dict[str, Any]:
    """``result`` as JSON types."""
    found: dict[str, Any] = codec.plain(
        DemoDocument(
            schema="stallscope.demo/1",
            backend="simulated" if result.simulated else result.backend,  # type: ignore[arg-type]
            gpus=list(result.gpus),
            details=list(result.details),
            patterns=list(map(DemoPattern.of, result.outcomes)),
        )
    )
    return found
