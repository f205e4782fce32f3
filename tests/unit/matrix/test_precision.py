"""Precision of cells: the spread of their phases between repeats, and the ratio that it allows to detect."""

from __future__ import annotations

import math
import random

import pytest

from factories import matrices
from factories.matrices import CALL, DUE, WAIT
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import Window
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.precision import PhaseSpread, spreads
from stallprobes.matrix.comparing.quantile_comparison import DIFFERENCE_NS, P50, RATIO
from stallprobes.matrix.matrix import QUIET, Repeat
from stallprobes.model import Channel


def repeat(**ns: int) -> Repeat:
    """A repeat of 100 calls, each of the named phases always as long; its p99 is a hundred times that."""
    channels = {"call": CALL, "wait": WAIT, "due": DUE}
    found = {channels[name]: Histogram.of([value] * 98 + [100 * value] * 2) for name, value in ns.items()}
    return Repeat(Window(found, 100, 5_000_000))


def only(*repeats: Repeat) -> list[PhaseSpread]:
    """The spreads of the phases of a single cell, which no other moderates."""
    return spreads({"cell": repeats})["cell"]


def test_the_variance_is_that_of_the_log_medians() -> None:
    [found] = only(repeat(call=1_000), repeat(call=1_000), repeat(call=4_000), repeat(call=4_000))
    assert found.repeats == 4
    assert math.sqrt(found.variance) == pytest.approx(math.log(4) / 2 * math.sqrt(4 / 3), rel=0.02)
    assert found.p50_ns == pytest.approx(2_000, rel=0.02)
    assert found.prior == 0


def test_the_phases_are_those_that_a_comparison_tests() -> None:
    found = only(*[repeat(call=1_000, wait=5_000, due=90_000)] * 2)
    assert [round(one.p50_ns / 1000) for one in found] == [1, 5]
    labelled = {Channel(CALL.phase): 50, Channel(CALL.phase, "first"): 20, Channel(CALL.phase, "second"): 30}
    channels = {channel: Histogram.of([1_000] * calls) for channel, calls in labelled.items()}
    assert len(only(*[Repeat(Window(channels, 50, 5_000_000))] * 2)) == 2


def test_fewer_than_two_repeats_with_calls_have_no_spread() -> None:
    nothing = Repeat(Window({CALL: Histogram.empty()}, 0, 5_000_000))
    assert only() == only(repeat(call=1_000)) == only(repeat(call=1_000), nothing) == []


def test_cells_that_vary_alike_add_to_the_freedom_of_each_other() -> None:
    dice = random.Random(1)
    cells = {
        number: [repeat(call=round(5_000 * math.exp(dice.gauss(0, 0.1)))) for _ in range(4)] for number in range(40)
    }
    cells[40] = [repeat(call=ns) for ns in (1_000, 9_000, 2_000, 80_000)]
    found = spreads(cells)
    assert all(found[number][0].prior > 3 for number in range(40))
    variances = [found[number][0].variance for number in range(40)]
    assert max(variances) < 4 * min(variances)
    # That of a cell which varies far more is its own.
    assert found[40][0].prior == 0
    assert found[40][0].variance > 1


def test_more_repeats_and_more_freedom_detect_smaller_ratios() -> None:
    spread = PhaseSpread(4, 0.1, 0.0, 50_000.0)
    ratios = [spread.detectable(repeats) for repeats in range(2, 12)]
    assert ratios == sorted(ratios, reverse=True)
    assert PhaseSpread(4, 0.1, 6.0, 50_000.0).detectable(4) < ratios[2]
    # Never less than the smallest relevant change.
    assert PhaseSpread(4, 0.0, 0.0, 50_000.0).detectable(4) == pytest.approx(RATIO[P50])
    assert PhaseSpread(4, 0.0, 0.0, DIFFERENCE_NS[P50]).detectable(4) == pytest.approx(2.0)


def test_it_agrees_with_what_a_comparison_states() -> None:
    old, new = (matrices.made_up(seed, repeats=4, steps=2.2, calls=500) for seed in (1, 2))
    predicted = spreads({key: cell.repeats for key, cell in old.cells.items() if key[1] != QUIET})
    ratios = []
    for cell in compare(old, new).cells:
        stated = [part.detectable for part in cell.parts if part.quantile is Quantile.P50]
        for spread, ratio in zip(predicted.get((cell.row, cell.column), []), stated, strict=False):
            assert ratio is not None
            ratios.append(math.log(spread.detectable(4)) / math.log(ratio))
    # Each is an estimate from one of the two checks.
    assert sorted(ratios)[len(ratios) // 2] == pytest.approx(1.0, abs=0.15)
