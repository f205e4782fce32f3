"""The cells of a live trace, kept from frame to frame, are those of a computation from all that was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

import numpy as np
import pytest

from factories.traces import WALL_S
from stallprobes.catalog import entries
from stallprobes.engine.board import GpuRecords
from stallprobes.engine.timeline.reader import TimelineRows
from stallprobes.model import MS, US
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.board import CALL_MEASURED, GpuRecord, HostCall
from stallprobes.native.layouts.cupti import CopyKind, RecordKind, SwitchOperation
from stallprobes.records.rows import TENURE, WORK, Rows
from stallprobes.records.timeline import TimelineCost, TimelineLosses, TimelinePosition, TimelineStatus
from stallprobes.traces import history as history_module
from stallprobes.traces.engine_gaps import EngineGaps, foreign_gaps
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.rows import RowKey, RowKind
from stallprobes.traces.trace import OPEN, Int64s, OpenCall, OpenWork, Trace
from stallprobes.traces.trigger import TriggerLimits
from stallscope.tui.timeline.live_cells import LiveCells
from stallscope.tui.timeline.raster import CellGrid, Raster, raster
from stallscope.tui.timeline.time_axis import SPANS_NS, Viewport
from stallscope.tui.timeline.view_model import RowBook, intervals

S = 1_000 * MS
PROBES = tuple(replace(entries()["d2d"].probe(), name=f"copy{number}") for number in range(3))
OPS = len(PROBES[0].program.ops)
STATUS = TimelineStatus(on=True, kinds=(57,))
STARTED_NS = 40 * S
# A reader's frames, and how much later than its end work is recorded.
FRAME_MS = 100
LATEST_MS = 250


class Recording:
    """Random calls, work and context switches of 16 s, fed in frames; records arrive late and in no order."""

    def __init__(self, seed: int, started_ns: int = STARTED_NS) -> None:
        self.random = np.random.default_rng(seed)
        self.started_ns = self.at_ns = started_ns
        self.history = TraceHistory(PROBES)
        self.history.started_ns = started_ns
        self._calls, self._returned = self._made_calls()
        self._records, self._arrive = self._made_records()
        self._fed_calls = np.zeros(len(self._calls), dtype=bool)
        self._fed = np.zeros(len(self._records), dtype=bool)

    def _made_calls(self) -> tuple[Int64s, Int64s]:
        parts = []
        for number in range(len(PROBES)):
            # From 2 µs to 500 ms, most of them short.
            took = (10 ** self.random.uniform(3.3, 5.5 + number, 4_000)).astype(np.int64)
            took[self.random.integers(0, 4_000, 6)] = self.random.integers(50 * MS, 500 * MS, 6)
            idle = self.random.integers(0, 3 * MS, 4_000)
            began = self.started_ns - MS + np.cumsum(took + idle) - took
            # The next one begins at the end of the one before, now and then.
            ops = self.random.integers(0, OPS, 4_000)
            parts.append(np.column_stack((np.full(4_000, number), began, began + took, ops)))
        calls = np.concatenate(parts)
        calls = calls[calls[:, 2] > self.started_ns]
        return calls, calls[:, 2]

    def _made_records(self) -> tuple[GpuRecords, Int64s]:
        source = self._calls[self.random.integers(0, len(self._calls), 6_000)]
        rows = np.zeros(6_000, dtype_of(GpuRecord))
        start = source[:, 2] + self.random.integers(-20 * US, 900 * US, 6_000)
        end = start + (10 ** self.random.uniform(2, 6.5, 6_000)).astype(np.int64)
        rows["sequence"] = np.arange(6_000) + 1
        rows["kind"] = self.random.choice([RecordKind.KERNEL, RecordKind.COPY], 6_000)
        rows["subkind"] = self.random.choice([CopyKind.DEVICE_TO_DEVICE, CopyKind.DEVICE_TO_HOST], 6_000)
        rows["start_ns"], rows["end_ns"] = start, end
        rows["context"], rows["stream"] = 1 + source[:, 0] % 2, 7 + source[:, 0]
        rows["probe"], rows["op"], rows["began_ns"] = source[:, 0], source[:, 3], source[:, 1]
        rows["returned_ns"] = np.where(self.random.random(6_000) < 0.9, source[:, 2], 0)
        at_ns = self.started_ns + np.cumsum(self.random.integers(100 * US, 8 * MS, 3_000))
        switches = np.zeros(3_000, dtype_of(GpuRecord))
        switches["kind"], switches["start_ns"] = RecordKind.CONTEXT_SWITCH, at_ns
        switches["end_ns"], switches["context"] = at_ns, 1 + np.arange(3_000) // 2 % 2
        switches["subkind"] = np.where(np.arange(3_000) % 2, 1 - SwitchOperation.START, SwitchOperation.START)
        overheads = np.zeros(50, dtype_of(GpuRecord))
        overheads["kind"] = RecordKind.OVERHEAD
        overheads["start_ns"] = self.started_ns + self.random.integers(0, 12 * S, 50)
        overheads["end_ns"] = overheads["start_ns"] + self.random.integers(1, 90 * MS, 50)
        late = self.random.integers(0, LATEST_MS * MS, 6_000)
        arrive = np.concatenate((end + late, at_ns, overheads["end_ns"]))
        return np.concatenate((rows, switches, overheads)), arrive

    def frame(self) -> None:
        """Feed what a reader finds after the next frame; the last calls are newer than the last records."""
        self.at_ns += int(self.random.integers(FRAME_MS * MS // 2, 2 * FRAME_MS * MS))
        new = ~self._fed_calls & (self._returned <= self.at_ns)
        self._fed_calls |= new
        found = {}
        for number, probe in enumerate(PROBES):
            own = self._calls[new & (self._calls[:, 0] == number)]
            made = found[probe.name] = np.zeros(len(own), dtype_of(HostCall))
            made["began_ns"], made["returned_ns"], made["op"] = own[:, 1], own[:, 2], own[:, 3] | CALL_MEASURED
        arrived = ~self._fed & (self._arrive <= self.at_ns)
        self._fed |= arrived
        records = self._records[arrived]
        self.history.feed(
            TimelineRows(
                self.at_ns, self.at_ns - 30 * MS, self.random.permutation(records), found, TimelineLosses(),
                TimelineCost(), TimelinePosition(), STATUS,
            ),
            WALL_S,
        )  # fmt: skip

    def outline(self, begin_ns: int, end_ns: int) -> Trace:
        """The present outline, with calls in flight and open work."""
        flights = (OpenCall(0, 0, end_ns - 3 * MS), OpenCall(1, OPS - 1, end_ns - 900 * MS))
        work = (OpenWork(0, 0, 0, 1, 7, end_ns - 2 * S, 3), OpenWork(2, 0, 0, 1, 9, end_ns - 90 * MS))
        outline = self.history.outline(begin_ns, end_ns)
        return outline.changed(open_calls=flights, open_work=work, others=("train (pid 7)",))

    def whole(self, outline: Trace) -> Trace:
        """All that is recorded, as a trace of the time of ``outline``."""
        far_ns = self.at_ns + S
        rows = self.history.trace(outline.begin_ns, far_ns)
        return outline.changed(calls=rows.calls, work=rows.work, tenures=rows.tenures, overheads=rows.overheads)


class Follower:
    """A screen over a recording: frames of its own, and the same ones computed from everything."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.cells = LiveCells(recording.history)
        self.book = RowBook()
        self._random = np.random.default_rng(7)

    def limits(self) -> TriggerLimits:
        """Limits that change as baselines are extended."""
        calls = self._random.integers(10 * US, 20 * MS, (len(PROBES), OPS))
        return TriggerLimits(calls, calls, (), ())

    def compare(self, span_ns: int, width: int) -> Raster:
        """Draw a frame both ways."""
        cells = self.cells
        end_ns = cells.end_ns(span_ns, width)
        view = Viewport(end_ns - span_ns, span_ns)
        outline = self.recording.outline(cells.begin_ns(view.begin_ns), end_ns)
        picture, added = cells.follow(outline)
        tenures = np.concatenate((added["tenures"], outline.tenures))
        part = outline.changed(**{**added, "tenures": tenures})
        self.book = self.book.with_trace(part, len(picture.gaps) > 0)
        keys = list(self.book.rows)
        limits = self.limits()
        found = picture.raster(keys, view, width, limits)
        whole = self.recording.whole(outline)
        grid = cells.grid
        assert grid is not None
        first = grid.cell(outline.end_ns) - width
        expected = raster([intervals(whole, key, limits) for key in keys], grid, first)
        if outline.begin_ns > max(self.recording.started_ns, view.begin_ns):
            for one in fields(Raster):
                getattr(expected, one.name)[:, : grid.cell(outline.begin_ns - 1) + 1 - first] = 0
        assert_same(found, expected)
        assert foreign_gaps(whole).tolist() == [list(gap) for gap in picture.gaps]
        return found


