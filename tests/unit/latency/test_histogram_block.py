"""Blocks of sparse histograms: sums and percentiles of many at once are those of each alone."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.latency import sparse
from stallprobes.latency.histogram import Histogram, rank, ranks
from stallprobes.latency.histogram_block import NO_CHANNELS, BlockChannels, HistogramBlock, merged_sparse
from stallprobes.latency.sparse import MOST, SparseChannels, SparseHistogram
from stallprobes.model import Channel, Phase

CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)
VALUES = st.lists(st.integers(0, 10**12), max_size=20)
PARTS = st.dictionaries(st.sampled_from([CALL, WAIT, Channel(Phase.CALL, "copy")]), VALUES, max_size=3)


def channels(parts: dict[Channel, list[int]], in_block: bool) -> SparseChannels:
    held = SparseChannels({channel: SparseHistogram.of(Histogram.of(values)) for channel, values in parts.items()})
    return BlockChannels.copied(held) if in_block else held


@given(st.lists(st.lists(st.tuples(PARTS, st.booleans()), max_size=3), max_size=4))
def test_sums_of_many_groups_are_those_of_each(groups: list[list[tuple[dict[Channel, list[int]], bool]]]) -> None:
    parts = [[channels(*part) for part in group] for group in groups]
    found = merged_sparse(parts)
    for group, one in zip(parts, found, strict=True):
        wanted = {channel: each.dense() for channel, each in sparse.summed(group).items()}
        assert dict(one) == wanted
        assert list(one) == list(wanted)
        assert one.count == sum(each.count for each in wanted.values())
        # A sum is in a block, of which a further sum has a part.
        once, twice = merged_sparse([[one], [one, one]])
        assert (dict(once), twice.count) == (wanted, 2 * one.count)


@given(st.lists(VALUES, max_size=5), st.sampled_from([0.0, 50.0, 99.0, 99.9, 100.0]))
def test_percentiles_are_those_of_each_histogram(values: list[list[int]], q: float) -> None:
    histograms = [SparseHistogram.of(Histogram.of(one)) for one in values]
    block = HistogramBlock.of(histograms)
    assert block.percentiles(q) == [one.percentile(q) for one in histograms]
    assert [block.histogram(number).dense() for number in range(len(values))] == [one.dense() for one in histograms]


@given(PARTS, st.booleans())
def test_a_figure_is_the_number_of_values_with_the_percentile(parts: dict[Channel, list[int]], in_block: bool) -> None:
    held = channels(parts, in_block)
    for channel in (CALL, WAIT):
        wanted = Histogram.of(parts.get(channel, ()))
        assert held.figure(channel, 50) == (wanted.count, wanted.percentile(50))
        assert sparse.figure(dict(held), channel, 50) == (wanted.count, wanted.percentile(50))


@given(st.lists(st.integers(0, MOST), max_size=8), st.sampled_from([0.0, 50.0, 99.0, 99.99, 100.0]))
def test_ranks_of_many_counts_are_those_of_each(counts: list[int], q: float) -> None:
    assert ranks(q, np.array(counts, dtype=np.int64)).tolist() == [rank(q, count) for count in counts]


def test_channels_in_a_block_are_a_mapping() -> None:
    held = channels({CALL: [5, 6], WAIT: []}, True)
    assert CALL in held
    assert Channel(Phase.DUE) not in held
    assert (len(held), held.count, held[CALL]) == (2, 2, Histogram.of([5, 6]))
    assert BlockChannels.copied(held) is held
    assert BlockChannels.copied({}) is NO_CHANNELS
    with pytest.raises(KeyError):
        held.sparse(Channel(Phase.DUE))


@given(PARTS)
def test_dense_histograms_are_copied_to_a_block_that_can_be_sent(parts: dict[Channel, list[int]]) -> None:
    dense = {channel: Histogram.of(values) for channel, values in parts.items()}
    found = pickle.loads(pickle.dumps(BlockChannels.of_dense(dense)))
    assert dict(found) == dense
    assert list(found) == list(dense)
    assert found.count == sum(one.count for one in dense.values())


def test_counts_beyond_what_a_float_holds_are_summed_exactly() -> None:
    large = SparseHistogram(np.array([[7], [MOST - 1]]), 7)
    (one,) = merged_sparse([[SparseChannels({CALL: large}), SparseChannels({CALL: large})]])
    assert one.sparse(CALL).used.tolist() == [[7], [2 * (MOST - 1)]]
