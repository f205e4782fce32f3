"""JSON document of a demo, published schema ``stallscope.demo/1``: what was found, beside what the reporters found.

Latencies are microseconds with three decimals. Unknown values are null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from stallprobes.demo.outcome import DemoResult, PatternOutcome
from stallprobes.files import codec
from stallprobes.files.codec import Document, Figure, Text, about
from stallprobes.latency.ratio import Quantile
from stallprobes.model import Phase, Symptom
from stallprobes.recording.observation import SIM
from stallprobes.units import rounded
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

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
    def of_verdict(cls, found: Verdict | None) -> DemoStep | None:
        """The document of ``found``."""
        return None if found is None else cls.of(found, cause=found.cause or None)


class DemoReport(Document):
    """The figures that a report states."""

    gpu: Text
    figure: Annotated[Text, about("What was measured.")]
    baseline_us: Figure | None
    stalled_us: Figure | None
    remedy_us: Figure | None


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
    def of_outcome(cls, outcome: PatternOutcome) -> DemoPattern:
        """The document of ``outcome``."""
        pattern = outcome.pattern
        return cls.of(
            outcome,
            pattern=pattern.name,
            symptom=pattern.symptom,
            ratio=rounded(outcome.ratio),
            stalled=DemoStep.of_verdict(outcome.stalled),
            remedied=DemoStep.of_verdict(outcome.remedied),
            reported=pattern.latency and DemoReport.of(pattern.latency),
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
        DemoDocument.of(
            result.probe_set,
            schema=DEMO_SCHEMA,
            backend="simulated" if result.probe_set.backend == SIM else result.probe_set.backend,
            gpus=[gpu.label for gpu in result.probe_set.gpus],
            patterns=list(map(DemoPattern.of_outcome, result.outcomes)),
        )
    )
    return found
