"""Waits for other streams by what calls say of their order: events, host functions, values in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from factories.watch_calls import (
    D2H,
    EVENT_SYNC,
    LAUNCH,
    OTHER,
    SYNC,
    US,
    at_ns,
    batch,
    call_batch,
    copy,
    kernel,
    process,
    rows_of,
    slow,
    thread,
)
from stallprobes.native.layouts.cupti import MemoryKind, RecordKind, StreamFlag
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.attribution.findings import ExplainedCall
from stallprobes.watch.attribution.stream_numbers import StreamNumbers
from stallprobes.watch.attribution.stream_order import StreamOrder
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.reading.process import SlowDriverCall
from stallprobes.watch.sentences import cause_text

RECORD, WAIT, HOST = "cuEventRecord", "cuStreamWaitEvent", "cuLaunchHostFunc"
# Handles of streams, and CUPTI's numbers for them.
MINE, OTHERS, THIRD = 0x11, 0x22, 0x33
# The correlation number of a call at 0; those before it have lower ones.
NOW = 1_000_000
LEGACY = 0
NUMBER = {MINE: 7, OTHERS: 9, THIRD: 8, LEGACY: 5}
CREATE, DESTROY = "cuStreamCreate", "cuStreamDestroy_v2"
# Those that are not created as non-blocking.
BLOCKING = (MINE, OTHERS)
NO_RECORDS = rows_of([])
# A call that returns at once: function, begin (us), stream, event.
Made = tuple[str, float, int, int]


def explained(
    waiting: Sequence[SlowDriverCall],
    made: Iterable[Made],
    records: Iterable[Mapping[str, Any]],
    event: int = 0,
    end: float = 10_000.0,
) -> tuple[ExplainedCall, ...]:
    """The slow calls of a program that makes the calls ``made`` in another thread; ``event`` is that of the first."""
    finished = [
        slow(name, begin, begin + 1, thread=OTHER, stream=stream, correlation=round(begin) + NOW)
        for name, begin, stream, _ in made
    ]
    events = {each.begin_ns: handle for each, (*_, handle) in zip(finished, made, strict=True)}
    calls = call_batch((*waiting, *finished))
    for row in calls.rows:
        blocks = calls.functions[int(row["function"])] == CREATE and row["stream"] in BLOCKING
        row["flags"] |= int(CallFlag.BLOCKING) if blocks else 0
        row["event"] = events.get(int(row["began_ns"]), event if row["began_ns"] == waiting[0].begin_ns else 0)
        row["flags"] |= int(CallFlag.STREAM)
    # Threads that make calls after which a stream may wait.
    other = thread(OTHER, fast_us={name: [1.0] for name, *_ in made})
    read = process(thread(calls=waiting), other, ended=end, now=end)
    analysis = ProcessAnalysis()
    analysis.feed(read, batch(records), at_ns(end), calls=calls, ended=True)
    return analysis.findings().slow_calls


def launches(*streams: int, begin: float = -500.0) -> tuple[list[Made], list[Mapping[str, Any]]]:
    """A launch in each stream with its kernel, which say CUPTI's numbers of the streams."""
    made: list[Made] = [(LAUNCH, begin + number, stream, 0) for number, stream in enumerate(streams)]
    kernels = [
        kernel(start, start + 1, stream=NUMBER[stream], correlation=round(start) + NOW) for _, start, stream, _ in made
    ]
    return made, kernels


def work(begin: float, end: float, stream: int, launched: float) -> Mapping[str, Any]:
    """A kernel of a launch at a time."""
    return kernel(begin, end, stream=NUMBER[stream], correlation=round(launched) + NOW, name=2)


def test_a_wait_for_an_event_is_for_the_stream_in_which_it_was_recorded() -> None:
    # Two streams work until then: only one of them has the event.
    first, kernels = launches(MINE, OTHERS)
    made = [*first, (LAUNCH, -40, OTHERS, 0), (LAUNCH, -30, MINE, 0)]
    made += [(RECORD, -20, OTHERS, 0xE1), (RECORD, -10, MINE, 0xE2)]
    kernels += [work(-35, 5000, OTHERS, -40), work(-25, 5000, MINE, -30)]
    (found,) = explained([slow(EVENT_SYNC, 0, 5010, correlation=NOW + 1)], made, kernels, event=0xE1)
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.PROVEN)
    assert [each.stream for each in found.evidence.work] == [NUMBER[OTHERS]]


