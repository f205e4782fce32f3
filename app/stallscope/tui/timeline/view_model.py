"""View model of the trace: its rows and their intervals, the selected one, and the delay of its work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from stallprobes.model import Role
from stallprobes.records.rows import Rows
from stallprobes.traces.delay import Delay, delay_of
from stallprobes.traces.engine_gaps import foreign_gaps
from stallprobes.traces.rows import NO_NUMBER, RowKey, RowKind, RowSpans, spans_of
from stallprobes.traces.trace import Trace, TracedProbe
from stallprobes.traces.trigger import TriggerLimits
from stallscope.tui.timeline.live_cells import LivePicture
from stallscope.tui.timeline.raster import Bools, Intervals
from stallscope.tui.timeline.time_axis import USUAL_SPAN_NS, Viewport


@dataclass(frozen=True)
class RowBook:
    """The rows of the traces of one engine; a row stays when later traces have nothing in it.

    ``streams`` are (context, stream, probe) of GPU work, ``single`` the kinds with one row, and ``counters`` the names
    of the GPU's counters. ``rows`` are the names of
    all rows, in their order: the probe's, ``context · stream · probes``, or the context's.
    """

    probes: tuple[TracedProbe, ...] = ()
    streams: frozenset[tuple[int, int, int]] = frozenset()
    contexts: frozenset[int] = frozenset()
    single: frozenset[RowKind] = frozenset()
    counters: tuple[str, ...] = ()
    rows: Mapping[RowKey, str] = field(default_factory=dict)

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
            foreign = len(foreign_gaps(trace)) > 0 if foreign is None else foreign
            if trace.others or foreign:
                single.add(RowKind.FOREIGN)
        book = RowBook(
            trace.probes,
            earlier.streams | streams,
            earlier.contexts | set(np.unique(trace.tenures["context"]).tolist()),
            earlier.single | single,
            tuple(dict.fromkeys((*earlier.counters, *(counter.name for counter in trace.counters)))),
        )
        return replace(book, rows=dict(book._ordered(trace)))

    def _ordered(self, trace: Trace) -> Iterator[tuple[RowKey, str]]:
        names = trace.names
        for number, probe in enumerate(trace.probes):
            yield RowKey(RowKind.CALLS, number), probe.name
        if RowKind.OVERHEADS in self.single:
            yield RowKey(RowKind.OVERHEADS), RowKind.OVERHEADS
        probes: dict[tuple[int, int], list[int]] = {}
        for context, stream, submitter in sorted(self.streams):
            probes.setdefault((context, stream), []).append(submitter)
        for (context, stream), own in sorted(probes.items(), key=lambda item: (item[1][0], item[0])):
            submitters = ", ".join(trace.probes[probe].name for probe in own if probe >= 0)
            parts = (names.context(context), names.stream(context, stream), submitters)
            yield RowKey(RowKind.WORK, context, stream), " · ".join(part for part in parts if part)
        for context in sorted(self.contexts, key=names.context):
            yield RowKey(RowKind.TENURES, context), names.context(context)
        if RowKind.FOREIGN in self.single:
            yield RowKey(RowKind.FOREIGN), RowKind.FOREIGN
        for number, name in enumerate(self.counters):
            yield RowKey(RowKind.COUNTER, number), name


def intervals(trace: Trace, key: RowKey, limits: TriggerLimits | None) -> Intervals:
    """The intervals of a row; calls in flight and open work are last, with number NO_NUMBER."""
    spans = spans_of(trace, key)
    slow = np.zeros(len(spans.starts), dtype=np.bool_)
    if key.kind is RowKind.CALLS:
        slow = _slow(trace, key.number, spans, limits)
    return Intervals(spans.starts, spans.ends, spans.hollow, spans.numbers, slow)


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


def find(row: Intervals, start_ns: int) -> int | None:
    """The index of the interval that starts at ``start_ns``; None without one."""
    index = int(np.searchsorted(row.starts, start_ns))
    return index if index < len(row.starts) and row.starts[index] == start_ns else None


def nearest(row: Intervals, at_ns: int) -> int | None:
    """The index of the interval at ``at_ns``, else of the nearest interval; None without any.

    At the common edge of two intervals the later one counts.
    """
    if not len(row.starts):
        return None
    distance = np.maximum(np.maximum(row.starts - at_ns, at_ns + 1 - row.ends), 0)
    return int(np.argmin(distance))


@dataclass(frozen=True)
class Selection:
    """The selected row, and the start of the selected interval in it; None for the row alone."""

    row: RowKey
    start_ns: int | None = None


@dataclass(frozen=True)
class TraceView:
    """Content of the plot. ``trace`` has at least the visible time; it is compared by identity.

    While a trace moves, ``trace`` has only the latest rows, and ``picture`` has the cells.

    ``zero_ns`` is the time that the axis calls 0. ``limits`` mark slow calls. ``sentences`` are shown in place of a
    trace. ``live``: the trace moves; ``off`` are then the numbers of the probes that are switched off. ``slow_only``:
    calls that were not slow are not recorded.
    """

    trace: Trace | None = None
    rows: Mapping[RowKey, str] = field(default_factory=dict)
    viewport: Viewport = field(default_factory=lambda: Viewport(0, USUAL_SPAN_NS))
    zero_ns: int = 0
    selection: Selection | None = None
    limits: TriggerLimits | None = None
    sentences: tuple[str, ...] = ()
    live: bool = False
    off: frozenset[int] = frozenset()
    slow_only: bool = False
    picture: LivePicture | None = None


class RowIntervals:
    """The intervals of each row of a trace, computed when they are asked for first."""

    def __init__(self, trace: Trace, limits: TriggerLimits | None) -> None:
        self.trace = trace
        self.limits = limits
        self._found: dict[RowKey, Intervals] = {}

    def __getitem__(self, key: RowKey) -> Intervals:
        """The intervals of a row."""
        if key not in self._found:
            self._found[key] = intervals(self.trace, key, self.limits)
        return self._found[key]


def selected_index(spans: RowIntervals, selection: Selection) -> int | None:
    """The index of the selected interval in its row; None where the trace does not have it."""
    return None if selection.start_ns is None else find(spans[selection.row], selection.start_ns)


def selected_work(trace: Trace, spans: RowIntervals, selection: Selection) -> Rows | None:
    """The row of ``trace.work`` that belongs to the selection; None without one.

    A call selects the work that it submitted; a wait selects the last started work of its iteration; GPU work selects
    itself.
    """
    index = selected_index(spans, selection)
    if index is None:
        return None
    number = int(spans[selection.row].numbers[index])
    if number == NO_NUMBER:
        return None
    if selection.row.kind is RowKind.WORK:
        row: Rows = trace.work[number]
        return row
    if selection.row.kind is not RowKind.CALLS:
        return None
    work = trace.work_of(number)
    if not len(work):
        call = trace.calls[number]
        same = (trace.work["probe"] == call["probe"]) & (trace.work["iteration"] == call["iteration"])
        work = trace.work[same]
    return work[int(np.argmax(work["start_ns"]))] if len(work) else None


def selected_delay(trace: Trace, spans: RowIntervals, selection: Selection | None) -> Delay | None:
    """The delay of the work that belongs to the selection; None without one."""
    work = None if selection is None else selected_work(trace, spans, selection)
    return None if work is None else delay_of(trace, work)


def selection_of_call(trace: Trace, probe: int, began_ns: int) -> Selection:
    """The selection of the call of ``probe`` that began at ``began_ns``, or of the probe's row without that call."""
    known = ((trace.calls["probe"] == probe) & (trace.calls["began_ns"] == began_ns)).any()
    flying = any(call.probe == probe and call.since_ns == began_ns for call in trace.open_calls)
    return Selection(RowKey(RowKind.CALLS, probe), began_ns if known or flying else None)


def work_span(work: Rows, begin_ns: int, end_ns: int) -> tuple[int, int]:
    """A span extended by the call and the time of ``work``."""
    began = int(work["began_ns"]) or begin_ns
    return min(begin_ns, began, int(work["start_ns"])), max(end_ns, int(work["end_ns"]))


def longest_call(trace: Trace) -> Selection | None:
    """The selection of the longest call of a victim; None without one."""
    victims = np.array([probe.role is Role.VICTIM for probe in trace.probes], dtype=np.bool_)
    if not len(trace.calls):
        return None
    lengths = np.where(victims[trace.calls["probe"]], trace.calls["returned_ns"] - trace.calls["began_ns"], -1)
    longest = int(np.argmax(lengths))
    if lengths[longest] < 0:
        return None
    row = trace.calls[longest]
    return Selection(RowKey(RowKind.CALLS, int(row["probe"])), int(row["began_ns"]))
