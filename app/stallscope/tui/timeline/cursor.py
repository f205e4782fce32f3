"""Cursor of the timeline: the visible span of a trace, and the selected row and interval in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stallprobes.traces.rows import RowKey
from stallprobes.traces.trace import Trace
from stallprobes.traces.trigger import SlowCall, TriggerLimits, slowest_call
from stallscope.tui.timeline.time_axis import SPANS_NS, USUAL_SPAN_NS, Viewport, around, fitting, stepped
from stallscope.tui.timeline.view_model import (
    RowBook,
    RowIntervals,
    Selection,
    TraceView,
    longest_call,
    nearest,
    selected_index,
    selected_work,
    selection_of_call,
    work_span,
)

# Largest share (0 to 1) of the time axis that a slow call takes after a zoom to the call. The rest of the axis shows
# the time around the call.
_STALL_SHARE = 0.3


@dataclass(frozen=True, eq=False)
class TraceCursor:
    """The visible span, the rows and the selection; each method returns the cursor after a change.

    ``trace`` is the visible trace, None before; ``intervals`` are its intervals if it stands still, None if it moves.
    """

    viewport: Viewport = field(default_factory=lambda: Viewport(0, USUAL_SPAN_NS))
    selection: Selection | None = None
    trace: Trace | None = None
    intervals: RowIntervals | None = None
    book: RowBook = field(default_factory=RowBook)

    def showing(self, trace: Trace, limits: TriggerLimits | None) -> TraceCursor:
        """On a trace that stands still."""
        return replace(self, intervals=RowIntervals(trace, limits))._on_rows_of(trace)

    def following(self, trace: Trace, foreign: bool | None = None) -> TraceCursor:
        """On the present part of a trace that moves; ``foreign``: it has gaps of the graphics engine."""
        # What passes is not selected.
        return replace(self.unselected(), intervals=None)._on_rows_of(trace, foreign)

    def _on_rows_of(self, trace: Trace, foreign: bool | None = None) -> TraceCursor:
        book, selection = self.book.with_trace(trace, foreign), self.selection
        keys = list(book.rows)
        if keys and (selection is None or selection.row not in keys):
            selection = Selection(keys[0])
        return replace(self, trace=trace, book=book, selection=selection)

    def marked(self, limits: TriggerLimits | None) -> TraceCursor:
        """With the calls of a trace that stands still marked by other limits."""
        return self if self.intervals is None else replace(self, intervals=RowIntervals(self.intervals.trace, limits))

    def view(self) -> TraceView:
        """View of a trace; without one it is empty. The axis counts from the trigger, or from the end."""
        trace = self.trace
        if trace is None:
            return TraceView()
        zero_ns = trace.end_ns if trace.trigger is None else trace.trigger.began_ns
        limits = None if self.intervals is None else self.intervals.limits
        return TraceView(trace, self.book.rows, self.viewport, zero_ns, self.selection, limits)

    # The visible span.

    def at_latency(self, began_ns: int, ns: int, before: float, shorten: bool) -> TraceCursor:
        """At a latency of ``ns`` from ``began_ns`` on, after the share ``before`` of a span that fits it.

        A longer span stays unless ``shorten``.
        """
        span_ns = fitting(ns / _STALL_SHARE)
        if not shorten:
            span_ns = max(span_ns, self.viewport.span_ns)
        return replace(self, viewport=Viewport(began_ns - round(min(before, 1 - _STALL_SHARE) * span_ns), span_ns))

    def at_slow_call(self, trace: Trace, call: SlowCall, before: float, shorten: bool) -> TraceCursor:
        """At a slow call, which is selected."""
        selection = selection_of_call(trace, call.probe, call.began_ns)
        return replace(self, selection=selection).at_latency(call.began_ns, call.ns, before, shorten)

    def at_trigger(self, trace: Trace, before: float) -> TraceCursor:
        """At the call of the trigger with its work, which is selected; on the whole trace without a trigger."""
        trigger = trace.trigger
        if trigger is None:
            whole = around(trace.begin_ns, trace.end_ns, fitting(trace.span_ns))
            return replace(self.unselected(), viewport=whole)
        selection = selection_of_call(trace, trigger.probe, trigger.began_ns)
        begin_ns, end_ns = trigger.began_ns, trigger.returned_ns
        work = selected_work(trace, RowIntervals(trace, None), selection)
        if work is not None:
            begin_ns, end_ns = work_span(work, begin_ns, end_ns)
        return replace(self, selection=selection).at_latency(begin_ns, end_ns - begin_ns, before, shorten=True)

    def at_end(self, end_ns: int) -> TraceCursor:
        """At the span that ends at a time."""
        return replace(self, viewport=Viewport(end_ns - self.viewport.span_ns, self.viewport.span_ns))

    def zoomed(self, steps: int, at_ns: int | None = None) -> TraceCursor:
        """With a span ``steps`` longer, or shorter; ``at_ns`` stays at its place, None for the selection's."""
        if self.intervals is None:
            return replace(
                self, viewport=Viewport(self.viewport.begin_ns, stepped(self.viewport.span_ns, steps, SPANS_NS))
            )
        zoomed = self.viewport.zoomed(steps, self._anchor_ns() if at_ns is None else at_ns)
        return self._on_trace(zoomed.begin_ns, zoomed.span_ns)

    def _anchor_ns(self) -> int:
        """The start of the selected interval if it is visible, else the middle."""
        at_ns = None if self.selection is None else self.selection.start_ns
        if at_ns is None or not self.viewport.begin_ns <= at_ns < self.viewport.end_ns:
            return self.viewport.center_ns
        return at_ns

    def panned(self, ns: int) -> TraceCursor:
        """Moved by ``ns``; some of the trace stays visible."""
        return self._on_trace(self.viewport.begin_ns + ns, self.viewport.span_ns)

    def _on_trace(self, begin_ns: int, span_ns: int) -> TraceCursor:
        """With a span of this length that begins there, or near enough for the trace to reach its middle."""
        if self.trace is not None:
            least, most = self.trace.begin_ns - span_ns // 2, self.trace.end_ns - span_ns // 2
            begin_ns = min(max(begin_ns, least), max(most, least))
        return replace(self, viewport=Viewport(begin_ns, span_ns))

    # The selection.

    def unselected(self) -> TraceCursor:
        """With only the row selected."""
        return self if self.selection is None else replace(self, selection=Selection(self.selection.row))

    def row_stepped(self, by: int) -> TraceCursor:
        """With another row selected, and in it the interval nearest to the selected one."""
        keys, selection = list(self.book.rows), self.selection
        if not keys:
            return self
        place = keys.index(selection.row) if selection is not None and selection.row in keys else 0
        key = keys[(place + by) % len(keys)]
        moved = replace(self, selection=Selection(key))
        if selection is None or selection.start_ns is None:
            return moved
        return moved.selecting(key, selection.start_ns, follow=False)

    def selecting(self, key: RowKey, at_ns: int, follow: bool = True) -> TraceCursor:
        """With the interval of a row selected that is nearest to a time, and visible with ``follow``."""
        if self.intervals is None:
            return self
        index = nearest(self.intervals[key], at_ns)
        if index is None:
            return replace(self, selection=Selection(key))
        return self._at_interval(key, index, follow)

    def _at_interval(self, key: RowKey, index: int, follow: bool = True) -> TraceCursor:
        assert self.intervals is not None
        begin_ns, end_ns = self.intervals[key].span(index)
        viewport = self.viewport.with_inside(begin_ns, end_ns) if follow else self.viewport
        return replace(self, selection=Selection(key, begin_ns), viewport=viewport)

    def interval_stepped(self, by: int) -> TraceCursor:
        """With the interval ``by`` places further in the row selected, or the one nearest to the middle of the span."""
        if self.intervals is None or self.selection is None:
            return self
        key, index = self.selection.row, selected_index(self.intervals, self.selection)
        if index is None:
            return self.selecting(key, self.viewport.center_ns)
        return self._at_interval(key, min(max(index + by, 0), len(self.intervals[key].starts) - 1))

    def at_worst(self) -> TraceCursor | None:
        """With the call of the visible span selected that exceeds its limit most, or the longest one of a victim.

        None if no call of a victim is visible.
        """
        if self.trace is None or self.intervals is None:
            return None
        shown, limits = self.trace.between(self.viewport.begin_ns, self.viewport.end_ns), self.intervals.limits
        worst = None if limits is None else slowest_call(shown, limits)
        if worst is not None:
            selection = selection_of_call(self.trace, worst.probe, worst.began_ns)
            return replace(self, selection=selection, viewport=self.viewport.with_inside(worst.began_ns, worst.end_ns))
        longest = longest_call(shown)
        return None if longest is None else replace(self, selection=longest)

    def centered(self) -> TraceCursor:
        """With the selected interval and its work in the middle, in a span that fits them."""
        if self.trace is None or self.intervals is None or self.selection is None:
            return self
        index = selected_index(self.intervals, self.selection)
        if index is None:
            return self
        begin_ns, end_ns = self.intervals[self.selection.row].span(index)
        work = selected_work(self.trace, self.intervals, self.selection)
        if work is not None:
            begin_ns, end_ns = work_span(work, begin_ns, end_ns)
        return replace(self, viewport=around(begin_ns, end_ns, fitting((end_ns - begin_ns) * 1.5)))

    def visible(self) -> Trace | None:
        """The visible part of the trace; None if none of it is visible."""
        part = None if self.trace is None else self.trace.between(self.viewport.begin_ns, self.viewport.end_ns)
        return part if part is not None and part.span_ns else None
