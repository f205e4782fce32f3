"""Delay index: the delays of all work of a trace, each from the rows of its own time only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stallprobes.traces.delay import (
    LONGEST_CHANGE_NS,
    Delay,
    DelayCause,
    DelayPart,
    cause_text,
    delay_of,
    needs_graphics_engine,
)
from stallprobes.traces.trace import (
    TENURE_CONTEXT,
    TENURE_END,
    TENURE_START,
    WORK_CONTEXT,
    WORK_COPY,
    WORK_DEVICE,
    WORK_END,
    WORK_KIND,
    WORK_NUMBER,
    WORK_RETURNED,
    WORK_START,
    WORK_STREAM,
    Int64s,
    Trace,
)

# Among more rows the parts of a delay are not computed one by one: a queue of 1000 launches has 1000 of them.
_MOST_ROWS = 128


class DelayIndex:
    """Causes of the delays in ``trace``; a query takes time by the rows beside the work, not by those of the trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._starts = trace.work[:, WORK_START]
        self._ends = np.maximum.accumulate(trace.work[:, WORK_END])
        self._tenure_starts = trace.tenures[:, TENURE_START]
        self._tenure_ends = np.maximum.accumulate(trace.tenures[:, TENURE_END])

    def delay_of(self, work: Int64s) -> Delay | None:
        """As ``delay.delay_of``."""
        return delay_of(self._beside(work), work)

    def cause_text(self, work: Int64s) -> str:
        """The main cause of the delay of the work in row ``work`` as a clause; "" where nothing is known."""
        beside = self._beside(work)
        part = _longest(beside, work) if len(beside.work) + len(beside.tenures) > _MOST_ROWS else _main(beside, work)
        return "" if part is None or part.cause is DelayCause.UNKNOWN else cause_text(beside, part)

    def _beside(self, work: Int64s) -> Trace:
        """The trace with those rows only that may overlap the delay of ``work``."""
        begin, end = work[WORK_RETURNED], work[WORK_START]
        rows = slice(np.searchsorted(self._ends, begin, "right"), np.searchsorted(self._starts, end))
        tenures = slice(
            np.searchsorted(self._tenure_ends, begin, "right"), np.searchsorted(self._tenure_starts, end)
        )
        return replace(self._trace, work=self._trace.work[rows], tenures=self._trace.tenures[tenures])


def _main(trace: Trace, work: Int64s) -> DelayPart | None:
    delay = delay_of(trace, work)
    return None if delay is None else delay.main()


def _longest(trace: Trace, work: Int64s) -> DelayPart | None:
    """The main cause by the time that each took during the delay, without the order in which they took it."""
    begin, end = int(work[WORK_RETURNED]), int(work[WORK_START])
    rows = trace.work[trace.work[:, WORK_NUMBER] != work[WORK_NUMBER]]
    spent = _inside(rows[:, WORK_START], rows[:, WORK_END], begin, end)
    stream = (rows[:, WORK_CONTEXT] == work[WORK_CONTEXT]) & (rows[:, WORK_STREAM] == work[WORK_STREAM])
    found: list[tuple[int, DelayPart]] = []

    def add(cause: DelayCause, which: Int64s) -> None:
        if len(which) and spent[which].any():
            longest = int(rows[which[np.argmax(spent[which])], WORK_NUMBER])
            found.append((int(spent[which].sum()), DelayPart(cause, begin, end, work=longest)))

    add(DelayCause.STREAM, np.flatnonzero(stream))
    if not needs_graphics_engine(work):
        same = (rows[:, [WORK_KIND, WORK_COPY, WORK_DEVICE]] == work[[WORK_KIND, WORK_COPY, WORK_DEVICE]]).all(axis=1)
        add(DelayCause.COPY, np.flatnonzero(same & ~stream))
    elif trace.context_switches:
        tenures = trace.tenures
        held = _inside(tenures[:, TENURE_START], tenures[:, TENURE_END], begin, end)
        for context in np.unique(tenures[:, TENURE_CONTEXT]).tolist():
            if context != work[WORK_CONTEXT]:
                time = int(held[tenures[:, TENURE_CONTEXT] == context].sum())
                found.append((time, DelayPart(DelayCause.CONTEXT, begin, end, context=context)))
        since = np.concatenate(([max(begin, trace.begin_ns)], np.maximum.accumulate(tenures[:, TENURE_END])))
        until = np.concatenate((tenures[:, TENURE_START], [end]))
        gaps = _inside(since, until, begin, end)
        long = gaps > LONGEST_CHANGE_NS
        found.append((int(gaps[long].sum()), DelayPart(DelayCause.PROCESS, begin, end)))
        found.append((int(gaps[~long].sum()), DelayPart(DelayCause.CHANGE, begin, end)))
    return max(found, key=lambda each: each[0], default=(0, None))[1]


def _inside(starts: Int64s, ends: Int64s, begin: int, end: int) -> Int64s:
    """The part of each span that is between ``begin`` and ``end``."""
    found: Int64s = np.maximum(np.minimum(ends, end) - np.maximum(starts, begin), 0)
    return found
