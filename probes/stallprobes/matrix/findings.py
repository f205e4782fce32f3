"""Findings of a matrix, ordered for readers: the worst first, and those of one cause together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, CellKind, Matrix, MatrixColumn, MatrixRow, Status
from stallprobes.model import TIMELINE_PHASES, Channel, Phase
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

# Order of the results of cells (each a victim beside aggressors) in a report's counts and legend. The worst results
# come first. The results of cells without valid figures come last.
KIND_ORDER: tuple[CellKind, ...] = (
    *sorted(VerdictKind, key=lambda kind: kind.severity, reverse=True),
    Status.INVALID,
    Status.UNSUPPORTED,
    Status.MISSING,
)
# Meaning of each mark that is printed behind a ratio to the baseline. A ratio of medians has no mark.
PERCENTILE_MARKS = {
    "'": "at p99",
    '"': "from the due time, at p99",
    "+": "a call that had not returned",
}
# Mark that is printed behind a ratio to the baseline, by the quantile of the ratio. A ratio of latencies from the due
# time has another mark.
_QUANTILE_MARKS = {Quantile.P50: "", Quantile.P99: "'", Quantile.IN_FLIGHT: "+"}


@dataclass(frozen=True)
class ShownRatio:
    """Shown ratio of a cell to the baseline for a phase, with its origin, ``phase`` and ``quantile``.

    The phase is ``due`` for a call whose latency from the due time is worse.
    """

    phase: Phase
    quantile: Quantile
    ratio: float

    @property
    def mark(self) -> str:
        """Key of ``PERCENTILE_MARKS``, "" for a median."""
        return '"' if self.phase is Phase.DUE else _QUANTILE_MARKS[self.quantile]


@dataclass(frozen=True)
class CauseGroup:
    """Findings of one cause: the cells that have it by column, the worst first in both."""

    kind: CellKind
    cause: str
    remedy: str
    columns: tuple[tuple[str, tuple[Cell, ...]], ...]

    @property
    def worst(self) -> Cell:
        """The worst cell of the group."""
        return self.columns[0][1][0]

    @property
    def size(self) -> int:
        """Number of cells."""
        return sum(len(cells) for _, cells in self.columns)


def victims(matrix: Matrix) -> tuple[MatrixRow, ...]:
    """Rows, the worst first; equal ones in the matrix's order."""
    return tuple(sorted(matrix.rows, key=lambda row: _worst(row_cells(matrix, row.name)), reverse=True))


def aggressors(matrix: Matrix) -> tuple[MatrixColumn, ...]:
    """Columns without the column ``quiet``, the worst first; equal ones in the matrix's order."""
    columns = [column for column in matrix.columns if column.name != QUIET]
    return tuple(sorted(columns, key=lambda column: _worst(column_cells(matrix, column.name)), reverse=True))


def has_quiet(matrix: Matrix) -> bool:
    """True if the matrix has a column in which the victims ran alone."""
    return any(column.name == QUIET for column in matrix.columns)


def verdicts(cell: Cell) -> tuple[Verdict, ...]:
    """The worst verdict of each phase that is more than quiet, the worst first."""
    by_phase: dict[Phase | None, Verdict] = {}
    for verdict in sorted(cell.verdicts, key=lambda verdict: verdict.weight, reverse=True):
        if verdict.kind.severity > 0:
            by_phase.setdefault(verdict.phase, verdict)
    return tuple(by_phase.values())


def shown(cell: Cell, phase: Phase) -> ShownRatio | None:
    """Ratio to show for ``phase``, from its verdict, else from the medians; None without calls."""
    for wanted in (phase, Phase.DUE) if phase is Phase.CALL else (phase,):
        for verdict in verdicts(cell):
            if verdict.phase is wanted and verdict.ratio is not None and verdict.probe == cell.row:
                return ShownRatio(wanted, verdict.quantile, verdict.ratio)
    ratio = cell.ratio(phase, Quantile.P50)
    return None if ratio is None else ShownRatio(phase, ratio.quantile, ratio.ratio)


def channels(cell: Cell) -> tuple[Channel, ...]:
    """Channels to show: call and wait, by op where an iteration has several, what the timeline measured, and the due
    time if a verdict names it."""
    result: list[Channel] = []
    sums = {**cell.baseline, **cell.channels}
    timeline = TIMELINE_PHASES if any(channel.phase is Phase.START for channel in sums) else ()
    due = (Phase.DUE,) if any(verdict.phase is Phase.DUE for verdict in verdicts(cell)) else ()
    for phase in (Phase.CALL, Phase.WAIT, *timeline, *due):
        there = [channel for channel in sums if channel.phase is phase]
        if phase is Phase.EARLY and not any(sums[channel].count for channel in there):
            continue
        labelled = [channel for channel in there if channel.label]
        result += labelled or there
    return tuple(result)


