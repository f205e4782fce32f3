"""Shorter ways to the same arrays: each beside NumPy's own, or the way that it replaces."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.watch_file import WatchRecord
from stallprobes.records.rows import joined, rows_at, rows_where
from stallprobes.watch.division.instants import Spans
from stallprobes.watch.intervals import (
    GroupMembers,
    count_until,
    distinct,
    distinct_pairs,
    grouped_order,
    int64s,
    numbered,
)

NUMBERS = st.lists(st.integers(0, 30), max_size=40)
PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=40)
SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=40)


@given(NUMBERS, NUMBERS)
def test_values_are_counted_as_by_a_search_for_each_time(values: list[int], times: list[int]) -> None:
    ascending, asked = int64s(sorted(values)), int64s(sorted(times))
    assert count_until(ascending, asked).tolist() == np.searchsorted(ascending, asked, "right").tolist()


@given(NUMBERS, NUMBERS)
def test_times_that_ascend_have_the_same_spans(borders: list[int], times: list[int]) -> None:
    borders = sorted(set(borders))[: len(set(borders)) // 2 * 2]
    spans, asked = Spans(int64s(borders[::2]), int64s(borders[1::2])), int64s(sorted(times))
    assert spans.place_ascending(asked).tolist() == spans.place(asked).tolist()
    assert spans.contain_ascending(asked).tolist() == spans.contain(asked).tolist()


@given(PAIRS)
def test_different_values_and_pairs_are_those_of_unique(pairs: list[tuple[int, int]]) -> None:
    table = int64s(pairs).reshape(-1, 2)
    first, second = distinct_pairs(table[:, 0], table[:, 1])
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == sorted(set(pairs))
    known, places = numbered(table[:, 1])
    assert distinct(table[:, 1]).tolist() == known.tolist() == sorted({second for _, second in pairs})
    assert known[places].tolist() == table[:, 1].tolist()


@given(PAIRS, st.booleans())
def test_groups_are_ordered_as_by_a_sort_of_both(pairs: list[tuple[int, int]], ascending: bool) -> None:
    groups, values = int64s(sorted(pairs, key=lambda pair: pair[1]) if ascending else pairs).reshape(-1, 2).T
    assert grouped_order(groups, values).tolist() == np.lexsort((values, groups)).tolist()


@given(SPANS, SPANS)
def test_the_members_of_many_spans_are_those_of_each(
    members: list[tuple[int, int, int]], asked: list[tuple[int, int, int]]
) -> None:
    groups, starts, lengths = int64s(members).T
    table = GroupMembers(groups, starts, starts + lengths)
    spans = [(group, begin, begin + length) for group, begin, length in asked if group <= groups.max()]
    owners, rows = table.during_each(*int64s(spans).reshape(-1, 3).T)
    found = [rows[owners == number].tolist() for number in range(len(spans))]
    assert found == [table.during(group, begin, end).tolist() for group, begin, end in spans]


@given(st.lists(st.booleans(), max_size=20), st.integers(0, 20))
def test_rows_are_chosen_and_joined_as_by_numpy(flags: list[bool], cut: int) -> None:
    rows = np.zeros(len(flags), dtype_of(WatchRecord))
    rows["start"], rows["kind"] = np.arange(len(rows)), 3
    chosen, places = np.array(flags, dtype=np.bool_), np.flatnonzero(flags)[::-1]
    assert rows_where(rows, chosen).tolist() == rows[chosen].tolist()
    assert rows_at(rows, places).tolist() == rows[places].tolist()
    whole = joined(rows.dtype, (rows[:cut], rows[cut:]))
    assert (whole.dtype, whole.tolist()) == (rows.dtype, rows.tolist())
    assert not len(joined(rows.dtype, ()))
