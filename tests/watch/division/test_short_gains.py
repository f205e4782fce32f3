"""The longer of the host's and the GPU's time by groups of waits, since a program runs only some steps ahead."""

from __future__ import annotations

import numpy as np

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.instants import (
    KERNEL,
    NO_SPANS,
    Operations,
    SequenceTimes,
    Spans,
    ThreadCalls,
    instants_of,
)
from stallprobes.watch.division.short_gains import longer_times
from stallprobes.watch.intervals import int64s

STEP, WORKS = 100, 60


def steps(count: int, slow: int) -> SequenceTimes:
    """Steps that wait for 60 of 100; behind each eighth one, the host computes for ``slow``."""
    begins = [STEP * number + slow * (number // 8) for number in range(count)]
    starts = int64s(begins)
    ones = np.ones(count, dtype=np.int64)
    calls = ThreadCalls(
        spans=Spans(starts, starts + WORKS), kinds=ones * int(CallKind.WAITS), contexts=ones, holds=ones * 0
    )
    work = Operations(
        starts=starts, ends=starts + WORKS, kinds=ones * KERNEL, engine=ones > 0, returned=starts, threads=ones,
        streams=ones,
    )  # fmt: skip
    return SequenceTimes(
        threads={1: calls}, work=work, recorded=Spans(int64s([0]), int64s([2**62])), other_work=NO_SPANS
    )


def longest(times: SequenceTimes, until: int) -> list[int]:
    return list(map(int, longer_times(times, instants_of(times, 0, until))[1]))


def test_alike_steps_take_the_longer_of_both() -> None:
    assert longest(steps(16, 0), 16 * STEP)[0] == 8 * WORKS
    assert sum(longest(steps(16, 0), 16 * STEP)) < 16 * STEP * 0.65


def test_the_host_is_the_longer_one_where_it_computes_for_long_now_and_then() -> None:
    # 32 steps of 100, of which the GPU works 60; the host computes for 40 of each, and for 3 x 800.
    longer = sum(longest(steps(32, 800), 32 * STEP + 3 * 800))
    host, gpu = 32 * 40 + 3 * 800, 32 * WORKS
    assert longer > max(host, gpu)


def test_all_of_the_time_is_in_a_group() -> None:
    begins, longer = longer_times(steps(9, 0), instants_of(steps(9, 0), 0, 9 * STEP))
    assert begins[0] == 0
    assert len(begins) == len(longer) == 2
