"""Histograms against brute force and numpy."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.latency import histogram
from stallprobes.latency.histogram import LOWER, MOST, UPPER, Histogram, HistogramBlock, index, ranks, waiting
from stallprobes.native.layouts.histogram import BUCKETS

LARGEST = int(UPPER[-1]) - 1
value = st.one_of(st.integers(0, 300), st.integers(0, 10**7), st.integers(0, LARGEST))
values = st.lists(value, max_size=200)
some = st.lists(value, min_size=1, max_size=200)


def brute_waiting(age_ns: int, period_ns: int) -> Histogram:
    return Histogram.of(range(age_ns, 0, -period_ns) if period_ns else [age_ns])


def test_buckets_follow_each_other_without_a_gap() -> None:
    assert len(LOWER) == BUCKETS
    assert LOWER[0] == 0
    assert np.array_equal(UPPER[:-1], LOWER[1:])


def test_no_bucket_is_wider_than_a_sixty_fourth_of_its_values() -> None:
    assert np.array_equal(UPPER[:128] - LOWER[:128], np.ones(128))
    assert ((UPPER - LOWER)[64:] * 64 <= LOWER[64:]).all()


@given(value)
def test_a_value_lies_in_its_bucket(ns: int) -> None:
    place = index(ns)
    assert LOWER[place] <= ns < UPPER[place]


def test_values_off_the_scale_go_to_the_ends() -> None:
    assert index(-5) == 0
    assert index(LARGEST + 1) == index(2**62) == BUCKETS - 1
    assert Histogram.of([-5, 2**62]).pairs() == [[0, 1], [int(LOWER[-1]), 1]]


@given(values)
def test_counting_at_once_equals_counting_one_by_one(sample: list[int]) -> None:
    counts = np.zeros(BUCKETS, dtype=np.uint64)
    for ns in sample:
        counts[index(ns)] += np.uint64(1)
    assert Histogram.of(sample) == Histogram.of_counts(counts, max(sample, default=0))


@given(some, st.integers(0, 64).map(lambda k: k * 100 / 64))
def test_percentiles_are_those_of_numpy_to_a_bucket(sample: list[int], q: float) -> None:
    hist = Histogram.of(sample)
    exact = int(np.percentile(sample, q, method="inverted_cdf"))
    got = hist.percentile(q)
    assert got is not None
    assert abs(got - exact) * 128 <= exact
    assert got <= max(sample)


@given(some, st.sampled_from([0, 1, 10, 50, 90, 99, 99.9, 99.99, 100]))
def test_percentiles_are_nearest_rank(sample: list[int], q: float) -> None:
    nearest = max(1, math.ceil(Fraction(str(q)) * len(sample) / 100))
    exact = sorted(sample)[nearest - 1]
    got = Histogram.of(sample).percentile(q)
    assert got is not None
    assert index(int(got)) == index(exact)


def test_the_999th_of_a_thousand_is_p999() -> None:
    assert ranks(99.9, np.array([1000, 1001])).tolist() == [999, 1000]
    assert ranks(0, np.array([10])).tolist() == [1]


def test_an_empty_histogram_knows_nothing() -> None:
    empty = Histogram.empty()
    assert (empty.count, empty.max_ns, empty.pairs()) == (0, 0, [])
    assert empty.percentile(50) is None
    assert empty.share_above(0) == 0


@pytest.mark.parametrize("q", [-1, 100.1, math.nan])
def test_a_percentile_outside_0_to_100_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        Histogram.of([1]).percentile(q)


def test_a_high_percentile_waits_for_enough_values() -> None:
    assert Histogram.of(range(999)).percentile_or_none(99.9, 1000) is None
    assert Histogram.of(range(1000)).percentile_or_none(99.9, 1000) is not None


@given(values, values)
def test_merging_is_counting_both(one: list[int], other: list[int]) -> None:
    assert Histogram.of(one).merge(Histogram.of(other)) == Histogram.of(one + other)


@given(values, values)
def test_a_difference_counts_what_came_later(before: list[int], after: list[int]) -> None:
    window = Histogram.of(before + after).minus(Histogram.of(before))
    assert np.array_equal(window.counts, Histogram.of(after).counts)
    exact = max(after, default=0)
    assert index(window.max_ns) == index(exact)
    if exact >= max(before, default=0):
        assert window.max_ns == exact
    assert window.max_ns >= exact


def test_a_difference_with_a_later_histogram_is_refused() -> None:
    with pytest.raises(ValueError, match="has more values"):
        Histogram.of([5]).minus(Histogram.of([5, 6]))


@given(values)
def test_the_pairs_hold_everything(sample: list[int]) -> None:
    hist = Histogram.of(sample)
    assert Histogram.read(hist.pairs(), hist.max_ns) == hist


@pytest.mark.parametrize("pairs", [[[129, 1]], [[5, -1]], [[-1, 1]], [[5, 0]], [[6, 1], [5, 1]], [[201, 1]]])
def test_pairs_of_other_buckets_are_refused(pairs: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="has"):
        Histogram.read(pairs, 200)


@given(some, value)
def test_the_share_above_counts_higher_buckets(sample: list[int], ns: int) -> None:
    above = sum(index(v) > index(ns) for v in sample)
    assert Histogram.of(sample).share_above(ns) == pytest.approx(above / len(sample))


@given(st.integers(-5, 10**5), st.integers(0, 10**4).filter(lambda p: p != 0))
def test_waiting_equals_adding_each_start_that_was_due(age_ns: int, period_ns: int) -> None:
    assert np.array_equal(waiting(age_ns, period_ns), brute_waiting(age_ns, period_ns).counts)


@given(values, st.integers(1, 10**6), st.integers(1000, 10**6))
def test_a_call_in_flight_adds_its_age_and_the_starts_due_meanwhile(sample: list[int], age: int, period: int) -> None:
    hist = Histogram.of(sample)
    assert hist.add_waiting(age, period) == hist.merge(brute_waiting(age, period))


def test_a_long_wait_costs_no_more_than_the_buckets() -> None:
    day = 86_400_000_000_000
    assert int(waiting(day, 1000).sum()) == day // 1000


def test_back_to_back_only_the_age_itself_has_waited() -> None:
    assert Histogram.empty().add_waiting(5000, 0) == Histogram.of([5000])
    assert Histogram.empty().add_waiting(0, 1000) == Histogram.empty()


def test_histograms_do_not_change() -> None:
    counts = np.zeros(BUCKETS, dtype=np.uint64)
    hist = Histogram.of_counts(counts, 0)
    counts[3] = 7
    hist.counts[0] = np.uint64(1)
    assert hist.count == 0
    assert hash(hist) == hash(Histogram.empty())
    assert hist != 5


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="counts of uint64"):
        Histogram.of_counts(np.zeros(5, dtype=np.uint64), 0)


@given(st.lists(values, max_size=5), st.sampled_from([0.0, 50.0, 99.0, 99.9, 100.0]))
def test_the_rows_of_a_block_are_its_histograms(samples: list[list[int]], q: float) -> None:
    histograms = [Histogram.of(sample) for sample in samples]
    block = HistogramBlock.of(histograms)
    assert block.histograms() == histograms
    assert block.percentiles(q) == [one.percentile(q) for one in histograms]
    assert HistogramBlock.of(block.histograms()) is block or not histograms
    received = pickle.loads(pickle.dumps(block.histograms()))
    assert (received, [one.count for one in received]) == (histograms, [len(sample) for sample in samples])


@given(st.lists(st.integers(0, MOST), max_size=8), st.sampled_from([0.0, 50.0, 99.0, 99.99, 100.0]))
def test_ranks_are_exact_for_any_count(counts: list[int], q: float) -> None:
    exact = [max(1, math.ceil(Fraction(str(q)) * count / 100)) for count in counts]
    assert ranks(q, np.array(counts, dtype=np.int64)).tolist() == exact


def test_reading_figures_loads_no_native_library() -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; import {histogram.__name__}, stallprobes.engine.board"
    subprocess.run(
        [sys.executable, "-c", f"{code}; assert 'stallprobes.native.library' not in sys.modules"], check=True
    )


@pytest.mark.parametrize("values", [[], [0, 0], [5, 5, 300, 2**40], [2**61]])
def test_its_json_is_the_maximum_and_the_buckets(values: list[int]) -> None:
    hist = Histogram.of(values)
    assert Histogram.of_json(hist.to_json()) == hist


@pytest.mark.parametrize("values", [[], [0, 0], [5, 5, 300, 2**40], [2**61]])
def test_the_pairs_of_documents_are_read_too(values: list[int]) -> None:
    hist = Histogram.of(values)
    assert Histogram.of_json(hist.pairs()).pairs() == hist.pairs()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "is not a list"),
        ([[5, 1, 2]], "is not a list of pairs"),
        ([["5", 1]], "is not a list of pairs"),
        ([[5, 1], [4, 1]], "do not ascend from 0"),
        ([5, 5], "is not a list"),
        ([5, 5, 1.0], "is not a list"),
        ([5, True, 1], "is not a list"),
        ([9, -1, 1], "do not ascend from 0"),
        ([9, BUCKETS, 1], "do not ascend from 0"),
        ([9, 5, 1, 5, 1], "do not ascend from 0"),
        ([9, 5, 0], "a count below 1"),
        ([9, 5, 2**53, 6, 1], "counts above 2**53"),
        ([4, 5, 1], "a maximum below its highest bucket"),
        ([2**62 + 1, 5, 1], "or above 2**62"),
        ([-1], "a maximum below"),
    ],
)
def test_json_of_no_histogram_is_refused(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Histogram.of_json(value)
