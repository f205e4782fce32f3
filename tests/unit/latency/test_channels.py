"""Sums and differences of histograms by channel, against those of each histogram alone."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.latency.histogram import MOST, Histogram
from stallprobes.latency.window import difference, merged, merged_groups
from stallprobes.model import Channel, Phase

CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)
VALUES = st.lists(st.integers(0, 10**12), max_size=20).map(Histogram.of)
PARTS = st.dictionaries(st.sampled_from([CALL, WAIT, Channel(Phase.CALL, "copy")]), VALUES, max_size=3)


@given(st.lists(st.lists(PARTS, max_size=3), max_size=4))
def test_sums_of_many_groups_are_those_of_each_histogram(groups: list[list[dict[Channel, Histogram]]]) -> None:
    for group, sums in zip(groups, merged_groups(groups), strict=True):
        channels = list(dict.fromkeys(channel for part in group for channel in part))
        held = {channel: [part[channel] for part in group if channel in part] for channel in channels}
        assert sums == {channel: reduce(Histogram.merge, held[channel]) for channel in channels}
        assert list(sums) == channels
        assert merged([sums, sums]) == {channel: one.merge(one) for channel, one in sums.items()}


def test_counts_beyond_what_a_float_holds_are_summed_exactly() -> None:
    large, odd = Histogram.read([[7, MOST]], 7), Histogram.of([7])
    (total,) = merged([{CALL: large}, {CALL: odd}]).values()
    assert (total.count, total.pairs()) == (MOST + 1, [[7, MOST + 1]])


EARLIER = {CALL: Histogram.of([5, 1000, 70_000]), WAIT: Histogram.of([300])}
LATER = {CALL: Histogram.of([5, 1000, 70_000, 900, 901]), WAIT: Histogram.of([300, 4_000_000])}


def test_the_difference_is_that_of_each_histogram() -> None:
    assert difference(LATER, EARLIER) == {channel: LATER[channel].minus(EARLIER[channel]) for channel in LATER}
    assert difference(LATER, {CALL: EARLIER[CALL]})[WAIT] == LATER[WAIT]
    # A difference is in one block.
    assert difference(difference(LATER, EARLIER), difference(EARLIER, EARLIER)) == difference(LATER, EARLIER)


def test_an_earlier_state_with_more_values_or_channels_is_refused() -> None:
    with pytest.raises(ValueError, match="more values"):
        difference(EARLIER, LATER)
    with pytest.raises(ValueError, match="another channel"):
        difference({CALL: LATER[CALL]}, EARLIER)
