"""Attribution by values made by hand: each cause, its boundaries, and what must not be blamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from factories.watch_calls import (
    ALLOC,
    D2H,
    D2H_SYNC,
    EVENT_SYNC,
    FREE,
    LAUNCH,
    MAIN,
    NAMES,
    OTHER,
    REGISTER,
    SYNC,
    THIRD,
    US,
    at_ns,
    copy,
    kernel,
    known_streams,
    overhead,
    pageable_copy,
    rows_of,
    slow,
)
from stallprobes.native.layouts.cupti import CopyKind, MemoryKind, OverheadKind, RecordKind
from stallprobes.native.layouts.driver_calls import HostTask
from stallprobes.units import duration_ns
from stallprobes.watch.attribution.findings import ExplainedCall, function_of
from stallprobes.watch.attribution.other_processes import OtherWork
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause, cause_of_task
from stallprobes.watch.causes import other_threads
from stallprobes.watch.causes.facts import Recorded
from stallprobes.watch.causes.known_stalls import KnownStalls
from stallprobes.watch.causes.order import CAUSES, attribute, cause_of
from stallprobes.watch.causes.own_durations import longest_ns
from stallprobes.watch.division.recorded_times import Tenures
from stallprobes.watch.intervals import Int64s
from stallprobes.watch.reading.process import SlowDriverCall
from stallprobes.watch.reading.words import MEMORY, Direction, GpuWork, Memory
from stallprobes.watch.sentences import call_text, cause_text

MEDIAN_NS = 5_000
# The stream of most calls; the handles of all are CUPTI's numbers.
STREAM = 7
BEHIND, BESIDE = 22, 23
STREAMS = known_streams({number: number for number in (STREAM, 8, 9, BEHIND, BESIDE)}, 1, 2)


def explained(
    calls: Sequence[SlowDriverCall],
    records: Iterable[Mapping[str, Any]] = (),
    *,
    median_ns: int = MEDIAN_NS,
    known: KnownStalls | None = None,
    tenures: Mapping[int, Tenures] | None = None,
    run_delays: Mapping[int, Int64s] | None = None,
    **also: Any,
) -> tuple[ExplainedCall, ...]:
    excess = [max(one.duration_ns - median_ns, 0) for one in calls]
    names = {MAIN: "MainThread", OTHER: "loader", THIRD: "third"}
    recorded = Recorded(rows_of(records), NAMES, tenures or {}, run_delays or {}, names, streams=STREAMS, **also)
    return attribute(calls, excess, recorded, known)


def first(*arguments: Any, **options: Any) -> ExplainedCall:
    return explained(*arguments, **options)[0]


def tenures(*spans: tuple[int, float, float]) -> Tenures:
    """Tenures (context, begin, end) in µs, of complete switches."""
    contexts, begins, ends = zip(*spans, strict=True)
    joined = np.ones(len(spans), dtype=np.bool_)
    joined[0] = False
    times = ([at_ns(one) for one in each] for each in (begins, ends))
    starts, stops = (np.array(each, dtype=np.int64) for each in times)
    return Tenures(np.array(contexts, dtype=np.int64), starts, stops, joined, 0)


# Overhead records


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (OverheadKind.MODULE_LOADING, WaitCause.MODULE_LOADING),
        (OverheadKind.LAZY_FUNCTION_LOADING, WaitCause.LAZY_LOADING),
        (OverheadKind.DRIVER_COMPILER, WaitCause.COMPILATION),
        (OverheadKind.COMMAND_BUFFER_FULL, WaitCause.QUEUE_FULL),
        (OverheadKind.BUFFER_FLUSH, WaitCause.TRACING),
    ],
)
def test_an_overhead_record_of_the_call_is_its_cause(reason: OverheadKind, cause: WaitCause) -> None:
    found = first([slow(LAUNCH, 0, 2000, correlation=9)], [overhead(reason, 10, 1990, correlation=9)])
    assert (found.cause, found.certainty) == (cause, Certainty.PROVEN)
    assert found.explained_ns == found.evidence.overhead_ns == 1980 * US
    assert found.excess_ns == 2000 * US - MEDIAN_NS


def test_an_overhead_record_is_stronger_than_a_call_beside() -> None:
    calls = [slow(LAUNCH, 0, 2000, correlation=9), pageable_copy(0, 2000, correlation=10)]
    found = first(calls, [overhead(OverheadKind.LAZY_FUNCTION_LOADING, 0, 1500, correlation=9)])
    assert found.cause is WaitCause.LAZY_LOADING


@pytest.mark.parametrize(
    "record",
    [
        # Another call, another time, and too short.
        overhead(OverheadKind.MODULE_LOADING, 10, 1990, correlation=8),
        overhead(OverheadKind.MODULE_LOADING, 3000, 5000, correlation=9),
        overhead(OverheadKind.MODULE_LOADING, 10, 900, correlation=9),
        overhead(OverheadKind.UNKNOWN, 10, 1990, correlation=9),
    ],
)
def test_an_overhead_record_that_does_not_fit_is_no_cause(record: Mapping[str, Any]) -> None:
    found = first([slow(LAUNCH, 0, 2000, correlation=9)], [record])
    assert (found.cause, found.certainty, found.explained_ns) == (WaitCause.UNATTRIBUTED, None, 0)


def test_an_overhead_record_without_a_call_belongs_to_the_call_of_its_thread() -> None:
    calls = [
        slow(LAUNCH, 0, 2000, thread=MAIN, correlation=1, context=2),
        slow(LAUNCH, 0, 2000, thread=OTHER, correlation=2),
        slow(LAUNCH, 3000, 5000, thread=OTHER, correlation=3),
    ]
    record = overhead(OverheadKind.MODULE_LOADING, 100, 1900, thread=OTHER)
    assert [one.cause for one in explained(calls, [record])] == [
        WaitCause.UNATTRIBUTED, WaitCause.MODULE_LOADING, WaitCause.UNATTRIBUTED
    ]  # fmt: skip


# GPU work in front


def test_a_stream_synchronization_waits_for_the_kernels_of_its_stream() -> None:
    records = [
        kernel(-500, 1000, correlation=5),
        kernel(1000, 9000, correlation=6, name=2),
        kernel(9000, 9990, correlation=7),
        kernel(0, 10000, correlation=8, name=3, stream=8),
    ]
    found = first([slow(SYNC, 0, 10000, correlation=9, stream=STREAM)], records)
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.PROVEN)
    assert found.explained_ns == 9990 * US
    assert [(one.name, one.count, one.overlap_ns // US, one.total_ns // US) for one in found.evidence.work] == [
        ("mul(float*)", 1, 8000, 8000), ("add(float*)", 2, 1990, 2490)
    ]  # fmt: skip
    assert found.share > 0.99


def test_work_submitted_after_a_synchronization_is_not_in_front_of_it() -> None:
    records = [kernel(0, 100, correlation=5), kernel(100, 10000, correlation=12)]
    found = first([slow(SYNC, 0, 10000, correlation=9, stream=STREAM)], records)
    assert found.cause is WaitCause.UNATTRIBUTED


def test_correlation_numbers_may_start_again() -> None:
    records = [kernel(0, 9900, correlation=2**32 - 2)]
    found = first([slow(SYNC, 0, 10000, correlation=3, stream=STREAM)], records)
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.PROVEN)


@pytest.mark.parametrize(("busy", "cause"), [(4998, WaitCause.GPU_WORK), (4990, WaitCause.UNATTRIBUTED)])
def test_work_in_front_covers_half_of_the_excess(busy: float, cause: WaitCause) -> None:
    # The excess is 9995 µs.
    found = first([slow(SYNC, 0, 10000, correlation=9, stream=STREAM)], [kernel(0, busy, correlation=5)])
    assert found.cause is cause


def test_kernels_of_another_context_are_not_in_front() -> None:
    records = [kernel(0, 10000, correlation=5, context=2)]
    assert first([slow(SYNC, 0, 10000, correlation=9, stream=STREAM)], records).cause is WaitCause.UNATTRIBUTED


def test_a_blocking_copy_waits_for_the_kernel_in_front_and_for_itself() -> None:
    records = [kernel(-100, 4980, correlation=5), copy(4982, 4990, correlation=9)]
    call = slow(D2H, 0, 5000, correlation=9, stream=1, source=MemoryKind.DEVICE, target=MemoryKind.PAGEABLE, size=4)
    found = first([call], records)
    assert (found.cause, found.certainty, found.explained_ns) == (WaitCause.GPU_WORK, Certainty.PROVEN, 4980 * US)
    assert [(part.cause, part.ns) for part in found.also] == [(WaitCause.OWN_WORK, 8 * US)]
    assert [(one.name, one.own, one.direction) for one in found.evidence.work] == [
        ("add(float*)", False, None), ("", True, Direction.DEVICE_TO_HOST)
    ]  # fmt: skip


def test_a_large_blocking_copy_is_its_own_cause() -> None:
    found = first([pageable_copy(0, 50_000, correlation=9)], [copy(20, 49_900, correlation=9, size=256 << 20)])
    assert (found.cause, found.certainty, found.explained_ns) == (WaitCause.OWN_WORK, Certainty.PROVEN, 49_880 * US)
    assert found.also == ()


def test_the_kind_of_memory_may_be_known_to_the_driver_alone() -> None:
    records = [kernel(0, 4980, correlation=5), copy(4982, 4990, correlation=9)]
    assert first([slow("cuMemcpyAsync", 0, 5000, correlation=9)], records).cause is WaitCause.GPU_WORK


def test_an_asynchronous_copy_to_pinned_memory_waits_for_no_work() -> None:
    records = [kernel(0, 4980, correlation=5), copy(4982, 4990, correlation=9, target=MemoryKind.PINNED)]
    call = slow(D2H, 0, 5000, correlation=9, stream=1, source=MemoryKind.DEVICE, target=MemoryKind.PINNED)
    assert first([call], records).cause is WaitCause.UNATTRIBUTED


def test_a_launch_does_not_wait_for_the_work_of_its_stream() -> None:
    records = [kernel(0, 4980, correlation=5), kernel(4990, 6000, correlation=9)]
    assert first([slow(LAUNCH, 0, 5000, correlation=9, stream=1)], records).cause is WaitCause.UNATTRIBUTED


def test_a_launch_that_returns_with_its_kernel_waits_for_it() -> None:
    found = first([slow(LAUNCH, 0, 5000, correlation=9)], [kernel(8, 4990, correlation=9)])
    assert (found.cause, found.certainty) == (WaitCause.OWN_WORK, Certainty.PROVEN)
    # A kernel that ended earlier is not what the launch waited for.
    assert first([slow(LAUNCH, 0, 5000, correlation=9)], [kernel(8, 4900, correlation=9)]).cause is (
        WaitCause.UNATTRIBUTED
    )


def test_the_stream_is_known_by_another_call_with_its_handle() -> None:
    calls = [
        slow(SYNC, 0, 5000, correlation=9, stream=0x55),
        slow(D2H_SYNC, 6000, 8000, correlation=12, stream=0x55),
    ]
    records = [kernel(0, 4000, correlation=5, stream=13), copy(6000, 7990, correlation=12, stream=13)]
    found = explained(calls, records)
    assert (found[0].cause, found[0].certainty) == (WaitCause.GPU_WORK, Certainty.PROVEN)


@pytest.mark.parametrize("function", ["cuCtxSynchronize", FREE])
def test_a_call_that_waits_for_the_context_waits_for_all_its_streams(function: str) -> None:
    records = [kernel(0, 3000, correlation=5), kernel(2000, 4950, correlation=6, stream=8, name=2)]
    found = first([slow(function, 0, 5000, correlation=9)], records)
    assert (found.cause, found.certainty, found.explained_ns) == (WaitCause.GPU_WORK, Certainty.PROVEN, 4950 * US)
    assert {one.stream for one in found.evidence.work} == {7, 8}


def test_an_event_stands_for_the_one_stream_that_ends_with_the_call() -> None:
    records = [kernel(-100, 4990, correlation=5), kernel(0, 4000, correlation=6, stream=8)]
    found = first([slow(EVENT_SYNC, 0, 5000, correlation=9)], records)
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.PROVEN)
    assert {one.stream for one in found.evidence.work} == {7}


def test_two_streams_that_end_with_an_event_are_both_only_beside() -> None:
    records = [kernel(-100, 4990, correlation=5), kernel(0, 4980, correlation=6, stream=8)]
    found = first([slow(EVENT_SYNC, 0, 5000, correlation=9)], records)
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.BESIDE)


@pytest.mark.parametrize(("end", "cause"), [(4950, WaitCause.GPU_WORK), (4949.9, WaitCause.UNATTRIBUTED)])
def test_work_of_another_stream_is_beside_if_it_ends_with_the_call(end: float, cause: WaitCause) -> None:
    # A stream that waits for an event of another stream: no record joins them.
    records = [kernel(0, end, correlation=5, stream=8), kernel(-90, -80, correlation=4)]
    found = first([slow(SYNC, 0, 5000, correlation=9, stream=STREAM)], records)
    assert found.cause is cause
    assert found.certainty is (Certainty.BESIDE if cause is WaitCause.GPU_WORK else None)


def test_work_of_another_stream_ends_when_a_blocking_copy_starts() -> None:
    records = [kernel(0, 4000, correlation=5, stream=8), copy(4010, 4990, correlation=9)]
    found = first([pageable_copy(0, 5000, correlation=9)], records)
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.BESIDE)
    # The kernel could as well have ended by chance.
    assert found.cause is WaitCause.GPU_WORK


# Time-slices


def test_another_context_had_the_engine_while_work_in_front_waited() -> None:
    records = [kernel(4000, 4990, correlation=5), kernel(-50, 3990, correlation=6, context=2)]
    slices = {0: tenures((2, -100, 3910), (1, 3990, 5100))}
    found = first([slow(SYNC, 0, 5000, correlation=9, stream=STREAM)], records, tenures=slices)
    assert (found.cause, found.certainty, found.explained_ns) == (
        WaitCause.OTHER_CONTEXT, Certainty.PROVEN, 3910 * US
    )  # fmt: skip
    assert [(part.cause, part.ns) for part in found.also] == [(WaitCause.GPU_WORK, 990 * US)]
    assert [(one.context, one.ns) for one in found.evidence.engine] == [(2, 3910 * US)]


def test_a_kernel_that_another_context_interrupted_did_not_run_meanwhile() -> None:
    records = [kernel(0, 9990, correlation=5)]
    slices = {0: tenures((1, -10, 2000), (2, 2080, 8000), (1, 8080, 10_500))}
    found = first([slow(SYNC, 0, 10_000, correlation=9, stream=STREAM)], records, tenures=slices)
    assert (found.cause, found.explained_ns) == (WaitCause.OTHER_CONTEXT, 5920 * US)
    assert [(part.cause, part.ns) for part in found.also] == [(WaitCause.GPU_WORK, 4070 * US)]


@pytest.mark.parametrize(("gap", "cause"), [(2400, WaitCause.OTHER_PROCESS), (300, WaitCause.UNATTRIBUTED)])
def test_a_gap_without_a_context_of_ours_is_another_process(gap: float, cause: WaitCause) -> None:
    records = [kernel(gap, gap + 60, correlation=5)]
    slices = {0: tenures((1, -1000, 0), (1, gap, gap + 900))}
    found = first(
        [slow(SYNC, 0, gap + 60 + 1300 * (gap < 1000), correlation=9, stream=STREAM)], records, tenures=slices
    )
    assert found.cause is cause
    if cause is WaitCause.OTHER_PROCESS:
        assert [(one.context, one.ns) for one in found.evidence.engine] == [(None, 2400 * US)]


def test_another_process_that_is_watched_is_named_with_the_kernel_that_ran_longest() -> None:
    records = [kernel(2400, 2460, correlation=5)]
    slices = {0: tenures((1, -1000, 0), (1, 2400, 3300))}
    others = (
        OtherWork.of("trainer (pid 8)", rows_of([kernel(-500, 100, name=2), kernel(100, 2300, name=1)]), NAMES),
        OtherWork.of("short (pid 9)", rows_of([kernel(100, 200)]), NAMES),
        # On another GPU, and at other times.
        OtherWork.of("elsewhere (pid 10)", rows_of([kernel(0, 2400, device=1), kernel(2500, 9000)]), NAMES),
        OtherWork.of("idle (pid 11)", rows_of([]), {}),
    )
    call = slow(SYNC, 0, 2460, correlation=9, stream=STREAM)
    found = first([call], records, tenures=slices, others=lambda: others)
    assert [one.process for one in found.evidence.engine] == ["add of trainer (pid 8)"]
    assert "another process: add of trainer (pid 8) had the graphics engine for 2.40 ms" in cause_text(found)
    nameless = OtherWork.of("trainer (pid 8)", rows_of([kernel(100, 2300, name=0)]), NAMES)
    found = first([call], records, tenures=slices, others=lambda: [nameless])
    assert "another process: trainer (pid 8) had the graphics engine" in cause_text(found)
    found = first([call], records, tenures=slices, others=lambda: others[2:])
    assert "another process: another process had the graphics engine" in cause_text(found)


def test_another_context_is_not_blamed_when_nothing_waited_for_the_engine() -> None:
    # A copy to the host has an engine of its own.
    records = [copy(4000, 4990, correlation=9)]
    slices = {0: tenures((2, -100, 4500), (1, 4580, 5100))}
    call = pageable_copy(0, 5000, correlation=9)
    assert first([call], records, tenures=slices).cause is WaitCause.UNATTRIBUTED
    assert first([slow(LAUNCH, 0, 5000, correlation=9)], [], tenures=slices).cause is WaitCause.UNATTRIBUTED


# Calls of other threads


def test_a_launch_beside_a_pageable_copy_of_another_thread() -> None:
    calls = [slow(LAUNCH, 10, 100_000, correlation=2, stream=1), pageable_copy(0, 99_990, correlation=1)]
    launch, its_copy = explained(calls, [copy(50, 99_900, correlation=1)])
    assert (launch.cause, launch.certainty) == (WaitCause.PAGEABLE_COPY, Certainty.BESIDE)
    culprit = launch.culprit
    assert culprit is not None
    assert (culprit.thread, culprit.thread_name, culprit.function, culprit.calls) == (OTHER, "loader", D2H, 1)
    assert (culprit.overlap_ns, culprit.target) == (99_980 * US, Memory.PAGEABLE)
    assert launch.explained_ns == 99_980 * US
    # The copy waited for itself.
    assert its_copy.cause is WaitCause.OWN_WORK


@pytest.mark.parametrize(
    ("begin", "end", "blamed"),
    [
        # The excess is 10 000 µs: 80 % of it are 8000.
        (2005, 10_005, True),
        (2006, 10_005, False),
        # A twentieth of the call before its end, and 50 µs after it.
        (0, 9504.8, True),
        (0, 9504.7, False),
        (0, 10_055, True),
        (0, 10_055.1, False),
    ],
)
def test_the_boundaries_of_an_overlap(begin: float, end: float, blamed: bool) -> None:
    calls = [slow(LAUNCH, 0, 10_005, correlation=2), pageable_copy(begin, end, correlation=1)]
    found = first(calls)
    assert found.cause is (WaitCause.PAGEABLE_COPY if blamed else WaitCause.UNATTRIBUTED)


@pytest.mark.parametrize("function", ["cuMemAllocAsync", "cuMemAllocFromPoolAsync_ptsz", "cuMemFreeAsync"])
def test_what_a_stream_orders_holds_nothing_up(function: str) -> None:
    calls = [slow(LAUNCH, 10, 10_000, correlation=2), slow(function, 0, 9990, thread=OTHER, correlation=1)]
    assert first(calls).cause is WaitCause.UNATTRIBUTED


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (ALLOC, WaitCause.ALLOCATION),
        (FREE, WaitCause.FREE),
        ("cuMemPoolTrimTo", WaitCause.ASYNC_ALLOCATION),
        ("cuMemMapArrayAsync", WaitCause.ALLOCATION),
        ("cuMemHostAlloc", WaitCause.HOST_ALLOCATION),
        ("cuMemFreeHost", WaitCause.HOST_ALLOCATION),
        (REGISTER, WaitCause.HOST_REGISTRATION),
        ("cuMemHostUnregister", WaitCause.HOST_REGISTRATION),
        ("cuGraphInstantiateWithFlags", WaitCause.GRAPH),
        ("cuModuleLoadData", WaitCause.MODULE),
        ("cuLibraryLoadData", WaitCause.MODULE),
        ("cuCtxCreate_v4", WaitCause.CONTEXT),
        ("cuStreamCreate", WaitCause.STREAM),
    ],
)
def test_what_a_call_of_another_thread_is_as_a_cause(function: str, cause: WaitCause) -> None:
    calls = [slow(LAUNCH, 10, 10_000, correlation=2), slow(function, 0, 9990, thread=OTHER, correlation=1)]
    found = first(calls)
    assert (found.cause, found.certainty) == (cause, Certainty.BESIDE)
    assert found.culprit is not None
    assert found.culprit.function == function
    assert cause_of(cause).remedy
    assert cause.is_other_thread


@pytest.mark.parametrize(
    "other",
    [
        # A pinned copy, a launch, a wait, an event, a query, a capture; another context; the thread itself.
        slow(D2H, 0, 9990, thread=OTHER, source=MemoryKind.DEVICE, target=MemoryKind.PINNED),
        slow(LAUNCH, 0, 9990, thread=OTHER),
        slow(SYNC, 0, 9990, thread=OTHER),
        slow("cuEventRecord", 0, 9990, thread=OTHER),
        slow("cuStreamBeginCapture", 0, 9990, thread=OTHER),
        pageable_copy(0, 9990, context=2),
        slow(ALLOC, 0, 9990, thread=MAIN),
    ],
)
def test_a_call_that_holds_nothing_is_not_blamed(other: SlowDriverCall) -> None:
    assert first([slow(LAUNCH, 10, 10_000, correlation=2), other]).cause is WaitCause.UNATTRIBUTED


def test_the_creation_of_a_context_is_beside_calls_of_every_context() -> None:
    calls = [slow(LAUNCH, 10, 10_000), slow("cuCtxCreate_v4", 0, 9990, thread=OTHER, context=0)]
    assert first(calls).cause is WaitCause.CONTEXT


def test_calls_of_no_known_context_are_not_matched() -> None:
    calls = [slow(LAUNCH, 10, 10_000, context=0), pageable_copy(0, 9990, context=0)]
    assert first(calls).cause is WaitCause.UNATTRIBUTED


@pytest.mark.parametrize(
    ("held", "late", "cause"),
    [
        (395_000, 4_900, WaitCause.PAGEABLE_COPY),
        (395_000, 5_100, WaitCause.UNATTRIBUTED),
        (60_000, 2_700, WaitCause.PAGEABLE_COPY),
        (20_000, 1_100, WaitCause.UNATTRIBUTED),
        (2_000, 600, WaitCause.UNATTRIBUTED),
    ],
)
def test_a_thread_that_was_held_up_for_long_wakes_up_later(held: float, late: float, cause: WaitCause) -> None:
    assert first([slow(LAUNCH, 10, held + late), pageable_copy(0, held)]).cause is cause


def test_a_thread_that_starves_waits_for_many_copies() -> None:
    copies = [pageable_copy(each * 10_000, each * 10_000 + 9_990, correlation=each + 1) for each in range(10)]
    found = first([slow(LAUNCH, 500, 99_995, correlation=1000), *copies])
    assert found.cause is WaitCause.PAGEABLE_COPY
    assert found.culprit is not None
    assert found.culprit.calls == 10
    assert found.explained_ns == sum(min(one.end_ns, at_ns(99_995)) - max(one.begin_ns, at_ns(500)) for one in copies)


def test_of_two_calls_that_hold_the_same_the_first_is_not_blamed_on_the_second() -> None:
    size = 256 << 20
    early, late = (
        slow("cuMemHostAlloc", 0, 10_000, thread=MAIN, size=size),
        slow("cuMemHostAlloc", 100, 10_020, thread=OTHER, size=size),
    )
    found = explained([early, late])
    assert [one.cause for one in found] == [WaitCause.ITSELF, WaitCause.HOST_ALLOCATION]


def test_the_strongest_cause_of_several_threads() -> None:
    calls = [
        slow(LAUNCH, 10, 10_000),
        slow(REGISTER, 0, 9990, thread=THIRD),
        pageable_copy(1500, 9990),
    ]
    assert first(calls).cause is WaitCause.PAGEABLE_COPY


def test_a_launch_that_loads_its_code_delays_other_threads() -> None:
    calls = [slow(LAUNCH, 10, 10_000, correlation=2), slow(LAUNCH, 0, 9990, thread=OTHER, correlation=1)]
    found = explained(calls, [overhead(OverheadKind.LAZY_FUNCTION_LOADING, 5, 9980, correlation=1)])
    assert [one.cause for one in found] == [WaitCause.MODULE, WaitCause.LAZY_LOADING]


def test_the_work_in_front_is_stronger_than_a_call_beside() -> None:
    calls = [slow(SYNC, 10, 10_000, correlation=2, stream=STREAM), slow(ALLOC, 0, 9990, thread=OTHER, correlation=1)]
    found = first(calls, [kernel(0, 9980, correlation=1)])
    assert found.cause is WaitCause.GPU_WORK


# Known pairs


def test_a_pair_that_a_check_shows_is_known() -> None:
    calls = [slow(LAUNCH, 10, 10_000, stream=0), pageable_copy(0, 9990, stream=0)]
    known = KnownStalls(frozenset({("launch/null", "d2h-pageable-fresh")}), "a check")
    assert first(calls, known=known).certainty is Certainty.KNOWN
    assert Certainty.KNOWN.preposition == "because of"
    # On a stream of its own the check shows no stall.
    calls[0] = slow(LAUNCH, 10, 10_000, stream=5)
    assert first(calls, known=known).certainty is Certainty.BESIDE
    assert Certainty.BESIDE.preposition == "beside"


# No CPU


def delays(*samples: tuple[float, float]) -> Mapping[int, Int64s]:
    rows = [(at_ns(time), round(delay * US)) for time, delay in samples]
    return {MAIN: np.array(rows, dtype=np.int64)}


def test_a_thread_without_a_cpu() -> None:
    found = first([slow(LAUNCH, 0, 10_000)], run_delays=delays((-100, 0), (10_100, 9000)))
    # Up to 200 µs of the delay may lie outside.
    assert (found.cause, found.certainty, found.explained_ns) == (WaitCause.NO_CPU, Certainty.PROVEN, 8800 * US)


def test_a_thread_whose_cpu_was_given_to_others_in_a_call() -> None:
    times = np.array([(-500, 100), (200, 9200), (9900, 12_000), (13_000, 14_000)], dtype=np.int64) * US + at_ns(0)
    found = first([slow(LAUNCH, 0, 10_000)], preempted={MAIN: times})
    assert (found.cause, found.certainty, found.explained_ns) == (WaitCause.NO_CPU, Certainty.PROVEN, 9200 * US)
    for other in ({MAIN: times[[0, 2, 3]]}, {OTHER: times}, {MAIN: times[:0]}):
        assert first([slow(LAUNCH, 0, 10_000)], preempted=other).cause is WaitCause.UNATTRIBUTED


@pytest.mark.parametrize(
    "samples",
    [
        ((-100.0, 0.0), (10_100.0, 8000.0)),
        # The delay may all have been before the call.
        ((-9000.0, 0.0), (10_000.0, 9000.0)),
        # No sample after the call.
        ((-100.0, 0.0), (9000.0, 9000.0)),
    ],
)
def test_too_little_is_known_of_a_lack_of_cpu(samples: tuple[tuple[float, float], ...]) -> None:
    assert first([slow(LAUNCH, 0, 10_000)], run_delays=delays(*samples)).cause is WaitCause.UNATTRIBUTED


# All together


def test_a_call_within_a_slow_call_is_nested() -> None:
    calls = [
        slow(D2H_SYNC, 100, 4000, correlation=2),
        slow(D2H_SYNC, 0, 5000, correlation=1),
        slow(D2H_SYNC, 100, 4000, thread=OTHER, correlation=3),
        slow(D2H_SYNC, 6000, 9000, correlation=4),
    ]
    assert [one.nested for one in explained(calls)] == [True, False, False, False]


def test_nothing_is_explained_without_calls() -> None:
    assert explained([], [kernel(0, 10)]) == ()


def test_a_call_as_fast_as_the_median_lost_nothing() -> None:
    found = first([slow(LAUNCH, 10, 10_000), pageable_copy(0, 9990)], median_ns=20_000 * US)
    assert (found.cause, found.excess_ns, found.share) == (WaitCause.UNATTRIBUTED, 0, 0.0)


def test_every_cause_has_words_and_all_but_the_last_a_remedy() -> None:
    assert [cause.name for cause in CAUSES] == list(WaitCause)
    assert [cause.name for cause in CAUSES if not (cause.word and cause.clause)] == []
    assert [cause.name for cause in CAUSES if not cause.remedy] == [WaitCause.UNATTRIBUTED]
    tasks = [cause_of_task(task) for task in HostTask if task]
    assert (
        tasks == [cause.name for cause in other_threads.CAUSES] == [name for name in WaitCause if name.is_other_thread]
    )


@pytest.mark.parametrize(
    ("function", "words", "pattern"),
    [
        (SYNC, "Submit the next work before this wait", ""),
        (FREE, "Free with cuMemFreeAsync, which waits for nothing", ""),
        ("cuCtxDestroy_v2", "Destroy the context where", ""),
        (D2H, "keep a value that only the next kernel needs on the GPU", "scalar-readback"),
        ("", "Wait later", "scalar-readback"),
    ],
)
def test_what_helps_against_waits_for_work_depends_on_the_function(function: str, words: str, pattern: str) -> None:
    remedy, found = cause_of(WaitCause.GPU_WORK).helps(function)
    assert words in remedy
    assert found == pattern


def test_the_function_that_lost_most_time_to_a_cause() -> None:
    calls = [slow(SYNC, 0, 20_000, correlation=8, stream=STREAM), slow(D2H, 30_000, 90_000, correlation=9)]
    work = [kernel(-100, 19_990, correlation=7), copy(30_000, 89_990, correlation=9)]
    found = explained(calls, work)
    assert function_of(found, WaitCause.GPU_WORK) == SYNC
    assert function_of(found, WaitCause.GPU_WORK, thread=OTHER) == function_of(found, WaitCause.FREE) == ""


def test_records_of_other_kinds_are_no_work() -> None:
    record = dict(kernel(0, 9990, correlation=5)) | {"kind": RecordKind.OVERHEAD}
    assert first([slow(SYNC, 0, 10_000, correlation=9, stream=STREAM)], [record]).cause is WaitCause.UNATTRIBUTED


# Launches behind so many others that the queue is full


def queued(pending: int, *, stream: int = 7) -> tuple[list[SlowDriverCall], list[Mapping[str, Any]]]:
    """A launch that returns when a kernel ends, and so many calls after that kernel's own."""
    launch = slow(LAUNCH, 100, 2600, correlation=5000 + pending, stream=1)
    kernels = [kernel(each * 2500, each * 2500 + 2490, correlation=4999 + each, stream=stream) for each in range(3)]
    return [launch], kernels


