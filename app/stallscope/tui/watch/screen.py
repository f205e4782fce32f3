"""The screen of a watched program, live or recorded."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence

from textual.app import ComposeResult

from stallprobes.live.view_model import ChannelView
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import MS, Channel, Phase
from stallprobes.watch.live.live_view import WatchMoment, WatchRow, WatchRowKey, slow_calls
from stallprobes.watch.live.trace_history import TriggeringCall
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import show_watch
from stallscope.tui.common.dialog import Ask
from stallscope.tui.common.histograms import Histograms, HistogramsView
from stallscope.tui.common.key_bar import KeyBar
from stallscope.tui.common.screen import ActionScreen, ScreenContext
from stallscope.tui.common.timers import Pace, StallTrigger
from stallscope.tui.sources.source import ProgramSource
from stallscope.tui.watch import help_text
from stallscope.tui.watch.call_table import WatchTable, thread_label
from stallscope.tui.watch.explain_call import ExplainCall
from stallscope.tui.watch.header import WatchHeader, WatchHeadView
from stallscope.tui.watch.layout import watch_layout
from stallscope.tui.watch.lost_time import LostTime
from stallscope.tui.watch.output_pane import OutputPane
from stallscope.tui.watch.slow_call_log import SlowCallLog

SEEK_S = 5.0
# A person reads tables no faster; ages of calls in flight and the histogram change with every frame.
TABLES_PER_S, HEADERS_PER_S = 4.0, 2.0
_REPORT_COLUMNS = 100
_UTILIZATIONS = 8
BEHIND = ("all", "since the start")


class WatchScreen(ActionScreen):
    """Shows the moments of the source, or ``frozen``, one of them, for the reason ``frozen_why``."""

    NAME = "watch"
    HELP_SECTIONS = help_text.SECTIONS

    def __init__(self, context: ScreenContext, source: ProgramSource) -> None:
        super().__init__(context)
        self.source = source
        self.frozen: WatchMoment | None = None
        self.frozen_why = ""
        # NVML's values at that moment, and the GPU's name or why there are none.
        self._frozen_gpu: tuple[TelemetrySnapshot | None, str] = (None, "")
        self.selected: WatchRowKey | None = None
        self._chosen = False
        self.trigger = StallTrigger()
        self.enlarged = False
        self._armed_ns = 0
        self._shown: WatchMoment | None = None
        # The number of rows and of lines of headlines for which the panels were placed.
        self._placed = (-1, -1)
        self._utilization: tuple[int, ...] = ()
        self._last_telemetry: TelemetrySnapshot | None = None
        frames = context.settings.frames_per_second
        self._table_pace, self._header_pace = Pace(TABLES_PER_S, frames), Pace(HEADERS_PER_S, frames)

    def compose(self) -> ComposeResult:
        """All panels; ``place_panels`` sets their sizes."""
        yield WatchHeader(id="watch-header")
        yield LostTime(id="lost")
        yield WatchTable(id="calls")
        yield Histograms(id="histograms")
        yield SlowCallLog(id="slow")
        yield OutputPane(id="output")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Start to read. Textual calls the base class's method too."""
        self.app.app_suspend_signal.subscribe(self, lambda _: self.source.suspend(), immediate=True)
        self.app.app_resume_signal.subscribe(self, lambda _: self._resume(), immediate=True)
        self.source.start()

    def _resume(self) -> None:
        self.source.resume()
        self.mark_changed()

    # Moments.

    @property
    def moment(self) -> WatchMoment | None:
        """The moment that is shown."""
        return self.frozen or self.source.moment

    @property
    def _now_ns(self) -> int:
        """The time for the ages of calls in flight."""
        moment = self.moment
        return 0 if moment is None else moment.at_ns

    def tick(self) -> None:
        """Look for a stall, and draw one frame."""
        self._freeze_on_stall()
        if not self.can_draw or not (self.app.screen is self or self.app.screen.is_modal):
            return
        now_s = time.monotonic()
        if self.take_changed():
            self._table_pace.restart(now_s)
            self._header_pace.restart(now_s)
            self.draw()
            return
        tables = self._table_pace.due(now_s)
        if self.frozen is None:
            self._update(tables)
            self._redraw(WatchTable, Histograms, SlowCallLog, LostTime)
        if tables:
            self._update_output()
            self._redraw(OutputPane)
        if self._header_pace.due(now_s):
            self._update_header()
            self._redraw(WatchHeader, KeyBar)

    def _freeze_on_stall(self) -> None:
        moment = self.source.moment
        if self.frozen is not None or not self.trigger.armed or moment is None:
            return
        slowest = self._slowest_since(moment)
        slowest_ns = 0 if slowest is None else slowest[0].duration_ns
        if self.trigger.fires(slowest_ns, self.settings.freeze_above_ms * MS, time.monotonic()):
            self._freeze(f"FROZEN on a stall at {time.strftime('%H:%M:%S')}", slowest)

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

    def _freeze(self, why: str, slowest: tuple[TriggeringCall, WatchRowKey] | None = None) -> None:
        self.frozen, self.frozen_why = self.source.moment, why
        self._frozen_gpu = self.source.telemetry, self.source.gpu_text
        if self.source.kept_traces is not None:
            self.source.kept_traces.keep(None if slowest is None else slowest[0])
        if slowest is not None:
            self.selected, self._chosen = slowest[1], True
        self.mark_changed()

    def _thaw(self) -> None:
        self.frozen = None
        if self.source.kept_traces is not None:
            self.source.kept_traces.show_present()
        self.mark_changed()

    # Drawing.

    def draw(self) -> None:
        """Draw every panel."""
        if not self.is_mounted:
            return
        self._shown = None
        self._update()
        self._update_output()
        self._update_header()
        self.redraw_panels()

    def _redraw(
        self, *panels: type[WatchHeader | LostTime | WatchTable | Histograms | SlowCallLog | OutputPane | KeyBar]
    ) -> None:
        for panel in panels:
            widget = self.query_one(panel)
            if widget.display:
                widget.redraw()

    def _update(self, tables: bool = True) -> None:
        """Give table, histogram, headline and slow calls what they draw; without ``tables`` what moves with frames."""
        moment, table = self.moment, self.query_one(WatchTable)
        table.now_ns = self._now_ns
        if moment is None or moment is self._shown:
            return
        rows = moment.rows
        if not tables:
            row = self._row(rows)
            self.query_one(Histograms).live = None if row is None else {Channel(Phase.CALL): row.recent}
            return
        self._shown = moment
        if rows and not (self._chosen and any(row.key == self.selected for row in rows)):
            # The one that lost most time, until somebody selects another.
            self.selected, self._chosen = rows[0].key, False
        table.rows, table.selected, table.hidden = rows, self.selected, moment.hidden
        table.empty = "no call yet"
        lost, slow = self.query_one(LostTime), self.query_one(SlowCallLog)
        lost.findings, lost.program = moment.findings, moment.program
        slow.findings, slow.now_ns = moment.findings, moment.at_ns
        histograms = self.query_one(Histograms)
        histograms.live = None
        row = self._row(rows)
        histograms.view = None if row is None else self._histograms(row)
        if (wanted := (len(rows), lost.height_wanted(self.size.width))) != self._placed:
            self._placed = wanted
            self.rearrange()

    def _row(self, rows: Sequence[WatchRow]) -> WatchRow | None:
        return next((row for row in rows if row.key == self.selected), None)

    def _histograms(self, row: WatchRow) -> HistogramsView:
        """The histogram of the selected row."""
        age_ns = row.age_ns(self._now_ns)
        state, mark = (f"{row.slow} slow", "warn") if row.slow else ("", "")
        if age_ns is not None and age_ns >= row.slow_limit_ns:
            state, mark = "in flight", "bad"
        several = len({one.key.pid for one in self.query_one(WatchTable).rows}) > 1
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

    def _update_output(self) -> None:
        pane = self.query_one(OutputPane)
        pane.output, pane.instead = self.source.output, self.source.output_elsewhere

    def _update_header(self) -> None:
        moment, source = self.moment, self.source
        position = "" if source.playback is None else source.playback.position_text
        telemetry, gpu = (source.telemetry, source.gpu_text) if self.frozen is None else self._frozen_gpu
        # A recording that stands still has no new values.
        if telemetry is not None and self.frozen is None and telemetry is not self._last_telemetry:
            self._last_telemetry = telemetry
            value = telemetry["utilisation_percent"].value
            self._utilization = (*self._utilization, value)[-_UTILIZATIONS:] if isinstance(value, int) else ()
        self.query_one(WatchHeader).view = WatchHeadView(
            program=source.program_state,
            seconds=0.0 if moment is None else moment.seconds,
            view=self.frozen_why if self.frozen is not None else position,
            failure=source.failure,
            telemetry=telemetry,
            gpu=gpu,
            utilization=self._utilization,
        )
        self.query_one(KeyBar).note = source.note or ("freezes on the next stall" if self.trigger.armed else "")

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes."""
        moment = self.moment
        rows = 0 if moment is None else len(moment.rows)
        headlines = self.query_one(LostTime).height_wanted(width)
        sizes = watch_layout(width, height, headlines, rows, not self.source.output_elsewhere, self.enlarged)
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

    def action_watch_pause(self) -> None:
        """Pause or resume the view, or the recording."""
        if self.source.playback is not None:
            self.source.playback.pause()
            self.mark_changed()
        elif self.frozen is not None:
            self._thaw()
        elif self.source.moment is not None:
            self._freeze(f"PAUSED at {time.strftime('%H:%M:%S')}")

    def action_watch_seek(self, steps: int) -> None:
        """Go back or forward in the recording."""
        if self.source.playback is not None:
            self.source.playback.seek(self.source.playback.at_s + steps * SEEK_S)
        # The values before are those of another time.
        self._utilization = ()
        self.mark_changed()

    def action_watch_freeze(self) -> None:
        """Arm or disarm "freeze on stall"."""
        self.trigger.toggle()
        moment = self.source.moment
        self._armed_ns = 0 if moment is None else moment.at_ns
        if self.trigger.armed:
            self._thaw()
        self.mark_changed()

    def action_watch_explain(self) -> None:
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
            self.app.copy_to_clipboard(text.getvalue())
            self.notify("Report sent to the terminal's clipboard (OSC 52).")

    def action_watch_quit(self) -> None:
        """Quit."""
        self.action_leave()

    def action_leave(self) -> None:
        """End the screen; a program that still runs is asked about first, once."""
        running = self.source.running_text
        if not running or isinstance(self.app.screen, Ask):
            self.app.exit()
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.app.exit()

        self.app.push_screen(Ask(f"{running} still runs. End it?", yes="yes, as ctrl+c would"), answered)

    def on_watch_table_row_clicked(self, message: WatchTable.RowClicked) -> None:
        """Select the clicked row; if it is selected, explain it."""
        if message.key == self.selected:
            self.action_watch_explain()
        else:
            self._select(message.key)

    def on_slow_call_log_call_clicked(self, message: SlowCallLog.CallClicked) -> None:
        """Select the row of the clicked call, and explain it."""
        self._select(message.key)
        self.action_watch_explain()


SCREEN = WatchScreen
