"""Two interference matrices compared: what became slower, what faster, and what cannot be told.

A change is claimed only when three things agree. The calls: an exact test of how many lie above a cut, with all tests
of the comparison counted. The size: a ratio and a difference that matter. The repeats: the change is large against
what leaving out one repeat does, in this cell and in the others like it, and no single repeat makes it. Calls within
a repeat are not independent of each other, which is why the calls alone do not suffice. A difference of that size for
which the rest does not hold is UNSURE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from stallprobes.errors import NotComparable
from stallprobes.latency.statistics import Usual, student, usual
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, Status
from stallprobes.matrix.quantile_test import CALLS, QuantileTest, far_off, quantile_tests
from stallprobes.model import Channel, Phase
from stallprobes.units import duration, times
from stallprobes.verdicts.kinds import Look
from stallprobes.verdicts.rules import IN_FLIGHT_NS, STARVED_CALLS, STARVED_WINDOW_NS

# With nothing changed, at most one comparison in a hundred says slower or faster of any cell by chance. That holds for
# calls that are independent: of 110 comparisons of simulated checks none did (bench_check.py has them), of the 45 of
# ten checks in a row on one H200 two did, of one cell each.
FALSE_ALARMS = 0.01
# With so many calls on both sides a difference is none where chance does as much this often.
ENOUGH = {50: 8, 99: 200}
LIKELY = 0.01
# Up to so many times what chance does, the number of slow calls varies between repeats as that of independent calls.
SCATTER = 2.0
# The same of one cell by itself, seen with few repeats: above it chance lies 1 time in 50.
SCATTER_OF_ONE = 2.6
# How many times its row's quiet a figure may be for both to have one cause, such as the CPU's clock.
ALIKE = 10.0
FAIL_ON = frozenset({"slower", "starved"})
FAILURES = ("slower", "starved", "faster", "unsure")

# So many rows tell what is usual in a column.
_ROWS = 4
# A column whose medians vary between repeats by so many times what is usual has modes.
_JUMPY = 6.0
_JUDGED = (Status.OK, Status.STARVED)
# Starved has a sharp border; what was this near to it did not cross it for a reason that can be told.
_NEAR = 3.0
_FIRST = (
    "gpu", "driver", "cuda", "mig", "mps", "module_loading", "compute_mode", "memory_bytes",
    "cpu", "cpus", "governor", "environment",
)  # fmt: skip
_LAST = ("kernel", "quick", "program", "hostname", "pci", "uuid", "python", "packages")
_NEVER = frozenset({"date", "pid", "unknown"})


class Change(StrEnum):
    """What became of a figure."""

    SAME = "same"
    SLOWER = "slower"
    FASTER = "faster"
    UNSURE = "unsure"

    @property
    def look(self) -> Look:
        """Word and style of the change."""
        return OUTCOME_LOOKS[CellOutcome(self)]


class CellOutcome(StrEnum):
    """What became of a cell: its change, or that it starves as it did not before, or no longer. Worst first."""

    SLOWER = "slower"
    STARVED = "starved"
    FASTER = "faster"
    FED = "fed"
    UNSURE = "unsure"
    SAME = "same"

    @property
    def look(self) -> Look:
        """Word and style of the outcome."""
        return OUTCOME_LOOKS[self]


OUTCOME_LOOKS = {
    CellOutcome.SLOWER: Look("SLOWER", style="bad"),
    CellOutcome.STARVED: Look(
        "newly STARVED", mark="STARVED", style="bad", meaning="fewer than 3 calls returned in 0.5 s"
    ),
    CellOutcome.FASTER: Look("FASTER", style="good"),
    CellOutcome.FED: Look("no longer STARVED", style="good"),
    CellOutcome.UNSURE: Look("UNSURE", style="warn", meaning="too few calls or too much noise to tell"),
    CellOutcome.SAME: Look("SAME", style="dim"),
}
_WORST = (Change.SLOWER, Change.FASTER, Change.UNSURE, Change.SAME)


@dataclass(frozen=True)
class Compared:
    """One percentile ``q`` (50 or 99) of one channel of a cell: microseconds before and now, None where no call returned.

    ``why`` is a sentence, empty where there is nothing to say.
    """

    row: str
    column: str
    channel: Channel
    q: int
    old_us: float | None
    new_us: float | None
    ratio: float | None
    change: Change
    why: str = ""


@dataclass(frozen=True)
class CellChange:
    """A cell in both checks: the worst of its parts, slower before faster before unsure.

    ``note`` says what the parts do not: why nothing can be compared, or that it starves.
    """

    row: str
    column: str
    change: Change
    newly_starved: bool = False
    no_longer_starved: bool = False
    parts: tuple[Compared, ...] = ()
    note: str = ""

    @property
    def outcome(self) -> CellOutcome:
        """Newly starved or no longer starved, else the change."""
        if self.newly_starved:
            return CellOutcome.STARVED
        return CellOutcome.FED if self.no_longer_starved else CellOutcome(self.change)


@dataclass(frozen=True)
class Difference:
    """One value of the fingerprints that is not the same; nested ones are written ``environment.CUDA_…``."""

    key: str
    old: object
    new: object


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two checks and what differs: the fingerprints, what matters most first, and each cell that both have.

    ``only_old`` and ``only_new`` are (row, column) of the cells that only one of them measured. ``false_alarm_rate``
    is the chance (0 to 1), for independent calls, that a comparison of two equal machines says slower or faster of any
    cell at all.
    """

    old: Matrix
    new: Matrix
    differences: tuple[Difference, ...]
    cells: tuple[CellChange, ...]
    only_old: tuple[tuple[str, str], ...]
    only_new: tuple[tuple[str, str], ...]
    false_alarm_rate: float = FALSE_ALARMS

    def regressions(self, fail_on: Collection[str] = FAIL_ON) -> tuple[CellChange, ...]:
        """The cells that fail, by names out of ``FAILURES``: a newly starved cell fails on ``starved`` alone.

        Raises ValueError for another name.
        """
        for name in fail_on:
            if name not in FAILURES:
                raise ValueError(f"{name} is none of {', '.join(FAILURES)}")
        return tuple(cell for cell in self.cells if (_failure(cell) in fail_on))

    def counts(self) -> Mapping[Change, int]:
        """Number of cells by change."""
        return {change: sum(cell.change is change for cell in self.cells) for change in Change}

    def outcomes(self) -> Mapping[CellOutcome, int]:
        """Number of cells by outcome, the worst outcome first."""
        return {outcome: sum(cell.outcome is outcome for cell in self.cells) for outcome in CellOutcome}


