"""Gains by groups of calls: the longer of host and GPU time, and replays without waits and without frees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from factories.call_tables import call_table, operation_table
from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.instants import (
    NO_SPANS,
    SequenceTimes,
    Spans,
    instants_of,
)
from stallprobes.watch.division.short_gains import (
    CallGroups,
    FreeGroups,
    saved_without_frees,
)
from stallprobes.watch.intervals import Int64s, int64s

STEP, WORKS = 100, 60


def steps(count: int, slow: int) -> SequenceTimes:
    """Steps that wait for 60 of 100; behind each eighth one, the host computes for ``slow``."""
    begins = [STEP * number + slow * (number // 8) for number in range(count)]
    starts = int64s(begins)
    calls = call_table(starts, starts + WORKS, CallKind.WAITS)
    work = operation_table(starts, starts + WORKS, engine=True, returned=starts, streams=1)
    return SequenceTimes(
        threads={1: calls}, work=work, recorded=Spans(int64s([0]), int64s([2**62])), other_work=NO_SPANS
    )


def no_bins(begin: int, end: int) -> Int64s:
    return int64s([begin])


def added(groups: CallGroups | FreeGroups, times: SequenceTimes, begin: int, end: int) -> tuple[Int64s, Int64s]:
    """What a slice adds; of groups of calls, by the longer times of groups of waits."""
    starts, ns, *_ = groups.add(times, instants_of(times, begin, end))
    return starts, ns


def longest(times: SequenceTimes, until: int) -> list[int]:
    return list(map(int, added(CallGroups(no_bins), times, 0, until)[1]))


def test_alike_steps_take_the_longer_of_both() -> None:
    assert longest(steps(16, 0), 16 * STEP)[0] == 8 * WORKS
    assert sum(longest(steps(16, 0), 16 * STEP)) < 16 * STEP * 0.65


def test_the_host_is_the_longer_one_where_it_computes_for_long_now_and_then() -> None:
    # 32 steps of 100, of which the GPU works 60; the host computes for 40 of each, and for 3 x 800.
    longer = sum(longest(steps(32, 800), 32 * STEP + 3 * 800))
    host, gpu = 32 * 40 + 3 * 800, 32 * WORKS
    assert longer > max(host, gpu)


def launches(count: int, slow: int) -> SequenceTimes:
    """Launches whose kernels take 60 of 100, without waits; behind each fourth thousand, the host computes for
    ``slow``."""
    times = steps(count, 0)
    starts = times.work.starts + slow * (np.arange(count) // 4000)
    calls = call_table(starts, starts + 10)
    return replace(
        times, threads={1: calls}, work=replace(times.work, starts=starts, ends=starts + 60, returned=starts)
    )


def test_a_queue_limits_how_far_the_host_runs_ahead() -> None:
    # The host computes for as long as the kernels of 4000 launches take, of which the queue holds 1024.
    slow, count = 4000 * WORKS, 16_000
    longer = of_launches(launches(count, slow), count * STEP + 3 * slow)
    host = count * STEP + 3 * slow
    assert longer == pytest.approx(host, rel=0.01)
    # Less than all of the host's time is beside the GPU's work.
    waits = of_launches(replaced_waits(launches(count, slow)), count * STEP + 3 * slow)
    assert 3 * (slow - 1024 * WORKS) + count * WORKS <= waits < host


def of_launches(times: SequenceTimes, until: int) -> int:
    """The longer times of groups of launches."""
    return int(CallGroups(no_bins).add(times, instants_of(times, 0, until))[2].sum())


def replaced_waits(times: SequenceTimes) -> SequenceTimes:
    """``times`` whose calls wait for their kernels."""
    begins = times.threads[1].begins
    return replace(times, threads={1: call_table(begins, begins + STEP, CallKind.WAITS)})


def test_all_of_the_time_is_in_a_group() -> None:
    begins, longer = added(CallGroups(no_bins), steps(9, 0), 0, 9 * STEP)
    assert begins[0] == 0
    assert len(begins) == len(longer) == 2


# Times (ns) of the step of ``frees``.
SHORT, LONG, HOST, TRANSFER = 10, 30, 40, 1


def frees(count: int, waits: bool = True, loads: bool = False, unit: int = 1) -> SequenceTimes:
    """Steps with a short kernel, a free that waits for it, a long kernel that is waited for, and time of the host,
    which ``loads`` device code in all of that. Times in ``unit`` (ns)."""
    calls, work = list[tuple[int, int, CallKind]](), list[tuple[int, int, int]]()
    now = 0
    for _ in range(count):
        calls.append((now, now + SHORT, CallKind.FREES))
        work.append((now, now + SHORT, now))
        now += SHORT + TRANSFER
        work.append((now, now + LONG, now))
        if waits:
            calls.append((now, now + LONG, CallKind.WAITS))
        if loads:
            calls.append((now + LONG, now + LONG + HOST, CallKind.LOADS))
        now += LONG + HOST
    calls = [(unit * begin, unit * end, kind) for begin, end, kind in calls]
    work = [(unit * begin, unit * end, unit * returned) for begin, end, returned in work]
    begins, ends, kinds = (int64s(column) for column in zip(*calls, strict=True))
    starts, finishes, returned = (int64s(column) for column in zip(*work, strict=True))
    return SequenceTimes(
        threads={1: call_table(begins, ends, kinds)},
        work=operation_table(starts, finishes, engine=True, returned=returned, streams=1),
        recorded=Spans(int64s([0]), int64s([2**62])),
    )  # fmt: skip


def saved(times: SequenceTimes, steps: int, by: str) -> float:
    """The time saved in each step."""
    instants = instants_of(times, 0, steps * (SHORT + TRANSFER + LONG + HOST))
    if by == "waits":
        return SHORT + TRANSFER + LONG + HOST - int(FreeGroups().add(times, instants)[1].sum()) / steps
    return int(saved_without_frees(times, instants)[1].sum()) / steps


def test_without_waits_frees_still_wait_for_what_is_left_of_the_work() -> None:
    # The host's 40 run beside the long kernel's 30; the free still waits for the short kernel.
    assert abs(saved(frees(40), 40, "waits") - LONG) <= 2


def test_without_waits_loads_still_wait_for_all_work() -> None:
    times, step = frees(40, loads=True, unit=10_000), 10_000 * (SHORT + TRANSFER + LONG + HOST)
    replayed = FreeGroups().add(times, instants_of(times, 0, 40 * step))[1]
    assert int(replayed.sum()) / (40 * step) > 0.98


def test_without_frees_a_wait_still_waits_for_all_work() -> None:
    # The long kernel is submitted earlier, and starts behind the short one.
    assert saved(frees(40), 40, "frees") <= TRANSFER + 1


def test_frees_without_waits_behind_them_may_save_all_their_time() -> None:
    assert abs(saved(frees(40, waits=False), 40, "frees") - SHORT) <= 1


def test_nothing_is_replayed_without_calls_that_free_or_allocate() -> None:
    times = steps(32, 0)
    instants = instants_of(times, 0, 32 * STEP)
    assert not len(FreeGroups().add(times, instants)[0])
    assert not len(saved_without_frees(times, instants)[0])


@pytest.mark.parametrize("groups", [lambda: CallGroups(no_bins), FreeGroups])
@pytest.mark.parametrize(
    "times",
    [steps(40, 800), steps(40, 0), frees(60), frees(60, waits=False), frees(60, loads=True, unit=10_000)],
    ids=["steps with computing", "steps", "frees", "frees without waits", "loads"],
)
def test_slices_add_what_the_whole_takes(groups: Callable[[], CallGroups | FreeGroups], times: SequenceTimes) -> None:
    # A slice of 31 steps has many frees. One of a third of a step has none: the time before the first free is unknown.
    last = int(times.work.ends[-1])
    whole = added(groups(), times, 0, last)[1].sum()
    for count in (2, 7, 200):
        borders = np.linspace(0, last, count + 1).astype(int).tolist()
        sliced = groups()
        replayed = [added(sliced, cut(times, begin, end), begin, end) for begin, end in pairwise(borders)]
        assert sum(int(ns.sum()) for _, ns in replayed) == pytest.approx(whole, rel=5e-3)
        for (starts, _), (begin, end) in zip(replayed, pairwise(borders), strict=True):
            assert ((begin <= starts) & (starts < end)).all()


def cut(times: SequenceTimes, begin: int, end: int) -> SequenceTimes:
    """The calls and the work that a slice of the division has."""
    work = times.work
    return replace(
        times,
        threads={thread: calls.during(begin, end) for thread, calls in times.threads.items()},
        work=work.where((work.ends > begin) & (work.starts < end)),
    )


def test_few_frees_among_many_waits_do_not_count() -> None:
    both = steps(200, 0)
    calls = both.threads[1]
    kinds = calls.kinds.copy()
    kinds[100] = int(CallKind.FREES)
    times = replace(both, threads={1: replace(calls, kinds=kinds)})
    groups = FreeGroups()
    replayed = [
        groups.add(cut(times, at, at + 500), instants_of(times, at, at + 500))[1] for at in range(0, 20000, 500)
    ]
    # Eight steps at most, of 200.
    assert 0 < sum(int(ns.sum()) for ns in replayed) <= 10 * STEP
