"""What a matrix says, put in order for readers: the worst first, and findings of one cause told once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, Matrix, MatrixColumn, MatrixRow, Status
from stallprobes.model import Channel, Phase
from stallprobes.units import duration, times
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from stallprobes.matrix.outliers import Outlier

# A cell's kind as a word; capitals are for what makes a program wait.
WORDS = {
    "starved": "STARVED",
    "stalled": "STALLED",
    "failed": "FAILED",
    "slower": "slower",
    "host": "host noise",
    "unsure": "unsure",
    "overhead": "overhead",
    "gpu-time": "GPU time",
    "quiet": "quiet",
    "invalid": "invalid",
    "unsupported": "unsupported",
    "missing": "not reached",
}
# So many cells of a host that stands out are told in a sentence each.
_CELLS_OF_A_HOST = 5
# What stands behind a figure that is no median.
MARKS = {"'": "at p99", '"': "from when the call was due, at p99", "+": "a call that had not returned"}
# There nearly always is a call in flight when time is over; only one that hangs is worth a word.
_IN_FLIGHT_US = 100_000


@dataclass(frozen=True)
class Shown:
    """What a cell shows of one phase: how many times quiet, at percentile ``q`` (50 or 99; 100 for a call in flight).

    ``due``: the call's time counts from when it was due, since calls that came late are what stalled.
    """

    ratio: float
    q: int
    due: bool = False

    @property
    def mark(self) -> str:
        """What stands behind the figure, by MARKS; nothing behind a median."""
        return '"' if self.due else {99: "'", 100: "+"}.get(self.q, "")


@dataclass(frozen=True)
class Group:
    """The findings of one cause: the cells of each column that have it, the worst first in both."""

    kind: VerdictKind | Status
    cause: str
    helps: str
    columns: tuple[tuple[str, tuple[Cell, ...]], ...]


def kind(cell: Cell) -> VerdictKind | Status:
    """The cell's kind; a starved one is starved whatever else is known of it."""
    return VerdictKind.STARVED if cell.status is Status.STARVED else cell.kind


def victims(matrix: Matrix) -> tuple[MatrixRow, ...]:
    """The rows, the worst first; equal ones as they were asked for."""
    return tuple(sorted(matrix.rows, key=lambda row: _worst(of_row(matrix, row.name)), reverse=True))


def aggressors(matrix: Matrix) -> tuple[MatrixColumn, ...]:
    """The columns but the quiet one, the worst first; equal ones as they were asked for."""
    columns = [column for column in matrix.columns if column.name != QUIET]
    return tuple(sorted(columns, key=lambda column: _worst(of_column(matrix, column.name)), reverse=True))


def has_quiet(matrix: Matrix) -> bool:
    """Whether there is a column in which the victims ran beside nothing."""
    return any(column.name == QUIET for column in matrix.columns)


def verdicts(cell: Cell) -> tuple[Verdict, ...]:
    """The cell's verdicts that say more than quiet, of each phase the worst, the worst first."""
    found: dict[Phase | None, Verdict] = {}
    for verdict in sorted(cell.verdicts, key=lambda verdict: verdict.weight, reverse=True):
        if verdict.kind.severity > 0:
            found.setdefault(verdict.phase, verdict)
    return tuple(found.values())


def shown(cell: Cell, phase: Phase) -> Shown | None:
    """What to show of ``phase``: what the verdict names, else the medians against each other. None without figures."""
    for wanted in (phase, Phase.DUE) if phase is Phase.CALL else (phase,):
        for one in verdicts(cell):
            if one.phase is wanted and one.ratio is not None and one.probe == cell.row:
                q = 100 if one.quantile is Quantile.IN_FLIGHT else one.quantile.percent
                return Shown(one.ratio, q, wanted is Phase.DUE)
    found = cell.ratio(phase, Quantile.P50)
    return None if found is None else Shown(found.ratio, 50)


def channels(cell: Cell) -> tuple[Channel, ...]:
    """The channels worth showing: call and wait, each op's own where it has several, and what a verdict names."""
    found: list[Channel] = []
    named = {verdict.phase for verdict in verdicts(cell)}
    for phase in (Phase.CALL, Phase.WAIT, *(phase for phase in (Phase.START, Phase.DUE) if phase in named)):
        there = [channel for channel in {**cell.baseline, **cell.channels} if channel.phase is phase]
        labelled = [channel for channel in there if channel.label]
        found += labelled or there
    return tuple(found)