def _failure(cell: CellChange) -> str:
    return "starved" if cell.newly_starved else str(cell.change)


def compare(old: Matrix, new: Matrix, *, force: bool = False) -> Comparison:
    """``new`` against ``old``, each cell that both have.

    Raises NotComparable when they are of different kinds of GPU or were not measured alike, unless ``force``.
    """
    if not force and (problem := _incomparable(old, new)) is not None:
        raise NotComparable(problem)
    measured = [
        {key for key, cell in matrix.cells.items() if cell.status is not Status.MISSING} for matrix in (old, new)
    ]
    both = [key for key in new.cells if key in measured[0] and key in measured[1]]
    return Comparison(
        old=old,
        new=new,
        differences=differences(old, new),
        cells=_cells(old, new, both),
        only_old=tuple(key for key in old.cells if key in measured[0] - measured[1]),
        only_new=tuple(key for key in new.cells if key in measured[1] - measured[0]),
    )


def _incomparable(old: Matrix, new: Matrix) -> str | None:
    gpus = [matrix.fingerprint.get("gpu") for matrix in (old, new)]
    if old.simulated != new.simulated:
        told = ["on the simulated GPU" if matrix.simulated else "on a real GPU" for matrix in (old, new)]
        return f"The old check was made {told[0]}, the new one {told[1]}."
    if old.profile != new.profile:
        return f"The old check simulates the profile {old.profile}, the new one {new.profile}."
    if None not in gpus and gpus[0] != gpus[1]:
        return f"The old check was made on {gpus[0]}, the new one on {gpus[1]}."
    if bool(old.hosts) != bool(new.hosts):
        told = ["several machines" if matrix.hosts else "one machine" for matrix in (old, new)]
        return f"The old check is of {told[0]}, the new one of {told[1]}."
    if not math.isclose(old.pace_us, new.pace_us, rel_tol=1e-6):
        return f"The old check calls every {duration(old.pace_us)}, the new one every {duration(new.pace_us)}."
    return None


