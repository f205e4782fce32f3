"""The screen of the timeline: live, armed or frozen, over a live engine or the traces of a recording."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from stallprobes.errors import FileNotWritten
from stallprobes.model import MS
from stallprobes.traces import chrome
from stallprobes.traces.trace import Trace
from stallscope.tui.actions import AGGRESSOR_KEYS, Group
from stallscope.tui.common.bars import KeyBar, ScreenHead
from stallscope.tui.common.lines import LineWidget, Panel, paragraph_lines
from stallscope.tui.common.screen import ActionScreen, ScreenContext
from stallscope.tui.common.timers import Pace
from stallscope.tui.probe_sets import gpu_label
from stallscope.tui.timeline import glyphs
from stallscope.tui.timeline.cursor import TraceCursor
from stallscope.tui.timeline.details import detail_texts
from stallscope.tui.timeline.glyphs import ASCII_GLYPHS, BLOCK_GLYPHS
from stallscope.tui.timeline.trace_capture import CaptureState, TraceCapture
from stallscope.tui.timeline.trace_plot import TracePlot, rows_height
from stallscope.tui.timeline.traces import LiveTrace, RecordedTraces
from stallscope.tui.timeline.view_model import Selection

# File name of a saved trace, as a format for strftime.
FILE_NAME = "stallscope-trace-%Y%m%d-%H%M%S.json"
# Number of times per second that the timeline reads the records of calls.
READS_PER_S = 10.0
# Largest average share (0 to 1) of the time that the timeline spends on drawing. On a slow machine, the timeline draws
# less often to keep this share. A single slow redraw does not count, such as the redraw of all cells after a zoom.
_DRAW_SHARE = 0.1
# Number of times per second that the screen is updated while the trace is frozen. An update still reads new
# records, and redraws what has changed.
FROZEN_FRAMES_PER_S = 4.0
# _AROUND: number of lines of the screen for header and key bar. _DETAILS: smallest and largest height (lines) of the
# details.
_AROUND, _DETAILS = 3, (5, 10)


def export(trace: Trace, about: str) -> str:
    """Write ``trace`` to a new file in the working directory, and return its name; ``about`` says what was traced.

    Raises FileNotWritten.
    """
    name = time.strftime(FILE_NAME)
    chrome.save([chrome.TitledTrace(trace)], name, {"program": "stallscope", "traced": about})
    return name


class TimelineScreen(ActionScreen):
    """Shows the timeline of the live engine, or the traces of a recording.

    It shows what is recorded. A key starts and ends the recording, which continues while another view is shown.
    """

    NAME = "timeline"
    BINDINGS: ClassVar[list[BindingType]] = [Binding(key, f"probe('{key}')", show=False) for key in AGGRESSOR_KEYS]

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context)
        self.capture = context.controller(TraceCapture, TraceCapture)
        self.cursor = TraceCursor()
        recorded, live = context.source.recorded_traces, context.source.engine
        self.traces: LiveTrace | RecordedTraces
        if recorded is not None:
            self.traces = RecordedTraces(context, self.capture, recorded)
        elif live is not None:
            self.traces = LiveTrace(context, self.capture, live)
        self._read_pace = Pace(READS_PER_S, context.settings.frames_per_second)
        self._next_draw_s = self._last_draw_s = 0.0

    @property
    def replayed(self) -> bool:
        """True if it shows kept traces, for example of a watched program."""
        return self.traces.replayed

    @property
    def more_keys(self) -> Mapping[Group, tuple[str, str]]:
        """The keys of aggressors."""
        digits = f"{AGGRESSOR_KEYS[0]} … {AGGRESSOR_KEYS[-1]}"
        return {} if self.replayed else {Group.RUN: (digits, "aggressor on or off")}

    @property
    def reads(self) -> bool:
        """True if the timeline has been switched on, and nothing has been recorded yet."""
        return self.cursor.trace is None and self.traces.starts

    def help_sections(self) -> tuple[tuple[str, str], ...]:
        """The sections of the help, with the letters that the plot draws."""
        words = glyphs.help_words(ASCII_GLYPHS if self.settings.ascii else BLOCK_GLYPHS)
        return tuple((title, text.format_map(words)) for title, text in super().help_sections())

    def compose(self) -> ComposeResult:
        """Header, trace, details, key bar."""
        yield ScreenHead(id="trace-head")
        yield TracePlot(ascii_only=self.settings.ascii, id="plot")
        yield Panel(partial(paragraph_lines, indent="    ", edge=2), (), id="details")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Show the present trace."""
        self._move(self.traces.open(self.cursor))

    def on_unmount(self) -> None:
        """End what runs."""
        self.traces.close()

    def tick(self) -> None:
        """Read the timeline, look for the trigger, and draw the changed part."""
        now_s = time.monotonic()
        if self.app.screen is self:
            self.context.restart_engine()
        if self._read_pace.due(now_s):
            cursor, changed = self.traces.follow(self.cursor)
            if changed:
                self._move(cursor)
        moving = self.traces.moving
        if self.can_draw and (self.changed or moving) and now_s >= self._next_draw_s:
            begun_s = time.thread_time()
            self.draw()
            took_s, before_s = time.thread_time() - begun_s, self._last_draw_s
            self._last_draw_s = took_s
            if moving:
                self._next_draw_s = now_s + min(took_s, before_s) / _DRAW_SHARE
        self.set_frame_rate(self.settings.frames_per_second if moving else FROZEN_FRAMES_PER_S)

    def _stand(self) -> bool:
        """Freeze a live trace, so that it can be moved and selected in; False where there is none."""
        standing = self.traces.freeze(self.cursor, "paused")
        self._move(standing or self.cursor)
        return standing is not None

    def _move(self, cursor: TraceCursor) -> None:
        """Take ``cursor`` for the next frame."""
        self.cursor = cursor
        self.mark_changed()

    # Drawing.

    def draw(self) -> None:
        """Draw header, trace and details."""
        self.changed = False
        plot = self.query_one(TracePlot)
        self.cursor, plot.view = self.traces.view(self.cursor, plot.plot_layout.columns)
        details = detail_texts(plot.view)
        self.query_one(Panel).view = [(title, "strong", text) for title, text in details]
        self.query_one(ScreenHead).view = self.traces.head(self.cursor)
        self.show_note(self.traces.note)
        # The rows may be others.
        self.rearrange()

    def place_panels(self, width: int, height: int) -> None:
        """Give the details the lines that the rows leave, or a fifth of the screen, from five lines to ten."""
        rows, least, most = self.cursor.book.rows, *_DETAILS
        free = height - _AROUND - rows_height(rows)
        if free < least:
            # The titles of the sections have no room either.
            free = height - _AROUND - rows_height(rows, titled=False)
        lines = max(least, min(most, max(height // 5, free)))
        details = self.query_one(Panel)
        if details.styles.height is None or details.styles.height.value != lines:
            details.styles.height = lines

    # Capture.

    def action_trace_trigger(self) -> None:
        """Arm the trigger, disarm it, or arm it again."""
        if self.capture.state in (CaptureState.ARMED, CaptureState.TRIGGERED):
            self.capture.go_live()
        else:
            self.capture.arm()
        self._move(self.cursor.unselected())

    def action_trace_pause(self) -> None:
        """Freeze now, or return to live."""
        if self.capture.state is CaptureState.FROZEN:
            self.action_trace_home()
        elif not self._stand():
            self.notify("Nothing has been recorded yet.")

    def action_trace_home(self) -> None:
        """Return to live, or to the trigger of a recorded trace."""
        self._move(self.traces.home(self.cursor))

    def action_trace_limit(self, steps: int) -> None:
        """Lower or raise the limit."""
        self.capture.step_limit(steps, round(self.settings.freeze_above_ms * MS))
        self._move(self.traces.marked(self.cursor))

    def action_trace_auto(self) -> None:
        """Have the limits follow the baselines."""
        self.capture.set_limit(None)
        self._move(self.traces.marked(self.cursor))

    def action_trace_run(self) -> None:
        """Start the recording, or end it."""
        self._move(self.traces.record(self.cursor))

    async def action_probe(self, key: str) -> None:
        """Switch the aggressor of ``key``, as in the first view."""
        await self.base.run_action(f"probe('{key}')")

    async def action_all_off(self) -> None:
        """Switch all aggressors off, as in the first view."""
        await self.base.run_action("all_off")

    def action_copy(self) -> None:
        """Copy what is drawn as text to the terminal's clipboard."""
        if not self._stand():
            self.notify("There is no trace to copy.")
            return
        self.draw()
        panels = self.query_one(ScreenHead), self.query_one(TracePlot), self.query_one(Panel)
        self.copy_report("\n".join((self._about, *(panel.text for panel in panels))))

    def action_trace_export(self) -> None:
        """Write the visible span to a file for Perfetto in the working directory."""
        trace = self.cursor.visible() if self._stand() else None
        if trace is None:
            self.notify("There is no trace to write.")
            return
        try:
            self.notify(f"Saved {export(trace, self._about)}")
        except FileNotWritten as error:
            self.notify(str(error), severity="error")

    @property
    def _about(self) -> str:
        """What was traced."""
        observation = self.context.observation
        return "" if observation is None else f"{gpu_label(observation.probe_set)} · {observation.probe_set.title}"

    # Zoom, pan and selection.

    def action_trace_zoom(self, steps: int, at_ns: int | None = None) -> None:
        """Shorten or lengthen the span; ``at_ns`` stays at its place, None for the selected interval's."""
        self._next_draw_s = 0.0
        self._move(self.cursor.zoomed(steps, at_ns))

    def action_trace_pan(self, tenths: int) -> None:
        """Pan by tenths of the span."""
        self._pan(tenths * self.cursor.viewport.span_ns // 10)

    def _pan(self, ns: int) -> None:
        if self._stand():
            self._move(self.cursor.panned(ns))

    def action_trace_row(self, by: int) -> None:
        """Select the row above or below."""
        self._move(self.cursor.row_stepped(by))

    def action_trace_interval(self, by: int) -> None:
        """Select the previous or next call of the row."""
        if self._stand():
            self._move(self.cursor.interval_stepped(by))

    def action_trace_worst(self) -> None:
        """Select the call of the visible span that exceeds its limit most, or the longest one of a victim."""
        if self._stand():
            worst = self.cursor.at_worst()
            if worst is None:
                trace = self.cursor.trace
                probes = trace is None or any(not probe.process for probe in trace.probes)
                self.notify(f"No call{' of a victim' if probes else ''} is in this span.")
            self._move(worst or self.cursor)

    def action_trace_center(self) -> None:
        """Center the selected interval and its work."""
        self._move(self.cursor.centered())

    @on(LineWidget.Clicked, "TracePlot")
    def select_clicked_interval(self, message: LineWidget.Clicked) -> None:
        """Select the row, and the interval at the pointer."""
        row, at_ns = message.target
        self._move(replace(self.cursor, selection=Selection(row)))
        if at_ns is not None and self._stand():
            self._move(self.cursor.selecting(row, at_ns, follow=False))

    def on_wheel_widget_turned(self, message: TracePlot.Turned) -> None:
        """Zoom at the pointer, or pan."""
        if message.sideways:
            self.action_trace_pan(message.steps)
        else:
            self.action_trace_zoom(message.steps, self.query_one(TracePlot).time_ns(message.x))

    def on_trace_plot_panned(self, message: TracePlot.Panned) -> None:
        """Pan as the pointer moved."""
        self._pan(message.ns)

    def action_trace_recorded(self, by: int) -> None:
        """Show the previous or next recorded trace."""
        self._move(self.traces.step(self.cursor, by))


# Class of this module's screen, which the app looks up by this name.
SCREEN = TimelineScreen
