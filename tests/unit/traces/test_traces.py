"""Traces of the simulated GPU: what they hold, and what the delays in them are due to."""

from __future__ import annotations

import numpy as np
import pytest

from factories.traces import WALL_S, advance, history_of, simulated_trace, traced_machine
from stallprobes.catalog import Placement, entries
from stallprobes.model import MS, SECONDARY, US, Probe
from stallprobes.native.layouts.board import HOST_CALLS
from stallprobes.native.layouts.cupti import CopyKind, RecordKind
from stallprobes.records.rows import CALL, OVERHEAD, TENURE, WORK, Rows
from stallprobes.traces import delay as delays
from stallprobes.traces.delay import DelayCause, calls_beside, delay_of, delay_text, delays_of_call
from stallprobes.traces.engine_gaps import foreign_gaps
from stallprobes.traces.trace import (
    OPEN,
    Trace,
    TracedProbe,
    TraceNames,
    TraceTrigger,
)


def probe(name: str, placement: Placement | None = None) -> Probe:
    return entries()[name].probe(placement)


@pytest.fixture(scope="module")
def report_1() -> Trace:
    """A copy in a secondary context beside the spin kernel in the primary one, for two slots."""
    return simulated_trace(probe("spin"), probe("d2d", Placement(context=SECONDARY)), probe("launch"), ns=200 * MS)


def number_of(trace: Trace, name: str) -> int:
    return next(number for number, each in enumerate(trace.probes) if each.name.startswith(name))


def slowest(trace: Trace, name: str) -> Rows:
    rows = trace.work[trace.work["probe"] == number_of(trace, name)]
    found: Rows = rows[np.argmax(rows["start_ns"] - rows["returned_ns"])]
    return found


def test_rows_are_in_the_order_of_their_starts(report_1: Trace) -> None:
    for rows, column in ((report_1.calls, "began_ns"), (report_1.work, "start_ns"), (report_1.tenures, "start_ns")):
        assert len(rows) > 5
        assert (np.diff(rows[column]) >= 0).all()


def test_a_copy_in_a_second_context_waits_for_the_context_of_the_kernel(report_1: Trace) -> None:
    delay = delay_of(report_1, slowest(report_1, "d2d"))
    assert delay is not None
    assert delay.ns > 1.5 * MS
    main = delay.main()
    assert main is not None
    assert main.cause is DelayCause.CONTEXT
    assert sum(part.ns for part in delay.parts) == delay.ns
    assert "context primary had the engine" in delay_text(report_1, delay)
    assert ": context 1 had the engine" in delay_text(report_1.changed(names=TraceNames()), delay)


def test_parts_of_a_delay_cover_it_in_order(report_1: Trace) -> None:
    for row in report_1.work:
        delay = delay_of(report_1, row)
        if delay is not None and delay.ns > 0:
            assert [part.begin_ns for part in delay.parts[1:]] == [part.end_ns for part in delay.parts[:-1]]
            assert (delay.parts[0].begin_ns, delay.parts[-1].end_ns) == (delay.returned_ns, delay.start_ns)


def test_work_behind_other_work_of_its_stream_names_it() -> None:
    work = np.zeros(2, WORK)
    work["context"], work["stream"] = 1, 3
    kernel, copy = work
    kernel["sequence"], kernel["kind"], kernel["end_ns"] = 1, RecordKind.KERNEL, 5 * MS
    copy["sequence"], copy["kind"], copy["start_ns"], copy["end_ns"] = 2, RecordKind.COPY, 5 * MS + 900, 6 * MS
    copy["returned_ns"], copy["began_ns"] = 100_000, 90_000
    probes = (TracedProbe("readback", ("cuLaunchKernel", "cuMemcpyDtoHAsync")),)
    trace = Trace(
        begin_ns=0,
        end_ns=6 * MS,
        collected_ns=6 * MS,
        probes=probes,
        names=TraceNames(),
        calls=np.empty(0, CALL),
        work=work,
        tenures=np.empty(0, TENURE),
        overheads=np.empty(0, OVERHEAD),
        context_switches=True,
    )
    delay = delay_of(trace, trace.work[1])
    assert delay is not None
    assert [(part.cause, part.ns) for part in delay.parts] == [
        (DelayCause.STREAM, 4_900_000),
        (DelayCause.UNKNOWN, 900),
    ]
    text = delay_text(trace, delay)
    assert text == "returned → GPU start 4.90 ms: its stream ran readback (cuLaunchKernel)"


