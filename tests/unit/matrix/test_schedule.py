"""The schedule of a check: its blocks, and a pace that meets the time budget on a clock of the test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallprobes.matrix.check import schedule
from stallprobes.matrix.check.plan import Plan, plan
from stallprobes.matrix.check.schedule import Block, TimeBudget

WHOLE, QUICK, SMALL = plan(), plan(quick=True), plan(["launch"], ["spin"])


class Clock:
    """A clock that only the test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr("stallprobes.matrix.check.schedule.time.monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def measured(clock: Clock, chosen: Plan, start_s: float = 1.5) -> tuple[float, list[int], set[float]]:
    """Time of the regular repeats, the cells of each round of additional ones, and the lengths of their windows."""
    repeats = schedule.QUICK_REPEATS if chosen.quick else schedule.REPEATS
    left = schedule.blocks(chosen, repeats, 1)
    pace = TimeBudget(chosen, virtual=False)
    windows = schedule.window_count(left)
    pace.begin_part(windows, windows)
    clock.now_s += start_s

    def take(block: Block, baselines: int) -> float:
        lengths = pace.lengths([block, *left])
        took_s = 0.05 + len(block.victims) * (0.004 + lengths.window_s + baselines * (0.002 + lengths.baseline_s))
        clock.now_s += took_s
        pace.add_block(block, lengths, took_s)
        return lengths.window_s

    while left:
        take(left.pop(0), 1)
    regular_s = pace.spent_s
    pace.begin_additional()
    rounds, window_lengths = [], set()
    for number in range(schedule.ROUNDS):
        cells = [(v.row.name, one.column.name) for v in chosen.victims for one in chosen.aggressor_sets]
        # Every fifth cell, so that each block has about three victims.
        some = schedule.additional_blocks(chosen, cells[:1], repeats + 1 + number, 1)
        each_s = 0.05 / 3 + 0.008 + 2 * pace.lengths(some).window_s
        size = int(pace.additional(len(cells) * repeats, number) / each_s)
        left = schedule.additional_blocks(chosen, [*cells[::5], *cells[1::5]][:size], repeats + 1 + number, 1)
        rounds.append(0)
        while left and not pace.additional_time_spent:
            block = left.pop(0)
            window_lengths.add(take(block, 2))
            rounds[-1] += len(block.victims)
    return regular_s, rounds, window_lengths


@pytest.mark.parametrize(
    ("chosen", "budget_s", "share"),
    [
        (WHOLE, schedule.budget_s(WHOLE), schedule.ADDITIONAL_SHARE),
        (QUICK, schedule.QUICK_BUDGET_S, schedule.QUICK_ADDITIONAL_SHARE),
    ],
)
def test_regular_and_additional_repeats_together_take_the_budget(
    clock: Clock, chosen: Plan, budget_s: float, share: float
) -> None:
    began_s = clock.now_s
    regular_s, rounds, window_lengths = measured(clock, chosen)
    assert regular_s == pytest.approx((1 - share) * budget_s, rel=0.05)
    assert clock.now_s - began_s == pytest.approx(budget_s, rel=0.03)
    assert sum(rounds) >= 5
    # As long as the regular windows on average.
    assert len(window_lengths) == 1


def test_every_round_of_a_whole_check_has_time_for_some_cells(clock: Clock) -> None:
    _, rounds, _ = measured(clock, WHOLE)
    assert len(rounds) == schedule.ROUNDS
    assert min(rounds) >= 3


def test_the_warm_up_has_every_victim_and_every_aggressor() -> None:
    warm_up = [block for block in schedule.blocks(WHOLE, 1, 1) if block.repeat == 0]
    assert {block.aggressor_set.column.name for block in warm_up} == {one.column.name for one in WHOLE.aggressor_sets}
    assert {victim.row.name for block in warm_up for victim in block.victims} == {v.row.name for v in WHOLE.victims}
    assert schedule.window_count(warm_up) <= len(WHOLE.victims) * len(WHOLE.aggressor_sets) / 3


def test_the_last_repeats_may_end_when_the_time_is_spent(clock: Clock) -> None:
    pace = TimeBudget(WHOLE, virtual=False)
    blocks = {block.repeat: block for block in schedule.blocks(WHOLE, schedule.REPEATS, 1)}
    late = replace(blocks[schedule.REPEATS], repeat=schedule.REPEATS + 1, additional=True)
    clock.now_s += schedule.budget_s(WHOLE)
    assert [repeat for repeat in blocks if pace.is_late(blocks[repeat])] == [5, 6]
    assert not pace.is_late(late)
    assert not any(TimeBudget(WHOLE, virtual=True).may_end(block) for block in blocks.values())


def test_only_a_real_aggressor_is_slow() -> None:
    assert TimeBudget(WHOLE, virtual=False).is_slow(0.05)
    assert not TimeBudget(WHOLE, virtual=False).is_slow(0.005)
    assert not TimeBudget(WHOLE, virtual=True).is_slow(0.05)


def test_a_check_of_one_cell_does_not_fill_the_budget(clock: Clock) -> None:
    began_s = clock.now_s
    regular_s, _, _ = measured(clock, SMALL)
    assert clock.now_s - began_s <= 1.3 * regular_s + 0.5 < schedule.budget_s(WHOLE) / 4


def test_without_time_left_there_are_no_additional_repeats(clock: Clock) -> None:
    regular_s, rounds, _ = measured(clock, QUICK, start_s=20.0)
    assert regular_s > schedule.QUICK_BUDGET_S
    assert rounds == [0] * schedule.ROUNDS


def test_each_part_of_a_check_gets_its_share_of_the_time(clock: Clock) -> None:
    pace = TimeBudget(WHOLE, virtual=False)
    pace.begin_part(100, 400)
    left = schedule.blocks(WHOLE, schedule.REPEATS, 1)[-20:]
    first = pace.lengths(left).window_s
    pace.begin_part(300, 300)
    assert first < pace.lengths(left).window_s
    clock.now_s += 0.3 * schedule.budget_s(WHOLE)
    assert not pace.additional_time_spent
    clock.now_s += 0.8 * schedule.budget_s(WHOLE)
    assert pace.additional_time_spent


def test_in_virtual_time_the_number_of_additional_repeats_is_fixed(clock: Clock) -> None:
    pace = TimeBudget(WHOLE, virtual=True)
    cells = len(WHOLE.victims) * len(WHOLE.aggressor_sets)
    sizes = [pace.additional(cells * schedule.REPEATS, number) for number in range(schedule.ROUNDS)]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == [pace.expected_additional(cells * schedule.REPEATS, number) for number in range(schedule.ROUNDS)]
    assert TimeBudget(WHOLE, virtual=False).additional(cells, 0) == 0
    # A share of 0.2 for repeats that cost six times the time of a regular one.
    assert sum(sizes) == round(cells * schedule.REPEATS * 0.2 / 0.8 / 6)
    clock.now_s += 1000
    assert not pace.additional_time_spent


def test_the_blocks_of_additional_repeats_share_an_aggressor_set_and_their_order_follows_from_the_seed() -> None:
    cells = [("launch", "spin"), ("d2d", "spin"), ("d2d", "alloc-async"), ("launch", "alloc-free")]
    found = schedule.additional_blocks(WHOLE, cells, 5, 1)
    assert sorted((b.aggressor_set.column.name, tuple(v.row.name for v in b.victims)) for b in found) == [
        ("alloc-async", ("d2d",)),
        ("alloc-free", ("launch",)),
        ("spin", ("launch", "d2d")),
    ]
    assert {(block.repeat, block.additional) for block in found} == {(5, True)}
    assert found == schedule.additional_blocks(WHOLE, cells, 5, 1)
    assert any(found != schedule.additional_blocks(WHOLE, cells, 5, seed) for seed in range(2, 9))
    assert schedule.window_count(found) == len(cells)
    assert schedule.additional_blocks(WHOLE, [], 5, 1) == []


def test_the_victims_of_blocks_are_each_named_once() -> None:
    found = schedule.additional_blocks(WHOLE, [("launch", "spin"), ("d2d", "spin"), ("d2d", "alloc-async")], 5, 1)
    assert sorted(victim.row.name for victim in schedule.victims_of(found)) == ["d2d", "launch"]
    assert schedule.victims_of([]) == ()
