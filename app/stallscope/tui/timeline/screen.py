"""The screen of the timeline: live, armed or frozen, over a live engine or the traces of a recording."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from textual.app import ComposeResult

from stallprobes.engine.timeline.status import TimelineStatus
from stallprobes.errors import FileNotWritten
from stallprobes.latency.baseline import Baseline
from stallprobes.live.observation import SIM, EngineCondition
from stallprobes.model import MS, Probe, Role
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.trace import Trace, TracedProbe
from stallprobes.traces.trigger import CallTrigger, SlowCall, TriggerLimits, slowest_call
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.tui.common.choose import Choose
from stallscope.tui.common.key_bar import KeyBar
from stallscope.tui.common.pace import Pace
from stallscope.tui.common.screen import ActionScreen, ScreenContext
from stallscope.tui.probe_sets import gpu_label
from stallscope.tui.sources.live import LiveSource
from stallscope.tui.sources.live_timeline import TimelineCondition, TimelineReport
from stallscope.tui.sources.replay import ReplaySource
from stallscope.tui.timeline import help_text
from stallscope.tui.timeline.details import TraceDetails, clock_text
from stallscope.tui.timeline.header import TraceHead, TraceHeadView, losses_text
from stallscope.tui.timeline.rows import RowBook, RowKey, RowKind, nearest
from stallscope.tui.timeline.time_axis import Viewport, around, fitting, span_text, stepped
from stallscope.tui.timeline.trace_capture import CaptureState, TraceCapture, limit_text
from stallscope.tui.timeline.trace_files import TraceFormat, export
from stallscope.tui.timeline.trace_plot import TracePlot
from stallscope.tui.timeline.view_model import (
    RowIntervals,
    Selection,
    TraceView,
    longest_call,
    selected_index,
    selected_work,
    selection_of_call,
    work_span,
)

READS_PER_S = 10.0
USUAL_SPAN_NS = 10 * MS
# Drawing takes at most this share of the time; the widest spans hold so many calls that they are drawn less often.
_DRAW_SHARE = 0.1
# The latency takes at most this share of the span that is chosen for it.
_STALL_SHARE = 0.3
_STALLS = (VerdictKind.STALLED, VerdictKind.STARVED, VerdictKind.SLOWER)


class TimelineScreen(ActionScreen):
    """Shows the timeline of the live engine, or the traces of a recording.

    It switches the engine's timeline on, and off when it is closed, unless the capture says to keep it on.
    """

    NAME = "timeline"
    HELP_SECTIONS = help_text.SECTIONS

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context)
        self.capture = context.controller(TraceCapture, TraceCapture)
        self.viewport = Viewport(0, USUAL_SPAN_NS)
        self.selection: Selection | None = None
        # The number of the recorded trace that is shown, and why it cannot be.
        self.recorded: int | None = None
        self.recorded_problem = ""
        self._book = RowBook()
        self._trace: Trace | None = None
        self._marker: tuple[tuple[Probe, ...], int | None, CallTrigger] | None = None
        self._intervals: RowIntervals | None = None
        self._read_pace = Pace(READS_PER_S, context.settings.frames_per_second)
        self._report: TimelineReport | None = None
        self._engine: EngineCondition | None = None
        self._next_draw_s = 0.0

    def compose(self) -> ComposeResult:
        """Header, trace, details, key bar."""
        yield TraceHead(id="trace-head")
        yield TracePlot(ascii_only=self.settings.ascii, id="plot")
        yield TraceDetails(id="details")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Switch the timeline on, and wait for the stall of the focused probe if it has one."""
        source = self.source
        if isinstance(source, LiveSource):
            source.switch_timeline(True)
            self._select_focus()
            if self._focus_stalls():
                self.capture.arm(self.context.focus_name)
            elif self.capture.state is CaptureState.FROZEN:
                self._show_frozen()
        elif isinstance(source, ReplaySource):
            self._open_recorded(source)

    def on_unmount(self) -> None:
        """Switch the timeline off, unless it is kept on."""
        if self.live is not None and not self.capture.keep_on:
            if self.capture.state is not CaptureState.FROZEN:
                self.capture.go_live()
            self.live.switch_timeline(False)

    # State of the live engine.

    @property
    def _probes(self) -> tuple[Probe, ...]:
        observation = self.context.observation
        return () if observation is None else observation.probe_set.probes

    @property
    def _baselines(self) -> Mapping[str, Baseline]:
        analyzer = self.context.analyzer
        return {} if analyzer is None else analyzer.known_baselines

    @property
    def _others(self) -> Sequence[str]:
        observation = self.context.observation
        return () if observation is None else observation.other_processes

    def _select_focus(self) -> None:
        """Select the row of the probe that the monitor shows."""
        names = [probe.name for probe in self._probes]
        if self.context.focus_name in names:
            self.selection = Selection(RowKey(RowKind.CALLS, names.index(self.context.focus_name)))

    def _focus_stalls(self) -> bool:
        """Whether the focused probe is a victim with a verdict that an aggressor or the GPU slows it down."""
        analyzer, name = self.context.analyzer, self.context.focus_name
        probe = next((one for one in self._probes if one.name == name), None)
        if analyzer is None or probe is None or probe.role is not Role.VICTIM:
            return False
        return any(one.probe == name and one.kind in _STALLS for one in analyzer.verdicts)

    def _limits(self, traced: Sequence[TracedProbe]) -> TriggerLimits | None:
        """The limits above which the calls of ``traced`` are marked, now; None if the engine has other probes."""
        if not self._has(traced):
            return None
        probes, above_ns = self._probes, self.capture.above_ns
        if self._marker is None or self._marker[0] is not probes or self._marker[1] != above_ns:
            self._marker = (probes, above_ns, CallTrigger(probes, above_ns=above_ns))
        return self._marker[2].limits(self._baselines)

    def _has(self, traced: Sequence[TracedProbe]) -> bool:
        """Whether the monitor's probes are those of a trace: it may be of an earlier probe set, or of the next one."""
        return [(one.name, len(one.ops)) for one in traced] == [
            (probe.name, len(probe.program.ops)) for probe in self._probes
        ]

    def tick(self) -> None:
        """Read the timeline, look for the trigger, and draw what changed."""
        live, now_s = self.live, time.monotonic()
        if live is not None and self._read_pace.due(now_s):
            self._follow(live)
        if self.can_draw and self.is_mounted and (self.has_changed or self._is_moving) and now_s >= self._next_draw_s:
            self.take_changed()
            begun_s = time.thread_time()
            self.draw()
            if self._is_moving:
                self._next_draw_s = now_s + (time.thread_time() - begun_s) / _DRAW_SHARE

    @property
    def _is_moving(self) -> bool:
        return self.live is not None and self.capture.state is not CaptureState.FROZEN

    def _follow(self, live: LiveSource) -> None:
        history, report = live.timeline.read(), live.timeline.report
        observation = self.context.observation
        engine = None if observation is None else observation.engine.state
        before = None if self._report is None else self._report.condition
        if report.condition is not before or engine is not self._engine:
            self.mark_changed()
        if report.condition is TimelineCondition.NO_ENGINE and before is not report.condition:
            self._freeze_now("the engine ended")
        self._engine = engine
        self._report = report
        if history is None or not self._has(history.probes):
            return
        snapshot = None if observation is None else observation.snapshot
        if self.capture.feed(history, self._probes, self._baselines, snapshot, self._others, self.viewport.span_ns):
            self._record_frozen()
            self._show_frozen()

    def _record_frozen(self) -> None:
        """Put the part of the frozen trace around the slow call into the recording, if there is one."""
        trace, found, record = self.capture.trace, self.capture.found, self.context.record_trace
        if record is not None and trace is not None and found is not None:
            begin_ns, end_ns = found.span
            record(trace.between(max(begin_ns, trace.begin_ns), min(end_ns, trace.end_ns)))

    def _freeze_now(self, why: str) -> bool:
        """Freeze what was recorded so far; False where there is nothing."""
        capture, history = self.capture, None if self.live is None else self.live.timeline.history
        if capture.state is CaptureState.FROZEN:
            return True
        if history is None or self._trace is None:
            return False
        snapshot = None if self.context.observation is None else self.context.observation.snapshot
        end_ns = max(self._trace.end_ns, history.collected_ns)
        trace = history.trace(history.begin_ns, end_ns, snapshot=snapshot, others=self._others)
        capture.freeze(trace, self._limits(trace.probes), f"{why} at {clock_text(trace.wall_s(end_ns))[:8]}")
        self._show(trace, capture.limits)
        return True

    def _show_frozen(self) -> None:
        """Show the frozen trace around its trigger."""
        capture = self.capture
        if capture.trace is None:
            return
        self._show(capture.trace, capture.limits)
        if capture.found is not None:
            self._show_call(capture.trace, capture.found, shorten=capture.stalled is not None)
        else:
            self.viewport = Viewport(capture.trace.end_ns - self.viewport.span_ns, self.viewport.span_ns)

    def _show_call(self, trace: Trace, call: SlowCall, shorten: bool) -> None:
        """Show a slow call at the trigger's place, in a span that fits it; a longer one stays unless ``shorten``."""
        span_ns = fitting(call.ns / _STALL_SHARE)
        if not shorten:
            span_ns = max(span_ns, self.viewport.span_ns)
        before = min(self.capture.before, 1 - _STALL_SHARE)
        self.viewport = Viewport(call.began_ns - round(before * span_ns), span_ns)
        self.selection = selection_of_call(trace, call.probe, call.began_ns)

    def _show(self, trace: Trace, limits: TriggerLimits | None) -> None:
        self._trace, self._intervals = trace, RowIntervals(trace, limits)
        self._add_rows(trace)
        self.mark_changed()

    def _add_rows(self, trace: Trace) -> None:
        """Have rows for ``trace``; a selected row that it does not have is selected no longer."""
        self._book.add(trace)
        keys = [row.key for row in self._book.rows]
        if keys and (self.selection is None or self.selection.row not in keys):
            self.selection = Selection(keys[0])

    # Recorded traces.

    def _open_recorded(self, source: ReplaySource) -> None:
        """Show the recorded trace nearest to the position of the replay."""
        nearest = source.nearest_trace(source.at_s)
        if nearest is not None:
            self._show_recorded(source, nearest.number)

    def _show_recorded(self, source: ReplaySource, number: int) -> None:
        self.recorded, self.recorded_problem = number, ""
        trace = source.trace(source.traces[number])
        if trace is None:
            self.recorded_problem, self._trace, self._intervals = source.problem or "", None, None
            self.mark_changed()
            return
        self._show(trace, None)
        trigger = trace.trigger
        if trigger is None:
            self.viewport = around(trace.begin_ns, trace.end_ns, fitting(trace.span_ns))
            self.selection = Selection(RowKey(RowKind.CALLS, 0)) if trace.probes else None
            return
        selection = selection_of_call(trace, trigger.probe, trigger.began_ns)
        self.selection = selection
        begin_ns, end_ns = trigger.began_ns, trigger.returned_ns
        work = selected_work(trace, RowIntervals(trace, None), selection)
        if work is not None:
            begin_ns, end_ns = work_span(work, begin_ns, end_ns)
        span_ns = fitting((end_ns - begin_ns) / _STALL_SHARE)
        self.viewport = Viewport(begin_ns - round(self.capture.before * span_ns), span_ns)

    def _step_recorded(self, by: int) -> None:
        source = self.source
        if isinstance(source, ReplaySource) and self.recorded is not None:
            number = self.recorded + by
            if 0 <= number < len(source.traces):
                self._show_recorded(source, number)

    # Drawing.

    def draw(self) -> None:
        """Draw header, trace and details."""
        if not self.is_mounted:
            return
        view = self._view()
        self.query_one(TracePlot).view = self.query_one(TraceDetails).view = view
        self.query_one(TraceHead).view = self._head()
        self.query_one(KeyBar).note = self._note()
        self.redraw_panels()

    def _view(self) -> TraceView:
        sentences = self._sentences()
        if self._is_moving:
            history = None if self.live is None else self.live.timeline.history
            if sentences or history is None:
                return TraceView(sentences=sentences)
            self._trace = self._live_trace(history)
            self._add_rows(self._trace)
            limits = self._limits(self._trace.probes)
            return TraceView(
                self._trace, self._book.rows, self.viewport, self.viewport.end_ns, self.selection, limits, live=True
            )
        trace = self._trace
        if sentences or trace is None or self._intervals is None:
            return TraceView(sentences=sentences)
        zero_ns = trace.end_ns if trace.trigger is None else trace.trigger.began_ns
        return TraceView(trace, self._book.rows, self.viewport, zero_ns, self.selection, self._intervals.limits)

    def _live_trace(self, history: TraceHistory) -> Trace:
        """The trace of the last span. It moves by whole columns, so that nothing flickers."""
        span_ns = self.viewport.span_ns
        column_ns = max(span_ns // max(self.query_one(TracePlot).plot_layout.columns, 1), 1)
        end_ns = history.collected_ns // column_ns * column_ns
        self.viewport = Viewport(end_ns - span_ns, span_ns)
        snapshot = None if self.context.observation is None else self.context.observation.snapshot
        return history.trace(end_ns - span_ns, end_ns, snapshot=snapshot, others=self._others)

    def _sentences(self) -> tuple[str, ...]:
        """What is shown in place of a trace; () where there is one."""
        if self.live is None:
            if self.recorded is None:
                return ("This recording has no trace. A recording with the timeline on has one around each stall.",)
            return (self.recorded_problem,) if self.recorded_problem else ()
        if self.capture.state is CaptureState.FROZEN:
            return ()
        report = self._report
        if report is None:
            return ("The timeline is being switched on.",)
        history, engine = self.live.timeline.history, self.context.observation
        match report.condition:
            case TimelineCondition.ON if history is not None and history.collected_ns:
                return ()
            case TimelineCondition.ON:
                return ("The timeline is on. Nothing has been recorded yet.",)
            case TimelineCondition.PROBLEM:
                return _problem_sentences(report.status)
            case TimelineCondition.NO_ENGINE:
                why = "" if engine is None else engine.engine.sentence
                return (why or "No engine runs.", "The timeline is switched on with the next engine; r restarts it.")
            case TimelineCondition.OFF | TimelineCondition.SWITCHING_OFF:
                return ("The timeline is off.",)
            case TimelineCondition.SWITCHING_ON:
                return (
                    f"The timeline is being switched on ({report.age_s:.0f} s).",
                    "On a GPU the first time takes some 16 s. The probes keep running.",
                )

    def _head(self) -> TraceHeadView:
        observation, trace = self.context.observation, self._trace
        probe_set = None if observation is None else observation.probe_set
        machine = "" if probe_set is None else " · ".join(part for part in (gpu_label(probe_set),) if part)
        simulated = (probe_set is not None and probe_set.backend == SIM) or (trace is not None and trace.simulated)
        state, style = self._state()
        parts = [(f"span {span_text(self.viewport.span_ns)}", "strong")]
        if self.live is not None:
            limits = None if trace is None else self._limits(trace.probes)
            parts.append((f"trigger above {limit_text(self.capture, limits)}", ""))
            parts.append((f"{self.capture.before:.0%} before", "dim"))
            if self.capture.keep_on:
                parts.append(("stays on", "warn"))
            status = None if self._report is None else self._report.status
            if status is not None and status.on and status.note:
                parts.append((status.note, "warn"))
        if trace is not None and losses_text(trace.losses):
            parts.append((losses_text(trace.losses), "warn"))
        if trace is not None and not self._is_moving:
            parts.append((clock_text(trace.wall_s(self.viewport.begin_ns)), "dim"))
        return TraceHeadView(machine, simulated, state, style, tuple(parts))

    def _state(self) -> tuple[str, str]:
        """State of the trace, and its style."""
        if isinstance(self.source, ReplaySource):
            count = len(self.source.traces)
            return ("NO TRACE", "notice") if self.recorded is None else (f"TRACE {self.recorded + 1}/{count}", "notice")
        capture, observation = self.capture, self.context.observation
        lost = observation is not None and observation.engine.state is EngineCondition.LOST
        if capture.state is CaptureState.FROZEN:
            end = ", ENGINE LOST" if lost else ""
            return f"FROZEN {capture.why}{end}", "alarm" if lost else "notice"
        if lost:
            return "ENGINE LOST", "alarm"
        condition = None if self._report is None else self._report.condition
        if condition is not TimelineCondition.ON:
            return ("NOT AVAILABLE", "alarm") if condition is TimelineCondition.PROBLEM else ("switching on", "warn")
        match capture.state:
            case CaptureState.ARMED if capture.stalled is not None:
                return f"ARMED, waits for a stall of {capture.stalled}", "notice"
            case CaptureState.ARMED:
                return "ARMED", "notice"
            case CaptureState.TRIGGERED:
                return "TRIGGERED", "notice"
            case _:
                return "● live", "good"

    def _note(self) -> str:
        if self.capture.state is CaptureState.ARMED and self.capture.above_ns is None and not self._baselines:
            return "armed: a limit is known when the baseline is measured"
        return ""

    def place_panels(self, width: int, height: int) -> None:
        """Give the details a fifth of the screen, at least five lines."""
        self.query_one(TraceDetails).styles.height = max(5, min(10, height // 5))

    # Capture.

    def action_trace_trigger(self) -> None:
        """Arm the trigger, disarm it, or arm it again."""
        if self.live is None:
            return
        if self.capture.state in (CaptureState.ARMED, CaptureState.TRIGGERED):
            self.capture.go_live()
        else:
            self.capture.arm()
        self._unselect()

    def action_trace_pause(self) -> None:
        """Freeze now, or return to live."""
        if self.capture.state is CaptureState.FROZEN:
            self.action_trace_home()
        elif not self._freeze_now("paused"):
            self.notify("Nothing has been recorded yet.")

    def action_trace_home(self) -> None:
        """Return to live, or to the trigger of a recorded trace."""
        source = self.source
        if isinstance(source, ReplaySource):
            if self.recorded is not None:
                self._show_recorded(source, self.recorded)
            return
        self.capture.go_live()
        self._unselect()

    def _unselect(self) -> None:
        """Select only the row: its intervals pass."""
        if self.selection is not None:
            self.selection = Selection(self.selection.row)
        self.mark_changed()

    def action_trace_lower(self) -> None:
        """Lower the limit."""
        self._step_limit(-1)

    def action_trace_higher(self) -> None:
        """Raise the limit."""
        self._step_limit(1)

    def _step_limit(self, steps: int) -> None:
        self.capture.step_limit(steps, round(self.settings.freeze_above_ms * MS))
        self._mark_again()

    def action_trace_auto(self) -> None:
        """Have the limits follow the baselines."""
        self.capture.set_limit(None)
        self._mark_again()

    def _mark_again(self) -> None:
        if self._intervals is not None:
            trace = self._intervals.trace
            self._intervals = RowIntervals(trace, self._limits(trace.probes))
        self.mark_changed()

    def action_trace_before(self) -> None:
        """Show less of the time before the trigger."""
        self._step_before(-1)

    def action_trace_after(self) -> None:
        """Show more of the time before the trigger."""
        self._step_before(1)

    def _step_before(self, steps: int) -> None:
        self.capture.step_before(steps)
        trace = self._trace
        if not self._is_moving and trace is not None and trace.trigger is not None:
            span_ns = self.viewport.span_ns
            self.viewport = Viewport(trace.trigger.began_ns - round(self.capture.before * span_ns), span_ns)
        self.mark_changed()

    def action_trace_keep(self) -> None:
        """Keep the timeline on when the screen is closed, or not."""
        self.capture.keep_on = not self.capture.keep_on
        on = "stays on" if self.capture.keep_on else "is switched off"
        self.notify(f"The timeline {on} when this screen is closed.")
        self.mark_changed()

    def action_trace_export(self) -> None:
        """Ask for a format, and write the visible span to a file in the working directory."""
        if not self._stand() or self._trace is None:
            self.notify("There is no trace to write.")
            return
        trace, view = self._trace.between(self.viewport.begin_ns, self.viewport.end_ns), self.viewport
        call = None
        if self.selection is not None and self.selection.row.kind is RowKind.CALLS:
            start_ns = self.selection.start_ns
            call = None if start_ns is None else trace.call_of(self.selection.row.number, start_ns)

        def chosen(name: str | None) -> None:
            if name is not None:
                self._export(trace, TraceFormat(name), call)

        question = f"Write {span_text(view.span_ns)} of the trace as:"
        self.app.push_screen(Choose(question, [(str(one), one.description) for one in TraceFormat]), chosen)

    def _export(self, trace: Trace, kind: TraceFormat, call: int | None) -> None:
        observation = self.context.observation
        about = "" if observation is None else f"{gpu_label(observation.probe_set)} · {observation.probe_set.title}"
        try:
            name = export(trace, kind, about, call, ascii_only=self.settings.ascii)
        except FileNotWritten as error:
            self.notify(str(error), severity="error")
        else:
            self.notify(f"Saved {name}")

    def action_restart(self) -> None:
        """Restart the engine."""
        if self.live is not None:
            self.live.restart()
            self.mark_changed()

    def action_trace_back(self) -> None:
        """Return to the monitor."""
        self.dismiss(False)

    # Zoom, pan and selection.

    def action_trace_in(self) -> None:
        """Shorten the span."""
        self._zoom(-1, self._anchor_ns())

    def action_trace_out(self) -> None:
        """Lengthen the span."""
        self._zoom(1, self._anchor_ns())

    def _anchor_ns(self) -> int:
        """The time that stays at its place: that of the selected interval if it is visible, else the middle."""
        at_ns = None if self.selection is None else self.selection.start_ns
        if at_ns is None or not self.viewport.begin_ns <= at_ns < self.viewport.end_ns:
            return self.viewport.center_ns
        return at_ns

    def _zoom(self, steps: int, at_ns: int) -> None:
        if self._is_moving:
            self.viewport = Viewport(self.viewport.begin_ns, stepped(self.viewport.span_ns, steps))
        else:
            self.viewport = self.viewport.zoomed(steps, at_ns)
        self._next_draw_s = 0.0
        self.mark_changed()

    def action_trace_left(self) -> None:
        """Pan to earlier times."""
        self._pan(-self.viewport.span_ns // 10)

    def action_trace_right(self) -> None:
        """Pan to later times."""
        self._pan(self.viewport.span_ns // 10)

    def action_trace_page_left(self) -> None:
        """Pan by a span to earlier times."""
        self._pan(-self.viewport.span_ns)

    def action_trace_page_right(self) -> None:
        """Pan by a span to later times."""
        self._pan(self.viewport.span_ns)

    def _pan(self, ns: int) -> None:
        if not self._stand() or self._trace is None:
            return
        # Some of the trace stays visible.
        least = self._trace.begin_ns - self.viewport.span_ns // 2
        most = self._trace.end_ns - self.viewport.span_ns // 2
        begin_ns = min(max(self.viewport.begin_ns + ns, least), max(most, least))
        self.viewport = Viewport(begin_ns, self.viewport.span_ns)
        self.mark_changed()

    def _stand(self) -> bool:
        """Freeze a live trace, so that it can be moved and selected in; False where there is none."""
        if self._is_moving:
            return self._freeze_now("paused")
        return self._trace is not None

    def action_trace_up(self) -> None:
        """Select the row above."""
        self._step_row(-1)

    def action_trace_down(self) -> None:
        """Select the row below."""
        self._step_row(1)

    def _step_row(self, by: int) -> None:
        keys = [row.key for row in self._book.rows]
        if not keys:
            return
        selection = self.selection
        place = keys.index(selection.row) if selection is not None and selection.row in keys else 0
        key = keys[(place + by) % len(keys)]
        at_ns = None if selection is None else selection.start_ns
        self.selection = Selection(key)
        if at_ns is not None and self._intervals is not None and not self._is_moving:
            self._select_at(key, at_ns, follow=False)
        self.mark_changed()

    def _select_at(self, key: RowKey, at_ns: int, follow: bool = True) -> None:
        """Select the interval of a row that is nearest to a time; with ``follow`` make it visible."""
        assert self._intervals is not None
        part = self._intervals[key]
        index = nearest(part, at_ns)
        self.selection = Selection(key, None if index is None else int(part.starts[index]))
        if index is not None and follow:
            self.viewport = self.viewport.with_inside(int(part.starts[index]), int(part.ends[index]))
        self.mark_changed()

    def action_trace_previous(self) -> None:
        """Select the previous call of the row."""
        self._step_interval(-1)

    def action_trace_next(self) -> None:
        """Select the next call of the row."""
        self._step_interval(1)

    def _step_interval(self, by: int) -> None:
        if not self._stand() or self._intervals is None or self.selection is None:
            return
        part = self._intervals[self.selection.row]
        index = selected_index(self._intervals, self.selection)
        if index is None:
            self._select_at(self.selection.row, self.viewport.center_ns)
            return
        index = min(max(index + by, 0), len(part.starts) - 1)
        self.selection = Selection(self.selection.row, int(part.starts[index]))
        self.viewport = self.viewport.with_inside(int(part.starts[index]), int(part.ends[index]))
        self.mark_changed()

    def action_trace_worst(self) -> None:
        """Select the call of the visible span that exceeds its limit most, or the longest one of a victim."""
        if not self._stand() or self._trace is None or self._intervals is None:
            return
        shown, limits = self._trace.between(self.viewport.begin_ns, self.viewport.end_ns), self._intervals.limits
        worst = None if limits is None else slowest_call(shown, limits)
        if worst is not None:
            self.selection = selection_of_call(self._trace, worst.probe, worst.began_ns)
            self.viewport = self.viewport.with_inside(worst.began_ns, worst.end_ns)
        else:
            found = longest_call(shown)
            if found is None:
                self.notify("No call of a victim is in this span.")
                return
            self.selection = found
        self.mark_changed()

    def action_trace_center(self) -> None:
        """Center the selected interval and its work."""
        if self._trace is None or self._intervals is None or self.selection is None or self._is_moving:
            return
        index = selected_index(self._intervals, self.selection)
        if index is None:
            return
        part = self._intervals[self.selection.row]
        begin_ns, end_ns = int(part.starts[index]), int(part.ends[index])
        work = selected_work(self._trace, self._intervals, self.selection)
        if work is not None:
            begin_ns, end_ns = work_span(work, begin_ns, end_ns)
        self.viewport = around(begin_ns, end_ns, fitting((end_ns - begin_ns) * 1.5))
        self.mark_changed()

    def on_trace_plot_clicked(self, message: TracePlot.Clicked) -> None:
        """Select the row, and the interval at the pointer."""
        if message.at_ns is None or not self._stand():
            self.selection = Selection(message.row)
            self.mark_changed()
        else:
            self._select_at(message.row, message.at_ns, follow=False)

    def on_trace_plot_zoomed(self, message: TracePlot.Zoomed) -> None:
        """Zoom at the pointer."""
        self._zoom(message.steps, message.at_ns)

    def on_trace_plot_panned(self, message: TracePlot.Panned) -> None:
        """Pan as the pointer moved."""
        self._pan(message.ns)

    def action_trace_prior(self) -> None:
        """Show the previous recorded trace."""
        self._step_recorded(-1)

    def action_trace_following(self) -> None:
        """Show the next recorded trace."""
        self._step_recorded(1)


def _problem_sentences(status: TimelineStatus) -> tuple[str, ...]:
    sentence = status.sentence
    return (sentence[:1].upper() + sentence[1:].rstrip(".") + ".", "The monitor and all other phases work without it.")


SCREEN = TimelineScreen
