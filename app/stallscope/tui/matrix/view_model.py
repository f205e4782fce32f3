"""A check as it is looked at: each cell's figures worked out once, its word and mark, and the order of all cells.

Percentiles of hundreds of cells take longer than a screen may wait for, so whoever reads or measures a matrix works
them out, and the screen only writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from stallprobes.latency.histogram import Histogram
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, Matrix, MatrixColumn, MatrixRow, Status
from stallprobes.model import Channel, Phase
from stallprobes.units import duration, times

if TYPE_CHECKING:
    from stallprobes.matrix.compare import CellChange, Comparison, QuantileChange

Key = tuple[str, str]

# Two letters beside each figure say what its colour says; the tail is marked apart.
MARKS = {"stalled": "!!", "slower": "!", "host": "~", "unsure": "?"}
TAIL_MARK = "!*"
DUE_MARK = "!d"
DUE = "due"
LEGEND = (
    ("!!", "stalled"),
    ("!*", "at p99 only"),
    ("!d", "rare"),
    ("!", "slower"),
    ("?", "unsure"),
    ("~", "host noise"),
    ("–", "not possible here"),
    ("·", "not measured"),
)
CHANGE_LEGEND = (
    ("STARVES", "it did not before"),
    ("UNSURE", "too few calls or too much noise to tell"),
    ("·", "not in both"),
)
STYLES = {
    "quiet": "dim",
    "unsure": "warn",
    "slower": "warn",
    "host": "warn",
    "stalled": "bad",
    "starved": "bad",
    "failed": "bad",
    "invalid": "warn",
    "unsupported": "faint",
    "missing": "faint",
}
CHANGE_STYLES = {"slower": "bad", "faster": "good", "unsure": "warn", "same": "dim"}
_CHANGES = ("same", "unsure", "faster", "slower")
# The first letters that stand beside a figure where one line holds call and wait.
_LETTERS = {Phase.CALL: "c", Phase.WAIT: "w"}
_RANKS = {"unsure": 1, "slower": 2, "host": 2, "stalled": 3, "starved": 4, "failed": 5}


class Figure(StrEnum):
    """Which figure the cells show: the one that the verdict names, a percentile against quiet, or what changed."""

    JUDGED = "as judged"
    P50 = "p50"
    P99 = "p99"
    CHANGE = "change"


@dataclass(frozen=True)
class Part:
    """One phase of a cell: microseconds at p50 and p99 now and in quiet, None where there are no calls.

    ``kind``, ``quantile`` and ``ratio`` are those of the phase's worst verdict; "quiet", "p50" and the middles' ratio
    where none is worse. The quantile ``DUE`` says that p99 counts from when calls were due.
    """

    now_us: Mapping[int, float]
    quiet_us: Mapping[int, float]
    kind: str = "quiet"
    quantile: str = "p50"
    ratio: float | None = None

    def times(self, q: int) -> float | None:
        """How many times quiet it is at percentile ``q``, None where either is not known."""
        if q not in self.now_us or q not in self.quiet_us:
            return None
        return self.now_us[q] / max(self.quiet_us[q], 0.001)


@dataclass(frozen=True)
class Figures:
    """One cell: its kind in one word (as Cell.kind has it), its phases, and how bad it is, to be sorted by."""

    kind: str
    parts: Mapping[Phase, Part]
    weight: tuple[int, float] = (0, 0.0)


@dataclass(frozen=True)
class Square:
    """What stands in a cell: a figure or a word, and its style's name."""

    text: str
    style: str = ""


def figures(cell: Cell) -> Figures:
    """The cell's figures. Takes about half a millisecond."""
    worst = cell.worst
    weight = (0, 0.0) if worst is None else worst.weight
    parts = {phase: part for phase in PHASES if (part := _part(cell, phase)).now_us}
    return Figures(cell.kind, parts, weight)


def _part(cell: Cell, phase: Phase) -> Part:
    part = _most_times_quiet(cell, phase)
    # Rare stalls are told by when calls were due, which is no phase of their own on the screen.
    mine = (phase, Phase.DUE) if phase is Phase.CALL else (phase,)
    own = [one for one in cell.verdicts if one.phase in mine and one.ratio is not None]
    worst = max(own, key=lambda one: one.weight, default=None)
    if worst is None or worst.kind.severity == 0:
        return replace(part, ratio=part.times(50))
    quantile = DUE if worst.phase is Phase.DUE else worst.quantile
    return replace(part, kind=worst.kind, quantile=quantile, ratio=worst.ratio)


