"""The choice of the cells that get additional repeats: the gain in precision per second, by blocks of a column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from factories import matrices
from factories.matrices import CALL
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import Window
from stallprobes.matrix.check.block_choice import AIMS, Aim, BlockCosts, chosen_cells, gain
from stallprobes.matrix.comparing.precision import PhaseSpread
from stallprobes.matrix.matrix import QUIET, Repeat

# Standard deviations of a repeat's log p50: far below both aims, near the second, and so large that no repeat helps.
STEADY, NOISY, HOPELESS = 0.001, 0.45, 6.0
LIMIT_S = 1e3
Key = tuple[str, str]


def cell(deviation: float, repeats: int = 4) -> list[Repeat]:
    """Repeats whose log p50 have this standard deviation."""
    step = deviation * math.sqrt((repeats - 1) / repeats)
    values = [20_000 * math.exp(step * (-1) ** number) for number in range(repeats)]
    return [Repeat(Window({CALL: Histogram.of([round(value)] * 50)}, 50, 6_000_000)) for value in values]


def costs(cells: Mapping[Key, Sequence[Repeat]], between_s: float = 0.004, **window_s: float) -> BlockCosts:
    """Costs of blocks whose windows take 6 ms, or by column ``window_s``, with a baseline of 3 ms."""
    found = BlockCosts(virtual=False)
    for column in {key[1] for key in cells}:
        windows = {key[0]: window_s.get(column, 0.006) for key in cells if key[1] == column}
        found.add_block(column, windows, sum(windows.values()) + found.switch + between_s * len(windows))
    found.add_baselines(10, 0.03)
    return found


def test_an_aim_weighs_phases_between_enough_and_hopeless() -> None:
    aim = Aim(2.0, 8.0, 3.0)
    assert [aim.loss(ratio) for ratio in (1.5, 2.0, 8.0, 100.0)] == [0.0, 0.0, 3.0, 3.0]
    assert aim.loss(4.0) == pytest.approx(1.5)


def test_a_repeat_gains_where_it_brings_a_phase_nearer_to_an_aim() -> None:
    steady, noisy, hopeless = (PhaseSpread(4, value**2, 0.0, 20_000.0) for value in (STEADY, NOISY, HOPELESS))
    assert gain([steady]) == gain([hopeless]) == gain([]) == 0
    assert gain([noisy]) > 0
    assert gain([noisy, noisy, steady]) == pytest.approx(2 * gain([noisy]))
    # What is gained by all repeats together is at most the weight of the aims.
    assert gain([noisy]) < sum(aim.weight for aim in AIMS)


def test_cells_without_a_gain_are_not_chosen_even_with_time() -> None:
    cells = {("launch", "spin"): cell(STEADY), ("d2d", "spin"): cell(NOISY), ("event", "spin"): cell(HOPELESS)}
    assert chosen_cells(cells, costs(cells), LIMIT_S) == [("d2d", "spin")]
    assert chosen_cells(cells, costs(cells), 0.0) == []
    assert chosen_cells({}, BlockCosts(virtual=False), LIMIT_S) == []


def test_a_column_with_several_victims_comes_before_columns_with_one() -> None:
    shared = {(row, "alloc-free"): cell(NOISY) for row in ("launch", "d2d", "event")}
    alone = {("launch", column): cell(NOISY) for column in ("spin", "module-load", "stream-churn")}
    cells = {**alone, **shared}
    found = costs(cells)
    block = found.switch + 3 * found.window("launch", "alloc-free")
    # Apart, each of the others costs another start of aggressors.
    assert set(chosen_cells(cells, found, 1.01 * block)) == set(shared)
    assert set(chosen_cells(cells, found, LIMIT_S)) == set(cells)


def test_of_two_equal_gains_the_cheaper_column_comes_first() -> None:
    cells = {("launch", "free-beside-kernel"): cell(NOISY), ("launch", "module-load"): cell(NOISY)}
    found = costs(cells, **{"free-beside-kernel": 0.06})
    assert chosen_cells(cells, found, LIMIT_S) == [("launch", "module-load"), ("launch", "free-beside-kernel")]
    assert chosen_cells(cells, found, 0.06) == [("launch", "module-load")]


def test_the_costs_of_a_round_stay_below_the_limit() -> None:
    cells = {(row, column): cell(NOISY) for row in "abcdefgh" for column in ("spin", "alloc-free", "module-load")}
    found = costs(cells)
    for limit_s in (0.05, 0.1, 0.2, 0.4):
        chosen = chosen_cells(cells, found, limit_s)
        assert len(chosen) == len(set(chosen))
        spent_s = sum(found.window(*key) for key in chosen) + found.switch * len({key[1] for key in chosen})
        assert spent_s <= limit_s


def test_a_slow_victim_comes_last_and_joins_a_block_that_is_chosen() -> None:
    cells = {("launch", "spin"): cell(NOISY), ("d2d", "spin"): cell(NOISY), ("event", "alloc-free"): cell(NOISY)}
    found = costs(cells)
    found.add_block("spin", {"launch": 0.006, "d2d": 0.3}, 0.306 + found.switch)
    assert chosen_cells(cells, found, LIMIT_S)[-1] == ("d2d", "spin")
    assert ("d2d", "spin") not in chosen_cells(cells, found, 0.2)


def test_the_costs_are_those_of_the_last_block_of_a_column() -> None:
    found = BlockCosts(virtual=False)
    found.add_baselines(4, 0.02)
    found.add_block("spin", {"launch": 0.5, "d2d": 0.01}, 1.0)
    found.add_block("spin", {"launch": 0.01, "d2d": 0.02}, found.switch + 0.03 + 2 * 0.004)
    assert found.window("d2d", "spin") - found.window("launch", "spin") == pytest.approx(0.01)
    assert found.window("launch", "spin") == pytest.approx(0.014 + 1.3 * 0.005)


def test_in_virtual_time_each_cell_costs_the_same() -> None:
    cells = {(row, column): cell(NOISY) for row in "abc" for column in ("spin", "free-beside-kernel")}
    assert len(chosen_cells(cells, BlockCosts(virtual=True), 4)) == 4


def test_the_additional_repeats_of_made_up_checks_go_to_different_cells_by_seed() -> None:
    made = [matrices.uneven(seed, steps=2.2) for seed in (1, 2)]
    counts = [[len(cell.repeats) for key, cell in one.cells.items() if key[1] != QUIET] for one in made]
    assert counts[0] != counts[1]
    assert {min(one) for one in counts} == {4}
    assert all(max(one) > 4 for one in counts)
    # At most a quarter of 16 cells in each of four rounds.
    assert all(16 * 4 < sum(one) <= 16 * 4 + 16 for one in counts)