def groups(matrix: Matrix) -> tuple[CauseGroup, ...]:
    """Findings by cause and remedy, the worst first."""
    causes: dict[tuple[str, str, str], dict[str, list[Cell]]] = {}
    for cell in sorted(matrix.findings(), key=_cell_weight, reverse=True):
        if not cell.status.measured:
            continue
        worst = verdicts(cell)[0]
        # Drift and host noise are no stall, also where the cause is the same.
        kind = "stall" if worst.kind.is_stall else str(worst.kind)
        causes.setdefault((kind, worst.cause, worst.remedy), {}).setdefault(cell.column, []).append(cell)
    return tuple(
        CauseGroup(
            kind=next(iter(columns.values()))[0].shown_kind,
            cause=cause,
            remedy=remedy,
            columns=tuple((name, tuple(cells)) for name, cells in columns.items()),
        )
        for (_, cause, remedy), columns in causes.items()
    )


def worst_cells(matrix: Matrix, most: int) -> tuple[Cell, ...]:
    """At most ``most`` stalled, slower, starved or failed cells: the worst of each cause first, then the next worst."""
    stalls = [cell for cell in matrix.findings() if cell.status.measured and _is_stall(cell.shown_kind)]
    first = [group.worst for group in groups(matrix) if _is_stall(group.kind)]
    if len(first) < most:
        first += sorted((cell for cell in stalls if cell not in first), key=_cell_weight, reverse=True)
    return tuple(first[:most])


def counts(matrix: Matrix) -> Mapping[CellKind, int]:
    """Number of cells by kind in ``KIND_ORDER``, without the column ``quiet``; kinds without a cell are left out."""
    numbers: dict[CellKind, int] = dict.fromkeys(KIND_ORDER, 0)
    for cell in matrix.cells.values():
        if cell.column != QUIET:
            numbers[cell.shown_kind] += 1
    return {kind: number for kind, number in numbers.items() if number}


def all_unsupported(cells: Iterable[Cell]) -> bool:
    """True if this machine supports none of ``cells``."""
    return all(cell.status is Status.UNSUPPORTED for cell in cells)


def largest_quiet_ratio(cells: Iterable[Cell]) -> float | None:
    """Largest ratio shown for cells that are all quiet; None when one is not, or has no ratio."""
    largest = 0.0
    for cell in cells:
        if cell.status is Status.UNSUPPORTED:
            continue
        ratios = [figure.ratio for phase in PHASES if (figure := shown(cell, phase)) is not None]
        if cell.shown_kind is not VerdictKind.QUIET or not ratios:
            return None
        largest = max(largest, *ratios)
    return largest or None


def row_cells(matrix: Matrix, name: str) -> list[Cell]:
    """Cells of the victim ``name`` without the column ``quiet``."""
    return [cell for cell in matrix.cells.values() if cell.row == name and cell.column != QUIET]


def column_cells(matrix: Matrix, name: str) -> list[Cell]:
    """Cells of the column ``name``."""
    return [cell for cell in matrix.cells.values() if cell.column == name]


def reasons(matrix: Matrix, status: Status) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each reason of a ``status`` (unsupported, invalid) with its cells; whole rows and columns are one entry."""
    by_reason: dict[str, list[Cell]] = {}
    for cell in matrix.cells.values():
        if cell.status is status:
            by_reason.setdefault(cell.reason or "no reason is known", []).append(cell)
    return tuple((reason, _places(matrix, cells)) for reason, cells in by_reason.items())


def _places(matrix: Matrix, cells: Iterable[Cell]) -> tuple[str, ...]:
    left = {cell.key for cell in cells}
    places: list[str] = []
    for column in matrix.columns:
        whole = {key for key in matrix.cells if key[1] == column.name}
        if len(whole) > 1 and whole <= left:
            places.append(f"all beside {column.name}")
            left -= whole
    for row in matrix.rows:
        whole = {key for key in matrix.cells if key[0] == row.name and key[1] != QUIET}
        # Cells already named with their whole column still make a row whole.
        if len(whole & left) > 1 and all(key in left or f"all beside {key[1]}" in places for key in whole):
            places.append(f"{row.name} beside all")
            left -= {key for key in left if key[0] == row.name}
    return (*places, *(f"{row} beside {column}" for row, column in matrix.cells if (row, column) in left))


def _worst(cells: Iterable[Cell]) -> tuple[int, int, float]:
    """Sort key of a row or column: its worst severity, the number of such cells, the largest ratio among them."""
    weights = [_cell_weight(cell) for cell in cells]
    worst = max((weight[0] for weight in weights), default=-1)
    alike = [weight for weight in weights if weight[0] == worst]
    return (worst, len(alike), max((weight[1] for weight in alike), default=0.0))


def _cell_weight(cell: Cell) -> tuple[int, float]:
    if not cell.status.measured:
        return (-1, 0.0)
    ordered = verdicts(cell)
    return ordered[0].weight if ordered else (0, 0.0)


def _is_stall(kind: CellKind) -> bool:
    return isinstance(kind, VerdictKind) and (kind.is_stall or kind is VerdictKind.FAILED)
