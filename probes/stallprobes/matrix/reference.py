"""Reference: recorded checks of known machines, against which a first check shows what is unusual.

A reference summarizes several checks of one model of GPU with one driver: how often each cell stalled, and the range of
its ratios. It is another machine's, so a difference is neither a pass nor a failure.

A cell is unusual if it stalls here and in none of the reference's checks, or in all of them and not here. Both need a
clear difference of the ratios. A cell on which the reference's checks disagree is never unusual.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from stallprobes.errors import NotComparable
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.comparing.comparability import Difference
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, MatrixColumn, MatrixRow, Status
from stallprobes.model import JUDGED_PHASES, Phase
from stallprobes.units import duration
from stallprobes.verdicts.evidence import STALLED
from stallprobes.verdicts.kinds import VerdictKind

# Phases of which a reference has ratios.
REFERENCE_PHASES = tuple(dict.fromkeys((*JUDGED_PHASES, Phase.DUE)))
# A cell needs so many checks in the reference: one check shows no agreement.
LEAST_CHECKS = 2
# The ratio here and the nearest one of the reference differ by at least this factor in an unusual cell, so that a ratio
# close to the limit of a verdict makes no cell unusual. p99 varies more than the median.
CLEAR = {Quantile.P50: 2.0, Quantile.P99: 3.0}
# With fewer calls a percentile here does not show that a stall is absent.
ENOUGH = {Quantile.P50: 20, Quantile.P99: 200}
WITH_TIMELINE = (
    "A reference is of checks without the timeline, which adds to each call: compare with it a check made without "
    "--timeline."
)
# What the fingerprint of a simulated GPU adds to its names.
_SIMULATED = " (SIMULATED)"
# Keys of the fingerprint that a reference keeps.
FINGERPRINT_KEYS = ("gpu", "driver", "cuda", "memory_bytes", "module_loading", "mig", "mps", "compute_mode")
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
        """Whether the victim stalled or starved."""
        return self in (CellState.STALLED, CellState.STARVED)


_STATES = {
    VerdictKind.QUIET: CellState.QUIET,
    VerdictKind.SLOWER: CellState.SLOWER,
    VerdictKind.STALLED: CellState.STALLED,
    VerdictKind.STARVED: CellState.STARVED,
}
_STALLS = (VerdictKind.STALLED, VerdictKind.STARVED)


@dataclass(frozen=True)
class RatioRange:
    """The smallest and the largest ratio to the baseline among several checks."""

    low: float
    high: float


@dataclass(frozen=True)
class ReferenceCell:
    """One cell in the reference's checks: the number of checks by state, and the ranges of its ratios.

    ``ratios`` has each phase and percentile with calls.
    """

    checks: Mapping[CellState, int]
    ratios: Mapping[tuple[Phase, Quantile], RatioRange]

    @property
    def measured(self) -> int:
        """Number of checks that measured the cell."""
        return sum(self.checks.values())

    @property
    def stalls(self) -> bool | None:
        """Whether the cell stalls, None where the checks disagree or are too few."""
        stalled = sum(number for state, number in self.checks.items() if state.stalls)
        if self.measured < LEAST_CHECKS or CellState.UNCLEAR in self.checks or 0 < stalled < self.measured:
            return None
        return stalled > 0


@dataclass(frozen=True)
class ReferenceCheck:
    """One check of a reference: its start (ISO 8601), duration in seconds, repeats, and the number of CPUs."""

    started_at: str
    seconds: float
    repeats: int
    cpus: int | None


@dataclass(frozen=True)
class UnusualCell:
    """A cell that differs from the reference, with the figure that differs most clearly.

    ``ratio`` is the ratio here, None for a call in flight; ``range`` is the reference's, None if no call returned.
    """

    row: str
    column: str
    phase: Phase
    quantile: Quantile
    ratio: float | None
    range: RatioRange | None

    @property
    def distance(self) -> float:
        """Factor between the ratio here and the nearest one of the reference; infinite without one of them."""
        if self.ratio is None or self.range is None:
            return math.inf
        above, below = self.ratio / max(self.range.high, 1e-9), self.range.low / max(self.ratio, 1e-9)
        return max(above, below)


@dataclass(frozen=True)
class ReferenceComparison:
    """What is unusual in a check, by a reference; the clearest cells first.

    ``compared`` is the number of cells that were compared. Not compared are the cells that the reference does not have
    (``absent``), those on which its checks disagree (``disagreed``), and those that this check did not judge
    (``unjudged``). ``differences`` are those of the machines, the reference's value first.
    """

    reference: Reference
    stalled_here: tuple[UnusualCell, ...]
    stalled_there: tuple[UnusualCell, ...]
    compared: int
    absent: int
    disagreed: int
    unjudged: int
    differences: tuple[Difference, ...]
    quick: bool
    simulated: bool


@dataclass(frozen=True, eq=False)
class Reference:
    """Recorded checks of one model of GPU with one driver.

    ``name`` is that of its file, ``fingerprint`` what the checks have in common, ``machines`` their number of machines.
    ``baselines_ns`` are the medians of the rows' baselines, each the median of all checks.
    """

    name: str
    pace_us: float
    fingerprint: Mapping[str, object]
    machines: int
    checks: tuple[ReferenceCheck, ...]
    rows: Mapping[str, MatrixRow]
    columns: Mapping[str, MatrixColumn]
    baselines_ns: Mapping[tuple[str, Phase], float]
    cells: Mapping[tuple[str, str], ReferenceCell]

    @property
    def gpu(self) -> str:
        """The model of its GPUs."""
        return str(self.fingerprint.get("gpu"))

    @property
    def driver(self) -> str:
        """The driver of its machines."""
        return str(self.fingerprint.get("driver"))

    @property
    def dates(self) -> tuple[str, str]:
        """The dates of its first and last check (ISO 8601)."""
        found = sorted(check.started_at[:10] for check in self.checks)
        return found[0], found[-1]

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
        if not math.isclose(matrix.pace_us, self.pace_us, rel_tol=1e-6):
            return (
                f"The reference {self.name} calls every {duration(self.pace_us)}, the check {duration(matrix.pace_us)}."
            )
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
            state, known = state_of(cell), self.cells.get((row, column))
            if known is None or row not in rows or column not in columns:
                counts["absent"] += 1
            elif known.stalls is None:
                counts["disagreed"] += 1
            elif state is None or state is CellState.UNCLEAR:
                counts["unjudged"] += 1
            else:
                counts["compared"] += 1
                if state.stalls and not known.stalls:
                    here += _stalled_here(cell, known)
                elif known.stalls and not state.stalls:
                    there += _stalled_there(cell, known)
        return ReferenceComparison(
            reference=self,
            stalled_here=_clearest_first(here),
            stalled_there=_clearest_first(there),
            differences=self._differences(matrix),
            quick=matrix.quick,
            simulated=matrix.simulated,
            **counts,
        )

    def _same(self, matrix: Matrix) -> tuple[set[str], set[str]]:
        """The names of rows and columns that mean the same in ``matrix`` and in the reference."""
        rows = {
            row.name
            for row in matrix.rows
            if (one := self.rows.get(row.name)) is not None
            and (one.entry, one.context, one.stream) == (row.entry, row.context, row.stream)
        }
        columns = {
            column.name
            for column in matrix.columns
            if (other := self.columns.get(column.name)) is not None and other.aggressors == column.aggressors
        }
        return rows, columns

    def _differences(self, matrix: Matrix) -> tuple[Difference, ...]:
        """Differences of GPU, driver and settings; what either does not know is none."""
        own = {key: real_name(matrix.fingerprint.get(key)) for key in _NAMED_KEYS}
        known = {
            key: value for key, value in own.items() if value is not None and self.fingerprint.get(key) is not None
        }
        found = [Difference(key, self.fingerprint[key], value) for key, value in known.items()]
        return tuple(one for one in found if one.old != one.new)


def state_of(cell: Cell) -> CellState | None:
    """The state of ``cell``, None if it was not measured."""
    if not cell.status.measured:
        return None
    if cell.status is Status.STARVED:
        return CellState.STARVED
    return _STATES.get(VerdictKind(cell.kind), CellState.UNCLEAR)


def gpu_model(matrix: Matrix) -> str | None:
    """The model of the GPU, of a simulated one the model that it simulates; None without a GPU."""
    found = real_name(matrix.fingerprint.get("gpu"))
    return found if isinstance(found, str) else None


def real_name(value: object) -> object:
    """A value of a fingerprint without the mark of a simulated GPU."""
    return value.removesuffix(_SIMULATED) if isinstance(value, str) else value


def _stalled_here(cell: Cell, known: ReferenceCell) -> list[UnusualCell]:
    """``cell``, which stalls, with its clearest stall if that is clearly above the reference's ratios; else nothing."""
    found = []
    for verdict in cell.verdicts:
        if verdict.kind not in _STALLS or verdict.phase is None:
            continue
        if verdict.quantile is Quantile.IN_FLIGHT:
            there = known.ratios.get((verdict.phase, Quantile.P50))
            found.append(UnusualCell(cell.row, cell.column, verdict.phase, verdict.quantile, None, there))
            continue
        ratio, there = (
            _ratio(cell, verdict.phase, verdict.quantile),
            known.ratios.get((verdict.phase, verdict.quantile)),
        )
        if ratio is not None and there is not None and ratio >= CLEAR[verdict.quantile] * there.high:
            found.append(UnusualCell(cell.row, cell.column, verdict.phase, verdict.quantile, ratio, there))
    return list(_clearest_first(found)[:1])


