"""Results of a comparison of two matrices: the change of each percentile and cell, and what differs around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.matrix.comparing.comparability import Difference
from stallprobes.matrix.comparing.sensitivity import Sensitivity
from stallprobes.matrix.matrix import Matrix
from stallprobes.model import Channel
from stallprobes.verdicts.kinds import FAIL_ON, FAILURES, Look

# Probability that a comparison of two checks of an unchanged machine reports any cell as worse or better, if calls are
# independent. Measured: 0 of 110 comparisons of simulated checks (bench_check.py), 2 of the 45 comparisons of ten
# consecutive checks on one H200, one cell each, 1 of 200 comparisons of checks drawn from those of a noisy H200
# (bench_detectable.py).
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
    """Outcome of a cell, the worst first: its change, newly starved, or no longer starved (``FED``)."""

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


@dataclass(frozen=True)
class QuantileChange:
    """Change of one percentile of one channel of a cell: the old and the new value in ns, None where no call returned.

    ``detectable`` is the smallest ratio that would have been worse or unsure with a probability of 90 %; None if the
    calls or repeats are too few for any. ``why`` is a sentence on the reason, else "".
    """

    row: str
    column: str
    channel: Channel
    quantile: Quantile
    old_ns: float | None
    new_ns: float | None
    ratio: float | None
    change: Change
    why: str = ""
    detectable: float | None = None


@dataclass(frozen=True)
class CellChange:
    """Change of a cell: the worst of its parts, in the order worse, better, unsure, same.

    ``note`` is a sentence on why the cell cannot be compared, or that the victim is starved, else "".
    """

    row: str
    column: str
    change: Change
    newly_starved: bool = False
    no_longer_starved: bool = False
    parts: tuple[QuantileChange, ...] = ()
    note: str = ""

    @property
    def outcome(self) -> CellOutcome:
        """The outcome: newly starved, no longer starved, or the change."""
        if self.newly_starved:
            return CellOutcome.STARVED
        return CellOutcome.FED if self.no_longer_starved else CellOutcome(self.change)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two checks, the differences of their fingerprints, the most important first, and the change of each common cell.

    ``only_old`` and ``only_new`` are (row, column) of the cells that only one of them measured. ``false_alarm_rate``
    is the probability (0 to 1), for independent calls, that a comparison of equal machines reports any cell as worse
    or better.
    """

    old: Matrix
    new: Matrix
    differences: tuple[Difference, ...]
    cells: tuple[CellChange, ...]
    only_old: tuple[tuple[str, str], ...]
    only_new: tuple[tuple[str, str], ...]
    false_alarm_rate: float = FALSE_ALARMS

    def sensitivity(self) -> Mapping[Quantile, Sensitivity | None]:
        """The ratios that half and nine of ten of the compared phases could detect, by percentile."""
        parts = [part for cell in self.cells for part in cell.parts if part.ratio is not None]
        return {
            quantile: Sensitivity.of(part.detectable for part in parts if part.quantile is quantile)
            for quantile in PERCENTILES
        }

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