@pytest.mark.parametrize("function", [SYNC, D2H])
def test_a_stream_that_waits_for_an_event_waits_for_the_work_before_it(function: str) -> None:
    first, kernels = launches(MINE, OTHERS, THIRD)
    made = [*first, (LAUNCH, -60, THIRD, 0), (RECORD, -50, THIRD, 0xE1), (WAIT, -40, OTHERS, 0xE1)]
    made += [(RECORD, -30, OTHERS, 0xE2), (WAIT, -20, MINE, 0xE2), (LAUNCH, -15, THIRD, 0)]
    # What is submitted later, and in streams that nobody waits for, is another matter.
    kernels += [work(-55, 5000, THIRD, -60), work(5000, 5005, THIRD, -15)]
    kinds = {"source": MemoryKind.DEVICE, "target": MemoryKind.PAGEABLE} if function == D2H else {}
    wait = slow(function, 0, 5010, correlation=NOW + 1, stream=MINE, **kinds)
    own = [copy(5001, 5002, correlation=NOW + 1)] if function == D2H else []
    (found,) = explained([wait], made, [*kernels, *own])
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.PROVEN)
    assert [(each.stream, each.count) for each in found.evidence.work] == [(NUMBER[THIRD], 1)]
    assert found.explained_ns == 5000 * US


def test_an_event_that_is_recorded_again_later_is_another_one() -> None:
    first, kernels = launches(MINE, OTHERS)
    made = [*first, (RECORD, -50, OTHERS, 0xE1), (WAIT, -40, MINE, 0xE1)]
    made += [(LAUNCH, -30, OTHERS, 0), (RECORD, -20, OTHERS, 0xE1)]
    kernels.append(work(-25, 3000, OTHERS, -30))
    (found,) = explained([slow(SYNC, 0, 5010, correlation=NOW + 1, stream=MINE)], made, [*kernels])
    assert found.cause is WaitCause.UNATTRIBUTED


def test_a_host_function_that_holds_a_stream_is_named() -> None:
    first, kernels = launches(MINE, OTHERS)
    made = [*first, (HOST, -30, OTHERS, 0), (RECORD, -20, OTHERS, 0xE1), (WAIT, -10, MINE, 0xE1)]
    kinds = {"source": MemoryKind.DEVICE, "target": MemoryKind.PAGEABLE}
    wait = slow(D2H, 0, 5010, correlation=NOW + 1, stream=MINE, **kinds)
    (found,) = explained([wait], made, [*kernels, copy(5001, 5002, correlation=NOW + 1)])
    assert (found.cause, found.certainty) == (WaitCause.HELD_STREAM, Certainty.KNOWN)
    assert cause_text(found) == (
        "because of an event or a host function that held its stream: cuLaunchHostFunc in thread-101 (thread 101), "
        "30.0 µs before, no work of its context ran for 5.00 ms"
    )


@pytest.mark.parametrize(
    ("since", "cause"), [(-30, WaitCause.HELD_STREAM), (-400_000, WaitCause.UNATTRIBUTED)], ids=["shortly", "long"]
)
def test_a_wait_for_an_event_behind_a_host_function(since: float, cause: WaitCause) -> None:
    first, kernels = launches(MINE, OTHERS, begin=-450_000)
    made = [*first, (HOST, since, OTHERS, 0), (RECORD, since + 10, OTHERS, 0xE1)]
    (found,) = explained([slow(EVENT_SYNC, 0, 5010, correlation=NOW + 1)], made, kernels, event=0xE1)
    assert found.cause is cause


@pytest.mark.parametrize(("others", "waited"), [(OTHERS, True), (THIRD, False)], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("function", [SYNC, D2H])
def test_the_legacy_default_stream_waits_for_the_blocking_streams(function: str, others: int, waited: bool) -> None:
    first, kernels = launches(LEGACY, others)
    made = [(CREATE, -900, others, 0), *first, (LAUNCH, -30, others, 0)]
    kinds = {"source": MemoryKind.DEVICE, "target": MemoryKind.PAGEABLE} if function == D2H else {}
    wait = slow(function, 0, 5010, correlation=NOW + 1, stream=LEGACY, **kinds)
    number = NUMBER[LEGACY]
    own = [copy(4000, 4002, correlation=NOW + 1, stream=number)] if function == D2H else []
    (found,) = explained([wait], made, [*kernels, *own, work(-25, 4000, others, -30)])
    if waited:
        assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.PROVEN)
        assert [each.stream for each in found.evidence.work] == [NUMBER[others]]
    else:
        assert found.certainty is not Certainty.PROVEN


@pytest.mark.parametrize(("made", "waited"), [((CREATE,), True), ((CREATE, DESTROY), False), ((), False)])
def test_a_blocking_stream_waits_for_the_legacy_default_stream(made: tuple[str, ...], waited: bool) -> None:
    first, kernels = launches(LEGACY, MINE)
    calls = [*((name, -900 + at, MINE, 0) for at, name in enumerate(made)), *first, (LAUNCH, -30, LEGACY, 0)]
    wait = slow(SYNC, 0, 5010, correlation=NOW + 1, stream=MINE)
    (found,) = explained([wait], calls, [*kernels, work(-25, 4000, LEGACY, -30)])
    assert (found.cause is WaitCause.GPU_WORK and found.certainty is Certainty.PROVEN) is waited


