"""Coarse bins over time: no count is lost or doubled, columns stay where they are, memory stays what it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.histogram import Histogram
from stallprobes.history import BINS, SLOT_NS, History, binned, position


@given(st.lists(st.integers(0, 10**12), max_size=50), st.integers(8, 300))
def test_every_value_is_in_exactly_one_column(values: list[int], columns: int) -> None:
    assert int(binned(Histogram.of(values).counts, columns).sum()) == len(values)


@pytest.mark.parametrize("columns", [40, 64, 200])
@pytest.mark.parametrize("ns", [100, 2_000, 55_000, 1_800_000, 128_000_000, 9_000_000_000])
def test_a_value_is_drawn_where_its_position_says(ns: int, columns: int) -> None:
    (drawn,) = np.flatnonzero(binned(Histogram.of([ns]).counts, columns))
    assert abs(int(drawn) - position(ns, columns)) <= 1


def test_values_beyond_the_axis_are_kept_at_its_ends() -> None:
    assert position(1, 50) == 0
    assert position(1e12, 50) == 49
    assert binned(Histogram.of([1, 10**12]).counts, 50)[[0, 49]].tolist() == [1, 1]


def test_columns_do_not_move_within_as_time_goes_on() -> None:
    history = History(1, 100)
    for slot in range(40):
        history.move_to(slot * SLOT_NS)
        history.add(0, Histogram.of([1000] * (slot == 13)).counts, None)
        if slot >= 13:
            counts, _, first = history.columns(0, 8, 5)
            (at,) = np.flatnonzero(counts.sum(axis=1))
            assert first + int(at) == 13 // 5


def test_time_that_was_passed_over_is_empty_and_old_time_is_forgotten() -> None:
    history = History(1, 20)
    history.move_to(0)
    history.add(0, Histogram.of([1000]).counts, 5_000_000_000)
    history.move_to(10 * SLOT_NS)
    counts, ages, _ = history.columns(0, 15, 1)
    assert counts.sum() == 1
    assert (ages > 0).sum() == 1
    history.move_to(1000 * SLOT_NS)
    counts, ages, _ = history.columns(0, 15, 1)
    assert counts.sum() == 0
    assert not ages.any()


def test_a_look_that_comes_late_leaves_no_hole() -> None:
    history = History(1, 20)
    for at in (0, 1, 3, 4):
        history.move_to(at * SLOT_NS)
        history.add(0, Histogram.of([1000] * 11).counts, 150_000_000)
    counts, ages, _ = history.columns(0, 5, 1)
    assert counts.sum(axis=1).tolist() == [11, 11, 5, 6, 11]
    assert (ages > 0).all()
    assert 40_000_000 < ages[2] < 60_000_000


def test_a_strip_shows_the_tail_and_the_call_in_flight() -> None:
    history = History(1, 20)
    history.move_to(0)
    history.add(0, Histogram.of([1_000] * 90 + [1_000_000] * 10).counts, None)
    history.move_to(SLOT_NS)
    history.add(0, Histogram.of([1_000]).counts, 2_000_000_000)
    strip = history.strip(0, 3, 1)
    assert strip[0] == -1
    assert abs(strip[1] - position(1_000_000, BINS)) <= 1
    assert abs(strip[2] - position(2e9, BINS)) <= 1
