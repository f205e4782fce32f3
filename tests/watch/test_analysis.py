"""Analysis of a process by readings made by hand: rows, time lost, calls in flight, what is missing, the document."""

from __future__ import annotations

import json

import numpy as np
import pytest

from factories.documents import validate
from factories.watch_calls import (
    ALLOC,
    BASE_NS,
    D2H,
    LAUNCH,
    MAIN,
    OTHER,
    SLOW_NS,
    SYNC,
    US,
    at_ns,
    batch,
    call,
    copy,
    kernel,
    launch_batch,
    pageable_copy,
    process,
    slow,
    thread,
)
from stallprobes.latency.histogram import Histogram
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import MemoryKind, RecordKind
from stallprobes.native.layouts.watch_file import COLLECTED, LossKind, Window
from stallprobes.units import size_text
from stallprobes.watch.analysis import MOST_CALLS, SETTLED_NS, ProcessAnalysis, usual_ns, watch_findings
from stallprobes.watch.attribution.findings import ProcessFindings, TimeLost
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.reading.process import NO_CALLS, CallBatch, RecordBatch, WatchedProcess
from stallprobes.watch.reading.record_windows import RecordWindows
from stallprobes.watch.report import document
from stallprobes.watch.sentences import call_text, headline, in_flight_text

FAST = {LAUNCH: [4.0] * 99, SYNC: [6.0] * 99}
EMPTY = batch([])


def analyzed(
    read: WatchedProcess, records: RecordBatch = EMPTY, calls: CallBatch = NO_CALLS, *, now: float = 1_000_000
) -> ProcessFindings:
    analysis = ProcessAnalysis()
    analysis.feed(read, records, at_ns(now), calls=calls)
    return analysis.findings()


def losses(found: tuple[TimeLost, ...]) -> dict[tuple[WaitCause, int | None], int]:
    return {(one.cause, one.thread): one.ns for one in found}


def loop(steps: int = 3) -> tuple[WatchedProcess, RecordBatch, CallBatch]:
    """A thread that launches and waits for a 15 ms kernel in each step, and one launch beside a pageable copy."""
    waits, records = [], []
    for step in range(steps):
        begin = step * 20_000
        waits.append(slow(SYNC, begin, begin + 15_000, correlation=10 * step + 2, stream=0x10))
        records.append(kernel(begin - 10, begin + 14_990, correlation=10 * step + 1))
    calls = launch_batch(*records, stream=0x10)
    late = slow(LAUNCH, 100_010, 140_000, correlation=1001, stream=0)
    held = pageable_copy(100_000, 139_990, correlation=1000, stream=0)
    records.append(copy(100_100, 139_900, correlation=1000, stream=3, size=256 << 20))
    main = thread(MAIN, [*waits, late], name="MainThread", fast_us={LAUNCH: [4.0] * 99})
    return process(main, thread(OTHER, [held], name="loader")), batch(records), calls


def test_rows_have_all_calls_and_the_time_that_the_slow_ones_lost() -> None:
    found = analyzed(*loop())
    rows = {(each.id, row.function): row for each in found.threads for row in each.rows}
    launches = rows[MAIN, LAUNCH]
    assert (launches.total.count, launches.slow, launches.unkept, launches.failed) == (100, 1, 0, 0)
    assert launches.median_ns == pytest.approx(4 * US, rel=0.02)
    assert launches.lost_ns == 39_990 * US - launches.median_ns
    # Every wait is slow: its whole time is lost, or a loop that always waits would lose none.
    assert (rows[MAIN, SYNC].median_ns, rows[MAIN, SYNC].lost_ns) == (0, 45_000 * US)


def test_time_lost_by_cause_of_threads_and_process() -> None:
    found = analyzed(*loop())
    main = next(each for each in found.threads if each.id == MAIN)
    lost = losses(main.lost)
    assert lost[WaitCause.GPU_WORK, None] == 3 * 14_990 * US
    assert lost[WaitCause.PAGEABLE_COPY, OTHER] == 39_980 * US
    assert sum(lost.values()) == main.lost_ns == sum(row.lost_ns for row in main.rows)
    # What the evidence does not cover has no cause, and is counted.
    assert 0 < lost[WaitCause.UNATTRIBUTED, None] < 40 * US
    assert found.lost_ns == sum(each.lost_ns for each in found.threads)
    assert losses(found.lost)[WaitCause.OWN_WORK, None] == 39_800 * US
    assert found.unattributed_ns == sum(one.ns for one in found.lost if one.cause is WaitCause.UNATTRIBUTED)
    proven = {one.cause: one.proven_ns for one in main.lost}
    assert proven[WaitCause.GPU_WORK] == lost[WaitCause.GPU_WORK, None]
    assert proven[WaitCause.PAGEABLE_COPY] == 0


