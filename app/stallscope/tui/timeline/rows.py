"""Rows of the trace: host calls of each probe, work of each stream, tenures of each context, other processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from stallprobes.traces.delay import foreign_gaps
from stallprobes.traces.trace import (
    CALL_BEGAN,
    CALL_OP,
    CALL_PROBE,
    CALL_RETURNED,
    OPEN,
    OVERHEAD_END,
    OVERHEAD_START,
    TENURE_CONTEXT,
    TENURE_END,
    TENURE_START,
    WORK_CONTEXT,
    WORK_END,
    WORK_PROBE,
    WORK_START,
    WORK_STREAM,
    Trace,
    TracedProbe,
)
from stallprobes.traces.trigger import TriggerLimits
from stallscope.tui.timeline.raster import Intervals


class RowKind(StrEnum):
    """What a row shows; the values are the titles of the sections."""

    CALLS = "host calls"
    OVERHEADS = "driver overhead"
    WORK = "GPU work"
    TENURES = "graphics engine"
    FOREIGN = "another process"

    @property
    def section(self) -> RowKind:
        """The section in which the row stands."""
        return {RowKind.FOREIGN: RowKind.TENURES, RowKind.OVERHEADS: RowKind.CALLS}.get(self, self)


@dataclass(frozen=True, order=True)
class RowKey:
    """Identity of a row: its kind, and the number of its probe, or of its context and stream."""

    kind: RowKind
    number: int = -1
    stream: int = -1


@dataclass(frozen=True)
class PlotRow:
    """A row and its name: the probe's, ``context · stream · probes``, or the context's."""

    key: RowKey
    name: str


class RowBook:
    """The rows of the traces of one engine; a row stays when later traces have nothing in it."""

    def __init__(self) -> None:
        self._probes: tuple[TracedProbe, ...] = ()
        # The probes whose work each stream ran, by context and stream.
        self._streams: dict[tuple[int, int], set[int]] = {}
        self._contexts: set[int] = set()
        self._single: set[RowKind] = set()
        self.rows: tuple[PlotRow, ...] = ()

    def add(self, trace: Trace) -> None:
        """Add the rows of ``trace``; the traces of other probes begin anew."""
        if trace.probes != self._probes:
            self.__init__()  # type: ignore[misc]
            self._probes = trace.probes
        if len(trace.work):
            # One number for each combination, since unique rows cost a sort of structures.
            work = trace.work
            both = (work[:, WORK_CONTEXT] << 40) + (work[:, WORK_STREAM] << 16) + work[:, WORK_PROBE] + 1
            for first in np.unique(both, return_index=True)[1].tolist():
                context, stream, probe = work[first, [WORK_CONTEXT, WORK_STREAM, WORK_PROBE]].tolist()
                self._streams.setdefault((context, stream), set()).add(probe)
        self._contexts.update(np.unique(trace.tenures[:, TENURE_CONTEXT]).tolist())
        if RowKind.FOREIGN not in self._single and (trace.others or foreign_gaps(trace)):
            self._single.add(RowKind.FOREIGN)
        if len(trace.overheads):
            self._single.add(RowKind.OVERHEADS)
        self.rows = tuple(self._ordered(trace))

    def _ordered(self, trace: Trace) -> Iterator[PlotRow]:
        names = trace.names
        for number, probe in enumerate(trace.probes):
            yield PlotRow(RowKey(RowKind.CALLS, number), probe.name)
        if RowKind.OVERHEADS in self._single:
            yield PlotRow(RowKey(RowKind.OVERHEADS), RowKind.OVERHEADS)
        for (context, stream), probes in sorted(self._streams.items(), key=lambda one: (min(one[1]), one[0])):
            known = [trace.probes[probe].name for probe in sorted(probes) if probe >= 0]
            parts = (names.context(context), names.stream(context, stream), ", ".join(known))
            yield PlotRow(RowKey(RowKind.WORK, context, stream), " · ".join(part for part in parts if part))
        for context in sorted(self._contexts, key=names.context):
            yield PlotRow(RowKey(RowKind.TENURES, context), names.context(context))
        if RowKind.FOREIGN in self._single:
            yield PlotRow(RowKey(RowKind.FOREIGN), RowKind.FOREIGN)


def intervals(trace: Trace, key: RowKey, limits: TriggerLimits | None) -> Intervals:
    """The intervals of a row; those of ``trace.open_calls`` are last, with number -1."""
    match key.kind:
        case RowKind.CALLS:
            return _calls(trace, key.number, limits)
        case RowKind.WORK:
            numbers = np.flatnonzero(
                (trace.work[:, WORK_CONTEXT] == key.number) & (trace.work[:, WORK_STREAM] == key.stream)
            )
            return Intervals.solid(trace.work[numbers, WORK_START], trace.work[numbers, WORK_END], numbers)
        case RowKind.TENURES:
            numbers = np.flatnonzero(trace.tenures[:, TENURE_CONTEXT] == key.number)
            ends = trace.tenures[numbers, TENURE_END]
            # Who has the engine now has it up to the last record.
            ends = np.where(ends == OPEN, max(trace.collected_ns, trace.end_ns), ends)
            return Intervals.solid(trace.tenures[numbers, TENURE_START], ends, numbers)
        case RowKind.FOREIGN:
            gaps = np.array([(gap.begin_ns, gap.end_ns) for gap in foreign_gaps(trace)], dtype=np.int64).reshape(-1, 2)
            return Intervals.solid(gaps[:, 0], gaps[:, 1], np.arange(len(gaps)))
        case RowKind.OVERHEADS:
            rows = trace.overheads
            return Intervals.solid(rows[:, OVERHEAD_START], rows[:, OVERHEAD_END], np.arange(len(rows)))


def _calls(trace: Trace, probe: int, limits: TriggerLimits | None) -> Intervals:
    numbers = np.flatnonzero(trace.calls[:, CALL_PROBE] == probe)
    rows = trace.calls[numbers]
    flights = [flight for flight in trace.open_calls if flight.probe == probe]
    ops = np.concatenate((rows[:, CALL_OP], np.array([flight.op for flight in flights], dtype=np.int64)))
    starts = np.concatenate((rows[:, CALL_BEGAN], np.array([flight.since_ns for flight in flights], dtype=np.int64)))
    ends = np.concatenate((rows[:, CALL_RETURNED], np.full(len(flights), trace.end_ns, dtype=np.int64)))
    ends = np.maximum(ends, starts)
    slow = np.zeros(len(ops), dtype=np.bool_)
    if limits is not None and limits.calls.shape[1]:
        slow = ends - starts > limits.calls[probe][np.minimum(ops, limits.calls.shape[1] - 1)]
    if trace.trigger is not None and trace.trigger.probe == probe:
        slow |= starts == trace.trigger.began_ns
    waits = np.array([trace.probes[probe].waits(op) for op in range(int(ops.max(initial=0)) + 1)])
    return Intervals(starts, ends, waits[ops], slow, np.concatenate((numbers, np.full(len(flights), -1))))


def find(found: Intervals, start_ns: int) -> int | None:
    """The index of the interval that starts at ``start_ns``; None without one."""
    index = int(np.searchsorted(found.starts, start_ns))
    return index if index < len(found.starts) and found.starts[index] == start_ns else None


def nearest(found: Intervals, at_ns: int) -> int | None:
    """The index of the interval at ``at_ns``, or the nearest one; None without any."""
    if not len(found.starts):
        return None
    distance = np.maximum(np.maximum(found.starts - at_ns, at_ns - found.ends), 0)
    return int(np.argmin(distance))