def halves(*rows: tuple[int, ...]) -> Trace:
    """Copies as (call, begin of the call, start, stream), in µs; each call takes 10, each copy 20."""
    work = np.zeros(len(rows), WORK)
    work["sequence"] = np.arange(len(rows))
    work["kind"] = RecordKind.COPY
    for row, (call, began, start, stream) in zip(work, rows, strict=True):
        row["op"], row["iteration"], row["correlation"] = 0, call, call
        row["began_ns"], row["returned_ns"] = began * US, (began + 10) * US
        row["start_ns"], row["end_ns"] = start * US, (start + 20) * US
        row["context"], row["stream"] = 1 + stream // 10, stream
        row["subkind"] = CopyKind.DEVICE_TO_HOST if stream < 10 else CopyKind.HOST_TO_DEVICE
    work = work[np.argsort(work["start_ns"], kind="stable")]
    probes = (TracedProbe("copy", ("cuMemcpyPeerAsync",)),)
    return Trace(
        begin_ns=0,
        end_ns=10 * MS,
        collected_ns=10 * MS,
        probes=probes,
        names=TraceNames(),
        calls=np.empty(0, CALL),
        work=work,
        tenures=np.empty(0, TENURE),
        overheads=np.empty(0, OVERHEAD),
        context_switches=True,
    )


