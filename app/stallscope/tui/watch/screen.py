"""The screen of a watched program, live or recorded."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import replace

from textual import on
from textual.app import ComposeResult

from stallprobes.live.view_model import ChannelView
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import Channel, Phase
from stallprobes.watch.live.live_view import WatchMoment, WatchRow, WatchRowKey, slow_calls
from stallprobes.watch.live.trace_history import TriggeringCall
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import show_watch
from stallscope.tui.common.bars import KeyBar, with_utilization
from stallscope.tui.common.dialog import Ask
from stallscope.tui.common.histograms import Histograms, HistogramsView, PlotsView
from stallscope.tui.common.lines import LineWidget
from stallscope.tui.common.screen import MovingScreen, ScreenContext
from stallscope.tui.sources.source import ProgramSource
from stallscope.tui.watch.call_table import CallTableView, WatchTable, thread_label
from stallscope.tui.watch.explain_call import ExplainCall
from stallscope.tui.watch.header import WatchHeader, WatchHeadView
from stallscope.tui.watch.layout import watch_layout
from stallscope.tui.watch.panels import (
    LostTime,
    OutputPane,
    SlowCallLog,
    SlowCallsView,
    headline_lines,
    headlines,
)

_REPORT_COLUMNS = 100
BEHIND = ("all", "since the start")


class WatchScreen(MovingScreen[ProgramSource]):
    """Shows the moments of the source, or ``frozen_moment``, one of them, for the reason ``frozen_why``."""

    NAME = "watch"

    def __init__(self, context: ScreenContext, source: ProgramSource) -> None:
        super().__init__(context, source)
        self.frozen_moment: WatchMoment | None = None
        self.frozen_why = ""
        # NVML's values at that moment, and the GPU's name or why there are none.
        self._frozen_gpu: tuple[TelemetrySnapshot | None, str] = (None, "")
        self.selected: WatchRowKey | None = None
        self._chosen = False
        self.enlarged = False
        self._armed_ns = 0
        self._shown: WatchMoment | None = None
        # The number of rows and of lines of headlines for which the panels were placed.
        self._placed = (-1, -1)
        self._utilization: tuple[int, ...] = ()
        self._last_telemetry: TelemetrySnapshot | None = None

    def compose(self) -> ComposeResult:
        """All panels; ``place_panels`` sets their sizes."""
        yield WatchHeader(id="watch-header")
        yield LostTime(id="lost")
        yield WatchTable(id="calls")
        yield Histograms(id="histograms")
        yield SlowCallLog(id="slow")
        yield OutputPane(id="output")
        yield KeyBar(id="keys")

    def suspend(self) -> None:
        """Stop the program, or the recording."""
        self.source.suspend()

    def resume(self) -> None:
        """Continue."""
        self.source.resume()
        super().resume()

    # Moments.

    @property
    def moment(self) -> WatchMoment | None:
        """The moment that is shown."""
        return self.frozen_moment or self.source.moment

    @property
    def frozen(self) -> bool:
        """Whether the view is frozen."""
        return self.frozen_moment is not None

    def tick(self) -> None:
        """Look for a stall, and draw one frame."""
        self._freeze_on_stall()
        self.draw_frame(time.monotonic())

    def draw_due(self, now_s: float) -> None:
        """Draw the panels that are due: ages of calls in flight and the histogram move with every frame."""
        tables = self.table_pace.due(now_s)
        if not self.frozen:
            self._show_calls(tables)
        if tables:
            self._show_output()
        if self.header_pace.due(now_s):
            self._show_header()

    def _freeze_on_stall(self) -> None:
        moment = self.source.moment
        if self.frozen or not self.trigger.armed or moment is None:
            return
        slowest = self._slowest_since(moment)
        if self.stalls(0 if slowest is None else slowest[0].duration_ns):
            self._freeze("FROZEN on a stall", slowest)

    def _slowest_since(self, moment: WatchMoment) -> tuple[TriggeringCall, WatchRowKey] | None:
        """The slowest call since the trigger was armed, or in flight, with its row."""
        found = [
            (TriggeringCall.of(call), WatchRowKey(process.pid, process.image, call.thread, call.function))
            for call, process in slow_calls(moment.findings)
            if call.end_ns > self._armed_ns
        ]
        found += [
            (TriggeringCall(row.key.thread, row.begin_ns, moment.at_ns), row.key)
            for row in moment.rows
            if row.begin_ns is not None
        ]
        return max(found, key=lambda item: item[0].duration_ns, default=None)

    def freeze(self, why: str) -> None:
        """Freeze the view."""
        if self.source.moment is not None:
            self._freeze(why, None)

    def _freeze(self, why: str, slowest: tuple[TriggeringCall, WatchRowKey] | None) -> None:
        self.frozen_moment, self.frozen_why = self.source.moment, f"{why} at {time.strftime('%H:%M:%S')}"
        self._frozen_gpu = self.source.gpu_values
        if self.source.kept_traces is not None:
            self.source.kept_traces.keep(None if slowest is None else slowest[0])
        if slowest is not None:
            self.selected, self._chosen = slowest[1], True
        self.mark_changed()

    def thaw(self) -> None:
        """Have the view move again."""
        self.frozen_moment = None
        if self.source.kept_traces is not None:
            self.source.kept_traces.show_present()
        self.mark_changed()

    # Drawing.

    def draw(self) -> None:
        """Draw every panel."""
        self.changed, self._shown = False, None
        self._show_calls()
        self._show_output()
        self._show_header()

    def _show_calls(self, tables: bool = True) -> None:
        """Draw table, histogram, headline and slow calls; without ``tables`` only what moves with frames."""
        moment, table = self.moment, self.query_one(WatchTable)
        if moment is None:
            return
        table.view = replace(table.view, now_ns=moment.at_ns)
        if moment is self._shown:
            return
        rows, histograms = moment.rows, self.query_one(Histograms)
        if not tables:
            row = self._row(rows)
            histograms.view = replace(histograms.view, live=None if row is None else {Channel(Phase.CALL): row.recent})
            return
        self._shown = moment
        if rows and not (self._chosen and any(row.key == self.selected for row in rows)):
            # The one that lost most time, until somebody selects another.
            self.selected, self._chosen = rows[0].key, False
        table.view = CallTableView(rows, self.selected, moment.at_ns, moment.hidden, "no call yet")
        found = headlines(moment.findings, moment.program)
        self.query_one(LostTime).view = found
        self.query_one(SlowCallLog).view = SlowCallsView(moment.findings, moment.at_ns)
        row = self._row(rows)
        histograms.view = PlotsView(None if row is None else self._histograms(row, moment))
        if (wanted := (len(rows), len(headline_lines(found, self.size.width)))) != self._placed:
            self._placed = wanted
            self.rearrange()

    def _row(self, rows: Sequence[WatchRow]) -> WatchRow | None:
        return next((row for row in rows if row.key == self.selected), None)

    def _histograms(self, row: WatchRow, moment: WatchMoment) -> HistogramsView:
        """The histogram of the selected row."""
        age_ns = row.age_ns(moment.at_ns)
        state, mark = (f"{row.slow} slow", "warn") if row.slow else ("", "")
        if age_ns is not None and age_ns >= row.slow_limit_ns:
            state, mark = "in flight", "bad"
        several = len({one.key.pid for one in moment.rows}) > 1
        return HistogramsView(
            repr(row.key),
            f"{row.key.function} · {thread_label(row, several)}",
            (ChannelView(Phase.CALL, "", row.recent, row.total),),
            state,
            mark,
            in_flight_ns=age_ns,
            now=f"last {row.window_ns / 1e9:.0f} s" if row.window_ns >= 1.5e9 else "last second",
            behind=BEHIND,
        )

    def _show_output(self) -> None:
        self.query_one(OutputPane).view = self.source.output

    def _show_header(self) -> None:
        moment, source = self.moment, self.source
        position = "" if source.playback is None else source.playback.position_text
        telemetry, gpu = self._frozen_gpu if self.frozen else source.gpu_values
        # A recording that stands still has no new values.
        if telemetry is not None and not self.frozen and telemetry is not self._last_telemetry:
            self._last_telemetry = telemetry
            self._utilization = with_utilization(self._utilization, telemetry)
        self.query_one(WatchHeader).view = WatchHeadView(
            program=source.program_state,
            seconds=0.0 if moment is None else moment.seconds,
            view=self.frozen_why if self.frozen else position,
            failure=source.failure,
            telemetry=telemetry,
            gpu=gpu,
            utilization=self._utilization,
        )
        self.show_note(source.note or ("freezes on the next stall" if self.trigger.armed else ""))

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes."""
        moment = self.moment
        rows = 0 if moment is None else len(moment.rows)
        lines = len(headline_lines(self.query_one(LostTime).view, width))
        sizes = watch_layout(width, height, lines, rows, not self.source.output.elsewhere, self.enlarged)
        self.set_class(sizes.wide, "wide")
        self.set_class(self.enlarged, "enlarged")
        if sizes.wide:
            self.styles.grid_rows = f"2 {sizes.lost} {sizes.calls} {sizes.slow}"
        heights = {"lost": sizes.lost, "calls": sizes.calls, "histograms": sizes.histograms, "slow": sizes.slow}
        for name, lines in {**heights, "output": sizes.output}.items():
            panel = self.query_one(f"#{name}")
            panel.styles.height = lines
            panel.display = lines > 0
        # It is the terminal size of the program.
        if self.source.program is not None:
            columns = width if not sizes.wide else width * 17 // 40 - 2
            self.source.program.resize(columns, max(sizes.output - 1, 1))

    # Actions.

    def action_seek(self, steps: int) -> None:
        """Go back or forward in the recording."""
        # The values before are those of another time.
        self._utilization = ()
        super().action_seek(steps)

    def action_trap(self) -> None:
        """Arm or disarm "freeze on stall"."""
        moment = self.source.moment
        self._armed_ns = 0 if moment is None else moment.at_ns
        super().action_trap()

    def action_explain(self) -> None:
        """Open the explanation of the selected row."""
        moment = self.moment
        row = None if moment is None else self._row(moment.rows)
        if moment is not None and row is not None:
            self.app.push_screen(ExplainCall(row, moment.findings))

    def action_watch_page(self, by: int) -> None:
        """Go pages up or down."""
        self.action_watch_row(by * self.query_one(WatchTable).page, around=False)

    def action_watch_row(self, by: int, around: bool = True) -> None:
        """Select another row; ``around``: after the last one comes the first."""
        moment = self.moment
        keys = [] if moment is None else [row.key for row in moment.rows]
        if keys:
            place = keys.index(self.selected) if self.selected in keys else 0
            place = (place + by) % len(keys) if around else min(max(place + by, 0), len(keys) - 1)
            self._select(keys[place])

    def _select(self, key: WatchRowKey) -> None:
        self.selected, self._chosen = key, True
        self.mark_changed()

    def action_watch_worst(self) -> None:
        """Select the row that lost most time."""
        moment = self.moment
        worst = max(() if moment is None else moment.rows, key=lambda row: row.lost_ns, default=None)
        if worst is None or not worst.lost_ns:
            self.notify("No call has lost time.")
        else:
            self._select(worst.key)

    def action_watch_output(self) -> None:
        """Enlarge the pane of the program's output, or reduce it."""
        self.enlarged = not self.enlarged
        self.rearrange()
        self.mark_changed()

    def action_watch_copy(self) -> None:
        """Copy the report to the terminal's clipboard."""
        moment = self.moment
        if moment is not None:
            text = io.StringIO()
            show_watch(TextWriter(text, width=_REPORT_COLUMNS), moment.findings, moment.program.title)
            self.copy_report(text.getvalue())

    def action_leave(self) -> None:
        """End the screen; a program that still runs is asked about first, once."""
        running = self.source.running_text
        if not running or isinstance(self.app.screen, Ask):
            self.app.exit()
        else:
            self.ask(Ask(f"{running} still runs. End it?", yes="yes, as ctrl+c would"), lambda _: self.app.exit())

    @on(LineWidget.Clicked, "WatchTable")
    def select_clicked_row(self, message: LineWidget.Clicked) -> None:
        """Select the clicked row; if it is selected, explain it."""
        if message.target == self.selected:
            self.action_explain()
        else:
            self._select(message.target)

    @on(LineWidget.Clicked, "SlowCallLog")
    def explain_clicked_call(self, message: LineWidget.Clicked) -> None:
        """Select the row of the clicked call, and explain it."""
        self._select(message.target)
        self.action_explain()


SCREEN = WatchScreen
