"""Machines that keep one of two latencies for a whole repeat: chance may divide them between two checks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from factories.matrices import CALL, ROWS, made_up
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.comparing import modes
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Change, Comparison, QuantileChange
from stallprobes.matrix.comparing.quantile_comparison import QuantileTest
from stallprobes.matrix.matrix import Cell, Matrix

Key = tuple[str, str]
# In a column of three rows no mean of its variances replaces that of a cell.
ROWS_OF_THREE = ROWS[:3]
D2D_SPIN = ("d2d", "spin")
OTHERS = (
    ("launch", "spin"),
    ("d2d", "host-alloc-free"),
    ("launch", "d2h-pinned-large"),
    ("d2d@secondary", "alloc-async"),
)
USUAL_NS = 4_000


def with_repeats(matrix: Matrix, factors: Mapping[Key, Sequence[float]], seed: int = 1) -> Matrix:
    """``matrix`` with cells whose calls take so many times 4 µs in each repeat."""
    dice = np.random.default_rng(seed)
    cells: dict[Key, Cell] = {}
    for key, each in factors.items():
        cell = matrix.cells[key]
        repeats = []
        for factor, repeat in zip(each, [*cell.repeats] * 2, strict=False):
            values = USUAL_NS * factor * np.exp(dice.normal(0, 0.05, 250))
            channels = {**repeat.window.channels, CALL: Histogram.of(values.astype(np.int64))}
            repeats.append(replace(repeat, window=replace(repeat.window, channels=channels)))
        cells[key] = cell.changed(repeats=tuple(repeats))
    return matrix.changed(cells={**matrix.cells, **cells})


def compared(old: Mapping[Key, Sequence[float]], new: Mapping[Key, Sequence[float]]) -> Comparison:
    """The comparison of two checks with such cells."""
    made = [made_up(seed, rows=ROWS_OF_THREE) for seed in (1, 2)]
    first, second = (
        with_repeats(one, factors, seed) for seed, (one, factors) in enumerate(zip(made, (old, new), strict=True))
    )
    return compare(first, second)


def part(comparison: Comparison, key: Key = D2D_SPIN) -> QuantileChange:
    parts = next(cell for cell in comparison.cells if (cell.row, cell.column) == key).parts
    return next(one for one in parts if one.channel == CALL and one.quantile is Quantile.P50)


def two_modes(ratio: float) -> tuple[dict[Key, Sequence[float]], dict[Key, Sequence[float]]]:
    """Cells that have both of two modes within each check."""
    return dict.fromkeys(OTHERS, (1, ratio, 1, ratio)), dict.fromkeys(OTHERS, (ratio, 1, 1, 1))


@pytest.mark.parametrize(("old", "new", "change"), [(1.0, 3.0, Change.WORSE), (3.0, 1.0, Change.BETTER)])
def test_a_change_is_unsure_where_other_cells_have_modes_as_far_apart(old: float, new: float, change: Change) -> None:
    before, now = two_modes(3.0)
    steady = {D2D_SPIN: [old] * 4}, {D2D_SPIN: [new] * 4}
    assert part(compared(*steady)).change is change
    found = part(compared({**before, **steady[0]}, {**now, **steady[1]}))
    assert found.change is Change.UNSURE
    assert found.why.endswith("but repeats within one check differ by as much in 4 of the other phases.")


def test_a_change_larger_than_the_modes_of_other_cells_is_one() -> None:
    before, now = two_modes(1.6)
    assert part(compared({**before, D2D_SPIN: [1] * 4}, {**now, D2D_SPIN: [3] * 4})).change is Change.WORSE


def test_chance_divides_more_repeats_less_often() -> None:
    before, now = two_modes(3.0)
    found = [
        part(compared({**before, D2D_SPIN: [1] * repeats}, {**now, D2D_SPIN: [3] * repeats})).change
        for repeats in (4, 8)
    ]
    assert found == [Change.UNSURE, Change.WORSE]


def test_one_slow_repeat_of_other_cells_is_no_mode() -> None:
    slow = dict.fromkeys(OTHERS, (1.0, 3.0, 1.0, 1.0))
    assert part(compared({**slow, D2D_SPIN: [1] * 4}, {**slow, D2D_SPIN: [3] * 4})).change is Change.WORSE


def test_many_changed_cells_are_no_modes() -> None:
    keys = (D2D_SPIN, *OTHERS)
    found = compared({key: [1] * 4 for key in keys}, {key: [3] * 4 for key in keys})
    assert {part(found, key).change for key in keys} == {Change.WORSE}


def test_machines_with_modes_compare_as_unchanged() -> None:
    """Without the condition 3 of these 24 comparisons have a worse or better cell."""
    wrong = 0
    for seed in range(24):
        dice = np.random.default_rng(seed)
        checks = [{key: dice.choice((1.0, 3.0), 4).tolist() for key in (D2D_SPIN, *OTHERS)} for _ in range(2)]
        counts = compared(*checks).counts()
        wrong += bool(counts[Change.WORSE] + counts[Change.BETTER])
    assert wrong == 0


def test_modes_are_searched_for_only_where_something_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    divided: list[QuantileTest] = []

    def groups(test: QuantileTest) -> tuple[QuantileTest, ...]:
        divided.append(test)
        return ()

    monkeypatch.setattr(modes, "_groups", groups)
    compared(*two_modes(3.0))
    assert not divided
    compared({D2D_SPIN: [1] * 4}, {D2D_SPIN: [3] * 4})
    assert divided
    # Only at the percentiles of the changes, and not in the baselines.
    assert "quiet" not in {test.cell.column for test in divided}


@pytest.mark.parametrize(("old", "new"), [(4, 4), (4, 6), (8, 5)])
def test_the_probabilities_are_those_of_repeats_in_two_modes(old: int, new: int) -> None:
    chances = (np.arange(2000) + 0.5) / 2000

    def of(repeats: int, number: int) -> np.ndarray:
        return math.comb(repeats, number) * chances**number * (1 - chances) ** (repeats - number)

    divided = of(old, old) * of(new, 0) + of(old, 0) * of(new, new)
    both = [np.sum([of(repeats, number) for number in range(2, repeats - 1)], axis=0) for repeats in (old, new)]
    assert modes._divided(old, new) == pytest.approx(divided.mean(), rel=1e-4)
    assert modes._shown(old, new) == pytest.approx(np.mean(1 - (1 - both[0]) * (1 - both[1])), rel=1e-4)


def test_checks_of_three_repeats_show_no_modes() -> None:
    assert modes._shown(3, 3) == 0
