"""The timeline from 50 µs to 10 s over a full history: six probes at 1 kHz, two calls each, for as long as it keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from factories.traces import WALL_S
from stallprobes.catalog import entries
from stallprobes.engine.board import GpuRecords, HostCalls
from stallprobes.engine.timeline.reader import TimelineRows
from stallprobes.model import MS, US
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.board import CALL_MEASURED, GpuRecord, HostCall
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.records.timeline import TimelineCost, TimelineLosses, TimelinePosition, TimelineStatus
from stallprobes.traces.history import KEEP_S, MOST_ROWS, TraceHistory
from stallprobes.traces.rows import RowKey, RowKind
from stallprobes.traces.trace import Trace
from stallscope.tui.timeline.cursor import TraceCursor
from stallscope.tui.timeline.glyphs import BLOCK_GLYPHS
from stallscope.tui.timeline.time_axis import SPANS_NS, Viewport, span_text
from stallscope.tui.timeline.trace_plot import plot_layout, plot_lines
from stallscope.tui.timeline.view_model import Selection, TraceView

S = 1_000 * MS
SHORTEST, LONGEST = SPANS_NS[0], SPANS_NS[-1]
LAUNCH = entries()["launch"].probe()
PROBES = tuple(replace(LAUNCH, name=f"launch {number}") for number in range(6))
# A read of the screen: so many ms, with a launch and a wait of each probe in each.
READ_MS = 100
ENDS_MS = 15_000
CALL_NS, WAIT_NS = 3 * US, 6 * US
COLUMNS, LINES = 160, 40
FIRST = RowKey(RowKind.CALLS, 0)


def calls(number: int, first_ms: int) -> HostCalls:
    """The calls of a probe in one read: a launch that takes 3 µs and a wait of 6 µs, each ms."""
    began = (first_ms + np.arange(READ_MS)) * MS + number * 100 * US
    made = np.zeros((READ_MS, 2), dtype_of(HostCall))
    made["began_ns"] = np.column_stack((began, began + CALL_NS))
    made["returned_ns"] = np.column_stack((began + CALL_NS, began + CALL_NS + WAIT_NS))
    made["op"] = CALL_MEASURED, 1 | CALL_MEASURED
    made["iteration"] = (began // MS)[:, None]
    return made.reshape(-1)


def records(first_ms: int) -> GpuRecords:
    """The kernels of these launches: each starts 5 µs after its call began and takes 2 µs."""
    parts = []
    for number in range(len(PROBES)):
        launches = calls(number, first_ms)[::2]
        rows = np.zeros(READ_MS, dtype_of(GpuRecord))
        began = launches["began_ns"]
        rows["sequence"] = len(PROBES) * (began // MS) + number
        rows["kind"] = RecordKind.KERNEL
        rows["start_ns"], rows["end_ns"] = began + 5 * US, began + 7 * US
        rows["context"], rows["stream"], rows["probe"] = 1, 7 + number, number
        rows["began_ns"], rows["returned_ns"] = began, launches["returned_ns"]
        rows["iteration"] = launches["iteration"]
        parts.append(rows)
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def history() -> TraceHistory:
    """A history that was fed for longer than it keeps."""
    made = TraceHistory(PROBES)
    for first_ms in range(0, ENDS_MS, READ_MS):
        at_ns = (first_ms + READ_MS) * MS
        found = {probe.name: calls(number, first_ms) for number, probe in enumerate(PROBES)}
        made.feed(
            TimelineRows(
                at_ns, at_ns, records(first_ms), found, TimelineLosses(), TimelineCost(), TimelinePosition(),
                TimelineStatus(on=True),
            ),
            WALL_S,
        )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def whole(history: TraceHistory) -> Trace:
    """All of the history, as a freeze holds it."""
    return history.trace(history.begin_ns, history.collected_ns)


def standing(trace: Trace, span_ns: int = LONGEST) -> TraceCursor:
    """A cursor over a trace that stands still, at its end."""
    return TraceCursor(Viewport(0, span_ns)).showing(trace, None).at_end(trace.end_ns)


def drawn(cursor: TraceCursor) -> dict[str, str]:
    """The cells of each row by its name, without blanks on both sides."""
    assert cursor.trace is not None
    view = TraceView(cursor.trace, cursor.book.rows, cursor.viewport, cursor.trace.end_ns, cursor.selection)
    lines = ["".join(text for text, _ in line) for line in plot_lines(view, COLUMNS, LINES, BLOCK_GLYPHS)]
    assert all(len(line) <= COLUMNS for line in lines)
    names = plot_layout(view.rows, None, COLUMNS, LINES).names
    return {line[1:names].strip(): line[names:].strip() for line in lines}


def test_a_history_of_six_probes_holds_the_longest_span(history: TraceHistory, whole: Trace) -> None:
    assert LONGEST < KEEP_S * S <= whole.span_ns + READ_MS * MS
    assert len(whole.calls) == pytest.approx(2 * len(PROBES) * whole.span_ns / MS, rel=0.01)
    assert len(whole.calls) < MOST_ROWS
    assert (np.diff(whole.calls["began_ns"]) >= 0).all()
    assert (np.diff(whole.work["start_ns"]) >= 0).all()
    # Of the last 10 s nothing is missing.
    last = history.trace(history.collected_ns - LONGEST, history.collected_ns)
    for number in range(len(PROBES)):
        own = last.calls[last.calls["probe"] == number]
        assert len(own) == 2 * LONGEST // MS
    assert len(last.work) == len(PROBES) * LONGEST // MS
    assert history.losses == TimelineLosses()


@pytest.mark.parametrize("span_ns", SPANS_NS, ids=span_text)
def test_every_span_is_drawn_at_both_ends_of_a_full_history(whole: Trace, span_ns: int) -> None:
    cursor = standing(whole, span_ns)
    for begin_ns in (whole.begin_ns, whole.end_ns - span_ns):
        cursor = replace(cursor, viewport=Viewport(begin_ns, span_ns))
        part = cursor.visible()
        assert part is not None
        expected = whole.between(begin_ns, begin_ns + span_ns)
        assert (len(part.calls), len(part.work)) == (len(expected.calls), len(expected.work))
        rows = drawn(cursor)
        for number, probe in enumerate(PROBES):
            seen = rows[probe.name]
            own = part.calls[part.calls["probe"] == number]
            # One that begins where the span ends is in the part.
            count = int(((own["began_ns"] < begin_ns + span_ns) & (own["returned_ns"] > begin_ns)).sum())
            assert (seen == "no call in this span") == (count == 0), (probe.name, seen)
            if span_ns >= 1 * S:
                # More calls than cells: every cell has some.
                assert len(set(seen)) == 1
                assert len(seen) > COLUMNS // 2


def test_zoom_goes_from_end_to_end_and_back_around_the_selected_call(whole: Trace) -> None:
    for place in (20, len(whole.calls) - 20):
        began_ns, probe = whole.calls[place][["began_ns", "probe"]].tolist()
        cursor = standing(whole)
        cursor = replace(cursor, viewport=Viewport(began_ns - LONGEST // 2, LONGEST))
        cursor = cursor.selecting(RowKey(RowKind.CALLS, probe), began_ns, follow=False)
        assert cursor.selection == Selection(RowKey(RowKind.CALLS, probe), began_ns)
        share = (began_ns - cursor.viewport.begin_ns) / LONGEST
        for span_ns in reversed(SPANS_NS[:-1]):
            cursor = cursor.zoomed(-1)
            assert cursor.viewport.span_ns == span_ns
            assert began_ns - cursor.viewport.begin_ns == pytest.approx(share * span_ns, abs=20)
        # No shorter one; the call is where it was, to the nanosecond.
        at_limit = cursor.viewport
        cursor = cursor.zoomed(-1)
        assert cursor.viewport == at_limit
        part = cursor.visible()
        assert part is not None
        (call,) = part.calls[part.calls["began_ns"] == began_ns]
        assert call["returned_ns"] - began_ns in (CALL_NS, WAIT_NS)
        for _ in SPANS_NS:
            cursor = cursor.zoomed(1)
        assert cursor.viewport.span_ns == LONGEST
        assert began_ns - cursor.viewport.begin_ns == pytest.approx(share * LONGEST, abs=LONGEST // 1000)
        assert drawn(cursor)


@pytest.mark.parametrize("span_ns", [SHORTEST, 10 * MS, LONGEST], ids=span_text)
def test_pan_ends_where_half_of_the_span_is_left_at_both_ends(whole: Trace, span_ns: int) -> None:
    cursor = standing(whole, span_ns)
    for sign, end_ns in ((-1, whole.begin_ns), (1, whole.end_ns)):
        # As many pages as the trace has, and more.
        for _ in range(3):
            cursor = cursor.panned(sign * whole.span_ns)
        assert cursor.viewport.center_ns == end_ns
        at_limit = cursor.viewport
        cursor = cursor.panned(sign * span_ns // 10)
        assert cursor.viewport == at_limit
        assert drawn(cursor)
        cursor = cursor.panned(-sign * span_ns // 10)
        assert cursor.viewport != at_limit


def test_a_zoom_at_the_edge_of_the_screen_does_not_leave_the_trace(whole: Trace) -> None:
    cursor = standing(whole, LONGEST)
    for sign, end_ns, edge_ns in ((-1, whole.begin_ns, 0), (1, whole.end_ns, LONGEST)):
        cursor = replace(cursor, viewport=Viewport(cursor.viewport.begin_ns, LONGEST))
        cursor = cursor.panned(sign * 2 * whole.span_ns)
        at_ns = cursor.viewport.begin_ns + edge_ns
        for _ in SPANS_NS:
            cursor = cursor.zoomed(-1, at_ns)
            assert cursor.viewport.center_ns == end_ns
            part = cursor.visible()
            assert part is not None
            assert part.span_ns == pytest.approx(cursor.viewport.span_ns / 2, abs=1)


def test_calls_are_stepped_through_at_both_ends_of_the_shortest_span(whole: Trace) -> None:
    own = whole.calls["began_ns"][whole.calls["probe"] == 0]
    for first, by, then in ((0, -1, 0), (0, 1, 1), (len(own) - 1, 1, len(own) - 1), (len(own) - 1, -1, len(own) - 2)):
        cursor = standing(whole, SHORTEST)
        cursor = cursor.selecting(FIRST, int(own[first]))
        cursor = cursor.interval_stepped(by)
        assert cursor.selection == Selection(FIRST, int(own[then]))
        assert cursor.viewport.begin_ns <= own[then] < cursor.viewport.end_ns
        assert cursor.viewport.span_ns == SHORTEST
    assert cursor.at_worst()


def test_the_live_span_of_10_s_is_what_the_history_holds_of_it(history: TraceHistory) -> None:
    end_ns = history.collected_ns
    cursor = TraceCursor(Viewport(0, LONGEST)).at_end(end_ns).following(history.trace(end_ns - LONGEST, end_ns))
    rows = drawn(cursor)
    names = plot_layout(cursor.book.rows, None, COLUMNS, LINES).names
    assert {len(rows[probe.name]) for probe in PROBES} == {COLUMNS - names}
    for steps, span_ns in ((-16, SHORTEST), (1, SPANS_NS[1]), (20, LONGEST)):
        cursor = cursor.zoomed(steps)
        assert cursor.viewport.span_ns == span_ns
