"""A comparison of two checks as a JSON document by the published schema ``stallscope.compare/2``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from stallprobes.files import codec
from stallprobes.files.codec import Document, Figure, Natural, Positive, Seconds, Text, about
from stallprobes.latency.ratio import PERCENTILES
from stallprobes.model import Phase, Source
from stallprobes.units import rounded

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison, QuantileChange
    from stallprobes.matrix.matrix import Matrix

COMPARE_SCHEMA = "stallscope.compare/2"
# The words of ``Change``, whose module loads the tests of a comparison.
ChangeWord = Literal["same", "worse", "better", "unsure"]
Detectable = Annotated[
    float,
    Meta(
        ge=1,
        description="Smallest ratio that a comparison would report as worse or unsure with a probability of 90 %.",
    ),
]


class DetectableShares(Document):
    """The ratios that half and nine of ten of the phases could detect; null where fewer could detect any."""

    phases: Annotated[Positive, about("Number of phases of cells with enough calls.")]
    half: Detectable | None
    nine_of_ten: Detectable | None


class Sensitivities(Document):
    """The ratios that half and nine of ten of the phases of all cells could detect; null for no phase."""

    p50: DetectableShares | None
    p99: DetectableShares | None


class CompareSide(Document):
    """One of the two checks."""

    program: Annotated[Text, about("Version of stallscope that measured it.")]
    backend: Literal["cuda", "simulated", "host"]
    profile: Annotated[Text | None, about("Profile of the simulated GPU; null on a real GPU.")]
    started_at: Annotated[Text, about("ISO 8601.")]
    seconds: Seconds
    timeline: Annotated[bool, about("Whether the timeline was on, which adds to each call.")]
    interrupted: bool
    hosts: Annotated[list[Text], about("Host names of a merged check.")]
    fingerprint: dict[str, Any]


class ChangedFact(Document):
    """A difference between the fingerprints."""

    key: Text
    old: Any
    new: Any


class CellPlace(Document):
    """The place of a cell."""

    row: Annotated[Text, about("Name of the victim.")]
    column: Annotated[Text, about("Name of the aggressor column.")]


class ComparePart(Document):
    """The change of one percentile of one channel."""

    phase: Phase
    op: Annotated[Text | None, about("Label of the op if an iteration makes several calls.")]
    quantile: Literal["p50", "p99"]
    source: Annotated[Source, about("How it is measured; a comparison is of the phases that the host measures.")]
    old_us: Figure | None
    new_us: Figure | None
    ratio: Annotated[Figure | None, about("New divided by old.")]
    detectable: Detectable | None
    change: ChangeWord
    why: Text


class CompareCell(Document):
    """The change of a cell."""

    row: Text
    column: Text
    change: Annotated[ChangeWord, about("The first that any of its parts has: worse, better, unsure, same.")]
    newly_starved: Annotated[bool, about("Starved in the new check and not in the old one.")]
    no_longer_starved: bool
    note: Annotated[Text, about("Reason why the cell cannot be compared, else empty.")]
    parts: list[ComparePart]


class CompareDocument(Document):
    """Output of `stallscope compare --json` and `stallscope check --compare OLD --json`. Latencies are microseconds
    (keys ending in _us); null means unknown."""

    schema: Literal["stallscope.compare/2"]
    false_alarm_rate: Annotated[
        float,
        Meta(
            gt=0,
            lt=1,
            description="Upper bound of the probability that a comparison of two unchanged checks reports worse or "
            "better for any cell, for independent calls.",
        ),
    ]
    detectable: Sensitivities
    old: CompareSide
    new: CompareSide
    differences: Annotated[list[ChangedFact], about("Differences between the fingerprints.")]
    counts: Annotated[dict[ChangeWord, Natural], about("Number of cells per change.")]
    fail_on: Annotated[
        list[Literal["worse", "starved", "better", "unsure", "unusual"]],
        about("For what the command exits with 1: changes, and unusual for a cell in stalled_here of check.reference."),
    ]
    regressions: Annotated[list[CellPlace], about("Cells with a change in fail_on.")]
    cells: Annotated[list[CompareCell], about("Cells that both checks measured.")]
    only_old: list[CellPlace]
    only_new: list[CellPlace]
    check: Annotated[
        dict[str, Any] | None,
        about("The new check (stallscope.check/2) if the same command measured it, else null."),
    ]


def document(
    comparison: Comparison,
    fail_on: Iterable[str],
    regressions: Iterable[CellChange],
    check: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """``comparison`` as JSON types.

    ``regressions`` are the cells that ``fail_on`` asks for. ``check`` is the new check's own document, for a command
    that measured it; it may have an iterator of its cells.
    """
    own = CompareDocument.of(
        comparison,
        schema=COMPARE_SCHEMA,
        detectable=detectable_shares(comparison),
        old=_side(comparison.old),
        new=_side(comparison.new),
        differences=list(map(ChangedFact.of, comparison.differences)),
        counts=comparison.counts(),
        fail_on=list(fail_on),
        regressions=list(map(CellPlace.of, regressions)),
        cells=[CompareCell.of(cell, parts=list(map(_part, cell.parts))) for cell in comparison.cells],
        only_old=[CellPlace(*place) for place in comparison.only_old],
        only_new=[CellPlace(*place) for place in comparison.only_new],
        check=None,
    )
    return {**codec.plain(own), "check": check}


def _side(matrix: Matrix) -> CompareSide:
    return CompareSide.of(matrix, hosts=list(matrix.hosts))


def _part(part: QuantileChange) -> ComparePart:
    return ComparePart.of(
        part,
        phase=part.channel.phase,
        op=part.channel.label or None,
        source=Source.HOST,
        ratio=rounded(part.ratio),
        detectable=rounded(part.detectable),
    )


def detectable_shares(comparison: Comparison) -> Sensitivities:
    """The ratios that half and nine of ten of the compared phases could detect."""
    sensitivity = comparison.sensitivity()
    p50, p99 = (
        None
        if (found := sensitivity[quantile]) is None
        else DetectableShares(found.phases, rounded(found.half), rounded(found.nine_of_ten))
        for quantile in PERCENTILES
    )
    return Sensitivities(p50, p99)
