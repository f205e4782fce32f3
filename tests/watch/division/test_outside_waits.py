"""Waits for the GPU outside calls, by what follows the end of work."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from factories.call_tables import call_table, operation_table
from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.binned_sums import since
from stallprobes.watch.division.instants import Calls, Operations
from stallprobes.watch.division.outside_waits import OUTSIDE, OutsideWaits
from stallprobes.watch.intervals import Int64s, int64s

US, MS, SECOND = 1000, 1_000_000, 1_000_000_000
LAUNCH, HOST_FUNCTION, QUERY = 1, 2, 3
NAMES: Mapping[int, str] = {LAUNCH: "cuLaunchKernel", HOST_FUNCTION: "cuLaunchHostFunc", QUERY: "cuEventQuery"}
STEPS = 200
CHANCE = np.random.default_rng(5)
_BEGIN = CHANCE.bit_generator.state


@pytest.fixture(autouse=True)
def same_chance() -> None:
    """Each test has the same numbers, whichever tests ran before."""
    CHANCE.bit_generator.state = _BEGIN


def program(work_ns: Int64s, gap_ns: Int64s, function: int = LAUNCH) -> tuple[Calls, Operations]:
    """Steps of a launch, whose work begins as it returns, and a call 1 us later; then a gap until the next launch."""
    calls, work, now = [], list[tuple[int, int]](), MS
    for step in range(STEPS):
        calls += [(now, now + 5 * US, LAUNCH), (now + 6 * US, now + 7 * US, function)]
        returned = now + 5 * US
        work.append((returned, int(now + 7 * US + work_ns[step])))
        now += 7 * US + gap_ns[step]
    begins, ends, functions = int64s(calls).T.copy()
    starts, finishes = int64s(work).T
    made = call_table(begins, ends, CallKind.SUBMITS, functions=functions)
    return made, operation_table(starts, finishes, returned=starts)


def waits(calls: Calls, work: Operations, cpu: Mapping[int, Int64s] | None = None) -> Calls:
    """The calls with their waits, all in one slice of time."""
    end = int(calls.ends[-1])
    return OutsideWaits().with_waits({1: calls}, work, NAMES, cpu or {}, 0, end)[1]


def noisy(ns: int, share: float = 0.1) -> Int64s:
    return int64s(ns * CHANCE.uniform(1 - share, 1 + share, STEPS))


def count(calls: Calls) -> int:
    return int(np.count_nonzero(calls.functions == OUTSIDE))


def test_a_thread_that_goes_on_whenever_its_work_has_ended_waits() -> None:
    took, after = noisy(5 * MS), noisy(2 * MS)
    calls, work = program(took, took + after)
    found = waits(calls, work)
    # The last gap has no end.
    assert count(found) == STEPS - 1
    chosen = found.functions == OUTSIDE
    assert (found.ends - found.begins)[chosen].tolist() == took[:-1].tolist()
    assert set(found.kinds[chosen].tolist()) == {int(CallKind.WAITS)}
    assert (found.begins[1:] >= found.ends[:-1]).all()


@pytest.mark.parametrize(
    "gap",
    [
        # It computes for as long as it takes, and the work ends meanwhile.
        lambda took: noisy(7 * MS),
        # With the same input, both take longer.
        lambda took: int64s(took * 1.5),
        # It goes on before the work has ended.
        lambda took: int64s(took * 0.5),
    ],
)
def test_a_thread_that_computes_beside_its_work_does_not_wait(gap: object) -> None:
    took = noisy(5 * MS)
    assert callable(gap)
    assert count(waits(*program(took, gap(took)))) == 0


def test_work_that_always_takes_as_long_says_nothing() -> None:
    took = np.full(STEPS, 5 * MS)
    assert count(waits(*program(took, took + noisy(2 * MS)))) == 0


def test_behind_a_host_function_a_thread_waits_that_sleeps_for_as_long() -> None:
    took = np.full(STEPS, 5 * MS)
    calls, work = program(took, took + noisy(2 * MS), HOST_FUNCTION)
    end = int(calls.ends[-1])
    # It computes for 2 of 7 ms, or for all.
    for share, expected in ((2 / 7, STEPS - 1), (1, 0)):
        samples = int64s([[0, 0, 0], [end + 1, 0, round(share * end)]])
        assert count(waits(calls, work, {1: samples})) == expected


def test_behind_a_host_function_any_sleep_may_be_a_wait() -> None:
    """Also where the thread goes on long after the work, and in a gap that is short."""
    took = noisy(30 * US)
    gaps = took + noisy(60 * US)
    calls, work = program(took, gaps, HOST_FUNCTION)
    outside, end = OutsideWaits(), int(calls.ends[-1])
    # It computes all the time: no wait, and no sleep that may be one.
    outside.with_waits({1: calls}, work, NAMES, {1: int64s([[0, 0, 0], [end + 1, 0, end]])}, 0, end)
    spins, asleep, unproven = outside.possible_ns(1, since(0))
    assert asleep == pytest.approx(gaps[:-1].sum())
    assert 0 < unproven < asleep
    assert spins in (0, asleep)


def test_few_gaps_say_nothing() -> None:
    took = noisy(5 * MS)
    calls, work = program(took, took + noisy(2 * MS))
    assert count(waits(calls.at(slice(20)), work)) == 0


def test_waits_before_they_were_known_as_such_are_known_later() -> None:
    took, after = noisy(5 * MS), noisy(2 * MS)
    calls, work = program(took, took + after)
    sums, waited, begin = OutsideWaits(), 0, 0
    # Too few gaps, and then enough.
    for until in (calls.begins[2 * 10], calls.ends[-1]):
        made = sums.with_waits({1: calls}, work, NAMES, {}, begin, int(until))[1]
        own = (made.functions == OUTSIDE) & (made.ends > begin) & (made.ends <= until)
        waited += int((made.ends - made.begins)[own].sum())
        begin = int(until)
    missing = sums.missing_ns(1, int64s([0, 3600 * SECOND]), 3600 * SECOND)
    # The gap over the border of the slices is a wait of the second one, for a time of the first one.
    over = int(took[9])
    assert missing.tolist() == [int(took[:-1].sum()) - waited - over, 0]
    assert missing[0] > 0
    assert sums.missing_ns(2, int64s([0]), SECOND).tolist() == [0]


def test_a_gap_between_two_slices_is_one_of_the_second() -> None:
    took = noisy(5 * MS)
    calls, work = program(took, took + noisy(2 * MS))
    book, half = OutsideWaits(), STEPS
    parts = [calls.at(slice(half)), calls.at(slice(half, None))]
    border = int(parts[1].begins[0])
    first = book.with_waits({1: parts[0]}, work, NAMES, {}, 0, border)[1]
    second = book.with_waits({1: parts[1]}, work, NAMES, {}, border, int(calls.ends[-1]))[1]
    assert count(first) + count(second) == STEPS - 1
    assert int(second.functions[0]) == OUTSIDE


@pytest.mark.parametrize(
    ("work", "gap", "share"),
    [
        # It always takes as long.
        (lambda: np.full(STEPS, 5 * MS), lambda took: took + noisy(2 * MS), 1.0),
        # With the same input, both take longer.
        (lambda: noisy(5 * MS), lambda took: int64s(took * 1.5), 1.0),
        (lambda: noisy(5 * MS), lambda took: noisy(7 * MS), 0.0),
        (lambda: noisy(5 * MS), lambda took: took + noisy(2 * MS), 0.0),
        (lambda: noisy(5 * MS), lambda took: int64s(took * 0.5), 0.0),
    ],
)
def test_where_it_cannot_be_told_the_thread_may_have_waited(work: object, gap: object, share: float) -> None:
    assert callable(work)
    assert callable(gap)
    took = work()
    calls, operations = program(took, gap(took))
    outside = OutsideWaits()
    outside.with_waits({1: calls}, operations, NAMES, {}, 0, int(calls.ends[-1]))
    spins, asleep, unproven = outside.possible_ns(1, since(0))
    assert spins == pytest.approx(share * took[:-1].sum())
    assert (asleep, unproven) == (0, 0)


def test_a_thread_that_sleeps_for_something_else_does_not_spin() -> None:
    """As one that waits for its input: the next call does not depend on how long the work took."""
    took, after = noisy(5 * MS), noisy(2 * MS)
    calls, work = program(took, took + after)
    end = int(calls.ends[-1])
    for share, expected in ((0.05, 0), (1, STEPS - 1)):
        samples = int64s([[0, 0, 0], [end + 1, 0, round(share * end)]])
        assert count(waits(calls, work, {1: samples})) == expected


def polling(work_ns: Int64s, queries: Int64s, interval_ns: int) -> tuple[Calls, Operations, Mapping[int, Int64s]]:
    """Steps of a launch and of so many queries, between which the thread sleeps, and of 2 ms in which it computes; with
    the thread's time on a CPU."""
    calls, work, now = [], list[tuple[int, int]](), MS
    for step, count in enumerate(queries.tolist()):
        calls.append((now, now + 5 * US, LAUNCH))
        now += 5 * US
        work.append((now, int(now + work_ns[step])))
        for _ in range(count):
            calls.append((now + US, now + 2 * US, QUERY))
            now += 2 * US + interval_ns
        now += 2 * MS - interval_ns
    begins, ends, functions = int64s(calls).T.copy()
    made = call_table(begins, ends, CallKind.WORKS, functions=functions)
    starts, finishes = int64s(work).T
    cpu = int64s([[0, 0, 0], [int(ends[-1]) + 1, 0, 2 * MS * len(work_ns)]])
    return made, operation_table(starts, finishes, returned=starts), {1: cpu}


def test_a_thread_that_sleeps_between_queries_waits_until_one_finds_that_its_work_has_ended() -> None:
    took, interval = noisy(5 * MS), MS // 2
    queries = 2 + (took - 2 * US) // (interval + 2 * US)
    calls, work, cpu = polling(took, queries, interval)
    found = waits(calls, work, cpu)
    assert count(found) == STEPS
    chosen = found.functions == OUTSIDE
    # From the first query of each step to the last one, of which the others are a part.
    assert (found.ends - found.begins)[chosen].tolist() == ((queries - 1) * (interval + 2 * US) - US).tolist()
    assert np.count_nonzero(found.functions == QUERY) == 2 * STEPS
    assert (found.begins[1:] >= found.ends[:-1]).all()


def test_queries_that_do_not_end_with_the_work_are_no_wait() -> None:
    took = noisy(5 * MS, 0.5)
    # Every step has as many.
    assert count(waits(*polling(took, np.full(STEPS, 12), MS))) == 0
