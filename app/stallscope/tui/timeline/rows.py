"""Rows of the screen: their names, those that stay while a trace moves, and the intervals that are drawn in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from stallprobes.traces.engine_gaps import foreign_gaps
from stallprobes.traces.rows import NO_NUMBER, RowKey, RowKind, RowSpans, spans_of
from stallprobes.traces.trace import Trace, TracedProbe
from stallprobes.traces.trigger import TriggerLimits
from stallscope.tui.timeline.raster import Bools, Intervals


@dataclass(frozen=True)
class PlotRow:
    """A row and its name: the probe's, ``context · stream · probes``, or the context's."""

    key: RowKey
    name: str


@dataclass(frozen=True)
class RowBook:
    """The rows of the traces of one engine; a row stays when later traces have nothing in it.

    ``streams`` are (context, stream, probe) of GPU work, ``single`` the kinds with one row.
    """

    probes: tuple[TracedProbe, ...] = ()
    streams: frozenset[tuple[int, int, int]] = frozenset()
    contexts: frozenset[int] = frozenset()
    single: frozenset[RowKind] = frozenset()
    rows: tuple[PlotRow, ...] = ()

    def with_trace(self, trace: Trace, foreign: bool | None = None) -> RowBook:
        """With the rows of ``trace``; the traces of other probes begin anew.

        ``foreign``: the trace has gaps of the graphics engine, None to look for them in it.
        """
        earlier = self if trace.probes == self.probes else RowBook()
        streams = {(work.context, work.stream, work.probe) for work in trace.open_work}
        if len(trace.work):
            # One number for each combination, since unique rows cost a sort of structures.
            work = trace.work
            both = (work["context"] << 40) + (work["stream"] << 16) + work["probe"] + 1
            first = np.unique(both, return_index=True)[1]
            streams.update(work[first][["context", "stream", "probe"]].tolist())
        single = {RowKind.OVERHEADS} if len(trace.overheads) else set()
        if RowKind.FOREIGN not in earlier.single:
            foreign = bool(foreign_gaps(trace)) if foreign is None else foreign
            if trace.others or foreign:
                single.add(RowKind.FOREIGN)
        book = RowBook(
            trace.probes,
            earlier.streams | streams,
            earlier.contexts | set(np.unique(trace.tenures["context"]).tolist()),
            earlier.single | single,
        )
        return replace(book, rows=tuple(book._ordered(trace)))

    def _ordered(self, trace: Trace) -> Iterator[PlotRow]:
        names = trace.names
        for number, probe in enumerate(trace.probes):
            yield PlotRow(RowKey(RowKind.CALLS, number), probe.name)
        if RowKind.OVERHEADS in self.single:
            yield PlotRow(RowKey(RowKind.OVERHEADS), RowKind.OVERHEADS)
        probes: dict[tuple[int, int], list[int]] = {}
        for context, stream, submitter in sorted(self.streams):
            probes.setdefault((context, stream), []).append(submitter)
        for (context, stream), own in sorted(probes.items(), key=lambda item: (item[1][0], item[0])):
            submitters = ", ".join(trace.probes[probe].name for probe in own if probe >= 0)
            parts = (names.context(context), names.stream(context, stream), submitters)
            yield PlotRow(RowKey(RowKind.WORK, context, stream), " · ".join(part for part in parts if part))
        for context in sorted(self.contexts, key=names.context):
            yield PlotRow(RowKey(RowKind.TENURES, context), names.context(context))
        if RowKind.FOREIGN in self.single:
            yield PlotRow(RowKey(RowKind.FOREIGN), RowKind.FOREIGN)


def intervals(trace: Trace, key: RowKey, limits: TriggerLimits | None) -> Intervals:
    """The intervals of a row; calls in flight and open work are last, with number NO_NUMBER."""
    spans = spans_of(trace, key)
    slow = np.zeros(len(spans.starts), dtype=np.bool_)
    if key.kind is RowKind.CALLS:
        slow = _slow(trace, key.number, spans, limits)
    return Intervals(spans.starts, spans.ends, spans.hollow, slow, spans.numbers)


def _slow(trace: Trace, probe: int, spans: RowSpans, limits: TriggerLimits | None) -> Bools:
    """Which calls of ``probe`` are above their limits, or the trigger's."""
    slow = np.zeros(len(spans.starts), dtype=np.bool_)
    if limits is not None and limits.calls.shape[1]:
        flights = [flight.op for flight in trace.open_calls if flight.probe == probe]
        recorded = spans.numbers[spans.numbers != NO_NUMBER]
        ops = np.concatenate((trace.calls["op"][recorded], np.array(flights, dtype=np.int64)))
        slow = spans.ends - spans.starts > limits.calls[probe][np.minimum(ops, limits.calls.shape[1] - 1)]
    if trace.trigger is not None and trace.trigger.probe == probe:
        slow |= spans.starts == trace.trigger.began_ns
    return slow


def find(found: Intervals, start_ns: int) -> int | None:
    """The index of the interval that starts at ``start_ns``; None without one."""
    index = int(np.searchsorted(found.starts, start_ns))
    return index if index < len(found.starts) and found.starts[index] == start_ns else None


def nearest(found: Intervals, at_ns: int) -> int | None:
    """The index of the interval at ``at_ns``, or the nearest one; None without any.

    An interval that begins where another one ends is the one at that time.
    """
    if not len(found.starts):
        return None
    distance = np.maximum(np.maximum(found.starts - at_ns, at_ns + 1 - found.ends), 0)
    return int(np.argmin(distance))