def test_a_launch_behind_a_thousand_others_waits_for_the_queue() -> None:
    calls, work = queued(1020)
    found = first(calls, [{**work[0], "end": at_ns(2590)}, *work[1:]])
    assert (found.cause, found.certainty) == (WaitCause.QUEUE_FULL, Certainty.KNOWN)
    assert cause_text(found) == "because of a full launch queue: add (2.49 ms)"


def test_a_launch_behind_few_others_does_not() -> None:
    calls, work = queued(100)
    assert first(calls, [{**work[0], "end": at_ns(2590)}, *work[1:]]).cause is WaitCause.UNATTRIBUTED


def test_a_launch_that_ends_with_no_work_does_not() -> None:
    calls, work = queued(1020)
    assert first(calls, [{**work[0], "end": at_ns(1500)}, *work[2:]]).cause is WaitCause.UNATTRIBUTED


# Causes on the host


def test_a_call_takes_long_itself() -> None:
    calls = [slow("cuCtxCreate_v2", 0, 100_000, correlation=1), slow("cuLibraryLoadData", 100_000, 110_000)]
    context, library = explained(calls)
    assert (context.cause, context.certainty) == (WaitCause.ITSELF, Certainty.KNOWN)
    assert context.explained_ns == context.excess_ns == context.evidence.overlap_ns
    longest = longest_ns("cuCtxCreate_v2", None)
    assert longest is not None
    assert call_text(context) == (
        "cuCtxCreate_v2 in MainThread (thread 100) took 100 ms because of the call itself: creating or destroying a"
        f" context, which takes up to {duration_ns(longest)} on an idle GPU."
    )
    assert (library.cause, library.certainty) == (WaitCause.MODULE_LOADING, Certainty.KNOWN)