def figures(cell: Cell) -> str:
    """The cell's findings in figures: ``call p50 2.70 µs → 2.26 ms (×837), wait …``."""
    return ", ".join(_figure(cell, verdict) for verdict in verdicts(cell)) or WORDS.get(kind(cell), kind(cell))


def phase_word(phase: Phase | None) -> str:
    """A phase as a reader would call it."""
    return "" if phase is None else "call from when it was due" if phase is Phase.DUE else str(phase)


def brief(cell: Cell) -> str:
    """The worst of it in a word: ``×837``, ``STARVED``."""
    worst = verdicts(cell)[0] if verdicts(cell) else None
    if worst is None or worst.ratio is None or worst.quantile is Quantile.IN_FLIGHT:
        return WORDS.get(kind(cell), kind(cell))
    return times(worst.ratio)


def in_flight(cell: Cell) -> str:
    """``cuMemcpyDtoHAsync in flight for 1.20 s`` where a call hung, else nothing."""
    if cell.in_flight_us is None or cell.in_flight_us < _IN_FLIGHT_US:
        return ""
    return f"{cell.in_flight_op or 'a call'} in flight for {duration(cell.in_flight_us)}"


def groups(matrix: Matrix) -> tuple[Group, ...]:
    """All findings by cause and remedy, the worst first."""
    found: dict[tuple[str, str, str], dict[str, list[Cell]]] = {}
    for cell in sorted(matrix.findings(), key=_cell_weight, reverse=True):
        if cell.status not in (Status.OK, Status.STARVED):
            continue
        worst = verdicts(cell)[0]
        # An unsure or noisy cell is of another kind than a stall, also where a cause is the same.
        key = (_class(worst.kind), worst.cause, worst.remedy)
        found.setdefault(key, {}).setdefault(cell.column, []).append(cell)
    return tuple(
        Group(kind(next(iter(columns.values()))[0]), cause, helps, tuple((c, tuple(cs)) for c, cs in columns.items()))
        for (_, cause, helps), columns in found.items()
    )


def counts(matrix: Matrix) -> Mapping[str, int]:
    """How many cells are of which kind, the worst first; those of the quiet column left out."""
    found: dict[str, int] = dict.fromkeys(WORDS, 0)
    for cell in matrix.cells.values():
        if cell.column != QUIET:
            found[kind(cell)] = found.get(kind(cell), 0) + 1
    return {word: number for word, number in found.items() if number}


def nothing_there(cells: Iterable[Cell]) -> bool:
    """Whether none of ``cells`` could be measured on this machine."""
    return all(cell.status is Status.UNSUPPORTED for cell in cells)


def most(cells: Iterable[Cell]) -> float | None:
    """The largest figure shown for cells that are all quiet; None when one says more, or has nothing to show."""
    largest = 0.0
    for cell in cells:
        if cell.status is Status.UNSUPPORTED:
            continue
        found = [one.ratio for phase in PHASES if (one := shown(cell, phase)) is not None]
        if kind(cell) != "quiet" or not found:
            return None
        largest = max(largest, *found)
    return largest or None


def of_row(matrix: Matrix, name: str) -> list[Cell]:
    """The cells of the victim ``name`` but its quiet one."""
    return [cell for cell in matrix.cells.values() if cell.row == name and cell.column != QUIET]


def of_column(matrix: Matrix, name: str) -> list[Cell]:
    """The cells beside the aggressor ``name``."""
    return [cell for cell in matrix.cells.values() if cell.column == name]


def about_hosts(outliers: Iterable[Outlier]) -> list[str]:
    """Sentences on the hosts of a merged matrix: of each the cells that differ most, each cell once."""
    worst: dict[str, dict[tuple[str, str], Outlier]] = {}
    for one in sorted(outliers, key=lambda one: abs(math.log(max(one.ratio, 1e-9))), reverse=True):
        worst.setdefault(one.host, {}).setdefault((one.row, one.column), one)
    told: list[str] = []
    for host, cells in worst.items():
        told += [one.sentence for one in list(cells.values())[:_CELLS_OF_A_HOST]]
        more = len(cells) - _CELLS_OF_A_HOST
        if more > 0:
            told.append(f"{host}: {more} more cell{'s are' if more > 1 else ' is'} not as on the other hosts.")
    return told


