"""Codec of traces: their stored form, from which the JSON codec derives the text, and the largest part that is stored.

Each column of the rows is stored as differences from row to row. The result of ``StoredTrace.trace`` is consistent:
rows are in the order of their starts, and numbers of probes and operations are within the trace's own tables.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from stallprobes.files.codec import Int64, attributes
from stallprobes.native.layouts.cupti import GPU_WORK
from stallprobes.records.rows import Rows
from stallprobes.traces.trace import (
    OPEN,
    TABLES,
    OpenCall,
    OpenWork,
    Trace,
    TraceHead,
    TraceNames,
)

# Largest number of rows of a stored trace: calls, work, tenures (times in which a context has the GPU's graphics
# engine) and overheads together.
MOST_ROWS = 20_000

# Latest time (ns) in a stored trace, 36 years after the clock's zero, and largest value of other numbers in the trace.
# Reason: the sum of the latest time and the longest duration fits into an int64.
_LATEST_NS = 1 << 60
# Longest duration (ns) in a stored trace: 28 hours.
_LONGEST_NS = 10**14
# Largest number of counters of a stored trace: those of 16 GPUs.
_MOST_COUNTERS = 128
# Columns that identify the operation of a call or of its work.
_CALL = ["probe", "op"]
# Kinds of records of work on the GPU.
_KINDS = np.array(sorted(GPU_WORK), dtype=np.int64)


def cut(trace: Trace, most: int = MOST_ROWS) -> Trace:
    """The largest part of ``trace`` around its trigger that has at most ``most`` rows; ``trace`` itself if it has.

    If the call of the trigger alone has more beside it, the part ends where its latency does.
    """
    if trace.row_count <= most:
        return trace
    began_ns, end_ns = _focus(trace)
    whole = trace.between(began_ns, end_ns).row_count <= most
    # Of the time before and after the focus, or before its end, the largest share with few enough rows.
    low, high = 0.0, 1.0
    largest = trace.between(end_ns, end_ns)
    for _ in range(24):
        share = (low + high) / 2
        if whole:
            first_ns = began_ns - round(share * (began_ns - trace.begin_ns))
            part = trace.between(first_ns, end_ns + round(share * (trace.end_ns - end_ns)))
        else:
            part = trace.between(end_ns - round(share * (end_ns - began_ns)), end_ns)
        if part.row_count <= most:
            low, largest = share, part
        else:
            high = share
    return largest if largest.row_count <= most else _truncated(largest, most)


def _focus(trace: Trace) -> tuple[int, int]:
    """When the call of the trigger began, and when it and its work had started; the middle without a trigger."""
    if trace.trigger is None:
        middle = (trace.begin_ns + trace.end_ns) // 2
        return middle, middle
    began_ns, end_ns = trace.trigger.began_ns, trace.trigger.returned_ns
    own = trace.work[(trace.work["probe"] == trace.trigger.probe) & (trace.work["began_ns"] == began_ns)]
    end_ns = max(end_ns, int(own["start_ns"].max(initial=end_ns)))
    end_ns = min(max(end_ns, trace.begin_ns), trace.end_ns)
    return min(max(began_ns, trace.begin_ns), end_ns), end_ns


def _truncated(trace: Trace, most: int) -> Trace:
    """``trace`` with the first rows of each kind only."""
    each = most // 4
    return trace.changed(**{name: getattr(trace, name)[:each] for name in TABLES})


class StoredRows(Struct, frozen=True, array_like=True):
    """Rows of a structured array of int64: their number, and the columns, each as differences from row to row.

    A column whose values are all equal has one item.
    """

    count: Annotated[int, Meta(ge=0, le=MOST_ROWS)]
    columns: list[list[Int64]]

    @classmethod
    def of(cls, rows: Rows) -> StoredRows:
        """The stored form of ``rows``."""
        columns = []
        for name in rows.dtype.names or ():
            steps = np.diff(rows[name], prepend=0)
            columns.append(steps.tolist() if steps[1:].any() else steps[:1].tolist())
        return cls(len(rows), columns)

    def rows(self, dtype: np.dtype[Any]) -> Rows:
        """The rows, of type ``dtype``. Raises ValueError for columns of another number or length."""
        rows, names = np.zeros(self.count, dtype), dtype.names or ()
        lengths = set(map(len, self.columns))
        if len(self.columns) != len(names) or not lengths <= {self.count, min(self.count, 1)}:
            raise ValueError(f"a table of {self.count} rows has {len(self.columns)} columns of {lengths} values")
        for name, steps in zip(names, self.columns, strict=True):
            rows[name] = np.cumsum(np.array(steps, dtype=np.int64)) if len(steps) > 1 else steps or 0
        return rows


class StoredTrace(TraceHead, frozen=True, kw_only=True):
    """A trace. ``kernels`` are the numbers of the work of each kernel, by its name.

    ``names`` are those of contexts by number, then of streams: context, stream, name.
    """

    names: tuple[dict[int, str], tuple[tuple[int, int, str], ...]]
    calls: StoredRows
    work: StoredRows
    tenures: StoredRows
    overheads: StoredRows
    kernels: dict[str, list[Int64]] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: Trace) -> StoredTrace:
        """The stored form of ``trace``; rows that end before they begin are left out."""
        kernels: dict[str, list[int]] = {}
        for number in trace.work["sequence"].tolist():
            if number in trace.kernels:
                kernels.setdefault(trace.kernels[number], []).append(number)
        own: dict[str, Any] = {"kernels": kernels}
        own["names"] = trace.names.contexts, [(*key, name) for key, name in trace.names.streams.items()]
        for name, (_, start, end) in TABLES.items():
            rows = getattr(trace, name)
            own[name] = StoredRows.of(rows[rows[end] >= rows[start]])
        return cls(**attributes(trace, cls) | own)

    def trace(self) -> Trace:
        """The trace. Raises ValueError where it is not consistent."""
        if not self.begin_ns <= self.end_ns <= min(self.begin_ns + _LONGEST_NS, _LATEST_NS):
            raise ValueError("the trace ends before it begins, or is too long")
        if any(not begin <= end <= _LATEST_NS for begin, end in self.unrecorded):
            raise ValueError("a time that was not recorded ends before it begins")
        own: dict[str, Any] = {name: self._table(name) for name in TABLES}
        own["kernels"] = {number: name for name, numbers in self.kernels.items() for number in numbers}
        contexts, streams = self.names
        own["names"] = TraceNames(contexts, {(context, stream): name for context, stream, name in streams})
        trace = Trace(**asdict(self) | own)
        _check(trace)
        return trace

    def _table(self, name: str) -> Rows:
        """The rows of a table, in the order of their starts and within the span at least in part."""
        dtype, start, end = TABLES[name]
        rows: Rows = getattr(self, name).rows(dtype)
        starts, ends = rows[start], rows[end]
        if name == "tenures":
            ends = np.where(ends == OPEN, self.end_ns, ends)
        if (starts[1:] < starts[:-1]).any():
            raise ValueError(f"{name} are not in the order of the starts")
        if (starts > self.end_ns).any() or (ends < np.maximum(starts, self.begin_ns)).any():
            raise ValueError(f"{name} have a row outside of the trace's span, or one that ends before it starts")
        columns = {column: rows[column] for column in dtype.names or ()} | {end: ends}
        if any((values < -1).any() or (values > _LATEST_NS).any() for values in columns.values()):
            raise ValueError(f"{name} have a value below -1, or above 2**60")
        if (ends - starts > _LONGEST_NS).any():
            raise ValueError(f"{name} have a row that is too long")
        return rows


def _check(trace: Trace) -> None:
    """Raise ValueError unless the numbers in ``trace`` are those of its probes, of GPU work, and of one row each."""
    if trace.row_count > MOST_ROWS:
        raise ValueError(f"the trace has more than {MOST_ROWS} rows")
    opened: list[OpenCall | OpenWork] = [*trace.open_calls, *trace.open_work]
    trigger = trace.trigger
    if len(trace.counters) > _MOST_COUNTERS or sum(len(track.samples) for track in trace.counters) > MOST_ROWS:
        raise ValueError(f"the trace has more than {_MOST_COUNTERS} counters, or {MOST_ROWS} values of them")
    for track in trace.counters:
        times = [at_ns for sample in track.samples for at_ns in (sample.begin_ns, sample.end_ns)]
        if times != sorted(times) or any(at_ns > _LATEST_NS for at_ns in times):
            raise ValueError("the values of a counter are not in the order of their times")
    parts = (trace.losses, *opened, *((trigger,) if trigger is not None else ()))
    if any(not -1 <= value <= _LATEST_NS for part in parts for value in astuple(part)):
        raise ValueError("the trace has a number below -1, or above 2**60")
    if trigger is not None and not (0 <= trigger.probe < len(trace.probes) and trigger.began_ns <= trigger.returned_ns):
        raise ValueError("the trigger is no call of a probe")
    submitted = trace.work[trace.work["probe"] >= 0]
    calls = {*trace.calls[_CALL].tolist(), *submitted[_CALL].tolist(), *((item.probe, item.op) for item in opened)}
    counts = [len(probe.ops) for probe in trace.probes]
    for probe, op in calls:
        if not 0 <= probe < len(counts) or not 0 <= op < counts[probe]:
            raise ValueError(f"the trace has no probe {probe} with an operation {op}")
    if not np.isin(trace.work["kind"], _KINDS).all():
        raise ValueError("work has a kind that is no work of a GPU")
    if len(np.unique(trace.work["sequence"])) < len(trace.work):
        raise ValueError("work has a number twice")