def test_sentences_name_the_cause_and_the_culprit() -> None:
    found = analyzed(*loop())
    texts = [call_text(one) for one in found.slow_calls]
    assert texts[0] == (
        "cuStreamSynchronize in MainThread (thread 100) took 15.0 ms because of GPU work in front of it: add (15.0 ms)."
    )
    assert texts[-1] == (
        "cuLaunchKernel in MainThread (thread 100) took 40.0 ms beside a pageable copy: cuMemcpyDtoHAsync_v2 of "
        "256 MiB to pageable memory in loader (thread 101)."
    )
    main = next(each for each in found.threads if each.id == MAIN)
    assert headline(main) == (
        "8 % of the time of MainThread (thread 100) is waiting: 53 % GPU work, "
        "47 % pageable copy in loader (thread 101)."
    )
    assert (
        headline(analyzed(process(thread(fast_us=FAST))).threads[0]) == "No call of thread-100 (thread 100) was slow."
    )
    assert [size_text(size) for size in (1, 4, 1536, 256 << 20)] == ["1 byte", "4 bytes", "1.5 KiB", "256 MiB"]


def test_a_program_without_slow_calls_lost_nothing() -> None:
    found = analyzed(process(thread(fast_us=FAST)), batch([kernel(0, 50_000)]))
    assert (found.slow_calls, found.lost, found.lost_ns) == ((), (), 0)


def test_slow_calls_that_were_not_read_are_counted_without_a_cause() -> None:
    kept = slow(LAUNCH, 0, 3000)
    found = analyzed(process(thread(calls=[kept], fast_us=FAST, unread={LAUNCH: [5000.0, 2000.0]})))
    (row,) = [row for row in found.threads[0].rows if row.slow]
    assert (row.slow, row.unkept) == (3, 2)
    assert row.unkept_ns == pytest.approx(7000 * US, rel=0.02)
    (lost,) = found.lost
    assert (lost.cause, lost.calls) == (WaitCause.UNATTRIBUTED, 3)
    assert lost.ns == pytest.approx(10_000 * US, rel=0.02)


def test_a_slow_call_within_another_is_lost_once() -> None:
    calls = [slow(D2H, 100, 4900, correlation=2), slow("cuMemcpyDtoH_v2", 0, 5000, correlation=1)]
    found = analyzed(process(thread(calls=calls)))
    assert found.lost_ns == 5000 * US


def test_each_slow_call_counts_once_in_many_readings() -> None:
    calls = [slow(LAUNCH, each * 1000 * 1000, each * 1000 * 1000 + 5000) for each in range(8)]
    analysis = ProcessAnalysis()
    for count in range(1, 9):
        # The file keeps the last three.
        unread = {LAUNCH: [5000.0] * max(count - 3, 0)}
        read = process(thread(calls=calls[max(count - 3, 0) : count], fast_us=FAST, unread=unread))
        analysis.feed(read, EMPTY, calls[count - 1].end_ns + 10 * US)
        analysis.feed(read, EMPTY, calls[count - 1].end_ns + 20 * US)
        found = analysis.findings()
        assert len(found.slow_calls) == count
        assert found.threads[0].rows[0].unkept == 0
    median = analysis.findings().threads[0].rows[0].median_ns
    assert found.lost_ns == 8 * (5000 * US - median)


def test_records_that_arrive_later_explain_a_call() -> None:
    read = process(thread(calls=[slow(SYNC, 0, 15_000, correlation=2, stream=0)]))
    late, analysis = kernel(0, 14_990, correlation=1), ProcessAnalysis()
    analysis.feed(read, EMPTY, at_ns(15_100), calls=launch_batch(late, stream=0))
    assert [one.cause for one in analysis.findings().slow_calls] == [WaitCause.UNATTRIBUTED]
    analysis.feed(read, batch([late]), at_ns(200_000), calls=launch_batch(stream=0))
    assert [one.cause for one in analysis.findings().slow_calls] == [WaitCause.GPU_WORK]
    # Then its cause is final, and the records are no longer needed.
    analysis.feed(read, EMPTY, at_ns(15_000) + SETTLED_NS + US)
    analysis.feed(read, EMPTY, at_ns(15_000) + 10 * SETTLED_NS)
    assert [one.cause for one in analysis.findings().slow_calls] == [WaitCause.GPU_WORK]