def _stalled_there(cell: Cell, known: ReferenceCell) -> list[UnusualCell]:
    """``cell``, which does not stall, if a ratio of enough calls is clearly below the reference's; else nothing."""
    found = []
    for (phase, quantile), there in known.ratios.items():
        if there.low < STALLED or _calls(cell, phase) < ENOUGH[quantile]:
            continue
        ratio = _ratio(cell, phase, quantile)
        if ratio is not None and CLEAR[quantile] * ratio <= there.low:
            found.append(UnusualCell(cell.row, cell.column, phase, quantile, ratio, there))
    if not found and known.checks.get(CellState.STARVED, 0) == known.measured:
        ratio = _ratio(cell, Phase.CALL, Quantile.P50)
        return [UnusualCell(cell.row, cell.column, Phase.CALL, Quantile.P50, ratio, None)]
    return list(_clearest_first(found)[:1])


def _clearest_first(cells: Iterable[UnusualCell]) -> tuple[UnusualCell, ...]:
    return tuple(sorted(cells, key=lambda one: one.distance, reverse=True))


def _ratio(cell: Cell, phase: Phase, quantile: Quantile) -> float | None:
    found = cell.ratio(phase, quantile)
    return None if found is None else found.ratio


def _calls(cell: Cell, phase: Phase) -> int:
    return max((one.count for channel, one in cell.channels.items() if channel.phase is phase), default=0)
