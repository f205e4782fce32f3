"""Reference: recorded checks of known machines, against which a first check shows what is unusual.

A reference summarizes several checks of one model of GPU with one driver: how often each cell stalled, and the range of
its ratios. It is another machine's, so a difference is neither a pass nor a failure.

A cell is unusual if it stalls here and in none of the reference's checks, or in all of them and not here. Both need a
clear difference of the ratios. A cell on which the reference's checks disagree is never unusual.

The JSON document of a reference follows the published schema ``stallscope.reference/2``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from msgspec import Meta

from stallprobes.errors import NotComparable
from stallprobes.files.codec import (
    Document,
    Figure,
    Name,
    Nanoseconds,
    Natural,
    Positive,
    Ratio,
    Seconds,
    Text,
    brief,
)
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.comparing.comparability import Difference
from stallprobes.matrix.matrix import QUIET, Cell, CellPlace, Matrix, MatrixColumn, MatrixRow, Status
from stallprobes.model import JUDGED_PHASES, Phase
from stallprobes.units import duration_ns
from stallprobes.verdicts.evidence import STALLED
from stallprobes.verdicts.kinds import VerdictKind

# Schema of the JSON document of a reference, with the number of its version.
REFERENCE_SCHEMA = "stallscope.reference/2"
# Phases (parts of a call's latency) for which a reference records ratios to the baseline.
REFERENCE_PHASES = tuple(dict.fromkeys((*JUDGED_PHASES, Phase.DUE)))
# Smallest number of checks of a reference. A statement on a victim beside an aggressor also needs at least this number
# of checks that measured this pair. Reason: a single check shows no agreement.
LEAST_CHECKS = 2
# Factors, by percentile, for an unusual ratio of a latency to the baseline. Upper limit: the highest ratio in the
# checks of a reference times the factor. Lower limit: the lowest ratio divided by the factor. Smaller factors would
# include ratios near the limit of a verdict. The factor for p99 is larger because p99 varies more.
UNUSUAL_FACTORS = {Quantile.P50: 2.0, Quantile.P99: 3.0}
# Smallest number of a victim's calls beside an aggressor, by percentile, with which a missing stall is reported. A
# stall is missing if the reference has the stall at this percentile and the check does not.
ENOUGH = {Quantile.P50: 20, Quantile.P99: 200}
# Reason why a check with the timeline cannot be compared with a reference.
WITH_TIMELINE = (
    "A reference is of checks without the timeline, which adds to each call: compare with it a check made without "
    "--timeline."
)
# Suffix of the names of a simulated GPU, its driver and its CUDA in a machine's fingerprint. The suffix is removed
# before the names are compared with the names in a reference.
_SIMULATED = " (SIMULATED)"
# Keys of the machine's fingerprint whose differences from the reference are named.
_NAMED_KEYS = ("driver", "cuda", "module_loading", "mig", "mps", "compute_mode")


class CellState(StrEnum):
    """What one check says of a cell. ``UNCLEAR``: neither stalled nor quiet, such as drift or host noise."""

    QUIET = "quiet"
    SLOWER = "slower"
    STALLED = "stalled"
    STARVED = "starved"
    UNCLEAR = "unclear"

    @property
    def stalls(self) -> bool:
        """True if the victim stalled or starved."""
        return self in (CellState.STALLED, CellState.STARVED)


# State of a check's cell (a victim beside an aggressor), by the kind of the cell's verdict. With any other kind, the
# state is unclear.
_STATES = {
    VerdictKind.QUIET: CellState.QUIET,
    VerdictKind.SLOWER: CellState.SLOWER,
    VerdictKind.STALLED: CellState.STALLED,
    VerdictKind.STARVED: CellState.STARVED,
}
# Kinds of verdicts that count as stalls in the comparison of a check with a reference. A slowdown does not count.
_STALLS = (VerdictKind.STALLED, VerdictKind.STARVED)


# Smallest and largest ratio of several checks.
RatioRange = tuple[Figure, Figure]


class ReferenceFingerprint(Document):
    """What all checks have in common; null where they differ."""

    gpu: Name
    driver: Text
    cuda: Text
    memory_bytes: Natural | None
    module_loading: Text | None
    mig: bool | None
    mps: bool | None
    compute_mode: Text | None


class ReferenceCheck(Document):
    """One check of a reference."""

    started_at: Text
    """ISO 8601."""
    seconds: Seconds
    """Duration."""
    repeats: Natural
    cpus: Natural | None
    """Number of CPUs."""


class ReferenceRow(MatrixRow):
    """A victim."""

    baseline_ns: Mapping[Phase, Nanoseconds]
    """Median over the checks of the victim's median latency with no aggressor, by phase."""


