"""The histogram writer of the simulated thread uses the bucket formula of all histograms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories.host_probes import host_probe
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.sim.histogram_writer import HistogramWriter
from stallprobes.latency.histogram import LOWER, Histogram, index, indices


def count_each(writer: HistogramWriter, values: list[int]) -> None:
    for value in values:
        writer.count(0, value)
        writer.count(1, value)


WAYS: dict[str, Callable[[HistogramWriter, list[int]], None]] = {
    "each": count_each,
    "list": lambda writer, values: writer.count_list((0, 1), values),
}


@pytest.mark.parametrize("way", WAYS)
@given(st.lists(st.integers(-5, 2**45), min_size=1, max_size=80))
def test_single_and_bulk_counts_are_those_of_a_histogram(way: str, values: list[int]) -> None:
    board = Board.create(BoardLayout.of([host_probe("p")]))
    try:
        WAYS[way](HistogramWriter(board["p"]), values)
        wanted = Histogram.of(values).counts.tolist()
        assert board["p"].hist.tolist() == [wanted, wanted]
        assert (
            board["p"].stats[["count", "sum_ns", "max_ns"]].tolist()
            == [(len(values), sum(values), max(*values, 0))] * 2
        )
    finally:
        board.close()


def test_the_bucket_formula_is_the_same_for_arrays_at_every_border() -> None:
    borders = np.concatenate((LOWER, LOWER - 1, [2**50]))
    assert indices(borders).tolist() == [index(int(value)) for value in borders]


@given(st.integers(-5, 2**42), st.integers(1, 2**34))
def test_the_periods_that_passed_are_counted_as_one_by_one(value: int, period: int) -> None:
    period = max(period, value // 5000)
    board = Board.create(BoardLayout.of([host_probe("p")]))
    try:
        writer = HistogramWriter(board["p"])
        writer.passed(0, value, period)
        for rest in range(value - period, 0, -period):
            writer.count(1, rest)
        assert board["p"].hist[0].tolist() == board["p"].hist[1].tolist()
        stats = board["p"].stats[["count", "sum_ns"]].tolist()
        assert stats[0] == stats[1]
    finally:
        del writer
        board.close()
