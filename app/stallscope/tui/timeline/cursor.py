"""Cursor of the timeline: the visible span of a trace, and the selected row and interval in it."""

from __future__ import annotations

from stallprobes.model import MS
from stallprobes.traces.rows import RowKey, RowKind
from stallprobes.traces.trace import Trace
from stallprobes.traces.trigger import SlowCall, TriggerLimits, slowest_call
from stallscope.tui.timeline.rows import RowBook, nearest
from stallscope.tui.timeline.time_axis import Viewport, around, fitting, stepped
from stallscope.tui.timeline.view_model import (
    RowIntervals,
    Selection,
    longest_call,
    selected_index,
    selected_work,
    selection_of_call,
    work_span,
)

USUAL_SPAN_NS = 10 * MS
# A latency takes at most this share of the span that is chosen for it.
_STALL_SHARE = 0.3


class TraceCursor:
    """The visible span, the rows and the selection.

    ``trace`` is what is shown, None before; ``intervals`` are those of a trace that stands still, None for one that
    moves.
    """

    def __init__(self) -> None:
        self.viewport = Viewport(0, USUAL_SPAN_NS)
        self.selection: Selection | None = None
        self.trace: Trace | None = None
        self.intervals: RowIntervals | None = None
        self.book = RowBook()

    def show(self, trace: Trace, limits: TriggerLimits | None) -> None:
        """Show a trace that stands still."""
        self.intervals = RowIntervals(trace, limits)
        self._take(trace)

    def follow(self, trace: Trace, foreign: bool | None = None) -> None:
        """Show the present part of a trace that moves; ``foreign``: it has gaps of the graphics engine."""
        self.intervals = None
        # What passes is not selected.
        self.unselect()
        self._take(trace, foreign)

    def _take(self, trace: Trace, foreign: bool | None = None) -> None:
        self.trace = trace
        self.book.add(trace, foreign)
        keys = [row.key for row in self.book.rows]
        if keys and (self.selection is None or self.selection.row not in keys):
            self.selection = Selection(keys[0])

    def clear(self) -> None:
        """Show no trace."""
        self.trace = self.intervals = None

    def mark(self, limits: TriggerLimits | None) -> None:
        """Mark the calls of a trace that stands still by other limits."""
        if self.intervals is not None:
            self.intervals = RowIntervals(self.intervals.trace, limits)

    # The visible span.

    def move_to_call(self, began_ns: int, ns: int, before: float, shorten: bool) -> None:
        """Show a latency of ``ns`` from ``began_ns`` on, after the share ``before`` of a span that fits it.

        A longer span stays unless ``shorten``.
        """
        span_ns = fitting(ns / _STALL_SHARE)
        if not shorten:
            span_ns = max(span_ns, self.viewport.span_ns)
        self.viewport = Viewport(began_ns - round(min(before, 1 - _STALL_SHARE) * span_ns), span_ns)

    def move_to_slow_call(self, trace: Trace, call: SlowCall, before: float, shorten: bool) -> None:
        """Show a slow call and select it."""
        self.move_to_call(call.began_ns, call.ns, before, shorten)
        self.selection = selection_of_call(trace, call.probe, call.began_ns)

    def move_to_trigger(self, trace: Trace, before: float) -> None:
        """Show the call of the trigger with its work and select it; the whole trace without a trigger."""
        trigger = trace.trigger
        if trigger is None:
            self.viewport = around(trace.begin_ns, trace.end_ns, fitting(trace.span_ns))
            self.unselect()
            return
        self.selection = selection_of_call(trace, trigger.probe, trigger.began_ns)
        begin_ns, end_ns = trigger.began_ns, trigger.returned_ns
        work = selected_work(trace, RowIntervals(trace, None), self.selection)
        if work is not None:
            begin_ns, end_ns = work_span(work, begin_ns, end_ns)
        self.move_to_call(begin_ns, end_ns - begin_ns, before, shorten=True)

    def move_to_end(self, end_ns: int) -> None:
        """Show the span that ends at a time."""
        self.viewport = Viewport(end_ns - self.viewport.span_ns, self.viewport.span_ns)

    def zoom(self, steps: int, at_ns: int | None = None) -> None:
        """Lengthen the span by ``steps``, or shorten it; ``at_ns`` stays at its place, None for the selection's."""
        if self.intervals is None:
            self.viewport = Viewport(self.viewport.begin_ns, stepped(self.viewport.span_ns, steps))
        else:
            zoomed = self.viewport.zoomed(steps, self._anchor_ns() if at_ns is None else at_ns)
            self.viewport = self._on_trace(zoomed.begin_ns, zoomed.span_ns)

    def _anchor_ns(self) -> int:
        """The start of the selected interval if it is visible, else the middle."""
        at_ns = None if self.selection is None else self.selection.start_ns
        if at_ns is None or not self.viewport.begin_ns <= at_ns < self.viewport.end_ns:
            return self.viewport.center_ns
        return at_ns

    def pan(self, ns: int) -> None:
        """Move by ``ns``; some of the trace stays visible."""
        self.viewport = self._on_trace(self.viewport.begin_ns + ns, self.viewport.span_ns)

    def _on_trace(self, begin_ns: int, span_ns: int) -> Viewport:
        """A span of this length that begins there, or so near that the trace reaches its middle."""
        if self.trace is not None:
            least, most = self.trace.begin_ns - span_ns // 2, self.trace.end_ns - span_ns // 2
            begin_ns = min(max(begin_ns, least), max(most, least))
        return Viewport(begin_ns, span_ns)

    # The selection.

    def unselect(self) -> None:
        """Select only the row."""
        if self.selection is not None:
            self.selection = Selection(self.selection.row)

    def step_row(self, by: int) -> None:
        """Select another row, and in it the interval nearest to the selected one."""
        keys = [row.key for row in self.book.rows]
        if not keys:
            return
        selection = self.selection
        place = keys.index(selection.row) if selection is not None and selection.row in keys else 0
        key = keys[(place + by) % len(keys)]
        at_ns = None if selection is None else selection.start_ns
        self.selection = Selection(key)
        if at_ns is not None and self.intervals is not None:
            self.select_at(key, at_ns, follow=False)

    def select_at(self, key: RowKey, at_ns: int, follow: bool = True) -> None:
        """Select the interval of a row that is nearest to a time; with ``follow`` make it visible."""
        if self.intervals is None:
            return
        part = self.intervals[key]
        index = nearest(part, at_ns)
        self.selection = Selection(key, None if index is None else int(part.starts[index]))
        if index is not None and follow:
            self.viewport = self.viewport.with_inside(int(part.starts[index]), int(part.ends[index]))

    def step_interval(self, by: int) -> None:
        """Select the interval ``by`` places further in the row, or the one nearest to the middle of the span."""
        if self.intervals is None or self.selection is None:
            return
        part = self.intervals[self.selection.row]
        index = selected_index(self.intervals, self.selection)
        if index is None:
            self.select_at(self.selection.row, self.viewport.center_ns)
            return
        index = min(max(index + by, 0), len(part.starts) - 1)
        self.selection = Selection(self.selection.row, int(part.starts[index]))
        self.viewport = self.viewport.with_inside(int(part.starts[index]), int(part.ends[index]))

    def select_worst(self) -> bool:
        """Select the call of the visible span that exceeds its limit most, or the longest one of a victim.

        False if no call of a victim is visible.
        """
        if self.trace is None or self.intervals is None:
            return False
        shown, limits = self.trace.between(self.viewport.begin_ns, self.viewport.end_ns), self.intervals.limits
        worst = None if limits is None else slowest_call(shown, limits)
        if worst is not None:
            self.selection = selection_of_call(self.trace, worst.probe, worst.began_ns)
            self.viewport = self.viewport.with_inside(worst.began_ns, worst.end_ns)
            return True
        longest = longest_call(shown)
        self.selection = longest or self.selection
        return longest is not None

    def center(self) -> None:
        """Center the selected interval and its work, in a span that fits them."""
        if self.trace is None or self.intervals is None or self.selection is None:
            return
        index = selected_index(self.intervals, self.selection)
        if index is None:
            return
        part = self.intervals[self.selection.row]
        begin_ns, end_ns = int(part.starts[index]), int(part.ends[index])
        work = selected_work(self.trace, self.intervals, self.selection)
        if work is not None:
            begin_ns, end_ns = work_span(work, begin_ns, end_ns)
        self.viewport = around(begin_ns, end_ns, fitting((end_ns - begin_ns) * 1.5))

    def visible(self) -> tuple[Trace, int | None] | None:
        """The visible part of the trace, and the row of the selected call in it; None if none of it is visible."""
        if self.trace is None:
            return None
        part = self.trace.between(self.viewport.begin_ns, self.viewport.end_ns)
        if not part.span_ns:
            return None
        selection = self.selection
        if selection is None or selection.row.kind is not RowKind.CALLS or selection.start_ns is None:
            return part, None
        return part, part.call_of(selection.row.number, selection.start_ns)
