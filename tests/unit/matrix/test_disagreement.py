"""Disagreement of repeats: the standard deviation of the mean log p50, and the cells that disagree most."""

from __future__ import annotations

import math

import pytest

from factories import matrices
from factories.matrices import CALL, DUE, WAIT
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import Window
from stallprobes.matrix.disagreement import disagreement, most_disagreeing
from stallprobes.matrix.matrix import Repeat
from stallprobes.model import Channel


def repeat(**ns: int) -> Repeat:
    """A repeat of 100 calls, each of the named phases always as long; its p99 is a hundred times that."""
    channels = {"call": CALL, "wait": WAIT, "due": DUE}
    found = {channels[name]: Histogram.of([value] * 98 + [100 * value] * 2) for name, value in ns.items()}
    return Repeat(Window(found, 100, 5_000_000))


def test_it_is_the_standard_deviation_of_the_mean_of_the_log_medians() -> None:
    repeats = [repeat(call=1_000), repeat(call=1_000), repeat(call=4_000), repeat(call=4_000)]
    expected = math.log(4) / 2 * math.sqrt(4 / 3) / 2
    assert disagreement(repeats) == pytest.approx(expected, rel=0.02)


def test_the_phase_that_disagrees_most_counts_and_the_latency_from_the_due_time_does_not() -> None:
    calm = [repeat(call=1_000, wait=5_000, due=1_000), repeat(call=1_000, wait=5_000, due=90_000)]
    assert disagreement(calm) == 0
    wait = [repeat(call=1_000, wait=5_000), repeat(call=1_100, wait=20_000)]
    assert disagreement(wait) == pytest.approx(disagreement([repeat(wait=5_000), repeat(wait=20_000)]))


def test_fewer_than_two_repeats_with_calls_do_not_disagree() -> None:
    nothing = Repeat(Window({Channel(CALL.phase): Histogram.empty()}, 0, 5_000_000))
    assert disagreement([]) == disagreement([repeat(call=1_000)]) == 0
    assert disagreement([repeat(call=1_000), nothing]) == 0


def test_more_repeats_that_agree_lower_it() -> None:
    some = [repeat(call=1_000), repeat(call=2_000)]
    assert disagreement([*some, *some]) < disagreement(some)


def test_the_worst_cells_come_first_and_equal_ones_in_their_order() -> None:
    repeats = {
        "calm": [repeat(call=1_000)] * 2,
        "rough": [repeat(call=1_000), repeat(call=1_500)],
        "wild": [repeat(call=1_000), repeat(call=9_000)],
        "rough too": [repeat(call=1_000), repeat(call=1_500)],
    }
    assert most_disagreeing(repeats, 9) == ["wild", "rough", "rough too"]
    assert most_disagreeing(repeats, 2) == ["wild", "rough"]
    assert most_disagreeing(repeats, 0) == []


def test_the_additional_repeats_of_made_up_checks_go_to_different_cells_by_seed() -> None:
    counts = [[len(cell.repeats) for cell in matrices.uneven(seed, steps=2.2).cells.values()] for seed in (1, 2)]
    assert counts[0] != counts[1]
    assert {min(one) for one in counts} == {4}
    # A quarter of 16 cells in each of four rounds.
    assert [sum(one) for one in counts] == [20 * 4 + 16] * 2