def test_copies_long_ago_explain_a_call_that_lasted_as_long() -> None:
    # A thread starves for 10 s beside copies of 1 s; readings each second.
    copies = [pageable_copy(each * 10**6, (each + 1) * 10**6 - 5, correlation=each + 1) for each in range(10)]
    starved = slow(LAUNCH, 500, 10**7, correlation=999)
    analysis = ProcessAnalysis()
    for second in range(1, 14):
        done = [starved] if second > 10 else []
        flight = [] if second > 10 else [call(LAUNCH, 500, correlation=999)]
        main = thread(calls=done, fast_us=FAST, in_flight=flight)
        analysis.feed(process(main, thread(OTHER, copies[:second])), EMPTY, at_ns(second * 10**6 + 10))
    launch = next(one for one in analysis.findings().slow_calls if one.function == LAUNCH)
    assert launch.cause is WaitCause.PAGEABLE_COPY
    assert launch.culprit is not None
    assert launch.culprit.calls == 10


def test_old_calls_are_dropped_and_their_time_is_kept() -> None:
    count = MOST_CALLS + 50
    calls = [slow(LAUNCH, 2000 * each, 2000 * each + 1500, correlation=each + 1) for each in range(count)]
    analysis = ProcessAnalysis()
    analysis.feed(process(thread(calls=calls)), EMPTY, calls[-1].end_ns + SETTLED_NS + US)
    found = analysis.findings()
    assert (len(found.slow_calls), found.dropped_slow_calls) == (MOST_CALLS, 50)
    assert found.lost_ns == count * 1500 * US


def test_threads_that_share_a_slot_have_their_calls_together() -> None:
    analysis = ProcessAnalysis()
    done = slow(LAUNCH, 0, 3000, thread=OTHER)
    analysis.feed(process(thread(OTHER, [done], ended=4000, slot=1)), EMPTY, at_ns(5000))
    # The next owner continues the figures, and the ring still has the call.
    analysis.feed(process(thread(102, [done], fast_us=FAST, started=5000, slot=1, owners=2)), EMPTY, at_ns(9000))
    found = analysis.findings()
    (one,) = found.threads
    assert (one.id, one.owners, one.slow_calls, one.alive_ns) == (102, 2, 1, 9000 * US)
    assert [(each.thread, each.thread_name) for each in found.slow_calls] == [(OTHER, "thread-101")]
    assert found.lost_ns == 3000 * US - next(row.median_ns for row in one.rows if row.function == LAUNCH)
    assert [row.unkept for row in one.rows] == [0, 0]


def test_calls_in_flight_name_the_call_beside_which_they_hang() -> None:
    hung = thread(in_flight=[call(LAUNCH, 100, stream=0)], fast_us=FAST)
    copying = thread(
        OTHER,
        in_flight=[call(D2H, 0, stream=0, size=4, source=MemoryKind.DEVICE, target=MemoryKind.PAGEABLE)],
        name="loader",
    )
    found = {each.id: each for each in analyzed(process(hung, copying), now=500_100).threads}
    (launch,) = found[MAIN].in_flight
    assert (launch.age_ns, launch.depth, launch.cause) == (500_000 * US, 0, WaitCause.PAGEABLE_COPY)
    assert in_flight_text(launch) == (
        "cuLaunchKernel in thread-100 (thread 100) has not returned for 500 ms, beside cuMemcpyDtoHAsync_v2 of 4 "
        "bytes to pageable memory in loader (thread 101)."
    )
    # A launch holds nothing that a copy needs; and a call that is not slow needs no cause.
    assert found[OTHER].in_flight[0].beside == ()
    (row,) = [row for row in found[OTHER].rows if row.function == D2H]
    assert (row.total.count, found[OTHER].in_flight[0].age_ns) == (0, 500_100 * US)
    quick = analyzed(process(hung, copying), now=500).threads
    assert all(one.beside == () for each in quick for one in each.in_flight)


def test_of_two_calls_in_flight_the_later_one_waits() -> None:
    early = thread(in_flight=[call(ALLOC, 0)])
    late = thread(OTHER, in_flight=[call(ALLOC, 10)])
    found = {each.id: each.in_flight[0].beside for each in analyzed(process(early, late)).threads}
    assert found[MAIN] == ()
    assert [one.thread for one in found[OTHER]] == [MAIN]


@pytest.mark.parametrize(
    ("durations", "usual"),
    [
        ([4.0] * 9 + [5000.0], 4.0),
        # Most are slow: the fast ones show the usual time.
        ([3.0] * 4 + [5000.0] * 6, 3.0),
        ([5000.0] * 10, 0.0),
        ([], 0.0),
    ],
)
def test_the_usual_time_of_a_row(durations: list[float], usual: float) -> None:
    histogram = Histogram.of([round(one * US) for one in durations])
    assert usual_ns(histogram, SLOW_NS) == pytest.approx(usual * US, rel=0.02)
    # A low limit does not make a usual call slow.
    assert usual_ns(histogram, 0) == pytest.approx(usual * US, rel=0.02)


