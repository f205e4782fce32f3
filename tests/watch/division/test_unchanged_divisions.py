"""Changes of a program that change nothing of its division: other clocks, other numbers, kernels in two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from factories.divided_calls import UNIT, Call, readings
from factories.watch_calls import D2H, LAUNCH, SYNC
from factories.watch_calls import thread as thread_of
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.instants import COPY, KERNEL, Limits
from stallprobes.watch.division.result import DividedProcess
from stallprobes.watch.reading.process import CallBatch, ClockPair, RecordBatch, WatchedProcess

LENGTH = 60
LIMITS = Limits(blocked_ns=6 * UNIT, wake_up_ns=4 * UNIT, launch_ns=2 * UNIT, staged_ns=6 * UNIT)
Reading = tuple[WatchedProcess, RecordBatch, CallBatch, int]


@st.composite
def programs(draw: st.DrawFn) -> list[Call]:
    """Calls of one or two threads; launches have up to two kernels, copies one."""
    calls = [Call(LAUNCH, 0, 1, 1, ((0, 1, KERNEL),))]
    for thread in range(1, 1 + draw(st.integers(1, 2))):
        borders = sorted(draw(st.lists(st.integers(1, LENGTH), min_size=6, max_size=20, unique=True)))
        for begin, end in zip(borders[::2], borders[1::2], strict=False):
            function = draw(st.sampled_from((LAUNCH, LAUNCH, SYNC, SYNC, D2H, "cuMemFree_v2", "cuEventQuery")))
            work, start = [], begin
            for _ in range(draw(st.integers(0, {LAUNCH: 2, D2H: 1}.get(function, 0))) if begin < LENGTH - 18 else 0):
                start = draw(st.integers(start, min(start + 9, LENGTH - 1)))
                last = draw(st.integers(start + 1, min(start + 8, LENGTH)))
                work.append((start, last, COPY if function == D2H else KERNEL))
                start = last
            calls.append(Call(function, begin, end, thread, tuple(work)))
    return calls


def divided(calls: list[Call], times: list[int], change: Callable[[Reading], Reading]) -> DividedProcess:
    """The division of ``calls`` by readings at ``times`` and at the end, each of which is changed."""
    divider, every = ProcessDivider(LIMITS), [*sorted(times), LENGTH]
    for number, reading in enumerate(readings(calls, list(map(float, every))), 1):
        divider.feed(*change(reading), ended=number == len(every))
    found = divider.division()
    assert found is not None
    return found


def assert_alike(one: DividedProcess, other: DividedProcess) -> None:
    """Two divisions but for the numbers of threads and of operations."""
    assert one.division == other.division
    assert len(one.sequences) == len(other.sequences)
    for sequences in zip(one.sequences, other.sequences, strict=True):
        first, second = (
            sequence.changed(
                threads=(),
                operations=0,
                kernels=(),
                awaited=tuple(awaited.changed(thread=0) for awaited in sequence.awaited),
            )
            for sequence in sequences
        )
        assert first == second


TIMES = st.lists(st.integers(1, LENGTH), max_size=6)


@given(programs(), TIMES, st.integers(-(10**8), 10**15))
def test_of_other_clocks(calls: list[Call], times: list[int], shift_ns: int) -> None:
    def shifted(reading: Reading) -> Reading:
        process, records, made, now = reading
        for rows, names in ((records.rows, ("start", "end")), (made.rows, ("began_ns", "returned_ns"))):
            for name in names:
                rows[name] += np.asarray(shift_ns).astype(rows[name].dtype)
        started = ClockPair(process.started.monotonic_ns + shift_ns, 0)
        threads = tuple(
            replace(each, in_flight=tuple(call.changed(begin_ns=call.begin_ns + shift_ns) for call in each.in_flight))
            for each in process.threads
        )
        return process.changed(started=started, clocks=started, threads=threads), records, made, now + shift_ns

    assert_alike(divided(calls, times, shifted), divided(calls, times, unchanged))


@given(programs(), TIMES, st.integers(1, 1000))
def test_of_other_numbers(calls: list[Call], times: list[int], more: int) -> None:
    def renamed(reading: Reading) -> Reading:
        process, records, made, now = reading
        for rows, names in (
            (records.rows, ("correlation", "context", "stream")),
            (made.rows, ("correlation", "context")),
        ):
            for name in names:
                rows[name] += more
        made.rows["thread"] *= 1 + more
        threads = tuple(
            replace(
                each,
                id=each.id * (1 + more),
                in_flight=tuple(
                    call.changed(
                        thread=call.thread * (1 + more),
                        correlation=call.correlation + more,
                        context=(call.context or 0) + more,
                    )
                    for call in each.in_flight
                ),
            )
            for each in process.threads
        )
        return process.changed(threads=threads), records, made, now

    found = divided(calls, times, renamed)
    expected = divided(calls, times, unchanged)
    assert_alike(found, expected)
    assert [each.threads for each in found.sequences] == [
        tuple(thread * (1 + more) for thread in each.threads) for each in expected.sequences
    ]


@given(programs(), TIMES)
def test_beside_a_thread_that_does_nothing(calls: list[Call], times: list[int]) -> None:
    def with_another(reading: Reading) -> Reading:
        return (reading[0].changed(threads=(*reading[0].threads, thread_of(999))), *reading[1:])

    assert_alike(divided(calls, times, with_another), divided(calls, times, unchanged))


@given(programs(), st.integers(0, 7))
def test_of_kernels_in_two(calls: list[Call], place: int) -> None:
    def halves(start: int, end: int, kind: int) -> list[tuple[int, int, int]]:
        at = start + place % max(end - start, 1)
        return [(start, at, kind), (at, end, kind)] if kind == KERNEL and start < at else [(start, end, kind)]

    split = [replace(call, work=tuple(half for work in call.work for half in halves(*work))) for call in calls]
    assert_alike(divided(split, [], unchanged), divided(calls, [], unchanged))


def unchanged(reading: Any) -> Any:
    """The reading itself."""
    return reading
