"""Coarse bins over time: no count is lost or doubled, columns stay where they are, memory stays what it is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.latency.histogram import Histogram
from stallprobes.live.history import BINS, SLOT_NS, Bins, History, binned, binned_sums, position


def _steps(histogram: Histogram) -> Bins:
    return binned_sums([histogram], [1], [0], 1).reshape(BINS)


@given(st.lists(st.integers(0, 10**12), max_size=50), st.integers(8, 300))
def test_every_value_is_in_exactly_one_column(values: list[int], columns: int) -> None:
    assert int(binned([Histogram.of(values)], columns).sum()) == len(values)


@pytest.mark.parametrize("columns", [40, 64, 200])
@pytest.mark.parametrize("ns", [100, 2_000, 55_000, 1_800_000, 128_000_000, 9_000_000_000])
def test_a_value_is_drawn_where_its_position_says(ns: int, columns: int) -> None:
    (drawn,) = np.flatnonzero(binned([Histogram.of([ns])], columns))
    assert abs(int(drawn) - position(ns, columns)) <= 1


def test_values_beyond_the_axis_are_kept_at_its_ends() -> None:
    assert position(1, 50) == 0
    assert position(1e12, 50) == 49
    assert binned([Histogram.of([1, 10**12])], 50)[0, [0, 49]].tolist() == [1, 1]


@given(st.lists(st.lists(st.integers(0, 10**12), max_size=20), max_size=5))
def test_sums_are_those_of_each_histogram_with_its_sign(samples: list[list[int]]) -> None:
    both = [one for sample in samples for one in (Histogram.of(sample + sample), Histogram.of(sample))]
    sums = binned_sums(
        both, [1, -1] * len(samples), [row for row in range(len(samples)) for _ in range(2)], len(samples)
    )
    assert sums.tolist() == binned([Histogram.of(sample) for sample in samples], BINS).tolist()


def test_columns_do_not_move_within_as_time_goes_on() -> None:
    history = History(1, 100)
    for slot in range(40):
        history.move_to(slot * SLOT_NS)
        history.add(0, _steps(Histogram.of([1000] * (slot == 13))), None)
        if slot >= 13:
            counts, _, _, first = history.columns(0, 8, 5)
            (at,) = np.flatnonzero(counts.sum(axis=1))
            assert first + int(at) == 13 // 5


def test_time_that_was_passed_over_is_empty_and_old_time_is_forgotten() -> None:
    history = History(1, 30)
    history.move_to(0)
    history.add(0, _steps(Histogram.of([1000])), 5_000_000_000)
    history.move_to(20 * SLOT_NS)
    counts, ages, _, _ = history.columns(0, 25, 1)
    assert counts.sum() == 1
    assert (ages > 0).sum() == 1
    history.move_to(1000 * SLOT_NS)
    counts, ages, looked, _ = history.columns(0, 15, 1)
    assert counts.sum() == 0
    assert not ages.any()
    assert not looked.any()


def looks(history: History, times_ns: list[int], per_second: int) -> None:
    """Looks at these times at a probe that makes calls of 1 us at this rate."""
    for since, at in pairwise(times_ns):
        history.move_to(at, since)
        history.add(0, _steps(Histogram.of([1000] * ((at - since) * per_second // 10**9))), None)


def test_a_look_that_comes_late_leaves_no_hole_and_makes_nothing_paler() -> None:
    history = History(1, 40)
    at = [0, 105_000_000, 199_999_999, 301_000_000, 760_000_000, 801_000_000, 999_000_000]
    looks(history, at, 1000)
    counts, _, looked, _ = history.columns(0, 9, 1)
    assert counts.sum() == sum((after - before) * 1000 // 10**9 for before, after in pairwise(at))
    rates = counts.sum(axis=1) / looked
    assert (rates > 950).all()
    assert (rates < 1050).all()


@given(st.lists(st.integers(1, 900_000_000), min_size=1, max_size=30), st.integers(0, 5))
def test_however_late_looks_come_no_call_is_lost_or_doubled(steps: list[int], each: int) -> None:
    history = History(1, 400)
    now = 0
    history.move_to(now)
    for step in steps:
        history.move_to(now + step, now)
        now += step
        history.add(0, _steps(Histogram.of([1000] * each)), None)
    counts, _, looked, _ = history.columns(0, 400, 1)
    assert counts.sum() == each * len(steps)
    assert looked.sum() == pytest.approx(now / 1e9, abs=1e-6)


def test_after_a_long_gap_the_calls_are_where_they_were_looked_at_and_as_rare_as_they_were() -> None:
    history = History(1, 40)
    looks(history, [0, SLOT_NS, 31 * SLOT_NS], 100)
    counts, _, looked, _ = history.columns(0, 31, 1)
    assert counts.sum(axis=1).nonzero()[0].tolist() == [0, 30]
    assert counts[30].sum() / looked[30] == pytest.approx(100, rel=0.02)


def test_a_call_in_flight_was_so_too_in_a_slot_that_was_passed_over() -> None:
    history = History(1, 20)
    for at in (0, 1, 3, 4):
        history.move_to(at * SLOT_NS, max(at - 1, 0) * SLOT_NS)
        history.add(0, _steps(Histogram.empty()), 150_000_000)
    _, ages, _, _ = history.columns(0, 5, 1)
    assert (ages > 0).all()
    assert 130_000_000 < ages[2] < 170_000_000


def test_a_strip_shows_the_tail_and_the_call_in_flight() -> None:
    history = History(1, 20)
    history.move_to(0)
    history.add(0, _steps(Histogram.of([1_000] * 90 + [1_000_000] * 10)), None)
    history.move_to(SLOT_NS)
    history.add(0, _steps(Histogram.of([1_000])), 2_000_000_000)
    strip = history.strip(0, 3, 1)
    assert strip[0] == -1
    assert abs(strip[1] - position(1_000_000, BINS)) <= 1
    assert abs(strip[2] - position(2e9, BINS)) <= 1