class ReferenceCell(CellPlace):
    """A victim with an aggressor."""

    checks: Mapping[CellState, Positive]
    """Number of checks by the state of the cell; a check that did not measure it is not counted."""
    ratios: Mapping[Phase, Mapping[Quantile, RatioRange]]
    """Smallest and largest ratio to the baseline among the checks, by phase and percentile."""

    @property
    def measured(self) -> int:
        """Number of checks that measured the cell."""
        return sum(self.checks.values())

    @property
    def stalls(self) -> bool | None:
        """True if the cell stalls, None where the checks disagree or are too few."""
        stalled = sum(number for state, number in self.checks.items() if state.stalls)
        if self.measured < LEAST_CHECKS or CellState.UNCLEAR in self.checks or 0 < stalled < self.measured:
            return None
        return stalled > 0

    def range(self, phase: Phase, quantile: Quantile) -> RatioRange | None:
        """The range of a ratio; None without calls."""
        return self.ratios.get(phase, {}).get(quantile)


class UnusualCell(CellPlace):
    """A cell that differs from a reference, with the figure that differs most clearly."""

    phase: Phase
    quantile: Quantile
    ratio: Ratio | None
    """Ratio to the baseline here; null for a call in flight."""
    there: RatioRange | None
    """Smallest and largest ratio among the checks of the reference; null where no call returned."""

    @property
    def distance(self) -> float:
        """Factor between the ratio here and the nearest one of the reference; infinite without one of them."""
        if self.ratio is None or self.there is None:
            return math.inf
        low, high = self.there
        return max(self.ratio / max(high, 1e-9), low / max(self.ratio, 1e-9))


class Unusual(Document, kw_only=True):
    """What is unusual in a check, by a reference; the clearest cells first."""

    name: Text
    """Name of the reference."""
    gpu: Text
    driver: Text
    machines: Positive
    checks: Positive
    """Number of checks of the reference."""
    first: Text
    """Date of the first check of the reference."""
    last: Text
    """Date of its last check."""
    compared: Natural
    """Number of cells that were compared."""
    absent: Natural
    """Number of cells that the reference does not have."""
    disagreed: Natural
    """Number of cells on which its checks disagree."""
    unjudged: Natural
    """Number of cells that this check did not judge."""
    differences: tuple[Difference, ...]
    """Differences of the machines; the reference is the old one."""
    stalled_here: tuple[UnusualCell, ...]
    """Cells that stall here and in no check of the reference."""
    stalled_there: tuple[UnusualCell, ...]
    """Cells that stall in every check of the reference and not here."""


class ReferenceComparison(Unusual, eq=False, kw_only=True):
    """The comparison of a check with a reference; the check is a ``quick`` or a ``simulated`` one."""

    reference: Reference
    quick: bool
    simulated: bool

    def __repr__(self) -> str:
        here, there = len(self.stalled_here), len(self.stalled_there)
        return f"<ReferenceComparison with {self.reference.name}: {here} cells stall only here, {there} only there>"


