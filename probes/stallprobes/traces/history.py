"""History of a live timeline: the records of the last seconds, from which traces are cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from stallprobes.engine.board import GpuRecords, HostCalls
from stallprobes.engine.snapshot import Snapshot
from stallprobes.engine.timeline.reader import TimelineRows
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import Probe
from stallprobes.native.layouts.board import CALL_MEASURED, CALL_OP_MASK
from stallprobes.native.layouts.cupti import GPU_WORK, RecordKind, SwitchOperation
from stallprobes.records.rows import CALL, OVERHEAD, TENURE, WORK, Rows
from stallprobes.records.timeline import OFF, TimelineLosses, TimelinePosition, TimelineStatus
from stallprobes.traces.counters import CounterHistory
from stallprobes.traces.open_work import UnrecordedCalls
from stallprobes.traces.trace import (
    OPEN,
    TABLES,
    OpenCall,
    Trace,
    TracedProbe,
    TraceNames,
    TraceTrigger,
    overlapping,
)

# Time (s) for which the trace history keeps calls and records by default.
KEEP_S = 12.0
# Largest number of rows of a history table. With more rows, the oldest rows are dropped. Reason: in KEEP_S, sixteen
# probes at 1 kHz make 384 000 calls (two in each iteration).
MOST_ROWS = 400_000

# Kinds of records of work on the GPU.
_WORK_KINDS = np.array(sorted(GPU_WORK), dtype=np.int64)


class _Rows:
    """Chunks of rows, the oldest of which are dropped; ``start`` and ``end`` are the columns of their times."""

    def __init__(self, shape: np.dtype[Any], start: str, end: str) -> None:
        self._none: Rows = np.empty(0, shape)
        self._start, self._end = start, end
        # Each with its first start and its last end.
        self._chunks: deque[tuple[int, int, Rows]] = deque()
        self._count = 0
        # The number of chunks that were ever added.
        self.added = 0
        # Up to this time rows were dropped because there were too many.
        self.dropped_ns = 0

    def add(self, rows: Rows) -> None:
        """Add rows."""
        if len(rows):
            self._chunks.append((int(rows[self._start].min()), int(rows[self._end].max()), rows))
            self._count += len(rows)
            self.added += 1

    def since(self, number: int, begin_ns: int) -> Rows:
        """The rows of chunk ``number`` and of later chunks, as far as kept, without chunks that ended before
        ``begin_ns``."""
        first = max(number - (self.added - len(self._chunks)), 0)
        chunks = [rows for _, last_ns, rows in islice(self._chunks, first, None) if last_ns >= begin_ns]
        return np.concatenate(chunks) if chunks else self._none

    def drop(self, before_ns: int) -> None:
        """Drop chunks that ended before a time, and the oldest beyond MOST_ROWS."""
        while self._chunks and (self._chunks[0][1] < before_ns or self._count > MOST_ROWS):
            _, last_ns, rows = self._chunks.popleft()
            self._count -= len(rows)
            if last_ns >= before_ns:
                self.dropped_ns = max(self.dropped_ns, last_ns)

    def between(self, begin_ns: int, end_ns: int) -> Rows:
        """The rows that overlap a span, in the order of their starts."""
        pieces = [
            # Most chunks of a long span lie within it.
            rows
            if first >= begin_ns and last <= end_ns
            else overlapping(rows, self._start, self._end, begin_ns, end_ns)
            for first, last, rows in self._chunks
            if first <= end_ns and last >= begin_ns
        ]
        if not pieces:
            return self._none
        rows = np.concatenate(pieces)
        starts = rows[self._start]
        if (starts[1:] >= starts[:-1]).all():
            return rows
        return rows[np.argsort(starts, kind="stable")]


class TraceHistory:
    """The last ``keep_s`` seconds of a timeline, fed with its rows.

    ``position`` is where the next ``Session.timeline_rows`` continues; ``started_ns`` is the time of the first one, 0
    for the begin of the session. ``probes`` are the session's, in its order.
    """

    def __init__(self, probes: Sequence[Probe], keep_s: float = KEEP_S, simulated: bool = False) -> None:
        self.probes = tuple(TracedProbe.of(probe) for probe in probes)
        self.position = TimelinePosition()
        self.status: TimelineStatus = OFF
        self.started_ns = 0
        self.at_ns = 0
        self.collected_ns = 0
        self.simulated = simulated
        self._index = {probe.name: number for number, probe in enumerate(probes)}
        self._keep_ns = round(keep_s * 1e9)
        self._tables = {name: _Rows(*columns) for name, columns in TABLES.items()}
        self._unrecorded = UnrecordedCalls(probes)
        # When the last call of each probe that has returned began, by its number.
        self._last_began: dict[int, int] = {}
        # The contexts that have the engine, and since when; and the time of the first switch.
        self._held: dict[int, int] = {}
        self._engine_since_ns = OPEN
        self._counters = CounterHistory(self._keep_ns)
        self._overwritten = 0
        self._losses = TimelineLosses()
        self._wall_offset_s = 0.0

    def feed(self, rows: TimelineRows, wall_s: float) -> None:
        """Add the records of the timeline since ``position``; ``wall_s`` is the time of ``rows`` since 1970."""
        self._overwritten += rows.losses.overwritten + self._lost_calls(rows)
        # Names and kinds of the last time that it was on.
        self.position, self.status = rows.position, rows.status if rows.status.on else self.status
        self.at_ns, self.collected_ns = rows.at_ns, rows.collected_ns
        self._wall_offset_s = wall_s - rows.at_ns / 1e9
        self._losses = rows.losses
        calls = np.concatenate(
            [np.empty(0, CALL), *(_calls(self._index[name], added) for name, added in rows.calls.items())]
        )
        for name, added in rows.calls.items():
            if len(added):
                self._last_began[self._index[name]] = int(added["began_ns"].max())
        # In one order, so that a span is put in order by merging few pieces.
        self._tables["calls"].add(calls[np.argsort(calls["began_ns"], kind="stable")])
        records = rows.records
        kinds = records["kind"]
        work = _columns(records[np.isin(kinds, _WORK_KINDS)], WORK)
        self._tables["work"].add(work)
        self._unrecorded.feed(rows, work)
        self._tables["overheads"].add(_columns(records[kinds == RecordKind.OVERHEAD], OVERHEAD))
        self._feed_switches(records[kinds == RecordKind.CONTEXT_SWITCH])
        for kept in self._tables.values():
            kept.drop(self.at_ns - self._keep_ns)

    def feed_counters(self, at_ns: int, telemetry: TelemetrySnapshot | None) -> None:
        """Add the counters of the GPU, which were read at the time ``at_ns`` of the board."""
        self._counters.feed(at_ns, telemetry)

    def _lost_calls(self, rows: TimelineRows) -> int:
        """The number of host calls since ``position`` that were overwritten before they were read."""
        known = self.position.calls
        return sum(
            max(rows.position.calls[name] - known[name] - len(calls), 0)
            for name, calls in rows.calls.items()
            if name in known
        )

    def _feed_switches(self, records: GpuRecords) -> None:
        ended = []
        order = np.argsort(records["start_ns"], kind="stable")
        self._engine_since_ns = min(self._engine_since_ns, int(records["start_ns"].min(initial=OPEN)))
        for at_ns, context, operation in records[order][["start_ns", "context", "subkind"]].tolist():
            if operation == SwitchOperation.START:
                self._held.setdefault(context, at_ns)
            elif context in self._held:
                ended.append((context, self._held.pop(context), at_ns))
        self._tables["tenures"].add(np.array(ended, TENURE))

    @property
    def begin_ns(self) -> int:
        """The earliest time that the history still holds."""
        dropped_ns = (kept.dropped_ns for kept in self._tables.values())
        return max(self.at_ns - self._keep_ns, self.started_ns, *dropped_ns)

    @property
    def losses(self) -> TimelineLosses:
        """Losses since the history began; host calls count as overwritten too."""
        return replace(self._losses, overwritten=self._overwritten)

    @property
    def chunks(self) -> Mapping[str, int]:
        """The number of chunks that each table ever got, by its name: a position for ``added``."""
        return {name: rows.added for name, rows in self._tables.items()}

    def added(self, since: Mapping[str, int], begin_ns: int = 0) -> Mapping[str, Rows]:
        """The rows of each table of a trace that were added since a position, {} for all, and are still there.

        They are in no order. Some that ended before ``begin_ns`` are left out.
        """
        return {name: rows.since(since.get(name, 0), begin_ns) for name, rows in self._tables.items()}

    def trace(
        self,
        begin_ns: int,
        end_ns: int,
        *,
        snapshot: Snapshot | None = None,
        others: Sequence[str] = (),
        trigger: TraceTrigger | None = None,
    ) -> Trace:
        """The trace of a span. ``snapshot`` has the calls in flight, ``others`` the other processes on the GPU."""
        outline = self.outline(begin_ns, end_ns, snapshot=snapshot, others=others)
        tables: dict[str, Any] = {name: rows.between(begin_ns, end_ns) for name, rows in self._tables.items()}
        if len(outline.tenures):
            tenures = np.concatenate((tables["tenures"], outline.tenures))
            tables["tenures"] = tenures[np.argsort(tenures["start_ns"], kind="stable")]
        return outline.changed(trigger=trigger, **tables)

    def outline(
        self, begin_ns: int, end_ns: int, *, snapshot: Snapshot | None = None, others: Sequence[str] = ()
    ) -> Trace:
        """The trace of a span without its rows: names, open calls and work, and the contexts that have the engine."""
        held = [(context, since, OPEN) for context, since in self._held.items() if since <= end_ns]
        return Trace(
            begin_ns=begin_ns,
            end_ns=end_ns,
            collected_ns=self.collected_ns,
            probes=self.probes,
            names=TraceNames(dict(self.status.contexts), dict(self.status.streams)),
            calls=np.empty(0, CALL),
            work=np.empty(0, WORK),
            tenures=np.array(held, TENURE),
            overheads=np.empty(0, OVERHEAD),
            context_switches=self.status.context_switches,
            losses=self.losses,
            wall_offset_s=self._wall_offset_s,
            open_calls=() if snapshot is None else self._still_open(snapshot, end_ns),
            others=tuple(others),
            simulated=self.simulated,
            engine_since_ns=min(self._engine_since_ns, end_ns),
            open_work=tuple(
                work
                for work in self._unrecorded.open_work(self.collected_ns, self._failed(snapshot))
                if work.since_ns < end_ns
            ),
            counters=self._counters.tracks(begin_ns, end_ns),
        )

    def _failed(self, snapshot: Snapshot | None) -> tuple[int, ...]:
        """The numbers of the probes that ended with an error: their last call submitted nothing."""
        parts = {} if snapshot is None else snapshot.probes
        return tuple(
            self._index[name] for name, part in parts.items() if part.error is not None and name in self._index
        )

    def _still_open(self, snapshot: Snapshot, end_ns: int) -> tuple[OpenCall, ...]:
        """The calls in flight of ``snapshot`` that began before ``end_ns`` and have not returned since it was made."""
        return tuple(
            flight
            for flight in open_calls(self._index, snapshot)
            if self._last_began.get(flight.probe, -1) < flight.since_ns < end_ns
        )


def open_calls(index: Mapping[str, int], snapshot: Snapshot) -> tuple[OpenCall, ...]:
    """The calls in flight of ``snapshot``; ``index`` are the numbers of the probes."""
    flights = []
    for name, probe in snapshot.probes.items():
        flight = probe.in_flight
        if flight is not None and name in index:
            flights.append(OpenCall(index[name], flight.op, flight.since_ns))
    return tuple(flights)


def _calls(probe: int, rows: HostCalls) -> Rows:
    calls = np.empty(len(rows), CALL)
    calls["probe"] = probe
    calls["op"] = rows["op"] & CALL_OP_MASK
    for column in ("iteration", "began_ns", "returned_ns"):
        calls[column] = rows[column]
    calls["measured"] = (rows["op"] & CALL_MEASURED) != 0
    return calls


def _columns(records: GpuRecords, shape: np.dtype[Any]) -> Rows:
    """The fields of ``shape`` of ``records``."""
    rows = np.empty(len(records), shape)
    for column in shape.names or ():
        rows[column] = records[column]
    return rows