def differences(old: Matrix, new: Matrix) -> tuple[Difference, ...]:
    """What differs between the fingerprints, what matters most for latencies first; dates never differ."""
    before, now = (_flat({**m.fingerprint, "program": m.program or None, "quick": m.quick}) for m in (old, new))
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return tuple(Difference(key, before.get(key), now.get(key)) for key in sorted(keys, key=_place))


def _flat(fingerprint: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in fingerprint.items():
        if key in _NEVER:
            continue
        if isinstance(value, Mapping):
            found.update({f"{key}.{name}": one for name, one in value.items()})
        else:
            found[key] = value
    return found


def _place(key: str) -> tuple[int, str]:
    head = key.partition(".")[0]
    if head in _FIRST:
        return _FIRST.index(head), key
    return len(_FIRST) + (1 + _LAST.index(head) if head in _LAST else 0), key


def _cells(old: Matrix, new: Matrix, both: Iterable[tuple[str, str]]) -> tuple[CellChange, ...]:
    keys = list(both)
    parts: dict[tuple[str, str], list[QuantileTest]] = {
        key: quantile_tests(old.cells[key], new.cells[key])
        for key in keys
        if old.cells[key].status is Status.OK and new.cells[key].status is Status.OK
    }
    judge = _Judge(old, new, [part for found in parts.values() for part in found])
    # The quiet of a row first: the other cells are held against it.
    judged = {key: judge.cell(key, parts[key]) for key in sorted(parts, key=lambda key: key[1] != QUIET)}
    return tuple(_cell(old.cells[key], new.cells[key], judged.get(key, ())) for key in keys)


class _Judge:
    """All parts of a comparison, since what is usual and how many tests there are follows from them all."""

    def __init__(self, old: Matrix, new: Matrix, parts: list[QuantileTest]) -> None:
        self._old, self._new = old, new
        self._allowed = FALSE_ALARMS / max(len(parts), 1)
        self._usual: dict[tuple[str, int], tuple[Usual, float]] = {}
        self._scatter: dict[str, Usual] = {}
        groups: dict[tuple[str, int], list[QuantileTest]] = {}
        for part in parts:
            if part.told:
                groups.setdefault((part.channel.phase, part.q), []).append(part)
        for key, group in groups.items():
            freedom = max(part.varies[1] for part in group)
            weight = median(part.weight for part in group)
            alike = [p for p in group if p.varies[1] == freedom and p.weight >= weight / 2]
            self._usual[key] = usual([p.varies[0] for p in alike], freedom), weight
            if key[1] == 99:
                self._scatter[key[0]] = usual([p.scatters for p in alike], freedom)
        self._columns = _by_column(parts, lambda part: part.varies[0])
        self._modes = _by_column([part for part in parts if part.q == 99], lambda part: part.scatters)
        self._quiet: dict[tuple[str, Channel, int], Change] = {}
        self._moved: dict[tuple[str, Channel, int], float] = {}

    def cell(self, key: tuple[str, str], parts: Iterable[QuantileTest]) -> tuple[Compared, ...]:
        """The parts of the cell ``key``; those of the column quiet must come before their row's others."""
        found = []
        for part in parts:
            row, place = part.cell.row, (part.cell.row, part.channel, part.q)
            if not part.told:
                found.append(_untold(part))
                continue
            change, why = self._change(part)
            if key[1] != QUIET and change in (Change.SLOWER, Change.FASTER):
                change, why = self._beside_quiet(part, change, why)
            elif key[1] == QUIET:
                moved = self._row_moved(row, part.channel, part.q)
                if change is Change.SAME and far_off(moved, part.limit):
                    change, why = Change.UNSURE, f"Quiet beside this row's other cells is {times(moved)} what it was."
                self._quiet[place] = change
            before, now = (figure / 1000 for figure in part.figures)
            found.append(Compared(row, key[1], part.channel, part.q, before, now, part.ratio, change, why))
        return tuple(found)

    def _change(self, part: QuantileTest) -> tuple[Change, str]:
        if not part.matters:
            return Change.SAME, ""
        seen = f"{duration(part.figures[0] / 1000)} → {duration(part.figures[1] / 1000)}"
        calls = f"{part.old.calls} and {part.new.calls}"
        if part.alone:
            return Change.UNSURE, f"{seen}, but one repeat by itself does not show how much it varies."
        chance = part.chance()
        if chance > LIKELY and min(part.old.calls, part.new.calls) >= ENOUGH[part.q]:
            return Change.SAME, f"{seen}, which chance alone does: the percentile falls among few calls far apart."
        if chance > self._allowed:
            return Change.UNSURE, f"{seen}, but of {calls} calls too few are beyond it."
        if not part.steady:
            return Change.UNSURE, f"{seen}, but one repeat alone makes the difference."
        if self._repeats(part) > self._allowed:
            return Change.UNSURE, f"{seen}, but repeats differ too much among themselves to tell."
        return (Change.SLOWER if part.ratio > 1 else Change.FASTER), f"{seen} ({times(part.ratio)})."

    def _repeats(self, part: QuantileTest) -> float:
        """The chance that repeats which vary as these do differ so much.

        An aggressor may work in one of two ways for seconds on end. Some rows then meet both in one check, and others
        by chance only one: so a cell is not taken for steadier than its column is on the average.
        A tail's percentile jumps where few calls are slow; how many are slow then tells more, unless that varies
        from repeat to repeat by more than chance. So the tail has two tests, and either may be the one.
        """
        known, weight = self._usual[part.channel.phase, part.q]
        # What is usual was seen with the usual number of calls; fewer calls vary more.
        known = replace(known, variance=known.variance * max(1.0, weight / part.weight))
        variance, freedom = known.moderate(*part.varies)
        column = (part.cell.column, part.channel.phase, part.q)
        modes = part.q == 50 or self._has_modes(part)
        if modes:
            variance = max(variance, self._columns.get(column, 0.0))
        along = part.moved if part.ratio > 1 else -part.moved
        found = student(max(along, 0.0) / math.sqrt(variance), freedom)
        if part.q == 50:
            return found
        scatter, freedom = self._scatter[part.channel.phase].moderate(part.scatters, part.varies[1])
        # Where a column has modes its slow calls come by repeats, and their number tells of the modes, not of change.
        if modes:
            scatter = max(scatter, self._modes.get(column, 0.0))
        # A cell whose own repeats scatter more is never taken for as tame as the others.
        if scatter > SCATTER or part.scatters > SCATTER_OF_ONE:
            return min(1.0, 2 * found)
        return min(1.0, 2 * found, 2 * part.cuts * student(part.far() / math.sqrt(max(scatter, 1.0)), freedom))

    def _has_modes(self, part: QuantileTest) -> bool:
        middle = (part.channel.phase, 50)
        if middle not in self._usual:
            return False
        return self._columns.get((part.cell.column, *middle), 0.0) > _JUMPY * self._usual[middle][0].variance

    def _beside_quiet(self, part: QuantileTest, change: Change, why: str) -> tuple[Change, str]:
        """A cell whose row's quiet moved by as much did not change by itself: one cause is told once, in quiet."""
        row = part.cell.row
        moved = self._row_moved(row, part.channel, part.q)
        beyond = part.ratio / moved
        if (beyond if change is Change.SLOWER else 1 / beyond) >= part.limit:
            return change, why
        quiet = self._quiet.get((row, part.channel, part.q), Change.SAME)
        if quiet is Change.SAME or part.figures[0] > ALIKE * self._quiet_ns(row, part.channel, part.q):
            return Change.UNSURE, f"{why.removesuffix('.')}, but the quiet of this row is {times(moved)} too."
        return Change.SAME, f"It moved with the quiet of its row, which is {times(moved)} what it was."

    def _row_moved(self, row: str, channel: Channel, q: int) -> float:
        """How many times what it was the quiet of a row is: the median of its cells."""
        place = (row, channel, q)
        if place not in self._moved:
            found = [
                math.log(now / before)
                for key, cell in self._new.cells.items()
                if key[0] == row and key in self._old.cells
                for before, now in [(_quiet_ns(self._old.cells[key], channel, q), _quiet_ns(cell, channel, q))]
                if before is not None and now is not None
            ]
            self._moved[place] = math.exp(median(found)) if found else 1.0
        return self._moved[place]

    def _quiet_ns(self, row: str, channel: Channel, q: int) -> float:
        found = [_quiet_ns(cell, channel, q) for key, cell in self._old.cells.items() if key[0] == row]
        return median([ns for ns in found if ns is not None] or [1.0])


def _by_column(
    parts: Iterable[QuantileTest], figure: Callable[[QuantileTest], float]
) -> dict[tuple[str, Phase, int], float]:
    """The mean of a ``figure`` that tells how much cells vary between repeats, by column, phase and percentile."""
    found: dict[tuple[str, Phase, int], list[float]] = {}
    for part in parts:
        if part.told and part.cell.column != QUIET and part.varies[1] > 1:
            found.setdefault((part.cell.column, part.channel.phase, part.q), []).append(figure(part))
    return {key: sum(values) / len(values) for key, values in found.items() if len(values) >= _ROWS}


def _untold(part: QuantileTest) -> Compared:
    old, new = (None if ns is None else ns / 1000 for ns in (s.whole.percentile(part.q) for s in (part.old, part.new)))
    why = f"No call is known of in the {'old' if old is None else 'new'} check."
    return Compared(part.cell.row, part.cell.column, part.channel, part.q, old, new, None, Change.UNSURE, why)


def _quiet_ns(cell: Cell, channel: Channel, q: int) -> float | None:
    if cell.status not in _JUDGED:
        return None
    channels = cell.channels if cell.column == QUIET else cell.quiet
    found = channels[channel].percentile_or_none(q, max(CALLS[q], 20)) if channel in channels else None
    return None if found is None else max(found, 1.0)


def _cell(old: Cell, new: Cell, parts: tuple[Compared, ...]) -> CellChange:
    found = CellChange(new.row, new.column, Change.SAME, parts=parts)
    statuses = (old.status, new.status)
    if statuses == (Status.UNSUPPORTED, Status.UNSUPPORTED):
        return replace(found, note=f"Unsupported in both: {_reason(new)}")
    for cell, which in ((new, "new"), (old, "old")):
        if cell.status not in _JUDGED:
            note = f"{str(cell.status).capitalize()} in the {which} check: {_reason(cell)}"
            return replace(found, change=Change.UNSURE, note=note)
    if statuses == (Status.STARVED, Status.STARVED):
        return replace(found, note="It starves in both: fewer than 3 calls returned in half a second.")
    if _newly(old, new):
        return _starving(replace(found, change=Change.SLOWER, newly_starved=True), old, new)
    if _newly(new, old):
        return _starving(replace(found, change=Change.FASTER, no_longer_starved=True), new, old)
    worst = min((part.change for part in parts), key=_WORST.index, default=Change.UNSURE)
    return replace(found, change=worst, note="" if parts else "No calls are known of.")


def _newly(well: Cell, ill: Cell) -> bool:
    """Whether ``ill`` starves and ``well`` does not: by its status, or by a call in flight longer than any was."""
    if Status.STARVED in (well.status, ill.status):
        return ill.status is Status.STARVED
    longest = max((histogram.max_ns for histogram in well.channels.values()), default=0)
    flight, usual_ns = (ill.in_flight_us or 0.0) * 1000, max(longest, (well.in_flight_us or 0.0) * 1000)
    return flight >= max(IN_FLIGHT_NS, _NEAR * usual_ns) and _barren(ill) >= 0.5


def _barren(cell: Cell) -> float:
    """The share of repeats in which fewer calls returned than a starved victim's."""
    return sum(repeat.calls < STARVED_CALLS for repeat in cell.repeats) / max(len(cell.repeats), 1)


def _starving(found: CellChange, well: Cell, ill: Cell) -> CellChange:
    words = "It starves now and did not before" if found.newly_starved else "It starved before and does no longer"
    if ill.in_flight_us is not None:
        words += f": {ill.in_flight_op or 'a call'} was in flight for {duration(ill.in_flight_us)}"
    seconds = sum(repeat.window_s for repeat in well.repeats)
    rate = sum(repeat.calls for repeat in well.repeats) / seconds if seconds > 0 else math.inf
    fewest = min((repeat.calls for repeat in well.repeats), default=0)
    if rate < _NEAR * STARVED_CALLS / (STARVED_WINDOW_NS / 1e9) or fewest < _NEAR * STARVED_CALLS:
        note = f"{words}, but it never was far from it, with {rate:.0f} calls a second."
        return replace(found, change=Change.UNSURE, newly_starved=False, no_longer_starved=False, note=note)
    return replace(found, note=f"{words}.")


def _reason(cell: Cell) -> str:
    return f"{(cell.reason or 'no reason is given').rstrip('.')}."
