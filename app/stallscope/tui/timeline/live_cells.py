"""Cells of a live trace: sums that only new rows change, so that a frame costs the same at every span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallprobes.records.rows import Rows
from stallprobes.traces.engine_gaps import EngineGaps
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.rows import RowKey, RowKind
from stallprobes.traces.trace import TABLES, Int64s, Trace, TracedProbe
from stallprobes.traces.trigger import TriggerLimits
from stallscope.tui.timeline.raster import Bools, CellGrid, CellSpans, CellSums, CellValues, Raster
from stallscope.tui.timeline.time_axis import Viewport

# Columns of an array with a line for each interval that the timeline draws, such as a call or a kernel. _ROW: number of
# the timeline's row. _START, _END: start and end (ns). _HOLLOW: 1 for a wait or unfinished GPU work, else 0. _OP:
# number of the probe's operation that made the call, or _NO_OP if the interval is no call.
_ROW, _START, _END, _HOLLOW, _OP = range(5)
# Number of columns of the live trace's array of intervals: _ROW to _OP.
_COLUMNS = 5
# Operation number of an interval that has no operation.
_NO_OP = -1
# Number of low bits for CUPTI's stream number in the integer that identifies a timeline's row of GPU work. The higher
# bits have the context's number.
_STREAM_BITS = 32


class _OpTable:
    """The operations of all probes, numbered: each probe has as many as the largest probe, and one for unknown
    operations."""

    def __init__(self, probes: Sequence[TracedProbe]) -> None:
        self.each = max((len(probe.ops) for probe in probes), default=0) + 1
        self.count = len(probes) * self.each
        self.waits = np.array([probe.waits(op) for probe in probes for op in range(self.each)], dtype=np.bool_)
        self.rows = np.repeat(np.arange(len(probes)), self.each)

    def numbers(self, probes: Int64s, ops: Int64s) -> Int64s:
        """The numbers of operations of probes."""
        known = (ops >= 0) & (ops < self.each)
        numbers: Int64s = probes * self.each + np.where(known, ops, self.each - 1)
        return numbers

    def limits_ns(self, limits: TriggerLimits) -> Int64s:
        """The limit of each operation."""
        columns = np.minimum(np.arange(self.each), limits.calls.shape[1] - 1)
        limit_ns: Int64s = limits.calls[:, columns].ravel()
        return limit_ns


class _Longest(CellValues):
    """The longest call of each operation in each cell, and the longest of the calls shorter than a cell; 0 for none."""

    def __init__(self, ops: int, width: int) -> None:
        super().__init__(np.zeros((2, ops, width), dtype=np.int64))

    def add(self, ops: Int64s, ns: Int64s, at: CellSpans) -> None:
        """Add calls that take ``ns``."""
        width = self._values.shape[2]
        count = at.last - at.first + 1
        calls = np.repeat(np.arange(len(count)), count)
        cells = np.arange(len(calls)) - np.repeat(np.cumsum(count) - count - at.first, count)
        places, within = ops[calls] * width + cells, at.within[calls]
        longest, shorter = self._values.reshape(2, -1)
        np.maximum.at(longest, places, ns[calls])
        np.maximum.at(shorter, places[within], ns[calls][within])

    def above(self, limits_ns: Int64s) -> tuple[Bools, Bools]:
        """Masks of the operations with a call above their limit in each cell, and with one shorter than the cell."""
        longest, shorter = self._values > limits_ns[:, None]
        return longest, shorter


@dataclass(frozen=True, eq=False)
class LivePicture:
    """The picture of a live trace up to a time: the cells of its rows, and the gaps of the graphics engine."""

    cells: LiveCells
    outline: Trace
    gaps: Int64s

    def raster(self, rows: Sequence[RowKey], view: Viewport, width: int, limits: TriggerLimits | None) -> Raster:
        """The cells of ``rows`` on ``width`` columns; calls above ``limits`` are marked."""
        return self.cells.raster(self, rows, view, width, limits)


class LiveCells:
    """The cells of the rows of ``history``, kept from frame to frame.

    What has ended before the end of the visible span is added to the sums once; the rest, what is open and the gaps of
    the engine are added to each picture anew. The sums are made from all of the history when span or width change.
    """

    def __init__(self, history: TraceHistory) -> None:
        self.history = history
        self._ops = _OpTable(history.probes)
        self._rows = {RowKey(RowKind.CALLS, number): number for number in range(len(history.probes))}
        for kind in (RowKind.OVERHEADS, RowKind.FOREIGN):
            self._rows[RowKey(kind)] = len(self._rows)
        self._read: Mapping[str, int] = {}
        self._gaps = EngineGaps()
        # The end of the last work of each stream's row.
        self._last_end: dict[int, int] = {}
        self.grid: CellGrid | None = None
        self._first = 0
        self._sums = CellSums(0, CellGrid(0, 1, 0))
        self._longest = _Longest(0, 0)
        # Intervals that had not ended at the end of the visible span.
        self._pending = np.zeros((0, _COLUMNS), dtype=np.int64)

    def end_ns(self, span_ns: int, width: int) -> int:
        """The end of the last cell that was collected: the trace moves by whole cells, so that nothing flickers."""
        collected_ns, grid = self.history.collected_ns, self.grid
        if grid is None or (grid.span_ns, grid.width) != (span_ns, width):
            return collected_ns
        return grid.begin_ns(grid.cell(collected_ns))

    def begin_ns(self, begin_ns: int) -> int:
        """The time from which on all of the trace is known, at least ``begin_ns``.

        Where rows were dropped, it is the begin of a whole cell.
        """
        history, grid = self.history, self.grid
        known_ns = history.begin_ns
        if known_ns > max(history.started_ns, begin_ns) and grid is not None:
            known_ns = grid.begin_ns(grid.cell(known_ns) + 1)
        return max(known_ns, begin_ns)

    def follow(self, outline: Trace) -> tuple[LivePicture, Mapping[str, Rows]]:
        """The picture of ``outline``, the history's present one, and the rows that the history got since the last."""
        added = self.history.added(self._read)
        self._read = self.history.chunks
        self._gaps.feed(added["work"], added["tenures"])
        self._gaps.drop(self.history.begin_ns)
        self._pending = np.concatenate((self._pending, self._intervals(added)))
        gaps = np.zeros((0, 2), dtype=np.int64)
        if outline.context_switches:
            since_ns = int(outline.tenures["start_ns"].min(initial=np.iinfo(np.int64).max))
            gaps = self._gaps.gaps(outline.engine_known_ns, outline.end_ns, since_ns)
        return LivePicture(self, outline, gaps), added

    def raster(
        self, picture: LivePicture, rows: Sequence[RowKey], view: Viewport, width: int, limits: TriggerLimits | None
    ) -> Raster:
        """The cells of ``rows`` of ``picture``, the last one that ``follow`` returned."""
        grid = self._move_to(view, width)
        sums, longest = self._sums.copy(), self._longest.copy()
        passing = np.concatenate((self._pending, self._open(picture)))
        # The last sum is for rows without an interval.
        count = len(self._rows) + 1
        sums.grow(count)
        self._add(sums, longest, grid, passing)
        known = grid.cell(picture.outline.begin_ns - 1) + 1 - self._first
        if picture.outline.begin_ns > max(self.history.started_ns, view.begin_ns):
            sums.clear_before(known)
            longest.clear_before(known)
        slow_call, slow_wait, short = np.zeros((3, count, width), dtype=np.bool_)
        if limits is not None and limits.calls.shape[1]:
            above, below_cell = longest.above(self._ops.limits_ns(limits))
            for marks, which in (
                (slow_call, above & ~self._ops.waits[:, None]),
                (slow_wait, above & self._ops.waits[:, None]),
                (short, below_cell),
            ):
                np.logical_or.at(marks, self._ops.rows, which)
        numbers = np.array([self._rows.get(key, count - 1) for key in rows], dtype=np.int64)
        return sums.raster(numbers, slow_call[numbers], slow_wait[numbers], short[numbers])

    def _move_to(self, view: Viewport, width: int) -> CellGrid:
        """Have the sums at the cells of a viewport, with everything that ended in it."""
        grid = self.grid
        if grid is not None and (grid.span_ns, grid.width) == (view.span_ns, width):
            first = grid.cell(view.begin_ns)
            if grid.begin_ns(first) == view.begin_ns and first >= self._first:
                self._sums.grow(len(self._rows))
                self._sums.move(first - self._first)
                self._longest.move(first - self._first)
                self._first = first
                self._settle(grid)
                return grid
        grid = self.grid = CellGrid(view.begin_ns, view.span_ns, width)
        self._first = 0
        self._sums, self._longest = CellSums(len(self._rows), grid), _Longest(self._ops.count, width)
        self._pending = self._intervals(self.history.added({}, view.begin_ns))
        self._settle(grid)
        return grid

    def _settle(self, grid: CellGrid) -> None:
        """Add the intervals that ended in the visible span to the sums."""
        end = (self._first + grid.width) * grid.span_ns
        ended = grid.units(self._pending[:, _END]) <= end
        settled, self._pending = self._pending[ended], self._pending[~ended]
        self._add(self._sums, self._longest, grid, settled)

    def _add(self, sums: CellSums, longest: _Longest, grid: CellGrid, intervals: Int64s) -> None:
        at = CellSpans.of(grid, self._first, intervals[:, _START], intervals[:, _END])
        shown = intervals[at.kept]
        sums.add(shown[:, _ROW], at, shown[:, _HOLLOW] != 0)
        calls = np.flatnonzero(shown[:, _OP] != _NO_OP)
        longest.add(shown[calls, _OP], shown[calls, _END] - shown[calls, _START], at.only(calls))

    # Intervals.

    def _row(self, kind: RowKind, code: int) -> int:
        """The number of the row of a stream or of a context, a new one for a new row."""
        key = RowKey(kind, code)
        if kind is RowKind.WORK:
            key = RowKey(kind, code >> _STREAM_BITS, code & ((1 << _STREAM_BITS) - 1))
        return self._rows.setdefault(key, len(self._rows))

    def _numbers(self, kind: RowKind, codes: Int64s) -> Int64s:
        """The numbers of the rows of streams or contexts."""
        known, places = np.unique(codes, return_inverse=True)
        rows = np.array([self._row(kind, code) for code in known.tolist()], dtype=np.int64)
        return rows[places]

    def _intervals(self, added: Mapping[str, Rows]) -> Int64s:
        """The intervals of rows of a history."""
        calls, work, tenures, overheads = (added[name] for name in TABLES)
        ops = self._ops.numbers(calls["probe"], calls["op"])
        ends = np.maximum(calls["returned_ns"], calls["began_ns"])
        streams = self._numbers(RowKind.WORK, (work["context"] << _STREAM_BITS) + work["stream"])
        for row in np.unique(streams).tolist():
            last = int(work["end_ns"][streams == row].max())
            self._last_end[row] = max(self._last_end.get(row, 0), last)
        contexts = self._numbers(RowKind.TENURES, tenures["context"])
        driver = np.full(len(overheads), self._rows[RowKey(RowKind.OVERHEADS)])
        return np.concatenate(
            (
                np.column_stack((calls["probe"], calls["began_ns"], ends, self._ops.waits[ops], ops)),
                _solid(streams, work["start_ns"], work["end_ns"]),
                _solid(contexts, tenures["start_ns"], tenures["end_ns"]),
                _solid(driver, overheads["start_ns"], overheads["end_ns"]),
            )
        )

    def _open(self, picture: LivePicture) -> Int64s:
        """The intervals of ``picture`` without a row: open calls and work, contexts on the engine, and its gaps."""
        outline, intervals = picture.outline, []
        for flight in outline.open_calls:
            op = int(self._ops.numbers(np.array([flight.probe]), np.array([flight.op]))[0])
            end_ns = max(outline.end_ns, flight.since_ns)
            intervals.append((flight.probe, flight.since_ns, end_ns, int(self._ops.waits[op]), op))
        open_since: dict[int, int] = {}
        for work in outline.open_work:
            row = self._row(RowKind.WORK, (work.context << _STREAM_BITS) + work.stream)
            open_since[row] = min(work.since_ns, open_since.get(row, work.since_ns))
        for row, since_ns in open_since.items():
            # A stream runs its work in order, so that open work is behind ended work.
            begin_ns = max(since_ns, self._last_end.get(row, 0))
            if begin_ns < outline.collected_ns:
                intervals.append((row, begin_ns, outline.collected_ns, 1, _NO_OP))
        for context, since_ns, _ in outline.tenures.tolist():
            row = self._row(RowKind.TENURES, context)
            intervals.append((row, since_ns, max(outline.collected_ns, outline.end_ns), 0, _NO_OP))
        foreign = np.full(len(picture.gaps), self._rows[RowKey(RowKind.FOREIGN)])
        held = np.array(intervals, dtype=np.int64).reshape(-1, _COLUMNS)
        return np.concatenate((held, _solid(foreign, picture.gaps[:, 0], picture.gaps[:, 1])))


def _solid(rows: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """Intervals that do not wait and are of no operation."""
    return np.column_stack((rows, starts, ends, 0 * rows, 0 * rows + _NO_OP))