@pytest.mark.parametrize(
    ("flag", "waited"), [(StreamFlag.DEFAULT, True), (StreamFlag.NON_BLOCKING, False), (StreamFlag.UNKNOWN, False)]
)
def test_the_legacy_default_stream_waits_for_a_blocking_stream_that_existed_before(
    flag: StreamFlag, waited: bool
) -> None:
    first, kernels = launches(LEGACY, OTHERS)
    made = [*first, (LAUNCH, -30, OTHERS, 0)]
    wait = slow(SYNC, 0, 5010, correlation=NOW + 1, stream=LEGACY)
    existing = {"kind": RecordKind.STREAM, "subkind": flag, "context": 1, "stream": NUMBER[OTHERS]}
    (found,) = explained([wait], made, [existing, *kernels, work(-25, 4000, OTHERS, -30)])
    assert (found.cause is WaitCause.GPU_WORK and found.certainty is Certainty.PROVEN) is waited


def test_a_blocking_stream_waits_for_another_one_through_the_legacy_default_stream() -> None:
    first, kernels = launches(LEGACY, MINE, OTHERS)
    made = [(CREATE, -901, MINE, 0), (CREATE, -900, OTHERS, 0), *first, (LAUNCH, -30, OTHERS, 0)]
    wait = slow(SYNC, 0, 5010, correlation=NOW + 1, stream=MINE)
    kernels += [work(-25, 4000, OTHERS, -30)]
    for launched, waited in ((-20, True), (-40, False)):
        # What the default stream does later waits for the other one, and what it did before does not.
        later = work(4001, 4002, LEGACY, launched)
        (found,) = explained([wait], [*made, (LAUNCH, launched, LEGACY, 0)], [*kernels, later])
        assert (found.certainty is Certainty.PROVEN) is waited


def test_a_copy_without_a_stream_is_one_in_the_legacy_default_stream() -> None:
    first, kernels = launches(LEGACY, OTHERS)
    made = [(CREATE, -900, OTHERS, 0), *first, (LAUNCH, -30, OTHERS, 0)]
    wait = slow("cuMemcpyDtoH_v2", 0, 5010, correlation=NOW + 1).changed(stream=None)
    kernels += [copy(4000, 4002, correlation=NOW + 1, stream=NUMBER[LEGACY]), work(-25, 4000, OTHERS, -30)]
    (found,) = explained([wait], made, kernels)
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.PROVEN)


def test_work_of_a_graph_is_in_the_stream_in_which_it_was_launched() -> None:
    """Branches have streams of their own by CUPTI."""
    first, kernels = launches(MINE)
    made = [*first, ("cuGraphLaunch", -30, MINE, 0)]
    wait = slow(SYNC, 0, 5010, correlation=NOW + 1, stream=MINE)
    kernels += [work(-25, -20, MINE, -30), work(5005, 5009, MINE, -30)]
    (found,) = explained([wait], made, [work(-20, 5000, THIRD, -30), *kernels])
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.PROVEN)
    assert found.evidence.work[0].stream == NUMBER[THIRD]


def test_an_event_in_the_legacy_default_stream_is_behind_what_holds_a_blocking_one() -> None:
    first, kernels = launches(LEGACY, OTHERS)
    made = [(CREATE, -900, OTHERS, 0), *first, (HOST, -30, OTHERS, 0), (RECORD, -20, LEGACY, 0xE1)]
    (found,) = explained([slow(EVENT_SYNC, 0, 5010, correlation=NOW + 1)], made, kernels, event=0xE1)
    assert (found.cause, found.certainty) == (WaitCause.HELD_STREAM, Certainty.KNOWN)


def test_where_threads_have_default_streams_of_their_own_the_handle_says_nothing() -> None:
    first, kernels = launches(LEGACY, MINE)
    made = [(CREATE, -900, MINE, 0), *first, (LAUNCH, -30, LEGACY, 0), ("cuLaunchKernel_ptsz", -10, LEGACY, 0)]
    wait = slow(SYNC, 0, 5010, correlation=NOW + 1, stream=MINE)
    (found,) = explained([wait], made, [*kernels, work(-25, 4000, LEGACY, -30)])
    assert found.certainty is not Certainty.PROVEN


def test_what_is_long_over_is_forgotten() -> None:
    order = StreamOrder(StreamNumbers())
    calls = call_batch([slow(HOST, 0, 1, thread=OTHER, stream=MINE, correlation=3)])
    order.add(calls, at_ns(10), NO_RECORDS)
    wait = slow(SYNC, 5, 2000, stream=MINE, correlation=9)
    assert list(order.behind(wait).functions) == [HOST]
    order.add(call_batch(), at_ns(11_000_000), NO_RECORDS)
    assert not order.behind(wait).holders
    # A stream of its own is held by nobody.
    order.add(calls, at_ns(10), NO_RECORDS)
    assert not order.behind(slow(SYNC, 5, 2000, stream=OTHERS)).holders