def without(matrix: Matrix, status: Status) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each reason of a ``status`` (unsupported, invalid) with where it holds, whole rows and columns in one word."""
    by_reason: dict[str, list[Cell]] = {}
    for cell in matrix.cells.values():
        if cell.status is status:
            by_reason.setdefault(cell.reason or "no reason is known", []).append(cell)
    return tuple((reason, _places(matrix, cells)) for reason, cells in by_reason.items())


def told(fingerprint: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """A fingerprint's keys and values as text; what is not known is left out."""
    return tuple(
        (key.replace("_", " "), plain(value))
        for key, value in fingerprint.items()
        if key != "unknown" and value is not None and value != {} and value != []
    )


def plain(value: object) -> str:
    """A value of a fingerprint as text."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value) or "none"
    return str(value)


def headline(matrix: Matrix) -> str:
    """What was measured, on one line: the machine, how much of it, how long and when."""
    of = matrix.fingerprint
    if matrix.simulated:
        machine = f"SIMULATED GPU, profile {matrix.profile}, seed {matrix.sim_seed}"
    elif matrix.hosts:
        machine = f"{len(matrix.hosts)} machines merged · {of.get('gpu') or 'no GPU'}"
    else:
        known = [of.get("gpu") or "no GPU", f"driver {of.get('driver') or 'n/a'}", f"CUDA {of.get('cuda') or 'n/a'}"]
        machine = " · ".join(str(one) for one in known)
    beside = sum(column.name != QUIET for column in matrix.columns)
    size = f"{_number(len(matrix.rows), 'victim')} × {_number(beside, 'aggressor')}"
    quick = "quick, " if matrix.quick else ""
    repeats = f"{quick}{_number(matrix.repeats, 'repeat')} in {matrix.seconds:.0f} s"
    return f"{machine} · {size} · {repeats} · {matrix.started_at}"


def summary(matrix: Matrix) -> str:
    """How many cells are of which kind: ``3 STALLED, 1 unsure, 290 quiet``."""
    return (
        ", ".join(f"{number} {WORDS.get(word, word)}" for word, number in counts(matrix).items()) or "nothing measured"
    )


def _figure(cell: Cell, verdict: Verdict) -> str:
    if verdict.kind is VerdictKind.FAILED:
        return verdict.sentence
    if verdict.quantile is Quantile.IN_FLIGHT:
        calls = cell.iterations
        returned = f"{calls} call{'' if calls == 1 else 's'} returned in {cell.seconds:.1f} s"
        # The catalogue's verdict knows the age in its own window; the cell the longest of all.
        return ", ".join(part for part in (f"{WORDS[verdict.kind]}: {returned}", in_flight(cell)) if part)
    if verdict.ratio is None:
        return verdict.sentence
    before, now = (None if ns is None else ns / 1000 for ns in (verdict.baseline_ns, verdict.now_ns))
    change = f"{duration(before)} → {duration(now)} ({times(verdict.ratio)})"
    return f"{phase_word(verdict.phase)} {verdict.quantile} {change}".strip()


def _places(matrix: Matrix, cells: Iterable[Cell]) -> tuple[str, ...]:
    left = {(cell.row, cell.column) for cell in cells}
    found: list[str] = []
    for column in matrix.columns:
        whole = {key for key in matrix.cells if key[1] == column.name}
        if len(whole) > 1 and whole <= left:
            found.append(f"all beside {column.name}")
            left -= whole
    for row in matrix.rows:
        whole = {key for key in matrix.cells if key[0] == row.name and key[1] != QUIET}
        # What went with a whole column need not be left for a row to be one.
        if len(whole & left) > 1 and all(key in left or f"all beside {key[1]}" in found for key in whole):
            found.append(f"{row.name} beside all")
            left -= {key for key in left if key[0] == row.name}
    return (*found, *(f"{row} beside {column}" for row, column in matrix.cells if (row, column) in left))


def _worst(cells: Iterable[Cell]) -> tuple[int, int, float]:
    """How bad the worst is, how many are as bad, and by how much; what could not be measured comes last."""
    weights = [_cell_weight(cell) for cell in cells]
    worst = max((weight[0] for weight in weights), default=-1)
    alike = [weight for weight in weights if weight[0] == worst]
    return (worst, len(alike), max((weight[1] for weight in alike), default=0.0))


def _cell_weight(cell: Cell) -> tuple[int, float]:
    if cell.status not in (Status.OK, Status.STARVED):
        return (-1, 0.0)
    found = verdicts(cell)
    return found[0].weight if found else (0, 0.0)


def _class(kind: VerdictKind) -> str:
    return "stall" if kind.is_stall else kind


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
