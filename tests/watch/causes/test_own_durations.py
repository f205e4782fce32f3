"""How long functions take by themselves, and which calls took longer than that."""

from __future__ import annotations

import json

import pytest

from factories.watch_calls import batch, kernel, slow
from stallprobes.native.layouts.driver_calls import family_of
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.facts import Recorded
from stallprobes.watch.causes.order import attribute
from stallprobes.watch.causes.own_durations import FILE, MOST_MORE_NS, MOST_TIMES, is_usual, longest_ns

MIB = 1 << 20
DATA = json.loads(FILE.read_bytes())


def test_what_was_measured_says_where_and_when() -> None:
    assert DATA["gpu"]
    assert DATA["driver"]
    assert len(DATA["date"]) == len("2026-11-26")


@pytest.mark.parametrize("function", sorted(DATA["functions"]))
def test_each_function_has_sizes_that_ascend_and_is_watched(function: str) -> None:
    rows = DATA["functions"][function]
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})
    assert all(0 < median <= longest for _, median, longest in rows)
    assert family_of(function) is not None


def test_the_longest_time_grows_with_the_size() -> None:
    times = [longest_ns("cuMemHostAlloc", size * MIB) for size in (1, 8, 32, 64, 256, 512, 1024, 4096)]
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]
    assert times[-1] == pytest.approx(4 * times[-2], rel=0.1)  # type: ignore[operator]
    assert longest_ns("cuMemAllocHost_v2", 32 * MIB) == times[2]


def test_a_function_that_was_not_measured_has_none() -> None:
    assert longest_ns("cuIpcOpenMemHandle_v2", None) is None
    assert not is_usual("cuIpcOpenMemHandle_v2", None, 1)


def test_a_call_that_takes_much_longer_than_by_itself_has_no_cause() -> None:
    longest = longest_ns("cuMemAlloc_v2", 64 * MIB)
    assert longest is not None
    limit_us = (MOST_TIMES * longest + MOST_MORE_NS) / 1000
    for times, cause in ((0.9, WaitCause.ITSELF), (1.1, WaitCause.UNATTRIBUTED)):
        call = slow("cuMemAlloc_v2", 0, times * limit_us, size=64 * MIB)
        (found,) = attribute([call], [call.duration_ns], Recorded(batch([]).rows))
        assert found.cause is cause


def test_how_long_a_graph_takes_is_not_limited() -> None:
    call = slow("cuGraphInstantiateWithFlags", 0, 5_000_000)
    (found,) = attribute([call], [call.duration_ns], Recorded(batch([]).rows))
    assert found.cause is WaitCause.ITSELF


def test_a_call_that_takes_as_long_as_others_of_the_program_does_so_by_itself() -> None:
    calls = [
        slow("cuMemAlloc_v2", at * 100_000, at * 100_000 + 58_000, size=6 << 30, correlation=at) for at in range(8)
    ]
    idle = [kernel(each * 100_000 + 60_000, each * 100_000 + 61_000, correlation=100 + each) for each in range(8)]
    excess = [call.duration_ns for call in calls]
    found = attribute(calls, excess, Recorded(batch(idle).rows, complete=True))
    assert {one.cause for one in found} == {WaitCause.ITSELF}
    # A few say nothing, nor do those beside which the GPU works, nor others of half the time.
    few = attribute(calls[:4], excess[:4], Recorded(batch(idle).rows, complete=True))
    beside = attribute(calls, excess, Recorded(batch([kernel(0, 800_000, correlation=100)]).rows, complete=True))
    long = slow("cuMemAlloc_v2", 900_000, 1_100_000, size=6 << 30, correlation=99)
    longer = attribute([*calls, long], [*excess, long.duration_ns], Recorded(batch(idle).rows, complete=True))
    assert {one.cause for one in (*few, *beside, longer[-1])} == {WaitCause.UNATTRIBUTED}