class Reference(Document, eq=False, dict=True, kw_only=True, tag_field="schema", tag=REFERENCE_SCHEMA):
    """Recorded checks of one model of GPU with one driver, against which stallscope names what is unusual. Keys ending
    in _ns are nanoseconds."""

    name: Name
    """Name of the reference."""
    pace_ns: Natural
    """Period of the victims."""
    fingerprint: ReferenceFingerprint
    machines: Positive
    """Number of machines."""
    checks: Annotated[tuple[ReferenceCheck, ...], Meta(min_length=1)]
    rows: tuple[ReferenceRow, ...]
    columns: tuple[MatrixColumn, ...]
    cells: tuple[ReferenceCell, ...]

    def __repr__(self) -> str:
        return brief(self, "name", "machines")

    @cached_property
    def by_place(self) -> Mapping[tuple[str, str], ReferenceCell]:
        """The cells by row and column."""
        return {cell.key: cell for cell in self.cells}

    @cached_property
    def by_row(self) -> Mapping[str, ReferenceRow]:
        """The rows by name."""
        return {row.name: row for row in self.rows}

    @property
    def gpu(self) -> str:
        """The model of its GPUs."""
        return self.fingerprint.gpu

    @property
    def driver(self) -> str:
        """The driver of its machines."""
        return self.fingerprint.driver

    @property
    def dates(self) -> tuple[str, str]:
        """The dates of its first and last check (ISO 8601)."""
        dates = sorted(check.started_at[:10] for check in self.checks)
        return dates[0], dates[-1]

    def misfit_of(self, gpu: str | None) -> str | None:
        """Why a check of the GPU model ``gpu`` cannot be compared with the reference, as a sentence; None if it can."""
        return (
            None if gpu == self.gpu else f"The reference {self.name} is of {self.gpu}, the check of {gpu or 'no GPU'}."
        )

    def misfit(self, matrix: Matrix) -> str | None:
        """Why ``matrix`` cannot be compared with the reference, as a sentence; None if it can."""
        if matrix.hosts:
            return "The check is of several machines, a reference is compared with one."
        if matrix.timeline:
            return WITH_TIMELINE
        if (problem := self.misfit_of(gpu_model(matrix))) is not None:
            return problem
        if matrix.pace_ns != self.pace_ns:
            paces = duration_ns(self.pace_ns), duration_ns(matrix.pace_ns)
            return f"The reference {self.name} calls every {paces[0]}, the check {paces[1]}."
        return None

    def unusual(self, matrix: Matrix) -> ReferenceComparison:
        """The cells of ``matrix`` that differ from the reference. Raises NotComparable if there is a ``misfit``."""
        problem = self.misfit(matrix)
        if problem is not None:
            raise NotComparable(problem)
        here: list[UnusualCell] = []
        there: list[UnusualCell] = []
        counts = dict.fromkeys(("compared", "absent", "disagreed", "unjudged"), 0)
        rows, columns = self._same(matrix)
        for (row, column), cell in matrix.cells.items():
            if column == QUIET:
                continue
            state, recorded = state_of(cell), self.by_place.get((row, column))
            if recorded is None or row not in rows or column not in columns:
                counts["absent"] += 1
            elif recorded.stalls is None:
                counts["disagreed"] += 1
            elif state is None or state is CellState.UNCLEAR:
                counts["unjudged"] += 1
            else:
                counts["compared"] += 1
                if state.stalls and not recorded.stalls:
                    here += _stalled_here(cell, recorded)
                elif recorded.stalls and not state.stalls:
                    there += _stalled_there(cell, recorded)
        first, last = self.dates
        return ReferenceComparison(
            reference=self,
            name=self.name,
            gpu=self.gpu,
            driver=self.driver,
            machines=self.machines,
            checks=len(self.checks),
            first=first,
            last=last,
            stalled_here=_clearest_first(here),
            stalled_there=_clearest_first(there),
            differences=self._differences(matrix),
            quick=matrix.quick,
            simulated=matrix.simulated,
            **counts,
        )

    def _same(self, matrix: Matrix) -> tuple[set[str], set[str]]:
        """The names of rows and columns that mean the same in ``matrix`` and in the reference."""
        own_rows = {(row.name, row.entry, row.context, row.stream) for row in self.rows}
        rows = {row.name for row in matrix.rows if (row.name, row.entry, row.context, row.stream) in own_rows}
        own_columns = {column.name: column.aggressors for column in self.columns}
        columns = {column.name for column in matrix.columns if own_columns.get(column.name) == column.aggressors}
        return rows, columns

    def _differences(self, matrix: Matrix) -> tuple[Difference, ...]:
        """Differences of GPU, driver and settings; what either does not know is none."""
        values = [(key, getattr(self.fingerprint, key), real_name(matrix.fingerprint.get(key))) for key in _NAMED_KEYS]
        return tuple(Difference(*each) for each in values if None not in each and each[1] != each[2])