def test_a_free_takes_long_itself_only_if_all_work_of_the_gpu_is_known() -> None:
    calls = [slow(FREE, 0, 10_000, correlation=2)]
    work = [kernel(-100, -50, correlation=1)]
    assert first(calls, work, complete=True).cause is WaitCause.ITSELF
    assert first(calls, work).cause is WaitCause.UNATTRIBUTED
    assert first(calls, complete=True).cause is WaitCause.UNATTRIBUTED


def test_the_first_launch_of_a_kernel_loads_it() -> None:
    calls = [slow(LAUNCH, 0, 3000, correlation=5), slow(LAUNCH, 4000, 7000, correlation=6)]
    work = [kernel(3000, 3100, name=1, correlation=5), kernel(7000, 7100, name=1, correlation=6)]
    found, again = explained(calls, work, first_launches={(1, 1): 5})
    assert (found.cause, found.certainty) == (WaitCause.LAZY_LOADING, Certainty.KNOWN)
    assert cause_text(found) == "because of loading the kernel at its first launch: the first launch of add"
    assert again.cause is WaitCause.UNATTRIBUTED
    nameless = first(calls[:1], [kernel(3000, 3100, name=0, correlation=5)], first_launches={(1, 0): 5})
    assert cause_text(nameless).endswith("at its first launch: the first launch of a kernel without a name")
    # A stronger cause.
    beside = explained([*calls, pageable_copy(0, 2990)], work, first_launches={(1, 1): 5})[0]
    assert beside.cause is WaitCause.PAGEABLE_COPY