def _most_times_quiet(cell: Cell, phase: Phase) -> Part:
    """The phase's percentiles; where a turn makes several of its calls, those of the one that is most times quiet."""
    known = [
        channel
        for repeat in cell.repeats[:1]
        for channel in repeat.window.channels
        if channel.phase is phase and channel.label
    ]
    parts = []
    for channel in known or [Channel(phase)]:
        # Not by the cell's own properties: they would keep every histogram of the whole matrix unpacked.
        now = _percentiles(
            repeat.window.channels[channel] for repeat in cell.repeats if channel in repeat.window.channels
        )
        both = ((repeat.before, repeat.after) for repeat in cell.repeats)
        quiet = _percentiles(channels[channel] for pair in both for channels in pair if channel in channels)
        parts.append(Part(now, quiet))
    return max(parts, key=lambda part: part.times(50) or 0.0)


def _percentiles(parts: Iterable[Histogram]) -> dict[int, float]:
    """p50 and p99 of histograms taken together, in microseconds; empty where there are no calls."""
    known = list(parts)
    if not known:
        return {}
    whole = Histogram(np.sum([one.counts for one in known], axis=0, dtype=np.uint64), max(one.max_ns for one in known))
    found = {q: whole.percentile(q) for q in (50, 99)}
    return {q: ns / 1000 for q, ns in found.items() if ns is not None}


@dataclass(frozen=True, eq=False)
class MatrixView:
    """A matrix with its figures, and with what changed against another one where it was compared."""

    matrix: Matrix
    figures: Mapping[Key, Figures]
    changes: Mapping[Key, CellChange] = field(default_factory=dict)

    @classmethod
    def of(cls, matrix: Matrix) -> MatrixView:
        """The sheet of a whole matrix. Takes about half a millisecond a cell."""
        return cls(matrix, {key: figures(cell) for key, cell in matrix.cells.items()})

    def with_cell(self, cell: Cell) -> MatrixView:
        """The same with one cell known better."""
        key = (cell.row, cell.column)
        matrix = replace(self.matrix, cells={**self.matrix.cells, key: cell})
        return replace(self, matrix=matrix, figures={**self.figures, key: figures(cell)})

    def compared(self, comparison: Comparison | None) -> MatrixView:
        """The same with the changes of ``comparison``, or with none."""
        found = () if comparison is None else comparison.cells
        return replace(self, changes={(one.row, one.column): one for one in found})

    def order(self, worst_first: bool, changed: bool) -> tuple[tuple[MatrixRow, ...], tuple[MatrixColumn, ...]]:
        """Rows and columns as they were measured or the worst first, by change where ``changed``; quiet is first."""
        if not worst_first:
            return self.matrix.rows, self.matrix.columns
        rows: dict[str, tuple[float, float]] = {}
        columns: dict[str, tuple[float, float]] = {}
        for key in self.matrix.cells:
            weight = self._weight(key, changed)
            rows[key[0]] = max(rows.get(key[0], weight), weight)
            columns[key[1]] = max(columns.get(key[1], weight), weight)
        none = (0.0, 0.0)
        return (
            tuple(sorted(self.matrix.rows, key=lambda one: rows.get(one.name, none), reverse=True)),
            tuple(
                sorted(
                    self.matrix.columns,
                    key=lambda one: (one.name == QUIET, columns.get(one.name, none)),
                    reverse=True,
                )
            ),
        )

    def worst(self, changed: bool) -> Key | None:
        """The cell that is worst, None where all are quiet."""
        key = max(self.matrix.cells, key=lambda key: self._weight(key, changed), default=None)
        return key if key is not None and self._weight(key, changed) > (0.0, 0.0) else None

    def _weight(self, key: Key, changed: bool) -> tuple[float, float]:
        if changed:
            change = self.changes.get(key)
            if change is None:
                return (0.0, 0.0)
            ratios = [part.ratio for part in change.parts if part.ratio is not None]
            return (
                _CHANGES.index(str(change.change)) + 4.0 * change.newly_starved,
                max(ratios, default=0.0),
            )
        known = self.figures.get(key)
        return (0.0, 0.0) if known is None else known.weight

    def counts(self) -> Mapping[str, int]:
        """How many cells are of which kind, without the column ``quiet``."""
        return Counter(known.kind for (_, column), known in self.figures.items() if column != QUIET)

    def squares(self, key: Key, figure: Figure) -> tuple[Square, Square, Square]:
        """The cell in one line, and its call and wait where it has a line for each."""
        cell, known = self.matrix.cells.get(key), self.figures.get(key)
        if figure is Figure.CHANGE:
            return _change_squares(self.changes.get(key))
        if cell is None or known is None or cell.status is Status.MISSING:
            return _word("·", "faint")
        if cell.status is Status.UNSUPPORTED:
            return _word("–", "faint")
        if cell.status is Status.INVALID:
            return _word("invalid", "warn")
        if key[1] == QUIET:
            return _quiet_squares(known, 99 if figure is Figure.P99 else 50)
        if known.kind in ("starved", "failed"):
            return _word(known.kind.upper(), "bad")
        lines = tuple(_square(known.parts.get(phase), figure) for phase in PHASES)
        return _one_line(known, figure), *lines  # type: ignore[return-value]


