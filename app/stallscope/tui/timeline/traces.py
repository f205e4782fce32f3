"""The traces of the timeline, live or recorded: of an engine, a recording or a watched program.

Both forms have the same methods; methods that take the screen's cursor return the cursor on the trace shown then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stallprobes.latency.baseline import Baseline
from stallprobes.model import Probe, Role
from stallprobes.recording.observation import EngineCondition, Observation
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.rows import RowKey, RowKind
from stallprobes.traces.trace import TracedProbe
from stallprobes.traces.trigger import CallTrigger, TriggerLimits
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.tui.common.bars import HeadView
from stallscope.tui.common.screen import ScreenContext
from stallscope.tui.sources.live import LiveSource
from stallscope.tui.sources.live_timeline import TimelineCondition, TimelineReport
from stallscope.tui.sources.source import TraceSource
from stallscope.tui.timeline import header
from stallscope.tui.timeline.cursor import TraceCursor
from stallscope.tui.timeline.details import clock_text
from stallscope.tui.timeline.live_cells import LiveCells
from stallscope.tui.timeline.trace_capture import CaptureState, TraceCapture
from stallscope.tui.timeline.view_model import Selection, TraceView

# Kinds of verdicts that count as a stall. If the monitor's shown victim has a verdict of these kinds, the trace freezes
# at a slow call of this victim without a key press. The rule is applied when the timeline is opened or its recording
# begins.
_STALLS = (VerdictKind.STALLED, VerdictKind.STARVED, VerdictKind.SLOWER)


class LiveTrace:
    """The trace of ``live``, the engine of ``context``: read, frozen by ``capture``, recorded, and cut for the screen.

    ``report`` is the state of the timeline at the last reading, None before.
    """

    replayed = False

    def __init__(self, context: ScreenContext, capture: TraceCapture, live: LiveSource) -> None:
        self.report: TimelineReport | None = None
        self._context, self._capture, self._live = context, capture, live
        self._engine: EngineCondition | None = None
        self._cells: LiveCells | None = None
        self._marker: tuple[tuple[Probe, ...], int | None, CallTrigger] | None = None

    # State of the engine.

    @property
    def _observation(self) -> Observation:
        return self._context.observation or self._live.observation()

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """The known baselines."""
        analyzer = self._context.analyzer
        return {} if analyzer is None else analyzer.known_baselines

    def limits(self, traced: Sequence[TracedProbe]) -> TriggerLimits | None:
        """The limits above which the calls of ``traced`` are marked, now; None if the engine has other probes."""
        if not self._has(traced):
            return None
        probes, above_ns = self._observation.probe_set.probes, self._capture.above_ns
        if self._marker is None or self._marker[0] is not probes or self._marker[1] != above_ns:
            self._marker = (probes, above_ns, CallTrigger(probes, above_ns=above_ns))
        return self._marker[2].limits(self.baselines)

    def _has(self, traced: Sequence[TracedProbe]) -> bool:
        """True if a trace has the monitor's probes: it may be of an earlier probe set, or of the next one."""
        return [(probe.name, len(probe.ops)) for probe in traced] == [
            (probe.name, len(probe.program.ops)) for probe in self._observation.probe_set.probes
        ]

    def _off(self, traced: Sequence[TracedProbe]) -> frozenset[int]:
        """The numbers of the probes that are switched off."""
        snapshot = self._observation.snapshot
        parts = {} if snapshot is None else snapshot.probes
        return frozenset(
            number for number, probe in enumerate(traced) if probe.name in parts and not parts[probe.name].on
        )

    # Reading, and freezing.

    def open(self, cursor: TraceCursor) -> TraceCursor:
        """Select the probe that the monitor shows; while calls are recorded, wait for its stall if it has one.

        What is frozen is shown.
        """
        names, focus = [probe.name for probe in self._observation.probe_set.probes], self._context.focus_name
        if focus in names:
            cursor = replace(cursor, selection=Selection(RowKey(RowKind.CALLS, names.index(focus))))
        if self._live.timeline.wanted:
            self._arm_for_focus()
        return self.frozen(cursor) if self._capture.state is CaptureState.FROZEN else cursor

    def record(self, cursor: TraceCursor) -> TraceCursor:
        """Start the recording, and wait for the stall of the probe that the monitor shows; or end it.

        What is frozen stays where the recording ends.
        """
        on = not self._live.timeline.wanted
        if not on and self.moving:
            cursor = self.freeze(cursor, "recording ended") or cursor
        self._live.timeline.switch(on)
        if on:
            cursor = self.home(cursor)
            self._arm_for_focus()
        return cursor

    def _arm_for_focus(self) -> None:
        if self.moving and self._focus_stalls():
            self._capture.arm(self._context.focus_name)

    def _focus_stalls(self) -> bool:
        """True if the focused probe is a victim with a verdict that an aggressor or the GPU slows it down."""
        analyzer, name = self._context.analyzer, self._context.focus_name
        probe = next((candidate for candidate in self._observation.probe_set.probes if candidate.name == name), None)
        if analyzer is None or probe is None or probe.role is not Role.VICTIM:
            return False
        return any(verdict.probe == name and verdict.kind in _STALLS for verdict in analyzer.verdicts)

    def close(self) -> None:
        """Wait for no stall any more; the recording continues."""
        if self.moving:
            self._capture.go_live()

    @property
    def moving(self) -> bool:
        """True if no trace is frozen."""
        return self._capture.state is not CaptureState.FROZEN

    @property
    def starts(self) -> bool:
        """True if the recording is being switched on, or is on: then records come."""
        condition = None if self.report is None else self.report.condition
        recorded = condition in (None, TimelineCondition.SWITCHING_ON, TimelineCondition.ON)
        return self.moving and self._live.timeline.wanted and recorded

    def home(self, cursor: TraceCursor) -> TraceCursor:
        """Return to live."""
        self._capture.go_live()
        # Its intervals pass.
        return cursor.unselected()

    def step(self, cursor: TraceCursor, by: int) -> TraceCursor:
        """Nothing: there is one trace."""
        return cursor

    def marked(self, cursor: TraceCursor) -> TraceCursor:
        """The calls of a trace that stands still marked by the present limits."""
        return cursor if cursor.intervals is None else cursor.marked(self.limits(cursor.intervals.trace.probes))

    def follow(self, cursor: TraceCursor) -> tuple[TraceCursor, bool]:
        """Read the new records; freeze the trace if the trigger finds a call. The cursor, and whether to draw."""
        seen = self._observation
        history, report = self._live.timeline.read(seen), self._live.timeline.report
        before = None if self.report is None else self.report.condition
        changed = report.condition is not before or seen.engine.state is not self._engine
        if report.condition is TimelineCondition.NO_ENGINE and before is not report.condition:
            cursor = self.freeze(cursor, "the engine ended") or cursor
        self._engine, self.report = seen.engine.state, report
        if history is None or not self._has(history.probes):
            return cursor, changed
        probes, others, span_ns = seen.probe_set.probes, seen.other_processes, cursor.viewport.span_ns
        if self._capture.feed(history, probes, self.baselines, seen.snapshot, others, span_ns):
            self.record_frozen()
            return self.frozen(cursor), True
        return cursor, changed

    def record_frozen(self) -> None:
        """Put the part of the frozen trace around the slow call into the recording, if there is one."""
        trace, call, record = self._capture.trace, self._capture.found, self._context.record_trace
        if record is not None and trace is not None and call is not None:
            begin_ns, end_ns = call.span
            record(trace.between(max(begin_ns, trace.begin_ns), min(end_ns, trace.end_ns)))

    def freeze(self, cursor: TraceCursor, why: str) -> TraceCursor | None:
        """Freeze the present trace, unless a trace is frozen; None where there is nothing."""
        capture, history, seen = self._capture, self._live.timeline.history, self._observation
        if not self.moving:
            return cursor
        if history is None or cursor.trace is None:
            return None
        end_ns = max(cursor.trace.end_ns, history.collected_ns)
        trace = history.trace(history.begin_ns, end_ns, snapshot=seen.snapshot, others=seen.other_processes)
        capture.freeze(trace, self.limits(trace.probes), f"{why} at {clock_text(trace.wall_s(end_ns))[:8]}")
        return cursor.showing(trace, capture.limits)

    def frozen(self, cursor: TraceCursor) -> TraceCursor:
        """The cursor on the frozen trace around its trigger."""
        capture = self._capture
        if capture.trace is None:
            return cursor
        cursor = cursor.showing(capture.trace, capture.limits)
        if capture.found is None:
            return cursor.at_end(capture.trace.end_ns)
        return cursor.at_slow_call(capture.trace, capture.found, capture.before, capture.stalled is not None)

    def view(self, cursor: TraceCursor, columns: int) -> tuple[TraceCursor, TraceView]:
        """The cursor, and its view on ``columns`` columns: the last span of a trace that moves."""
        history = self._live.timeline.history
        if not self.moving:
            return cursor, cursor.view()
        recorded = history is not None and history.collected_ns > 0
        sentences = header.live_sentences(self.report, self._observation, recorded)
        if sentences or history is None:
            return cursor, TraceView(sentences=sentences)
        return self._last_span(cursor, history, columns)

    def _last_span(self, cursor: TraceCursor, history: TraceHistory, columns: int) -> tuple[TraceCursor, TraceView]:
        """The cursor on the last span, with the rows that came last, and its view on ``columns`` columns."""
        if self._cells is None or self._cells.history is not history:
            self._cells = LiveCells(history)
        cells, span_ns = self._cells, cursor.viewport.span_ns
        end_ns = cells.end_ns(span_ns, max(columns, 1))
        begin_ns = min(cells.begin_ns(end_ns - span_ns), end_ns)
        outline = history.outline(
            begin_ns, end_ns, snapshot=self._observation.snapshot, others=self._observation.other_processes
        )
        picture, added = cells.follow(outline)
        tenures = np.concatenate((added["tenures"], outline.tenures))
        trace = outline.changed(**{**added, "tenures": tenures})
        cursor = cursor.at_end(end_ns).following(trace, len(picture.gaps) > 0)
        limits, off = self.limits(trace.probes), self._off(trace.probes)
        return cursor, replace(cursor.view(), zero_ns=end_ns, limits=limits, live=True, off=off, picture=picture)

    def head(self, cursor: TraceCursor) -> HeadView:
        """The header."""
        observation, trace, report = self._observation, cursor.trace, self.report
        parts = header.live_parts(
            self._capture, None if trace is None else self.limits(trace.probes), report, observation
        )
        return header.head_view(cursor, header.live_state(self._capture, report, observation), observation, parts)

    @property
    def note(self) -> str:
        """A note for the key bar."""
        if self._capture.state is CaptureState.ARMED and self._capture.above_ns is None and not self.baselines:
            return "armed: a limit is known when the baseline is measured"
        return ""


