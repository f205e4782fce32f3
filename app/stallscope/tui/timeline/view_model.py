"""View model of the trace: what the plot draws, with the selected interval and the delay of its work."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stallprobes.model import Role
from stallprobes.records.rows import Rows
from stallprobes.traces.delay import Delay, delay_of
from stallprobes.traces.rows import NO_NUMBER, RowKey, RowKind
from stallprobes.traces.trace import Trace
from stallprobes.traces.trigger import TriggerLimits
from stallscope.tui.timeline.live_cells import LivePicture
from stallscope.tui.timeline.raster import Intervals
from stallscope.tui.timeline.rows import PlotRow, find, intervals
from stallscope.tui.timeline.time_axis import Viewport


@dataclass(frozen=True)
class Selection:
    """The selected row, and the start of the selected interval in it; None for the row alone."""

    row: RowKey
    start_ns: int | None = None


@dataclass(frozen=True)
class TraceView:
    """What the plot shows. ``trace`` has at least the visible time; it is compared by identity.

    Of a trace that moves, ``trace`` has only the rows that came last, and ``picture`` has the cells.

    ``zero_ns`` is the time that the axis calls 0. ``limits`` mark slow calls. ``sentences`` are shown in place of a
    trace. ``live``: the trace moves; ``off`` are then the numbers of the probes that are switched off. ``slow_only``:
    calls that were not slow are not recorded.
    """

    trace: Trace | None = None
    rows: tuple[PlotRow, ...] = ()
    viewport: Viewport = field(default_factory=lambda: Viewport(0, 10_000_000))
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


def selected_index(found: RowIntervals, selection: Selection) -> int | None:
    """The index of the selected interval in its row; None where the trace does not have it."""
    return None if selection.start_ns is None else find(found[selection.row], selection.start_ns)


def selected_work(trace: Trace, found: RowIntervals, selection: Selection) -> Rows | None:
    """The row of ``trace.work`` that belongs to the selection; None without one.

    Of a call it is the work that the call submitted; of a wait the work that its iteration submitted, the one that
    started last; of GPU work itself.
    """
    index = selected_index(found, selection)
    if index is None:
        return None
    number = int(found[selection.row].numbers[index])
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


def selected_delay(trace: Trace, found: RowIntervals, selection: Selection | None) -> Delay | None:
    """The delay of the work that belongs to the selection; None without one."""
    work = None if selection is None else selected_work(trace, found, selection)
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