def _word(text: str, style: str) -> tuple[Square, Square, Square]:
    return Square(text, style), Square(text, style), Square("")


def _quiet_squares(known: Figures, q: int) -> tuple[Square, Square, Square]:
    lines = [Square(_short(part.now_us.get(q)) if (part := known.parts.get(phase)) else "") for phase in PHASES]
    return lines[0], lines[0], lines[1]


def _square(part: Part | None, figure: Figure, letter: str = "") -> Square:
    """One phase's figure with its mark, in places of their own so that figures stand below each other."""
    if part is None:
        return Square("")
    ratio = part.ratio if figure is Figure.JUDGED else part.times(50 if figure is Figure.P50 else 99)
    tails = {"p99": TAIL_MARK, DUE: DUE_MARK} if part.kind == "stalled" else {}
    mark = tails.get(part.quantile, MARKS.get(part.kind, ""))
    return Square(f"{_ratio(ratio)}{letter}{mark:<2}", STYLES.get(part.kind, ""))


def _one_line(known: Figures, figure: Figure) -> Square:
    """The worse of call and wait, with the letter of the phase."""
    if not known.parts:
        return Square("–", "faint")

    def weight(phase: Phase) -> tuple[int, float]:
        part = known.parts[phase]
        ratio = part.ratio if figure is Figure.JUDGED else part.times(50 if figure is Figure.P50 else 99)
        return (_RANKS.get(part.kind, 0) if figure is Figure.JUDGED else 0, ratio or 0.0)

    phase = max(known.parts, key=weight)
    return _square(known.parts[phase], figure, _LETTERS[phase])


def _change_squares(change: CellChange | None) -> tuple[Square, Square, Square]:
    if change is None:
        return _word("·", "faint")
    style = CHANGE_STYLES[str(change.change)]
    if change.newly_starved:
        return _word("STARVES", "bad")
    word = str(change.change).upper()
    if word == "SAME":
        return _word(word, style)
    worst = max((part for part in change.parts if str(part.change) == str(change.change)), key=_apart, default=None)
    below = (
        "" if worst is None or worst.ratio is None else f"{times(worst.ratio)}{_LETTERS.get(worst.channel.phase, '')}"
    )
    return Square(word, style), Square(word, style), Square(below, style)


def _apart(part: QuantileChange) -> float:
    return 0.0 if not part.ratio else max(part.ratio, 1 / part.ratio)


def _ratio(ratio: float | None) -> str:
    """``×427`` in five columns."""
    if ratio is None:
        return "–"
    if ratio >= 9999.5:
        return f"×{ratio / 1e6:.1f}M" if ratio >= 999_500 else f"×{ratio / 1e3:.0f}k"
    return times(ratio)


def _short(us: float | None) -> str:
    return duration(us).replace(" ", "")
