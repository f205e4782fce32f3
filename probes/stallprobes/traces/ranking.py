"""Ranking of a trace's calls by the time until the host had returned and the GPU had started."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from stallprobes.model import Role
from stallprobes.records.rows import Rows
from stallprobes.traces.trace import Int64s, Trace, callers_of


def slowest_row(trace: Trace, probes: Collection[int] | None = None) -> int | None:
    """The row of the slowest call of the probes with the numbers ``probes``, by default the victims; None without any.

    A call ranks by the time inside it plus the time that its work waited for others afterwards; a wait behind earlier
    work of the same probe on the same stream does not count. Calls that wait for work are left out, since they last as
    long as the work, and so are calls that no histogram counts.
    """
    rows = _taking_part(trace, probes)
    return int(rows[np.argmax(_times(trace)[rows])]) if len(rows) else None


def most_unusual_call(trace: Trace, probes: Collection[int] | None = None) -> int | None:
    """The row of the call that exceeds the median of its operation by most, by the ranking times; None without any."""
    rows = _taking_part(trace, probes)
    if not len(rows):
        return None
    times = _times(trace)
    excess = np.zeros(len(rows), dtype=np.float64)
    ops = trace.calls[rows][["probe", "op"]]
    for op in np.unique(ops):
        own = ops == op
        excess[own] = times[rows[own]] - np.median(times[rows[own]])
    return int(rows[np.argmax(excess)])


def of_iteration(rows: Rows, call: Rows) -> Rows:
    """The rows among ``rows`` (calls or work) of the probe and the iteration of ``call``, a row of calls."""
    return np.asarray(rows[(rows["probe"] == call["probe"]) & (rows["iteration"] == call["iteration"])])


def _taking_part(trace: Trace, probes: Collection[int] | None) -> Int64s:
    """The rows of calls that rank; without ``probes`` those of victims, or of all probes where there is no victim."""
    if probes is None:
        victims = [number for number, probe in enumerate(trace.probes) if probe.role is Role.VICTIM]
        probes = victims or range(len(trace.probes))
    takes = np.zeros(len(trace.calls), dtype=bool)
    for number, probe in enumerate(trace.probes):
        if number not in probes:
            continue
        waits = np.array([*(probe.waits(op) for op in range(len(probe.ops))), False], dtype=bool)
        own = trace.calls["probe"] == number
        takes |= own & ~waits[np.clip(trace.calls["op"], 0, len(waits) - 1)]
    return np.flatnonzero(takes & (trace.calls["measured"] != 0))


def _times(trace: Trace) -> Int64s:
    """The time by which each call ranks."""
    calls, work = trace.calls, trace.work
    times = calls["returned_ns"] - calls["began_ns"]
    known = np.flatnonzero((work["probe"] >= 0) & (work["returned_ns"] > 0))
    free = np.zeros(len(work), dtype=np.int64)
    streams = work[known][["probe", "context", "stream"]]
    for stream in np.unique(streams):
        own = known[streams == stream]
        free[own[1:]] = np.maximum.accumulate(work["end_ns"][own])[:-1]
    waited = work["start_ns"] - np.maximum(work["returned_ns"], free)
    callers = callers_of(trace)
    called = known[callers[known] >= 0]
    longest = np.zeros(len(calls), dtype=np.int64)
    np.maximum.at(longest, callers[called], waited[called])
    return np.asarray(times + longest)