def assert_same(found: Raster, expected: Raster) -> None:
    for one in fields(Raster):
        mine, full = getattr(found, one.name), getattr(expected, one.name)
        assert mine.dtype == full.dtype
        assert (mine == full).all(), (one.name, np.argwhere(mine != full)[:5].tolist())


def follower(seed: int, frames: int = 0) -> Follower:
    recording = Recording(seed)
    for _ in range(frames):
        recording.frame()
    return Follower(recording)


@pytest.mark.parametrize("width", [131, 125])
def test_ten_seconds_frame_by_frame_are_those_of_a_full_computation(width: int) -> None:
    made = follower(width)
    for number in range(110):
        made.recording.frame()
        if number % 3 == 0 or number > 100:
            found = made.compare(10 * S, width)
    assert made.recording.at_ns - STARTED_NS > 11 * S
    # Something of every kind was drawn.
    for marks in (found.calls, found.waits, found.slow_call, found.slow_wait, found.short):
        assert np.count_nonzero(marks) > 20
    assert {key.kind for key in made.book.rows} == {*RowKind} - {RowKind.COUNTER}


def test_every_span_is_that_of_a_full_computation() -> None:
    made = follower(3, frames=40)
    for span_ns in SPANS_NS:
        for _ in range(3):
            made.recording.frame()
            made.compare(span_ns, 97)
        # Without anything new as well.
        made.compare(span_ns, 97)


