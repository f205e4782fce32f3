"""Time between calls without a CPU, by samples of the CPU time of threads."""

from __future__ import annotations

import numpy as np
import pytest

from factories.call_tables import call_table
from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.binned_sums import Figure, since
from stallprobes.watch.division.cpu_time import CHILDREN, COLLECTOR, OTHERS, CpuSums, Sleeps
from stallprobes.watch.division.instants import Calls
from stallprobes.watch.intervals import Int64s, int64s

MS = 1_000_000
SECOND = 1000 * MS


def calls(kind: CallKind, *spans: tuple[int, int]) -> Calls:
    """Calls of a thread, from and to (ms)."""
    begins, ends = int64s([begin * MS for begin, _ in spans]), int64s([end * MS for _, end in spans])
    return call_table(begins, ends, kind)


def cpu(*samples: tuple[float, float]) -> Int64s:
    """Samples at times (s), with the CPU time until then (s)."""
    return int64s([[round(at * SECOND), 0, round(used * SECOND)] for at, used in samples]).reshape(-1, 3)


def test_what_is_neither_in_calls_nor_on_a_cpu_is_off_it() -> None:
    sums = CpuSums(0)
    # 0.2 s inside calls that submit, 0.3 s of CPU beside them, and nothing in the other half second.
    sums.add({1: calls(CallKind.SUBMITS, (100, 200), (600, 700))}, {1: cpu((0, 5), (1, 5.5))}, 0, SECOND)
    found = sums.off_cpu(since(0))
    assert found is not None
    assert (found.share, found.low, found.high) == pytest.approx((0.5 / 0.8,) * 3)


def test_whether_waits_have_a_cpu_is_not_known() -> None:
    sums = CpuSums(0)
    sums.add({1: calls(CallKind.WAITS, (0, 100))}, {1: cpu((0, 0), (1, 0.5))}, 0, SECOND)
    found = sums.off_cpu(since(0))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.4 / 0.9, 0.5 / 0.9), abs=1e-6)
    long = CpuSums(0)
    long.add({1: calls(CallKind.WAITS, (0, 600))}, {1: cpu((0, 0), (1, 0.5))}, 0, SECOND)
    assert long.off_cpu(since(0)) is None


def test_a_sequence_has_a_cpu_where_one_of_its_threads_has() -> None:
    sums = CpuSums(0)
    threads = {1: calls(CallKind.SUBMITS, (0, 100)), 2: calls(CallKind.SUBMITS, (500, 600))}
    sums.add(threads, {1: cpu((0, 0), (1, 0.5)), 2: cpu((0, 0), (2, 1))}, 0, SECOND)
    assert sums.off_cpu(since(0)) == Figure(0.0, 0.0, 0.0)


def test_a_time_of_which_a_thread_has_no_samples_is_left_out() -> None:
    sums = CpuSums(0)
    threads = {1: calls(CallKind.SUBMITS, (0, 100))}
    for samples in ({}, {1: cpu((0.6, 0), (2, 1))}, {1: cpu((0, 0), (0.4, 1))}):
        sums.add(threads, samples, 0, SECOND)
    assert sums.off_cpu(since(0)) is None
    sums.add(threads, {1: cpu((0, 0), (3, 0))}, SECOND, 2 * SECOND)
    assert sums.off_cpu(since(0)) == Figure(1.0, 1.0, 1.0)
    # Of the time before a steady state, nothing counts.
    assert sums.off_cpu(since(2 * SECOND)) is None


def test_a_sequence_sleeps_while_all_of_its_threads_do_outside_calls() -> None:
    sums = CpuSums(0)
    # Two samples in which each sleeps, but for the second one's in a call.
    slept: dict[int, list[tuple[float, float, float]]] = {
        1: [(0, 0, 0), (0.5, 0, 0), (0.5, 0, 0.5)],
        2: [(0, 0, 0), (0.5, 0, 0), (0.5, 0.5, 0)],
    }
    samples = {
        thread: int64s(np.array([(at / 2, 0, at / 4, *each) for at, each in enumerate(rows)]) * SECOND)
        for thread, rows in slept.items()
    }
    samples[CHILDREN] = int64s(np.array([(0, 0, 0), (1, 0, 0.7)]) * SECOND)
    sums.add({thread: calls(CallKind.SUBMITS, (0, 100)) for thread in (1, 2)}, samples, 0, SECOND)
    assert sums.sleeps(since(0)) == pytest.approx((0.5, 0, 0, 0, 0, 0.7, 0, 0))
    sums = CpuSums(0)
    sums.add({1: calls(CallKind.WAITS, (400, 600))}, samples, 0, SECOND)
    assert sums.sleeps(since(0)) == pytest.approx((0, 0, 0.5, 0, 0, 0.7, 0.5, 0))
    assert CpuSums(0).sleeps(since(0)) == Sleeps()