def parts_of(trace: Trace, number: int) -> list[tuple[DelayCause, int, int | None]]:
    (row,) = trace.work[trace.work["sequence"] == number]
    delay = delay_of(trace, row)
    assert delay is not None
    return [(part.cause, part.ns // US, part.work) for part in delay.parts]


def test_work_behind_work_that_had_not_started_names_it() -> None:
    """Report 2: both halves of the first copy wait, and the second half of the other one behind that of the first."""
    trace = halves((1, 0, 5_000, 3), (1, 0, 5_030, 17), (2, 100, 111, 4), (2, 100, 5_060, 17))
    assert parts_of(trace, 3) == [
        (DelayCause.UNKNOWN, 1, None),
        (DelayCause.STREAM, 20, 2),
        (DelayCause.ORDER, 4_899, 1),
        (DelayCause.STREAM, 20, 1),
        (DelayCause.UNKNOWN, 10, None),
    ]
    delay = delay_of(trace, trace.work[-1])
    assert delay is not None
    assert delay_text(trace, delay).endswith(": copy (cuMemcpyPeerAsync) waited in front of it in its stream")
    # The second half of the first copy waits for its first half, whatever that waits for.
    assert parts_of(trace, 1) == [
        (DelayCause.UNKNOWN, 101, None),
        (DelayCause.COPY, 20, 2),
        (DelayCause.UNKNOWN, 4_869, None),
        (DelayCause.STREAM, 20, 0),
        (DelayCause.UNKNOWN, 10, None),
    ]


def test_what_was_submitted_at_the_same_time_or_to_another_stream_is_not_in_front() -> None:
    for began, stream in ((95, 17), (100, 17), (200, 17), (0, 18)):
        trace = halves((1, began, 5_000, stream), (2, 100, 5_060, 17))
        assert DelayCause.ORDER not in {cause for cause, _, _ in parts_of(trace, 1)}


def test_a_call_leads_to_its_work(report_1: Trace) -> None:
    number = next(
        row for row in range(len(report_1.calls)) if report_1.calls["probe"][row] == 2 and len(report_1.work_of(row))
    )
    work = report_1.work_of(number)
    assert {RecordKind(kind) for kind in work["kind"]} == {RecordKind.KERNEL}
    assert len(delays_of_call(report_1, number)) == 1


def test_the_call_of_a_trigger_that_was_in_flight_began_a_moment_later(report_1: Trace) -> None:
    number = int(np.flatnonzero(report_1.calls["probe"] == 2)[5])
    began_ns, returned_ns = report_1.calls[number][["began_ns", "returned_ns"]].tolist()
    for trigger in ((began_ns, returned_ns), (began_ns - 600, returned_ns - 100), (began_ns, began_ns)):
        assert report_1.changed(trigger=TraceTrigger(2, *trigger)).trigger_call() == number
    # The next call of the probe is another one.
    assert report_1.changed(trigger=TraceTrigger(2, began_ns - 200_000, began_ns - 100)).trigger_call() is None
    assert report_1.changed(trigger=TraceTrigger(2, report_1.end_ns, report_1.end_ns + 1)).trigger_call() is None
    assert report_1.changed(trigger=None).trigger_call() is None


def test_calls_that_were_overwritten_unread_are_counted() -> None:
    made = traced_machine(probe("launch"))
    history = history_of(made.probes)
    advance(made, history, 300 * MS)
    assert history.losses.overwritten == 0
    # A reader that comes too late: the ring holds HOST_CALLS calls, two for each launch at 1 kHz.
    made.advance(5_000 * MS)
    advance(made, history, 50 * MS)
    assert history.losses.overwritten == pytest.approx(2 * 5050 - HOST_CALLS, abs=5)


def test_a_part_holds_what_overlaps_it(report_1: Trace) -> None:
    begin, end = report_1.begin_ns + 20 * MS, report_1.begin_ns + 40 * MS
    part = report_1.between(begin, end)
    assert 0 < len(part.calls) < len(report_1.calls)
    assert (part.calls["returned_ns"] >= begin).all()
    assert (part.calls["began_ns"] <= end).all()
    assert part.span_ns == 20 * MS


@pytest.mark.parametrize(("before", "after"), [(5_000, 0), (0, 5_000), (5_000, 5_000)])
def test_a_part_that_reaches_beyond_the_trace_says_nothing_of_what_was_not_recorded(
    report_1: Trace, before: int, after: int
) -> None:
    running = report_1.changed(engine_since_ns=0)
    part = running.between(running.begin_ns - before * MS, running.end_ns + after * MS)
    assert (part.begin_ns, part.end_ns, len(part.calls)) == (running.begin_ns, running.end_ns, len(running.calls))
    assert part.engine_known_ns == running.begin_ns
    assert len(foreign_gaps(part)) == 0


def test_a_part_outside_of_the_trace_is_empty(report_1: Trace) -> None:
    for begin_ns, place_ns in (
        (report_1.begin_ns - 9 * MS, report_1.begin_ns),
        (report_1.end_ns + MS, report_1.end_ns),
    ):
        part = report_1.between(begin_ns, begin_ns + 5 * MS)
        assert (part.begin_ns, part.end_ns, len(part.calls)) == (place_ns, place_ns, 0)


def test_a_gap_in_which_work_waits_and_no_context_runs_is_another_process(report_1: Trace) -> None:
    assert len(foreign_gaps(report_1)) == 0
    row = slowest(report_1, "d2d")
    returned, start = int(row["returned_ns"]), int(row["start_ns"])
    outside = report_1.tenures[(report_1.tenures["end_ns"] <= returned) | (report_1.tenures["start_ns"] >= start)]
    without = report_1.changed(tenures=outside, others=("python (pid 7)",))
    delay = delay_of(without, row)
    assert delay is not None
    main = delay.main()
    assert main is not None
    assert main.cause is DelayCause.PROCESS
    assert "another process had the engine: python (pid 7)" in delay_text(without, delay)
    assert any(begin <= returned + MS and end >= start - MS for begin, end in foreign_gaps(without).tolist())


def test_calls_beside_a_call_are_those_of_its_context() -> None:
    probes = tuple(TracedProbe(name, ("x",), context) for name, context in (("a", "p"), ("b", "p"), ("c", "s")))
    calls = np.array([(0, 0, 0, 100, 200, 1), (1, 0, 0, 50, 180, 1), (2, 0, 0, 100, 200, 1)], CALL)
    trace = Trace(
        begin_ns=0,
        end_ns=300,
        collected_ns=300,
        probes=probes,
        names=TraceNames(),
        calls=calls,
        work=np.empty(0, WORK),
        tenures=np.empty(0, TENURE),
        overheads=np.empty(0, OVERHEAD),
        context_switches=True,
    )
    assert calls_beside(trace, 0) == [("b (x)", 80)]


def test_a_history_keeps_the_last_seconds_and_reads_each_row_once() -> None:
    made = traced_machine(probe("launch"), probe("d2d", Placement(context=SECONDARY)))
    history = history_of(made.probes)
    history._keep_ns = 200 * MS
    advance(made, history, 600 * MS)
    whole = history.trace(0, history.at_ns)
    assert whole.calls["returned_ns"][0] >= 300 * MS
    launches = whole.calls[whole.calls["probe"] == 0]
    assert (np.diff(launches["began_ns"]) > 0).all()
    assert whole.wall_s(history.at_ns) == pytest.approx(WALL_S + history.at_ns / 1e9)
    assert whole.simulated


def test_a_context_that_has_the_engine_now_has_an_open_tenure(report_1: Trace) -> None:
    assert (report_1.tenures["end_ns"] == OPEN).sum() <= 1
    assert delays.LONGEST_CHANGE_NS > 80_000
