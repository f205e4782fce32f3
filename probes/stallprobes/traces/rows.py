"""Rows of a picture of a trace: host calls of each probe, GPU work of each stream, tenures of each context."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from stallprobes.traces.engine_gaps import foreign_gaps
from stallprobes.traces.trace import OPEN, Int64s, OpenWork, Trace

# Row number of an interval without a row in the trace's tables: a call in flight, or GPU work without a record.
NO_NUMBER = -1


class RowGroup(StrEnum):
    """A group of rows of the trace plot. The value is the title of the group."""

    CALLS = "host calls"
    WORK = "GPU work"
    ENGINE = "graphics engine"
    COUNTERS = "counters of the GPU"


class RowKind(StrEnum):
    """Content of a row of the trace plot. ``COUNTER``: the values of a counter of the GPU.

    ``TENURES``: times in which one context has the graphics engine. ``FOREIGN``: times in which another process has the
    graphics engine.
    """

    CALLS = "host calls"
    OVERHEADS = "driver overhead"
    WORK = "GPU work"
    TENURES = "graphics engine"
    FOREIGN = "another process"
    COUNTER = "counter"

    @property
    def group(self) -> RowGroup:
        """The group in which the row stands."""
        return _GROUPS[self]


# Group of the trace plot in which each kind of row stands.
_GROUPS = {
    RowKind.CALLS: RowGroup.CALLS,
    RowKind.OVERHEADS: RowGroup.CALLS,
    RowKind.WORK: RowGroup.WORK,
    RowKind.TENURES: RowGroup.ENGINE,
    RowKind.FOREIGN: RowGroup.ENGINE,
    RowKind.COUNTER: RowGroup.COUNTERS,
}


@dataclass(frozen=True, order=True)
class RowKey:
    """Identity of a row: its kind, and the number of its probe or counter, or of its context and stream."""

    kind: RowKind
    number: int = -1
    stream: int = -1


@dataclass(frozen=True, eq=False)
class RowSpans:
    """The spans of a row in the order of their starts, in ns, at least those that overlap the trace.

    ``hollow`` marks the spans of waiting calls and of open work. ``numbers`` are their rows in the trace's table,
    NO_NUMBER for calls in flight and open work, which are last.
    """

    starts: Int64s
    ends: Int64s
    hollow: NDArray[np.bool_]
    numbers: Int64s

    @classmethod
    def solid(cls, starts: Int64s, ends: Int64s, numbers: Int64s) -> RowSpans:
        """Spans none of which is hollow."""
        return cls(starts, ends, np.zeros(len(starts), dtype=np.bool_), numbers)


def _open_work(trace: Trace, key: RowKey) -> list[OpenWork]:
    return [work for work in trace.open_work if (work.context, work.stream) == (key.number, key.stream)]


def _work_numbers(trace: Trace, key: RowKey) -> Int64s:
    return np.flatnonzero((trace.work["context"] == key.number) & (trace.work["stream"] == key.stream))


def spans_of(trace: Trace, key: RowKey) -> RowSpans:
    """The spans of a row of ``trace``."""
    match key.kind:
        case RowKind.CALLS:
            return _calls(trace, key.number)
        case RowKind.WORK:
            return _work(trace, key)
        case RowKind.TENURES:
            numbers = np.flatnonzero(trace.tenures["context"] == key.number)
            ends = trace.tenures["end_ns"][numbers]
            # Who has the engine now has it up to the last record.
            ends = np.where(ends == OPEN, max(trace.collected_ns, trace.end_ns), ends)
            return RowSpans.solid(trace.tenures["start_ns"][numbers], ends, numbers)
        case RowKind.FOREIGN:
            gaps = foreign_gaps(trace)
            return RowSpans.solid(gaps[:, 0], gaps[:, 1], np.arange(len(gaps)))
        case RowKind.OVERHEADS:
            rows = trace.overheads
            return RowSpans.solid(rows["start_ns"], rows["end_ns"], np.arange(len(rows)))
        case RowKind.COUNTER:
            # It has values in place of spans.
            nothing = np.zeros(0, dtype=np.int64)
            return RowSpans.solid(nothing, nothing, nothing)


def _work(trace: Trace, key: RowKey) -> RowSpans:
    numbers = _work_numbers(trace, key)
    starts, ends = trace.work["start_ns"][numbers], trace.work["end_ns"][numbers]
    solid = RowSpans.solid(starts, ends, numbers)
    since = min((work.since_ns for work in _open_work(trace, key)), default=OPEN)
    # A stream runs its work in order, so that open work is behind ended work.
    since = max(since, int(ends.max(initial=0)))
    if since >= trace.collected_ns:
        return solid
    return RowSpans(
        np.append(starts, since),
        np.append(ends, trace.collected_ns),
        np.append(solid.hollow, True),
        np.append(numbers, NO_NUMBER),
    )


def _calls(trace: Trace, probe: int) -> RowSpans:
    numbers = np.flatnonzero(trace.calls["probe"] == probe)
    ops, starts, ends = (trace.calls[column][numbers] for column in ("op", "began_ns", "returned_ns"))
    flights = [flight for flight in trace.open_calls if flight.probe == probe]
    if flights:
        ops = np.append(ops, [flight.op for flight in flights])
        starts = np.append(starts, [flight.since_ns for flight in flights])
        ends = np.append(ends, [trace.end_ns] * len(flights))
        numbers = np.append(numbers, [NO_NUMBER] * len(flights))
    waits = np.array([trace.probes[probe].waits(op) for op in range(int(ops.max(initial=0)) + 1)])
    return RowSpans(starts, np.maximum(ends, starts), waits[ops], numbers)
