"""Dense histograms of several channels in one array, against the histograms one by one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from stallprobes.latency.dense import DenseChannels
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.histogram_block import HistogramBlock
from stallprobes.latency.sparse import SparseHistogram
from stallprobes.model import Channel, Phase

CHANNELS = (Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE))


def dense(*values: list[int]) -> DenseChannels:
    """One histogram of each list of values."""
    made = [Histogram.of(each) for each in values]
    counts = np.stack([one.counts for one in made])
    counts.flags.writeable = False
    return DenseChannels(CHANNELS[: len(made)], counts, [one.max_ns for one in made])


EARLIER = dense([5, 1000, 70_000], [], [300])
LATER = dense([5, 1000, 70_000, 900, 901], [12, 4_000_000], [300])


def test_the_difference_is_that_of_each_histogram() -> None:
    found = LATER.minus(EARLIER)
    assert dict(found) == {channel: LATER[channel].minus(EARLIER[channel]) for channel in CHANNELS}
    # The exact maximum is known only in the top bucket of the difference.
    assert found.maxima == [LATER[CHANNELS[0]].minus(EARLIER[CHANNELS[0]]).max_ns, 4_000_000, 0]


def test_an_earlier_state_with_more_values_is_refused() -> None:
    with pytest.raises(ValueError, match="more values"):
        EARLIER.minus(LATER)


def test_a_block_has_the_buckets_in_use() -> None:
    block = HistogramBlock.of_dense(LATER)
    for number, channel in enumerate(CHANNELS):
        one, wanted = block.histogram(number), SparseHistogram.of(LATER[channel])
        assert (one.pairs(), one.max_ns, one.count) == (wanted.pairs(), wanted.max_ns, wanted.count)


def test_it_is_a_mapping_that_can_be_pickled() -> None:
    found = pickle.loads(pickle.dumps(LATER))
    assert dict(found) == dict(LATER)
    assert not found.counts.flags.writeable
    assert CHANNELS[1] in found
    assert Channel(Phase.GPU) not in found
    with pytest.raises(KeyError):
        found[Channel(Phase.GPU)]
