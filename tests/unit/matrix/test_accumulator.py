"""What is said of a cell from its repeats."""

from __future__ import annotations

import numpy as np
import pytest

from stallprobes.catalog import entries
from stallprobes.catalog.host import HOST
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import InFlight, Window
from stallprobes.matrix.check.cells import CellAccumulator
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.check.window_measurer import VictimWindow
from stallprobes.matrix.matrix import Status
from stallprobes.model import Channel, Phase

CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)
PLAN = plan(["launch"], ["alloc-free"])
HOST_PROBE = entries()[HOST].probe()


def channels(call: int, due: list[int] | None = None, n: int = 300) -> dict[Channel, Histogram]:
    """``n`` calls around ``call`` ns."""
    values = np.random.default_rng(call).normal(call, call / 20, n).astype(int)
    return {
        CALL: Histogram.of(values),
        WAIT: Histogram.of([5000] * n),
        DUE: Histogram.of(due if due is not None else [8000] * n),
    }


HOST_CHANNELS = {CALL: Histogram.of([5000] * 30)}


def window(
    call: int = 3000,
    *,
    calls: int = 300,
    seconds: float = 0.02,
    due: list[int] | None = None,
    in_flight: InFlight | None = None,
    rejection: str | None = None,
) -> VictimWindow:
    """A window of ordinary calls."""
    victim = Window(channels(call, due, calls), calls, round(seconds * 1e9), in_flight)
    return VictimWindow(victim, HOST_CHANNELS, rejection)


def accumulator() -> CellAccumulator:
    return CellAccumulator(PLAN.victims[0], PLAN.aggressor_sets[0])


def cell(one: CellAccumulator, wanted: int = 4):  # type: ignore[no-untyped-def]
    return one.cell("launch", "alloc-free", wanted, HOST_PROBE)


def test_ordinary_calls_are_quiet() -> None:
    one = accumulator()
    for _ in range(4):
        one.add(window(), window(), window())
    assert (cell(one).status, cell(one).kind) == (Status.OK, "quiet")


def test_a_stall_says_what_and_why_and_names_the_row() -> None:
    one = accumulator()
    for _ in range(4):
        one.add(window(), window(60_000), window())
    found = cell(one)
    assert found.kind == "stalled"
    assert found.worst is not None
    assert found.worst.probe == "launch"
    assert "hold locks of the context" in found.worst.sentence
    assert found.ratio(Phase.CALL, Quantile.P50).ratio == pytest.approx(20, rel=0.1)


def test_fewer_than_three_calls_in_half_a_second_are_starved() -> None:
    one = accumulator()
    for _ in range(2):
        one.add(window(), window(calls=0, seconds=0.5, in_flight=InFlight(0, 0, 500_000_000, 0)), None)
    found = cell(one)
    assert found.status is Status.STARVED
    assert found.in_flight_ns == 500_000_000
    assert found.worst is not None
    assert "starved" in found.worst.sentence


def test_rejected_repeats_do_not_count_and_too_few_others_make_it_invalid() -> None:
    one = accumulator()
    one.add(window(), window(), window())
    for _ in range(3):
        one.add(window(), window(90_000, rejection="the host control was held up"), window())
    assert (cell(one).status, cell(one).reason) == (Status.INVALID, "the host control was held up")
    one.add(window(), window(), window())
    assert (cell(one).status, cell(one).kind, len(cell(one).repeats)) == (Status.OK, "quiet", 2)


def test_what_was_never_measured_is_missing() -> None:
    assert cell(accumulator()).status is Status.MISSING


def test_rare_stalls_that_take_much_of_the_time_are_not_hidden_by_many_fast_calls() -> None:
    one = accumulator()
    waiting = [8000] * 200 + list(range(100_000, 10_100_000, 100_000))
    for _ in range(4):
        one.add(window(), window(due=waiting), window())
    found = cell(one)
    assert found.kind == "stalled"
    assert found.worst is not None
    assert found.worst.phase is Phase.DUE


def test_one_repeat_in_which_the_thread_lost_its_core_is_no_rare_stall() -> None:
    one = accumulator()
    waiting = [8000] * 200 + list(range(100_000, 10_100_000, 100_000))
    for number in range(4):
        one.add(window(), window(due=waiting if number == 2 else None), window())
    assert cell(one).kind == "quiet"