class RecordedTraces:
    """The recorded or kept traces of ``source``.

    ``number`` is the number of the visible trace, None without one; ``problem`` says why it cannot be shown, "" if it
    can.
    """

    replayed, moving, starts, note = True, False, False, ""

    def __init__(self, context: ScreenContext, capture: TraceCapture, source: TraceSource) -> None:
        self.number: int | None = None
        self.problem = ""
        self._context, self._capture, self._source = context, capture, source

    def open(self, cursor: TraceCursor) -> TraceCursor:
        """Show the trace nearest to the position of the replay."""
        nearest = self._source.nearest_trace(self._source.at_s)
        return cursor if nearest is None else self._show(cursor, nearest.number)

    def close(self) -> None:
        """Nothing runs."""

    def home(self, cursor: TraceCursor) -> TraceCursor:
        """Show the trigger of the trace."""
        return self.step(cursor, 0)

    def record(self, cursor: TraceCursor) -> TraceCursor:
        """Nothing: it was recorded."""
        return cursor

    def step(self, cursor: TraceCursor, by: int) -> TraceCursor:
        """Show the trigger of the trace ``by`` places further, if there is one."""
        if self.number is None or not 0 <= self.number + by < len(self._source.traces):
            return cursor
        return self._show(cursor, self.number + by)

    def _show(self, cursor: TraceCursor, number: int) -> TraceCursor:
        self.number, self.problem = number, ""
        trace = self._source.trace(self._source.traces[number])
        if trace is None:
            self.problem = self._source.problem or ""
            return replace(cursor, trace=None, intervals=None)
        return cursor.showing(trace, None).at_trigger(trace, self._capture.before)

    def marked(self, cursor: TraceCursor) -> TraceCursor:
        """Nothing: it has no limits."""
        return cursor

    def follow(self, cursor: TraceCursor) -> tuple[TraceCursor, bool]:
        """Nothing: it stands still."""
        return cursor, False

    def freeze(self, cursor: TraceCursor, why: str) -> TraceCursor | None:
        """The trace; None without one."""
        return None if cursor.trace is None else cursor

    def view(self, cursor: TraceCursor, columns: int) -> tuple[TraceCursor, TraceView]:
        """The cursor, and its view."""
        problem = header.NO_TRACE if self.number is None else self.problem
        if problem:
            return cursor, TraceView(sentences=(problem,))
        if cursor.trace is not None and not cursor.book.rows:
            return cursor, TraceView(sentences=("No call and no GPU work was recorded in this time.",))
        return cursor, replace(cursor.view(), slow_only=self._source.slow_calls_only)

    def head(self, cursor: TraceCursor) -> HeadView:
        """The header, with which of the traces is shown."""
        title = "NO TRACE" if self.number is None else f"TRACE {self.number + 1}/{len(self._source.traces)}"
        return header.head_view(cursor, (title, "notice"), self._context.observation, ())