@pytest.mark.parametrize(("until", "busy"), [(0.3, 0.9), (0.1, 0.0)])
def test_children_are_known_by_a_part_of_the_time(until: float, busy: float) -> None:
    """They are looked at less often than threads, whose samples count in full."""
    sums = CpuSums(0)
    samples = {1: int64s(np.array([(0, 0, 0, 0, 0, 0), (1, 0, 0.4, 0, 0, 0.5)]) * SECOND)}
    samples[CHILDREN] = int64s(np.array([(0, 0, 0), (until, 0, 0.9 * until)]) * SECOND)
    sums.add({1: calls(CallKind.SUBMITS, (0, 100))}, samples, 0, SECOND)
    found = sums.sleeps(since(0))
    assert found.outside > 0.4
    assert found.children == pytest.approx(busy)


@pytest.mark.parametrize(("cpu", "slept"), [(0.5, 0.5), (0.42, 0.58), (0.56, 0.44), (0, 0.625), (0.9, 0.4)])
def test_samples_of_sleep_are_corrected_by_the_time_without_a_cpu(cpu: float, slept: float) -> None:
    sums = CpuSums(0)
    rows = [(0, 0, 0, 0, 0, 0, 0), (1, 0, cpu, 0, 0, 0.5, 0)]
    sums.add({1: calls(CallKind.SUBMITS)}, {1: int64s(np.array(rows) * SECOND)}, 0, SECOND)
    assert sums.sleeps(since(0)) == pytest.approx((0, 0, slept, 0, 0, 0, 0, 0))


def test_the_time_in_which_python_collects_is_that_of_its_samples() -> None:
    sums = CpuSums(0)
    samples = {1: cpu((0, 0), (1, 1)), COLLECTOR: cpu((0, 0), (0.5, 0.2), (1, 0.3))}
    sums.add({1: calls(CallKind.SUBMITS, (0, 100))}, samples, 0, SECOND)
    found = sums.sleeps(since(0))
    # It is no thread of the program.
    assert (found.collects, found.others) == pytest.approx((0.3, 0))


def test_a_sequence_whose_threads_wait_for_one_that_waits_for_data_waits_for_these() -> None:
    rows = {1: (0, 0, 0.1, 0, 0, 0, 0.8, 0), 2: (0, 0, 0.1, 0, 0, 0.85, 0, 0)}
    samples = {thread: int64s(np.array([(0,) * 8, (1, *each[1:])]) * SECOND) for thread, each in rows.items()}
    sums = CpuSums(0)
    sums.add({thread: calls(CallKind.SUBMITS) for thread in rows}, samples, 0, SECOND)
    assert sums.sleeps(since(0)).outside == pytest.approx(0.8)
    assert sums.sleeps(since(0)).thread == 0


def test_threads_that_call_by_turns_sleep_for_each_other_not_for_another() -> None:
    halves = [(0.5, 0), (0, 0.5)]
    for slept, found in ((halves, 0.0), ([(0.5, 0.3), (0.4, 0.5)], 0.7)):
        sums = CpuSums(0)
        samples = {
            thread: int64s(np.cumsum([(0,) * 7, *((0.5, 0, 0.1, 0, 0, 0, ns) for ns in each)], axis=0) * SECOND)
            for thread, each in enumerate(slept, 1)
        }
        samples[OTHERS] = int64s(np.array([(0, 0, 0), (1, 0, 0.8)]) * SECOND)
        sums.add({thread: calls(CallKind.SUBMITS) for thread in samples if thread != OTHERS}, samples, 0, SECOND)
        assert sums.sleeps(since(0)).thread == pytest.approx(found)
        assert sums.sleeps(since(0)).others == pytest.approx(0.8)


def test_what_follows_the_last_work_is_taken_off_at_the_end() -> None:
    """A program sleeps for 1.5 s at its end, in a slice with work and in two without any."""
    sums = CpuSums(0)
    thread = {1: calls(CallKind.SUBMITS, (100, 200), (400, 500))}
    samples = int64s([[at * MS, 0, min(at, 500) * MS, max(at - 500, 0) * MS] for at in range(0, 2100, 100)])
    for begin in (0, 1000, 1500):
        calls_of_slice = {1: thread[1].during(begin * MS, (begin + 500) * MS)} if begin else thread
        sums.add(calls_of_slice, {1: samples}, begin * MS, (begin + 500) * MS if begin else SECOND)
    assert sums.sleeps(since(0)).own == pytest.approx(0.75)
    sums.end_at(400 * MS)
    assert sums.sleeps(since(0)).own == 0
    found = sums.off_cpu(since(0))
    assert found is not None
    assert found.share == pytest.approx(0, abs=1e-6)
    # Where work goes on, nothing is.
    other = CpuSums(0)
    for begin in (0, 1000):
        other.add(
            {1: calls(CallKind.SUBMITS, (begin + 900, begin + 950))}, {1: samples}, begin * MS, begin * MS + SECOND
        )
    before = other.sleeps(since(0))
    other.end_at(1900 * MS)
    assert other.sleeps(since(0)).own == pytest.approx(before.own, abs=0.06)
