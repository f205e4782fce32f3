"""Rows of a picture of a trace: host calls of each probe, GPU work of each stream, tenures of each context."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from stallprobes.traces import labels
from stallprobes.traces.delay import foreign_gaps
from stallprobes.traces.trace import (
    CALL_BEGAN,
    CALL_OP,
    CALL_PROBE,
    CALL_RETURNED,
    TENURE_CONTEXT,
    TENURE_END,
    TENURE_START,
    WORK_CONTEXT,
    WORK_DEVICE,
    WORK_END,
    WORK_START,
    WORK_STREAM,
    Int64s,
    Trace,
)

_NONE: Int64s = np.zeros((0, 2), dtype=np.int64)
ANOTHER_PROCESS = "another process"


class RowGroup(StrEnum):
    """A group of rows; the value is its title."""

    CALLS = "host calls"
    WORK = "GPU work"
    ENGINE = "graphics engine"


@dataclass(frozen=True, eq=False)
class TraceRow:
    """A row: ``spans`` (int64[n][2], begins and ends in ns) is drawn solid, ``waits`` hollow.

    ``probe`` is the number of the probe whose calls it has, ``context`` that of the context. ``foreign``: it has the
    time in which another process had the engine.
    """

    group: RowGroup
    label: str
    spans: Int64s
    waits: Int64s = field(default_factory=lambda: _NONE)
    probe: int | None = None
    context: int | None = None
    foreign: bool = False


def rows_of(trace: Trace) -> tuple[TraceRow, ...]:
    """The rows of ``trace`` from top to bottom. Spans may begin before the trace and end after it."""
    return (*_call_rows(trace), *_distinct(list(_work_rows(trace))), *_engine_rows(trace))


def _call_rows(trace: Trace) -> Iterator[TraceRow]:
    for number, probe in enumerate(trace.probes):
        waiting = np.array([probe.waits(op) for op in range(len(probe.ops))], dtype=bool)
        calls = trace.calls[trace.calls[:, CALL_PROBE] == number][:, [CALL_OP, CALL_BEGAN, CALL_RETURNED]]
        flights = [
            (flight.op, flight.since_ns, trace.end_ns)
            for flight in trace.open_calls
            if flight.probe == number and flight.since_ns < trace.end_ns
        ]
        if flights:
            calls = np.concatenate((calls, np.array(flights, dtype=np.int64)))
        hollow = waiting[calls[:, 0]] if len(waiting) else np.zeros(len(calls), dtype=bool)
        label = labels.probe_label(probe)
        yield TraceRow(RowGroup.CALLS, label, calls[~hollow, 1:], calls[hollow, 1:], probe=number)


def _work_rows(trace: Trace) -> Iterator[tuple[TraceRow, str]]:
    """The rows of the streams, each with the names of the probes that use it."""
    work = trace.work
    several = len(np.unique(work[:, WORK_DEVICE])) > 1
    for device, context, stream in np.unique(work[:, [WORK_DEVICE, WORK_CONTEXT, WORK_STREAM]], axis=0).tolist():
        same = (work[:, [WORK_DEVICE, WORK_CONTEXT, WORK_STREAM]] == (device, context, stream)).all(axis=1)
        label = f"{trace.names.context(context)}/{trace.names.stream(context, stream)}"
        label = f"GPU {device} {label}" if several else label
        spans = work[same][:, [WORK_START, WORK_END]]
        users = labels.stream_users(trace, np.flatnonzero(same))
        yield TraceRow(RowGroup.WORK, label, spans, context=context), users


def _distinct(rows: list[tuple[TraceRow, str]]) -> Iterator[TraceRow]:
    """The rows with different labels: streams of one name are named after their probes too."""
    count = Counter(row.label for row, _ in rows)
    for row, users in rows:
        yield replace(row, label=f"{row.label} {users}") if count[row.label] > 1 and users else row


def _engine_rows(trace: Trace) -> Iterator[TraceRow]:
    for context in np.unique(trace.tenures[:, TENURE_CONTEXT]).tolist():
        own = trace.tenures[trace.tenures[:, TENURE_CONTEXT] == context][:, [TENURE_START, TENURE_END]]
        spans = np.minimum(own, trace.end_ns)
        yield TraceRow(RowGroup.ENGINE, trace.names.context(context), spans, context=context)
    gaps = [(gap.begin_ns, gap.end_ns) for gap in foreign_gaps(trace)]
    if gaps:
        yield TraceRow(RowGroup.ENGINE, ANOTHER_PROCESS, np.array(gaps, dtype=np.int64), foreign=True)
