"""Open work: what has no record while it runs is said, and nothing is once it has one, or can never have one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from factories.chrome_traces import ReadTrace, read_chrome_trace
from factories.traces import advance, history_of, traced_machine
from stallprobes.catalog import entries
from stallprobes.engine.timeline.reader import TimelineRows
from stallprobes.files.codec import decoded, encoded
from stallprobes.model import MS, US
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.board import GpuRecord, HostCall
from stallprobes.records.rows import WORK, Rows
from stallprobes.records.timeline import BEGINNING, OFF, TimelineCost, TimelineLosses
from stallprobes.traces.chrome import TitledTrace, chunks
from stallprobes.traces.codec import StoredTrace
from stallprobes.traces.open_work import UnrecordedCalls
from stallprobes.traces.rows import NO_NUMBER, RowKey, RowKind, spans_of
from stallprobes.traces.trace import OpenWork, Trace
from stallscope.tui.timeline.details import detail_texts
from stallscope.tui.timeline.time_axis import Viewport
from stallscope.tui.timeline.view_model import RowBook, RowIntervals, Selection, TraceView, selected_work

# The kernel of this probe takes 50 ms.
SPIN = entries()["spin"].probe()


@pytest.fixture(scope="module")
def running() -> Trace:
    """100 ms that end while a kernel has run for at least 30 ms."""
    made, history = traced_machine(SPIN), history_of([SPIN])
    advance(made, history, 300 * MS)
    while True:
        advance(made, history, 5 * MS)
        end_ns = history.collected_ns
        trace = history.trace(end_ns - 100 * MS, end_ns, snapshot=made.board.snapshot())
        if trace.open_work and end_ns - trace.open_work[0].since_ns > 30 * MS:
            return trace


def stream_of(trace: Trace) -> RowKey:
    (work,) = trace.open_work
    return RowKey(RowKind.WORK, work.context, work.stream)


def test_a_kernel_that_runs_is_drawn_from_the_end_of_the_work_before_it_on(running: Trace) -> None:
    spans = spans_of(running, stream_of(running))
    assert (spans.numbers[-1], bool(spans.hollow[-1]), int(spans.ends[-1])) == (NO_NUMBER, True, running.collected_ns)
    assert int(spans.starts[-1]) == max(running.open_work[0].since_ns, int(spans.ends[:-1].max()))
    assert not spans.hollow[:-1].any()


def test_a_span_without_any_record_has_it_too(running: Trace) -> None:
    late = running.between(running.end_ns - MS, running.end_ns)
    assert not len(late.work)
    assert spans_of(late, stream_of(late)).hollow.tolist() == [True]
    # Before it was submitted there was none.
    early = running.between(running.begin_ns, running.open_work[0].since_ns - 1)
    spans = spans_of(early, stream_of(running))
    assert not (spans.starts[spans.hollow] < early.end_ns).any()


def test_the_screen_says_so(running: Trace) -> None:
    old = running.changed(open_work=(replace(running.open_work[0], since_ns=running.end_ns - 1_200 * MS, calls=3),))
    sentence = "The GPU work of spin cuLaunchKernel and of 2 later calls has no record after 1.20 s, so it waits or"
    book = RowBook().with_trace(running)
    view = TraceView(old, book.rows, Viewport(old.begin_ns, old.span_ns), 0, Selection(stream_of(old)), live=True)
    assert sentence in dict(detail_texts(view))["primary · own · spin"]
    start = int(spans_of(old, stream_of(old)).starts[-1])
    chosen = replace(view, live=False, selection=Selection(stream_of(old), start))
    assert dict(detail_texts(chosen))["primary · own · spin"].startswith(sentence)
    assert selected_work(old, RowIntervals(old, None), Selection(stream_of(old), start)) is None


def test_it_comes_back_from_a_recording(running: Trace) -> None:
    stored = StoredTrace.of(running)
    assert decoded(encoded(stored), StoredTrace).trace().open_work == running.open_work


def read(trace: Trace) -> ReadTrace:
    return read_chrome_trace(b"".join(chunks([TitledTrace(trace)], {})).decode())


def test_the_file_for_perfetto_has_it_as_the_pictures_do(running: Trace) -> None:
    shown = read(running)
    (event,) = shown.of("unfinished")
    assert (event.name, event.args) == (
        "spin: cuLaunchKernel (unfinished)",
        {"unfinished": True, "calls": running.open_work[0].calls},
    )
    assert event.thread == shown.of("gpu")[0].thread == "stream own (spin)"
    spans, zero = spans_of(running, stream_of(running)), shown.about["traces"][0]["begin_monotonic_ns"]
    assert event.begin_ns + zero == int(spans.starts[-1])
    assert event.end_ns + zero == min(int(spans.ends[-1]), running.end_ns)
    assert not read(running.changed(open_work=())).of("unfinished")


def test_the_file_has_a_stream_that_only_waits_and_none_that_did_not_yet(running: Trace) -> None:
    late = running.between(running.end_ns - MS, running.end_ns)
    two = late.changed(open_work=(*late.open_work, replace(late.open_work[0], since_ns=late.end_ns - 1, calls=4)))
    (event,) = read(two).of("unfinished")
    assert (event.process, event.thread) == ("GPU 0, context primary (SIMULATED)", "stream own (spin)")
    assert event.end_ns - event.begin_ns == MS
    assert event.args == {"unfinished": True, "calls": late.open_work[0].calls + 4, "since_before_the_trace": True}
    early = running.between(running.begin_ns, running.open_work[0].since_ns - 1)
    assert not read(early).of("unfinished")


# Single feeds, by hand: calls of operation 0 that take 1 µs, and records of their work on stream 7 of context 1.


def rows(
    *began_us: int, collected_ms: float = 100, on: bool = True, losses: TimelineLosses | None = None
) -> TimelineRows:
    calls = [(began * US, (began + 1) * US, 0, 0) for began in began_us]
    return TimelineRows(
        at_ns=0,
        collected_ns=round(collected_ms * MS),
        records=np.zeros(0, dtype_of(GpuRecord)),
        calls={SPIN.name: np.array(calls, dtype_of(HostCall))},
        losses=losses or TimelineLosses(),
        cost=TimelineCost(),
        position=BEGINNING,
        status=replace(OFF, on=on),
    )


def recorded(*began_us: int, probe: int = 0, stream: int = 7) -> Rows:
    work = np.zeros(len(began_us), WORK)
    work["probe"], work["context"], work["stream"] = probe, 1, stream
    work["began_ns"] = [began * US for began in began_us]
    return work


def open_after(*feeds: tuple[TimelineRows, Rows], failed: tuple[int, ...] = ()) -> tuple[OpenWork, ...]:
    calls = UnrecordedCalls([SPIN])
    for part, work in feeds:
        calls.feed(part, work)
    return tuple(calls.open_work(feeds[-1][0].collected_ns, failed))


def test_calls_after_the_last_record_are_open_and_those_before_it_are_not() -> None:
    first = (rows(0, 10, 20), recorded(0))
    assert open_after(first) == (OpenWork(0, 0, 0, 1, 7, 11 * US, 2),)
    # The record of the second one was lost without notice.
    assert open_after(first, (rows(), recorded(20))) == ()
    assert open_after(first, (rows(30), recorded(10, 20))) == (OpenWork(0, 0, 0, 1, 7, 31 * US, 1),)
    # The record is read before the call.
    assert open_after((rows(0), recorded(0, 10)), (rows(10), recorded())) == ()


def test_what_can_have_no_record_is_not_open() -> None:
    before = (rows(0, 10), recorded(0))
    assert open_after(before)
    for after in (
        (rows(on=False), recorded()),
        (rows(losses=TimelineLosses(dropped=1)), recorded()),
        (rows(losses=TimelineLosses(exhausted=1)), recorded()),
        (rows(losses=TimelineLosses(unknown=1)), recorded()),
        (rows(losses=TimelineLosses(overwritten=1)), recorded()),
        # Work on the stream that belongs to no known call.
        (rows(), recorded(0, probe=-1)),
    ):
        assert open_after(before, after) == ()
        later = rows(20, losses=replace(after[0].losses, overwritten=0))
        assert open_after(before, after, (later, recorded(10)))[0].since_ns == 21 * US
    assert open_after(before, (rows(), recorded(0, probe=-1, stream=8)))
    # The call failed.
    assert open_after(before, failed=(0,)) == ()
    # Work of this kind never had a record.
    assert open_after((rows(0, 10), recorded())) == ()


def test_a_later_part_of_a_call_on_another_stream_does_not_move_its_operation() -> None:
    """The second half of a staged copy comes when later calls are recorded, on a stream of the driver's own."""
    for began in ((10,), (0, 10), (0,)):
        later = (rows(), recorded(*began, stream=17))
        assert open_after((rows(0, 10, 20), recorded(0, 10)), later) == (OpenWork(0, 0, 0, 1, 7, 21 * US, 1),)


def test_a_record_may_be_some_milliseconds_late() -> None:
    assert open_after((rows(0, 10, collected_ms=19), recorded(0))) == ()
    assert open_after((rows(0, 10, collected_ms=21), recorded(0)))


def test_a_probe_that_is_never_recorded_costs_no_memory() -> None:
    calls = UnrecordedCalls([SPIN])
    for part in range(20):
        calls.feed(rows(*range(1_000 * part, 1_000 * part + 1_000)), recorded())
    assert sum(len(kept) for kept in calls._calls.values()) < 5_000