def state_of(cell: Cell) -> CellState | None:
    """The state of ``cell``, None if it was not measured."""
    if not cell.status.measured:
        return None
    if cell.status is Status.STARVED:
        return CellState.STARVED
    return _STATES.get(VerdictKind(cell.kind), CellState.UNCLEAR)


def gpu_model(matrix: Matrix) -> str | None:
    """The model of the GPU, of a simulated one the model that it simulates; None without a GPU."""
    model = real_name(matrix.fingerprint.get("gpu"))
    return model if isinstance(model, str) else None


def real_name(value: object) -> object:
    """A value of a fingerprint without the mark of a simulated GPU."""
    return value.removesuffix(_SIMULATED) if isinstance(value, str) else value


def _stalled_here(cell: Cell, recorded: ReferenceCell) -> list[UnusualCell]:
    """The clearest stall of ``cell`` if it is clearly above the reference's ratios; else nothing."""
    unusual = []
    for verdict in cell.verdicts:
        if verdict.kind not in _STALLS or verdict.phase is None:
            continue
        if verdict.quantile is Quantile.IN_FLIGHT:
            there = recorded.range(verdict.phase, Quantile.P50)
            unusual.append(UnusualCell(cell.row, cell.column, verdict.phase, verdict.quantile, None, there))
            continue
        ratio, there = _ratio(cell, verdict.phase, verdict.quantile), recorded.range(verdict.phase, verdict.quantile)
        if ratio is not None and there is not None and ratio >= UNUSUAL_FACTORS[verdict.quantile] * there[1]:
            unusual.append(UnusualCell(cell.row, cell.column, verdict.phase, verdict.quantile, ratio, there))
    return list(_clearest_first(unusual)[:1])


def _stalled_there(cell: Cell, recorded: ReferenceCell) -> list[UnusualCell]:
    """``cell``, which does not stall, if a ratio of enough calls is clearly below the reference's; else nothing."""
    unusual = []
    for phase, ranges in recorded.ratios.items():
        for quantile, there in ranges.items():
            if there[0] < STALLED or _calls(cell, phase) < ENOUGH[quantile]:
                continue
            ratio = _ratio(cell, phase, quantile)
            if ratio is not None and UNUSUAL_FACTORS[quantile] * ratio <= there[0]:
                unusual.append(UnusualCell(cell.row, cell.column, phase, quantile, ratio, there))
    if not unusual and recorded.checks.get(CellState.STARVED, 0) == recorded.measured:
        ratio = _ratio(cell, Phase.CALL, Quantile.P50)
        return [UnusualCell(cell.row, cell.column, Phase.CALL, Quantile.P50, ratio, None)]
    return list(_clearest_first(unusual)[:1])


def _clearest_first(cells: Iterable[UnusualCell]) -> tuple[UnusualCell, ...]:
    return tuple(sorted(cells, key=lambda cell: cell.distance, reverse=True))


def _ratio(cell: Cell, phase: Phase, quantile: Quantile) -> float | None:
    ratio = cell.ratio(phase, quantile)
    return None if ratio is None else ratio.ratio


def _calls(cell: Cell, phase: Phase) -> int:
    return max((histogram.count for channel, histogram in cell.channels.items() if channel.phase is phase), default=0)
