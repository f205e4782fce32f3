"""Delay index: the causes of the delays of all work of a trace, each from the rows of its own time only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stallprobes.records.rows import Rows
from stallprobes.traces.delay import (
    LONGEST_CHANGE_NS,
    DelayCause,
    DelayPart,
    cause_text,
    delay_of,
    of_call,
    on_graphics_engine,
    submitted_before,
)
from stallprobes.traces.trace import Int64s, Trace

# Largest number of rows (GPU work and contexts' times on the graphics engine) with which all parts of a delay are
# computed. With more rows, a faster, simpler search finds the delay's main cause. For a call's work on several streams,
# all parts are always computed.
_MOST_ROWS = 24
# Columns that determine the name of a piece of GPU work.
_NAMED = ["kind", "probe", "op"]
# Columns that are equal for two copies on the same copy engine.
_ENGINE = ["kind", "subkind", "device"]


class DelayIndex:
    """Causes of the delays in ``trace``; the time of a query grows with the rows beside the work, not with all rows of
    the trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._starts = trace.work["start_ns"]
        self._ends = np.maximum.accumulate(trace.work["end_ns"])
        self._tenure_starts = trace.tenures["start_ns"]
        self._tenure_ends = np.maximum.accumulate(trace.tenures["end_ns"])
        # Texts of a queue: all of it waits for work of few names.
        self._queue_texts: dict[tuple[int, ...], str] = {}

    def cause_text(self, row: int) -> str:
        """The main cause of the delay of row ``row`` of the trace's work as a clause; "" where nothing is known."""
        work = self._trace.work[row]
        rows, tenures = self._spans(work)
        few = rows.stop - rows.start + tenures.stop - tenures.start <= _MOST_ROWS
        if not few and self._queued[row]:
            return self._queue_text(rows, work, row)
        beside = self._beside(work)
        later_part = bool((of_call(work, beside.work) & (beside.work["stream"] != work["stream"])).any())
        part = _main(beside, work) if few or later_part else _longest(beside, work)
        return "" if part is None or part.cause is DelayCause.UNKNOWN else cause_text(beside, part)

    @cached_property
    def _uniform(self) -> NDArray[np.bool_]:
        """For each row of work whether all work of its stream has one name."""
        work = self._trace.work
        uniform = np.zeros(len(work), dtype=bool)
        for own in self._streams():
            uniform[own] = (work[own][_NAMED] == work[own[0]][_NAMED]).all()
        return uniform

    def _streams(self) -> Iterator[Int64s]:
        """The rows of each stream's work."""
        streams = self._trace.work[["device", "context", "stream"]]
        for stream in np.unique(streams):
            yield np.flatnonzero(streams == stream)

    @cached_property
    def _queued(self) -> NDArray[np.bool_]:
        """For each row of work whether its stream was busy for most of its delay."""
        work = self._trace.work
        queued = np.zeros(len(work), dtype=bool)
        for own in self._streams():
            starts, ends = work["start_ns"][own], np.maximum.accumulate(work["end_ns"][own])
            # Where work overlaps, its time counts once.
            begins = np.maximum(starts, np.concatenate((starts[:1], ends[:-1])))
            busy = np.concatenate(([0], np.cumsum(np.maximum(ends - begins, 0))))
            returned = work["returned_ns"][own]
            # The time that the stream was busy before each return; work that ran then counts in part.
            places = np.searchsorted(begins, returned)
            running = np.maximum(ends[np.maximum(places - 1, 0)] - returned, 0)
            until_return = busy[places] - np.where(places > 0, running, 0)
            waited = busy[:-1] - until_return
            delay = starts - returned
            queued[own] = (returned > 0) & (delay > 0) & (2 * waited > delay)
        return queued

    def _queue_text(self, rows: slice, work: Rows, row: int) -> str:
        """The clause for ``work``, row ``row``, behind other work of its stream, the longest of which is named."""
        longest = work if self._uniform[row] else _longest_ahead(self._trace.work[rows], work)
        key: tuple[int, ...] = longest[_NAMED].tolist()
        if key not in self._queue_texts:
            part = DelayPart(DelayCause.STREAM, 0, 0, work=int(longest["sequence"]))
            self._queue_texts[key] = cause_text(self._trace.changed(work=np.array([longest])), part)
        return self._queue_texts[key]

    def _spans(self, work: Rows) -> tuple[slice, slice]:
        """The rows of work and of tenures that may overlap the delay of ``work``."""
        begin, end = work["returned_ns"], work["start_ns"]
        rows = slice(np.searchsorted(self._ends, begin, "right"), np.searchsorted(self._starts, end))
        tenures = slice(np.searchsorted(self._tenure_ends, begin, "right"), np.searchsorted(self._tenure_starts, end))
        return rows, tenures

    def _beside(self, work: Rows) -> Trace:
        """The trace with the rows of ``_spans`` only."""
        rows, tenures = self._spans(work)
        return self._trace.changed(work=self._trace.work[rows], tenures=self._trace.tenures[tenures])


