"""Results of a comparison of two matrices: the change of each percentile and cell, and what differs around them.

Their JSON document follows the published schema ``stallscope.compare/3``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from msgspec import Meta

from stallprobes.files import codec
from stallprobes.files.codec import Document, Latency, Natural, Positive, Ratio, Text
from stallprobes.files.tables import Record, aligned
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.matrix.comparing.comparability import Difference
from stallprobes.matrix.matrix import CellPlace, CheckOrigin, Matrix
from stallprobes.model import Channel, Phase, Source
from stallprobes.verdicts.kinds import FAIL_ON, FAILURES, Look
from stallprobes.verdicts.verdict import Detectable

# Schema of the JSON document of a comparison, with the number of its version.
COMPARE_SCHEMA = "stallscope.compare/3"
# Largest probability that a comparison of two checks of an unchanged machine reports any latency as worse or better,
# if calls are independent. Measured: 0 of 110 simulated comparisons (bench_check.py), 2 of 45 on one H200, 1 of 200
# from the repeats of a noisy H200 (bench_detectable.py).
FALSE_ALARMS = 0.01


class Change(StrEnum):
    """Result of the comparison of a percentile or a cell."""

    SAME = "same"
    WORSE = "worse"
    BETTER = "better"
    UNSURE = "unsure"

    @property
    def look(self) -> Look:
        """Word and style of the change."""
        return OUTCOME_LOOKS[CellOutcome(self)]


class CellOutcome(StrEnum):
    """Outcome of the comparison of a cell, the worst first.

    ``STARVED``: starved only in the new check. ``FED``: starved only in the old check. All other outcomes: the
    ``Change`` of the cell.
    """

    WORSE = "worse"
    STARVED = "starved"
    BETTER = "better"
    FED = "fed"
    UNSURE = "unsure"
    SAME = "same"

    @property
    def look(self) -> Look:
        """Word and style of the outcome."""
        return OUTCOME_LOOKS[self]


# Words and marks of each outcome.
OUTCOME_LOOKS = {
    CellOutcome.WORSE: Look("WORSE", style="bad"),
    CellOutcome.STARVED: Look(
        "newly STARVED", mark="STARVED", style="bad", meaning="fewer than 3 calls returned in 0.5 s"
    ),
    CellOutcome.BETTER: Look("BETTER", style="good"),
    CellOutcome.FED: Look("no longer STARVED", style="good"),
    CellOutcome.UNSURE: Look("UNSURE", style="warn", meaning="it looks changed, without enough evidence"),
    CellOutcome.SAME: Look("SAME", style="dim"),
}


class QuantileChange(Document):
    """Change of one percentile of one channel of a cell."""

    phase: Phase
    op: Text | None
    """Label of the op if an iteration makes several calls."""
    quantile: Quantile
    old_ns: Latency | None
    """null where no call returned."""
    new_ns: Latency | None
    ratio: Ratio | None
    """New divided by old."""
    change: Change
    why: Text = ""
    """Reason for the change, else empty."""
    detectable: Detectable | None = None
    """Smallest ratio that a comparison would report as worse or unsure with a probability of 90 %; null where the calls
    or repeats are too few for any."""
    source: Source = Source.HOST
    """How it is measured; a comparison is of the phases that the host measures."""

    @property
    def channel(self) -> Channel:
        """The channel."""
        return Channel(self.phase, self.op or "")


class CellChange(CellPlace):
    """Change of a cell."""

    change: Change
    """The first that any of its parts has: worse, better, unsure, same."""
    newly_starved: bool = False
    """Starved in the new check and not in the old one."""
    no_longer_starved: bool = False
    parts: tuple[QuantileChange, ...] = ()
    note: Text = ""
    """Sentence on why the cell cannot be compared, or that the victim is starved, else empty."""

    @property
    def outcome(self) -> CellOutcome:
        """The outcome: newly starved, no longer starved, or the change."""
        if self.newly_starved:
            return CellOutcome.STARVED
        return CellOutcome.FED if self.no_longer_starved else CellOutcome(self.change)

    def iter_records(self) -> Iterator[Record]:
        """A record for each of its parts; one without a part where there is none."""
        outcome = {"victim": self.row, "aggressor": self.column, "outcome": str(self.outcome), "note": self.note}
        for part in self.parts:
            yield {
                **outcome,
                "phase": str(part.phase),
                "op": part.op or "",
                "quantile": str(part.quantile),
                "old_ns": None if part.old_ns is None else round(part.old_ns),
                "new_ns": None if part.new_ns is None else round(part.new_ns),
                "ratio": part.ratio,
                "change": str(part.change),
                "why": part.why,
                "detectable_ratio": part.detectable,
            }
        if not self.parts:
            yield dict(outcome)


class Sensitivity(Document):
    """The ratios that half and nine of ten of the phases could detect; null where fewer could detect any."""

    phases: Positive
    """Number of phases of cells with enough calls."""
    half: Detectable | None
    nine_of_ten: Detectable | None

    @classmethod
    def of_phases(cls, detectable: Iterable[float | None]) -> Self | None:
        """The sensitivity of phases with these detectable ratios, None for no phase."""
        ratios = sorted(math.inf if ratio is None else ratio for ratio in detectable)
        if not ratios:
            return None
        half, most = (ratios[math.ceil(share * len(ratios)) - 1] for share in (0.5, 0.9))
        return cls(len(ratios), half if half < math.inf else None, most if most < math.inf else None)


# Sensitivity by percentile; null for no phase.
Sensitivities = Mapping[Quantile, Sensitivity | None]


def sensitivities(cells: Iterable[CellChange]) -> Sensitivities:
    """The ratios that half and nine of ten of the phases of ``cells`` could detect."""
    parts = [part for cell in cells for part in cell.parts if part.ratio is not None]
    return {
        quantile: Sensitivity.of_phases(part.detectable for part in parts if part.quantile is quantile)
        for quantile in PERCENTILES
    }


class Changes(Document, kw_only=True):
    """What changed between two checks."""

    false_alarm_rate: Annotated[float, Meta(gt=0, lt=1)] = FALSE_ALARMS
    """Upper bound of the probability that a comparison of two unchanged checks reports worse or better for any cell,
    for independent calls."""
    detectable: Sensitivities
    differences: tuple[Difference, ...]
    """Differences between the fingerprints, the most important first."""
    cells: tuple[CellChange, ...]
    """Cells that both checks measured."""
    only_old: tuple[CellPlace, ...]
    only_new: tuple[CellPlace, ...]


class Comparison(Changes, eq=False, kw_only=True):
    """The comparison of two checks."""

    old: Matrix
    new: Matrix

    def __repr__(self) -> str:
        words = ", ".join(f"{count} {outcome.look.word}" for outcome, count in self.outcomes().items() if count)
        return f"<Comparison of {self.new.machine} since {self.old.started_at}: {words}>"

    def to_records(self) -> list[Record]:
        """A record for each cell and percentile that is compared, for pandas, polars or Arrow.

        Latencies are in nanoseconds (``old_ns``), ``ratio`` is new divided by old, None is unknown. A cell that cannot
        be compared has one record, and ``note`` says why.
        """
        return aligned(record for cell in self.cells for record in cell.iter_records())

    def regressions(self, fail_on: Collection[str] = FAIL_ON) -> tuple[CellChange, ...]:
        """The cells that fail by the names in ``fail_on``; a newly starved cell fails only by ``starved``.

        Raises ValueError for a name that is not in ``FAILURES``.
        """
        for name in fail_on:
            if name not in FAILURES:
                raise ValueError(f"{name} is not one of {', '.join(FAILURES)}")
        return tuple(cell for cell in self.cells if ("starved" if cell.newly_starved else str(cell.change)) in fail_on)

    def counts(self) -> Mapping[Change, int]:
        """Number of cells by change."""
        return {change: sum(cell.change is change for cell in self.cells) for change in Change}

    def outcomes(self) -> Mapping[CellOutcome, int]:
        """Number of cells by outcome, the worst outcome first."""
        return {outcome: sum(cell.outcome is outcome for cell in self.cells) for outcome in CellOutcome}


class CompareSide(CheckOrigin, kw_only=True):
    """One of the two checks."""

    hosts: tuple[Text, ...]
    """Host names of a merged check."""


class CompareDocument(Changes, kw_only=True, tag_field="schema", tag=COMPARE_SCHEMA):
    """Output of `stallscope compare --json` and `stallscope check --compare OLD --json`. Latencies are nanoseconds
    (keys ending in _ns); null means unknown."""

    old: CompareSide
    new: CompareSide
    counts: Mapping[Change, Natural]
    """Number of cells per change."""
    fail_on: tuple[Literal["worse", "starved", "better", "unsure", "unusual"], ...]
    """For what the command exits with 1: changes, and unusual for a cell in stalled_here of check.reference."""
    regressions: tuple[CellPlace, ...]
    """Cells with a change in fail_on."""
    check: Mapping[str, Any] | None
    """The new check (stallscope.check/3) if the same command measured it, else null."""


def document(
    comparison: Comparison,
    fail_on: Iterable[str],
    regressions: Iterable[CellChange],
    check: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """``comparison`` as JSON types.

    ``fail_on`` selects the ``regressions``. ``check`` is the document of the new check, for a command that measured it;
    it may have an iterator of its cells.
    """
    own = CompareDocument.of(
        comparison,
        old=_side(comparison.old),
        new=_side(comparison.new),
        counts=comparison.counts(),
        fail_on=tuple(fail_on),
        regressions=tuple(map(CellPlace.of, regressions)),
        check=None,
    )
    return {**codec.plain(own), "check": check}


def _side(matrix: Matrix) -> CompareSide:
    return CompareSide.of(matrix, hosts=tuple(matrix.hosts))