def test_other_spans_and_widths_begin_anew_from_everything() -> None:
    made = follower(4, frames=60)
    for span_ns, width in ((10 * S, 131), (10 * S, 64), (50 * US, 64), (S, 211), (10 * S, 211), (5 * S, 211)):
        for _ in range(3):
            made.recording.frame()
            made.compare(span_ns, width)


def test_frames_that_come_late_skip_cells() -> None:
    made = follower(5)
    for pause in (1, 30, 2, 60, 1, 1):
        for _ in range(pause):
            made.recording.frame()
        made.compare(2 * S, 80)


def test_rows_that_the_history_dropped_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MOST_ROWS", 1_500)
    made = follower(6, frames=60)
    for _ in range(20):
        made.recording.frame()
        found = made.compare(10 * S, 131)
    history = made.recording.history
    assert history.begin_ns > history.collected_ns - 10 * S
    assert not found.calls[:, 0].any()


def test_a_frame_adds_only_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made = follower(8, frames=90)
    made.compare(10 * S, 131)
    made.recording.frame()
    rows: list[Mapping[str, Rows]] = []
    added = TraceHistory.added

    def counted(history: TraceHistory, since: Mapping[str, int], begin_ns: int = 0) -> Mapping[str, Rows]:
        rows.append(added(history, since, begin_ns))
        return rows[-1]

    monkeypatch.setattr(TraceHistory, "added", counted)
    made.compare(10 * S, 131)
    whole = made.recording.history.trace(0, OPEN)
    assert len(rows) == 1
    assert 0 < len(rows[0]["calls"]) < len(whole.calls) / 20
    assert 0 < len(rows[0]["work"]) < len(whole.work) / 20


def spans(random: np.random.Generator, count: int, longest_ns: int) -> Int64s:
    begins = random.integers(0, S, count)
    return np.column_stack((begins, begins + random.integers(0, longest_ns, count)))


def gaps_one_by_one(waits: Int64s, held: Int64s) -> Iterator[tuple[int, int]]:
    """The gaps in steps of 100 µs: a wait is there and no tenure, for more than 300 µs."""
    step = 100 * US
    at = np.arange(0, 3 * S, step)
    waiting, free = np.zeros(len(at), dtype=bool), np.ones(len(at), dtype=bool)
    for begin, end in waits.tolist():
        waiting |= (at >= begin) & (at < end)
    for begin, end in held.tolist():
        free &= ~((at >= begin) & (at < end))
    change = np.flatnonzero(np.diff(np.concatenate(([0], (waiting & free).astype(int), [0]))))
    for first, last in change.reshape(-1, 2).tolist():
        if (last - first) * step > 300 * US:
            yield int(at[first]), int(at[first]) + (last - first) * step


@pytest.mark.parametrize("seed", range(5))
def test_gaps_are_the_waits_without_a_tenure_in_any_order_of_rows(seed: int) -> None:
    random, step = np.random.default_rng(seed), 100 * US
    waits = spans(random, 60, 40 * MS) // step * step
    held = spans(random, 60, 8 * MS) // step * step
    work, tenures = np.zeros(len(waits), WORK), np.zeros(len(held), TENURE)
    work["kind"], work["start_ns"], work["returned_ns"] = RecordKind.KERNEL, waits[:, 1], np.maximum(waits[:, 0], 1)
    tenures["start_ns"], tenures["end_ns"] = held[:, 0], held[:, 1]
    found = EngineGaps()
    for part in np.array_split(random.permutation(60), 7):
        found.feed(work[part], tenures[part])
    expected = list(gaps_one_by_one(waits, held))
    assert len(expected) > 3
    assert [(begin // step * step, end) for begin, end in found.gaps(0, 2 * S).tolist()] == expected


def test_the_cells_of_a_viewport_do_not_depend_on_where_the_grid_began() -> None:
    made = follower(9, frames=50)
    trace = made.recording.history.trace(STARTED_NS, STARTED_NS + 4 * S)
    rows = [intervals(trace, RowKey(RowKind.CALLS, number), None) for number in range(len(PROBES))]
    view = Viewport(STARTED_NS + S, 2 * S)
    # 400 cells of 5 ms: whole numbers of ns, so that the viewport begins at a cell of both.
    assert_same(
        raster(rows, CellGrid(view.begin_ns, view.span_ns, 400)), raster(rows, CellGrid(STARTED_NS, 2 * S, 400), 200)
    )