def _longest_ahead(beside: Rows, work: Rows) -> Rows:
    """The row of ``beside`` that ran longest on the stream of ``work`` during its delay."""
    same = (beside["stream"] == work["stream"]) & (beside["context"] == work["context"])
    rows = beside[same & (beside["sequence"] != work["sequence"])]
    spent = _inside(rows["start_ns"], rows["end_ns"], int(work["returned_ns"]), int(work["start_ns"]))
    longest: Rows = rows[np.argmax(spent)]
    return longest


def _main(trace: Trace, work: Rows) -> DelayPart | None:
    delay = delay_of(trace, work)
    return None if delay is None else delay.main()


def _longest(trace: Trace, work: Rows) -> DelayPart | None:
    """The main cause by its total time during the delay, without the order of the causes."""
    begin, end = int(work["returned_ns"]), int(work["start_ns"])
    rows = trace.work[trace.work["sequence"] != work["sequence"]]
    order_ns, order = _order(rows, work)
    times: list[tuple[int, DelayPart]] = []
    if not on_graphics_engine(work):
        same = rows[rows[_ENGINE] == work[_ENGINE]]
        spent = _inside(same["start_ns"], same["end_ns"], begin, end)
        if spent.any():
            longest = int(same["sequence"][np.argmax(spent)])
            times.append((int(spent.sum()), DelayPart(DelayCause.COPY, begin, end, work=longest)))
        elsewhere = same[["context", "stream"]] != work[["context", "stream"]]
        times.append((order_ns - int(spent[elsewhere].sum()), order))
    elif trace.context_switches:
        tenures = trace.tenures
        held = _inside(tenures["start_ns"], tenures["end_ns"], begin, end)
        for context in np.unique(tenures["context"]).tolist():
            time = int(held[tenures["context"] == context].sum())
            if context == work["context"]:
                times.append((min(order_ns, time), order))
                times.append((max(time - order_ns, 0), DelayPart(DelayCause.UNKNOWN, begin, end)))
            else:
                times.append((time, DelayPart(DelayCause.CONTEXT, begin, end, context=context)))
        since = np.concatenate(([max(begin, trace.engine_known_ns)], np.maximum.accumulate(tenures["end_ns"])))
        until = np.concatenate((tenures["start_ns"], [end]))
        gaps = _inside(since, until, begin, end)
        long = gaps > LONGEST_CHANGE_NS
        times.append((int(gaps[long].sum()), DelayPart(DelayCause.PROCESS, begin, end)))
        times.append((int(gaps[~long].sum()), DelayPart(DelayCause.CHANGE, begin, end)))
    else:
        times.append((order_ns, order))
    time, part = max(times, key=lambda each: each[0])
    return part if time > 0 else None


def _order(rows: Rows, work: Rows) -> tuple[int, DelayPart]:
    """The time in which work submitted before ``work`` had not started and none of it ran, and this cause."""
    begin, end = int(work["returned_ns"]), int(work["start_ns"])
    queued = rows[submitted_before(work, rows)]
    if not len(queued):
        return 0, DelayPart(DelayCause.UNKNOWN, begin, end)
    ended = np.maximum(np.maximum.accumulate(queued["end_ns"]), begin)
    waits = np.maximum(queued["start_ns"] - np.concatenate(([begin], ended[:-1])), 0)
    return int(waits.sum()), DelayPart(DelayCause.ORDER, begin, end, work=int(queued["sequence"][np.argmax(waits)]))


def _inside(starts: Int64s, ends: Int64s, begin: int, end: int) -> Int64s:
    """The part of each span that is between ``begin`` and ``end``."""
    return np.asarray(np.maximum(np.minimum(ends, end) - np.maximum(starts, begin), 0))
