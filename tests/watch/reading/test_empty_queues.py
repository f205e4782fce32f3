"""Times without work on the GPU, by calls alone."""

from __future__ import annotations

from collections.abc import Iterable

from factories.watch_calls import BASE_NS, D2H, LAUNCH, SYNC, at_ns, call_batch, pageable_copy, slow
from stallprobes.watch.reading.process import FinishedCall
from stallprobes.watch.reading.settled_windows import EmptyQueues

CONTEXT_SYNC = "cuCtxSynchronize"


def empty(calls: Iterable[FinishedCall], at: float, followed: float = 0, every: bool = True) -> bool:
    queues = EmptyQueues()
    queues.add(call_batch(calls))
    return queues.are_empty(at_ns(at), at_ns(followed), every)


def test_they_are_empty_once_the_stream_was_waited_for() -> None:
    calls = [slow(LAUNCH, 1, 2, stream=7), slow(SYNC, 3, 10, stream=7), slow(LAUNCH, 20, 21, stream=7)]
    assert [empty(calls, at) for at in (2.5, 9, 11, 20.5, 30)] == [False, False, True, False, False]


def test_each_stream_has_to_be_waited_for_or_the_context() -> None:
    launches = [slow(LAUNCH, 1, 2, stream=7), slow(LAUNCH, 2, 3, stream=8)]
    assert not empty([*launches, slow(SYNC, 4, 5, stream=7)], 6)
    assert empty([*launches, slow(SYNC, 4, 5, stream=7), slow(SYNC, 5, 6, stream=8)], 7)
    assert empty([*launches, slow(CONTEXT_SYNC, 4, 5)], 6)
    assert not empty([*launches, slow(CONTEXT_SYNC, 4, 5, context=2)], 6)


def test_a_copy_to_pageable_memory_returns_when_its_stream_has_done_all() -> None:
    launch = slow(LAUNCH, 1, 2, stream=7)
    assert empty([launch, pageable_copy(3, 5, stream=7)], 6)
    assert not empty([launch, slow(D2H, 3, 5, stream=7)], 6)


def test_submissions_that_are_not_followed_may_have_come_until_then() -> None:
    calls = [slow(LAUNCH, 1, 2, stream=7), slow(SYNC, 3, 4, stream=7)]
    assert not empty(calls, 20, followed=10, every=False)
    assert empty([*calls, slow(SYNC, 12, 13, stream=7)], 20, followed=10, every=False)


def test_nothing_is_known_before_the_first_submission() -> None:
    assert not empty([], 5)


def test_older_readings_are_remembered() -> None:
    queues = EmptyQueues()
    queues.add(call_batch([slow(LAUNCH, 1, 2, stream=7), slow(LAUNCH, 1, 2, stream=8)]))
    queues.add(call_batch([slow(SYNC, 3, 4, stream=7)]))
    for _ in range(9):
        queues.add(call_batch())
    assert not queues.are_empty(BASE_NS + 10**9, 0, every=True)
    queues.add(call_batch([slow(SYNC, 5, 6, stream=8)]))
    assert queues.are_empty(BASE_NS + 10**9, 0, every=True)


def test_nothing_is_known_of_very_many_streams() -> None:
    launches = [slow(LAUNCH, number, number + 1, stream=number) for number in range(1, 100)]
    assert not empty([*launches, slow(CONTEXT_SYNC, 200, 201)], 300)
    assert empty([*launches[:60], slow(CONTEXT_SYNC, 200, 201)], 300)


def test_streams_that_are_used_again_are_counted_once() -> None:
    queues = EmptyQueues()
    for reading in range(9):
        start = 200 * reading
        launches = [slow(LAUNCH, start + stream, start + stream + 1, stream=stream) for stream in range(1, 60)]
        queues.add(call_batch([*launches, slow(CONTEXT_SYNC, start + 100, start + 101)]))
    assert queues.are_empty(at_ns(200 * 9), 0, every=True)
