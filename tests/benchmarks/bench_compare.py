"""How often a comparison of whole made-up matrices is wrong: false alarms with nothing changed, and changes missed.

python tests/benchmarks/bench_compare.py [COMPARISONS]

Each matrix has 12 × 26 cells of 4 repeats × 250 calls in two lanes. Exits 1 when more than 2 comparisons in 100 say
worse or better although nothing changed (1 in 100 is promised, and a count of few scatters), when a planted tail is
found in less than 95 of 100 cells whose repeats do not drift, or when a comparison takes 2 s of a core.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.matrices import CALL, COLUMNS, WAIT, made_up, window
from stallprobes.latency.histogram import LOWER, Histogram
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import CellChange, Change
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, MatrixColumn, MatrixRow, Repeat, Status
from stallprobes.model import Channel
from stallprobes.native.layouts.histogram import BUCKETS

ROWS = tuple(MatrixRow(f"victim-{i}", f"victim {i}", "launch", "primary", "own") for i in range(12))
ALL = (COLUMNS[0], *(MatrixColumn(f"aggressor-{i}", f"aggressor {i}", (f"a{i}",)) for i in range(25)))
REPEATS, CALLS = 4, 250
CHANNELS = (CALL, WAIT)
MIDDLES = np.array([3_000.0, 6_000.0])
SIZE = len(ROWS) * len(ALL)
LIMIT_S = 2.0


@dataclass(frozen=True)
class Law:
    """How calls scatter: ``spread`` of a call and ``drift`` of a repeat (both the sigma of a logarithm), ``row`` that
    of a whole row from one matrix to another, ``outliers`` the share of calls that take ten times as long, and
    ``wild`` the share of cells whose repeats drift by 0.4. A repeat has ``calls`` calls."""

    spread: float
    drift: float = 0.0
    row: float = 0.0
    outliers: float = 0.0
    wild: float = 0.0
    calls: int = CALLS

    def __str__(self) -> str:
        more = (
            f", row {self.row:.2f}" if self.row else "",
            f", {self.outliers:.1%} outliers" if self.outliers else "",
            f", {self.wild:.0%} of the cells wild" if self.wild else "",
            f", {REPEATS * self.calls} calls" if self.calls != CALLS else "",
        )
        return f"spread {self.spread:.2f}, drift {self.drift:.2f}{''.join(more)}"


def histograms(values_ns: NDArray[np.float64]) -> list[Histogram]:
    """One histogram for each line of ``values_ns``."""
    places = np.searchsorted(LOWER, values_ns.astype(np.int64), side="right") - 1
    places += np.arange(len(values_ns))[:, None] * BUCKETS
    counts = np.bincount(places.ravel(), minlength=len(values_ns) * BUCKETS).reshape(-1, BUCKETS).astype(np.uint64)
    counts.flags.writeable = False
    return [Histogram.of_counts(line, int(most)) for line, most in zip(counts, values_ns.max(axis=1), strict=True)]


def drawn(
    dice: np.random.Generator,
    law: Law,
    cells: int,
    shift: NDArray[np.float64] | float = 0.0,
    tail: float = 0.0,
    middle: float = 1.0,
) -> list[Histogram]:
    """Histograms by cell, repeat and lane, in that order. ``shift`` (of the logarithm) is by cell; every call takes
    ``middle`` times as long, and one in 25 ``tail`` times the quiet p99."""
    drift = np.where(np.arange(cells) % 100 < 100 * law.wild, 0.4, law.drift)[:, None, None, None]
    slow = np.exp(np.reshape(shift, (-1, 1, 1, 1)) + drift * dice.normal(0, 1, (cells, REPEATS, 1, 1)))
    usual = MIDDLES[:, None] * slow * middle
    values = usual * np.exp(dice.normal(0, law.spread, (cells, REPEATS, 2, law.calls)))
    values = np.where(dice.random(values.shape) < law.outliers, 10 * values, values)
    if tail:
        values = np.where(dice.random(values.shape) < 0.04, tail * usual * np.exp(2.3263 * law.spread), values)
    return histograms(values.reshape(-1, law.calls))


def whole(dice: np.random.Generator, law: Law) -> Matrix:
    """A matrix of all rows and columns."""
    count = len(ROWS) * len(ALL)
    shift = np.repeat(dice.normal(0, law.row, len(ROWS)), len(ALL))
    now = iter(drawn(dice, law, count, shift))
    # Quiet is drawn with fewer calls, since all cells of a row are asked for it.
    quiet = iter(drawn(dice, replace(law, calls=max(law.calls // 4, 8)), count, shift))
    cells = {}
    for row in ROWS:
        for column in ALL:
            repeats = []
            for _ in range(REPEATS):
                before = {channel: next(quiet) for channel in CHANNELS}
                held = {channel: next(now) for channel in CHANNELS}
                beside = {} if column.name == QUIET else before
                repeats.append(Repeat(window(held, law.calls, law.calls * 5e-5), beside))
            cells[row.name, column.name] = Cell(row.name, column.name, Status.OK, repeats=tuple(repeats))
    return made_up(1, calls=1, repeats=1).changed(rows=ROWS, columns=ALL, cells=cells)


def again(dice: np.random.Generator, law: Law, matrix: Matrix, *, tail: float = 0.0, middle: float = 1.0) -> Matrix:
    """``matrix`` with every cell drawn anew, its quiets as they were; ``tail`` and ``middle`` as for ``drawn``."""
    made = iter(drawn(dice, law, len(matrix.cells), tail=tail, middle=middle))
    cells = {
        key: cell.changed(
            repeats=tuple(
                replace(r, window=replace(r.window, channels={channel: next(made) for channel in CHANNELS}))
                for r in cell.repeats
            ),
        )
        for key, cell in matrix.cells.items()
    }
    return matrix.changed(cells=cells)


def found(cells: Sequence[CellChange], change: Change, q: int, channel: Channel = CALL) -> float:
    """The share of ``cells`` in which ``change`` is said of ``channel`` at ``q``."""
    parts = [part for cell in cells for part in cell.parts if part.channel == channel and part.quantile.percent == q]
    return sum(part.change is change for part in parts) / len(parts)


def false_alarms(number: int) -> bool:
    """Whether comparisons with nothing changed say worse or better as seldom as they should, and in time."""
    right, slowest = True, 0.0
    print(f"nothing changed, {number} comparisons of {SIZE} cells: those with a worse or better cell")
    for law in (
        Law(0.1), Law(0.15), Law(0.3), Law(0.2, outliers=0.003), Law(0.2, outliers=0.01), Law(0.15, drift=0.05),
        Law(0.15, drift=0.1), Law(0.3, drift=0.15), Law(0.15, drift=0.02, wild=0.2), Law(0.15, drift=0.05, row=0.12),
    ):  # fmt: skip
        dice = np.random.default_rng(1)
        alarms, cells, quiets, unsure, last = 0, 0, 0, 0, whole(dice, law)
        for _ in range(number):
            after = whole(dice, law)
            since = time.process_time()
            comparison = compare(last, after)
            slowest = max(slowest, time.process_time() - since)
            told = [cell for cell in comparison.cells if cell.change in (Change.WORSE, Change.BETTER)]
            alarms, cells, last = alarms + bool(told), cells + len(told), after
            quiets += sum(cell.column == QUIET for cell in told)
            unsure += comparison.counts()[Change.UNSURE]
        told_of = f"{cells} cells, {quiets} of them quiet; unsure {unsure / number:.1f} cells a comparison"
        print(f"  {law!s:48} {alarms:4} ({told_of})", flush=True)
        right = right and (bool(law.row) or alarms <= max(1, 0.02 * number))
    print(f"the slowest comparison took {slowest:.2f} s, allowed {LIMIT_S:g}")
    return right and slowest <= LIMIT_S


def power() -> bool:
    """Whether what is planted is found."""
    right = True
    print(f"found at p99: one call in 25 at 1.5 times the quiet p99, of {SIZE} cells")
    for law in (
        Law(0.1), Law(0.15), Law(0.2), Law(0.3), Law(0.15, outliers=0.003), Law(0.3, outliers=0.003),
        Law(0.15, drift=0.02), Law(0.15, drift=0.05), Law(0.15, drift=0.1), Law(0.15, drift=0.02, wild=0.2),
        Law(0.15, calls=80), Law(0.15, calls=125), Law(0.15, calls=190), Law(0.15, calls=220), Law(0.15, calls=350),
    ):  # fmt: skip
        dice = np.random.default_rng(2)
        quiet = whole(dice, law)
        share = in_turn(quiet, again(dice, law, quiet), again(dice, law, quiet, tail=1.5), 99, law)
        print(f"  {law!s:48} {100 * share:5.1f} %", flush=True)
        right = right and (share >= 0.95 or bool(law.drift) or law.calls < CALLS)
    print("found at p50: every call so many times as long")
    for law in (Law(0.15), Law(0.3), Law(0.15, drift=0.05), Law(0.15, drift=0.1), Law(0.15, calls=8)):
        dice = np.random.default_rng(3)
        quiet = whole(dice, law)
        shares = []
        for middle in (1.3, 1.5, 2.0, 3.0):
            slow, healthy = again(dice, law, quiet, middle=middle), again(dice, law, quiet)
            shares.append(f"×{middle:g} {100 * in_turn(quiet, healthy, slow, 50, law):5.1f} %")
        print(f"  {law!s:48} {'  '.join(shares)}", flush=True)
    return right


def in_turn(old: Matrix, healthy: Matrix, slow: Matrix, q: int, law: Law) -> float:
    """The share of cells found worse when two or three columns at a time are slow and the rest is healthy."""
    shares = []
    tame = {key for place, key in enumerate(old.cells) if place % 100 >= 100 * law.wild}
    for iteration in range(1, 13):
        columns = {column.name for column in ALL[iteration::12]}
        cells = {key: (slow if key[1] in columns else healthy).cells[key] for key in healthy.cells}
        some = compare(old, healthy.changed(cells=cells))
        mine = [cell for cell in some.cells if cell.column in columns and (cell.row, cell.column) in tame]
        shares.append(found(mine, Change.WORSE, q))
    return sum(shares) / len(shares)


def main() -> int:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    return 0 if all([false_alarms(number), power()]) else 1


if __name__ == "__main__":
    sys.exit(main())