@pytest.mark.parametrize(
    ("recorded", "kind", "cause"),
    [
        (MemoryKind.PINNED, MemoryKind.PINNED, WaitCause.UNATTRIBUTED),
        (MemoryKind.MANAGED, MemoryKind.MANAGED, WaitCause.UNATTRIBUTED),
        (MemoryKind.PAGEABLE, MemoryKind.PAGEABLE, WaitCause.PAGEABLE_COPY),
        (MemoryKind.UNKNOWN, MemoryKind.PAGEABLE, WaitCause.PAGEABLE_COPY),
        (99, MemoryKind.PAGEABLE, WaitCause.PAGEABLE_COPY),
    ],
)
def test_memory_is_of_the_kind_that_the_driver_recorded(recorded: int, kind: MemoryKind, cause: WaitCause) -> None:
    """As host memory of cuMemCreate is, which the library takes for pageable."""
    calls = [slow(LAUNCH, 0, 3000, correlation=5), pageable_copy(0, 2990, correlation=6)]
    work = [kernel(3000, 3100, correlation=5), copy(100, 2900, correlation=6, stream=3, target=recorded)]  # type: ignore[arg-type]
    launch, copied = explained(calls, work)
    assert (copied.source, copied.target) == (Memory.DEVICE, MEMORY[kind])
    assert launch.cause is cause
    assert explained(calls, work[:1])[1].target is Memory.PAGEABLE