def test_what_is_missing_is_said() -> None:
    assert analyzed(process(thread(fast_us=FAST))).gaps == ()
    slow_only = analyzed(process(thread(calls=[slow(LAUNCH, 0, 5000)]))).gaps
    assert any(gap.startswith("Whether threads lacked a CPU is not known") for gap in slow_only)
    assert analyzed(process(calls_only=True)).gaps[0].startswith("Only calls were recorded")
    assert analyzed(process(kinds=())).gaps[0].startswith("No work of the GPU was recorded")
    managed = analyzed(process(thread(calls=[slow("cuMemAllocManaged", 0, 5000)]))).gaps
    assert sum("page migration" in gap for gap in managed) == 1
    window = np.zeros(2, dtype_of(Window))
    window["ended_ns"], window["quiet"], window["records"] = at_ns(0), (0, 1), (1, 0)
    quiet = analyzed(process().changed(windows=RecordWindows.of(window))).gaps
    assert sum(gap.startswith("Launches, queries and other frequent calls were followed in") for gap in quiet) == 1
    kinds = set(COLLECTED) - {int(RecordKind.CONTEXT_SWITCH)}
    assert analyzed(process(kinds=kinds)).gaps[0].startswith("Context switches were not recorded")
    lost = dict.fromkeys(LossKind, 0) | {LossKind.NO_SLOT: 3, LossKind.DROPPED_BY_CUPTI: 4}
    gaps = analyzed(process(losses=lost), batch([], missed=2)).gaps
    assert "6 records of GPU work were lost: some waits have no cause." in gaps
    assert "3 calls were not recorded." in gaps
    assert any(
        "2 calls of the program could not be held" in gap for gap in analyzed(process().changed(not_held=2)).gaps
    )


def test_kernels_without_a_name_are_said() -> None:
    count = 151
    lost = dict.fromkeys(LossKind, 0)
    gaps = analyzed(process(losses=lost | {LossKind.NO_NAME: count})).gaps
    assert gaps == (
        "151 kernels ran without a name: there was no space for more different ones. Whether such a kernel "
        "communicates, or ran for the first time, is not known: it counts as computing.",
    )
    (one,) = analyzed(process(losses=lost | {LossKind.NO_NAME: 1})).gaps
    assert one.startswith("1 kernel ran without a name")
    found = analyzed(process(losses=lost | {LossKind.NO_NAME: count}))
    made = json.loads(json.dumps(document(watch_findings([found], 0))))
    validate(made, "stallscope.watch/3")
    assert (made["processes"][0]["losses"]["no-name"], made["processes"][0]["gaps"]) == (count, list(gaps))


def test_findings_need_a_reading() -> None:
    with pytest.raises(ValueError, match="no reading"):
        ProcessAnalysis().findings()


def test_the_document_follows_its_schema() -> None:
    hung = thread(102, in_flight=[call(LAUNCH, 0)], name="hung")
    read, records, calls = loop()
    found = analyzed(process(*read.threads, hung), records, calls)
    made = json.loads(json.dumps(document(watch_findings([found], 1_700_000_000 * 10**9, ["a problem"]))))
    validate(made, "stallscope.watch/3")
    (one,) = made["processes"]
    assert made["began_at"] == "2023-11-14T22:13:20.000+00:00"
    assert {thread["id"] for thread in one["threads"]} == {MAIN, OTHER, 102}
    launch = one["slow_calls"][-1]
    assert (launch["cause"], launch["certainty"]) == ("pageable-copy", "beside")
    assert launch["begin_ns"] - made["began_ns"] == 100_010_000
    assert launch["evidence"]["calls"][0]["target"] == "pageable"
    assert sum(loss["ns"] for loss in one["lost"]) == one["lost_ns"]
    empty = document(watch_findings([], 0))
    validate(empty, "stallscope.watch/3")


def test_processes_are_in_the_order_of_their_starts() -> None:
    found = watch_findings([analyzed(process(ended=50)), analyzed(process(ended=70))], 5)
    assert (found.duration_ns, found.began_at_ns, len(found.processes)) == (70 * US, 5, 2)
    assert found.processes[0].began_ns == BASE_NS


def test_a_call_that_is_read_again_and_again_counts_once() -> None:
    one, analysis = process(thread(MAIN, [slow(SYNC, 100, 5000)])), ProcessAnalysis()
    for reading in range(200):
        analysis.feed(one, EMPTY, at_ns(10_000 + reading * 100_000))
        found = analysis.findings()
        assert (len(found.slow_calls), sum(row.slow for row in found.threads[0].rows)) == (1, 1)
        assert sum(each.calls for each in found.lost) == 1