def test_one_kind_of_a_call_of_several_copies_is_none_of_the_others() -> None:
    calls = [pageable_copy(0, 2990, correlation=6)]
    work = [
        copy(at, at + 10, correlation=6, target=kind)
        for at, kind in ((1, MemoryKind.PINNED), (20, MemoryKind.PAGEABLE))
    ]
    assert first(calls, work).target is Memory.PAGEABLE


GATED = [slow(D2H, 0, 100_000, correlation=5, target=MemoryKind.PAGEABLE, source=MemoryKind.DEVICE)]
OF_GATED = copy(99_980, 99_990, correlation=5)
HOLDING: Mapping[str, Any] = {"complete": True, "may_hold_streams": True}


def test_a_copy_whose_stream_was_held_by_no_work() -> None:
    found = first(GATED, [OF_GATED], **HOLDING)
    assert (found.cause, found.certainty) == (WaitCause.HELD_STREAM, Certainty.BESIDE)
    assert found.explained_ns == 99_980 * US
    assert cause_text(found) == (
        "beside an event or a host function that held its stream: no work of its context ran for 100 ms"
    )


@pytest.mark.parametrize(
    ("records", "options"),
    [
        # Nothing can hold a stream, records are missing, work ran on another stream, the copy began at once.
        ([OF_GATED], {"complete": True}),
        ([OF_GATED], {"may_hold_streams": True}),
        ([OF_GATED, kernel(0, 50_000, stream=9, correlation=4)], HOLDING),
        ([copy(10, 20, correlation=5)], HOLDING),
        ([], HOLDING),
    ],
)
def test_a_copy_whose_stream_may_not_have_been_held(
    records: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> None:
    assert first(GATED, records, **options).cause is not WaitCause.HELD_STREAM


def test_a_synchronization_behind_work_that_began_late_although_no_other_ran() -> None:
    calls = [slow(SYNC, 0, 20_000, correlation=8, stream=STREAM)]
    late = kernel(19_950, 19_990, correlation=7)
    assert first(calls, [late], **HOLDING).cause is WaitCause.HELD_STREAM
    # Without work that it waited for, nobody knows what it waited for.
    before = kernel(-200, -100, correlation=1)
    assert first(calls, [before], **HOLDING).cause is WaitCause.UNATTRIBUTED
    # Other work, whose end it may have waited for.
    assert first(calls, [kernel(0, 10_000, correlation=3, stream=9), late], **HOLDING).cause is (WaitCause.UNATTRIBUTED)


# Staged peer copies, as two H200s record them


def staged(call: int, first: float, second: float, *, stream: int) -> list[Mapping[str, Any]]:
    """The two parts of a staged copy, of 20 µs each."""
    to_host, to_device = CopyKind.DEVICE_TO_HOST, CopyKind.HOST_TO_DEVICE
    return [
        copy(first, first + 20, correlation=call, context=2, stream=stream, direction=to_host),
        copy(second, second + 20, correlation=call, context=1, stream=9, direction=to_device),
    ]


STAGED = [
    kernel(-100, 20_000, correlation=1, context=2, stream=BEHIND),
    *staged(2, 20_005, 20_030, stream=BEHIND),
    *staged(3, -20, 20_060, stream=BESIDE),
]


def test_a_peer_copy_waits_for_one_of_another_stream_that_waits_for_a_kernel() -> None:
    found = first([slow(SYNC, 0, 20_110, correlation=4, context=2, stream=BESIDE)], STAGED)
    assert (found.cause, found.certainty) == (WaitCause.STAGED_COPY, Certainty.PROVEN)
    # From the beginning to the end of the kernel, and the copies.
    assert found.explained_ns == (20_000 + 20 + 20 + 20) * US
    assert [work.kind for work in found.evidence.work[:2]] == [GpuWork.KERNEL, GpuWork.COPY]


@pytest.mark.parametrize(
    "records",
    [
        # Submitted later, of the same context, and of another call each.
        [*STAGED[:1], *staged(9, 20_005, 20_030, stream=BEHIND), *STAGED[3:]],
        [*STAGED[:1], *STAGED[3:4], copy(20_060, 20_080, correlation=3, context=2, stream=9)],
        [*STAGED[:1], *staged(0, -20, 20_060, stream=BESIDE)],
    ],
)
def test_what_is_no_staged_copy_in_front_has_no_kernel_to_wait_for(records: Sequence[Mapping[str, Any]]) -> None:
    found = first([slow(SYNC, 0, 20_110, correlation=4, context=2, stream=BESIDE)], records)
    assert found.cause is not WaitCause.STAGED_COPY
    assert GpuWork.KERNEL not in {work.kind for work in found.evidence.work}


def test_calls_of_one_thread_that_overlap_as_only_in_a_damaged_file() -> None:
    calls = [slow(LAUNCH, 5000, 10_000), pageable_copy(0, 9990)]
    # More than can contain one another, none of which lasts until the launch.
    calls += [pageable_copy(100 * number, 100 * number + 50) for number in range(1, 8)]
    found = first(calls)
    assert found.cause is WaitCause.PAGEABLE_COPY
    assert found.culprit is not None
    assert found.culprit.duration_ns == 9_990_000


def test_a_context_is_destroyed_late_beside_work_of_another_one() -> None:
    destroyed = slow("cuCtxDestroy_v2", 0, 2_500_000, context=3)
    long = [kernel(-100_000, 2_450_000, context=1, correlation=9)]
    found = first([destroyed], long, complete=True)
    assert (found.cause, found.certainty) == (WaitCause.GPU_WORK, Certainty.KNOWN)
    assert [(work.context, work.overlap_ns) for work in found.evidence.work] == [(1, 2_450_000_000)]
    # Work of its own context, and little of another one, is no reason.
    for work in ([kernel(0, 2_450_000, context=3, correlation=9)], [kernel(0, 900_000, context=1, correlation=9)]):
        # By itself it takes some 50 ms.
        assert first([destroyed], work, complete=True).cause is WaitCause.UNATTRIBUTED
