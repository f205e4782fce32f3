"""The screen of a watched program, live or recorded."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from stallprobes.catalog import beside_programs
from stallprobes.model import Channel, Phase
from stallprobes.watch.live.live_view import WatchMoment, WatchRowKey
from stallprobes.watch.live.trace_history import TriggeringCall
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import show_watch
from stallscope.tui.actions import AGGRESSOR_KEYS, Group
from stallscope.tui.common.bars import KeyBar, ScreenHead
from stallscope.tui.common.dialog import Ask, TextDialog
from stallscope.tui.common.histograms import histogram_lines
from stallscope.tui.common.lines import LineWidget, Panel, TargetPanel
from stallscope.tui.common.screen import MovingScreen, ScreenContext
from stallscope.tui.sources.pane_program import ShownOutput
from stallscope.tui.sources.source import ProgramSource
from stallscope.tui.watch.beside_panel import BesideView, beside_lines
from stallscope.tui.watch.call_table import WatchTable
from stallscope.tui.watch.division_panel import DivisionView, LineKey, division_lines
from stallscope.tui.watch.explain_call import explained
from stallscope.tui.watch.explain_line import explained_line
from stallscope.tui.watch.header import header_view
from stallscope.tui.watch.kernel_table import kernel_lines
from stallscope.tui.watch.layout import WIDE_COLUMNS, watch_layout
from stallscope.tui.watch.panels import headline_lines, headlines, lost_lines, output_lines, slow_call_lines
from stallscope.tui.watch.state import (
    WatchScreenState,
    beside_view,
    division_view,
    histograms_view,
    table_view,
)

# Width (columns) of the report of a watched program that is copied to the clipboard.
_REPORT_COLUMNS = 100


class WatchScreen(MovingScreen[ProgramSource, WatchScreenState]):
    """Shows the moments of the source; ``state`` says what of them."""

    NAME = "watch"
    VIEWS = ("timeline",)
    BINDINGS: ClassVar[list[BindingType]] = [Binding(key, f"beside('{key}')", show=False) for key in AGGRESSOR_KEYS]

    def __init__(self, context: ScreenContext, source: ProgramSource) -> None:
        super().__init__(context, source, WatchScreenState())
        # What table, verdict, headlines and slow calls show.
        self._shown: WatchMoment | None = None

    def compose(self) -> ComposeResult:
        """All panels; ``place_panels`` sets their sizes."""
        yield ScreenHead(id="watch-header")
        yield TargetPanel(division_lines, DivisionView(), id="division")
        yield Panel(lost_lines, (), id="lost")
        yield WatchTable(id="calls")
        yield Panel(histogram_lines, id="histograms")
        yield TargetPanel(slow_call_lines, id="slow")
        yield Panel(kernel_lines, id="kernels")
        yield Panel(beside_lines, BesideView(), id="beside")
        yield Panel(output_lines, ShownOutput(), id="output")
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
        return self.state.frozen or self.source.moment

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
            self.query_one("#output", Panel).view = self.source.output
            self._show_beside()
        if self.header_pace.due(now_s):
            self._show_header()

    def _freeze_on_stall(self) -> None:
        moment = self.source.moment
        if not self.frozen and self.trigger.armed and moment is not None:
            slowest = self.state.slowest(moment)
            if self.stalls(0 if slowest is None else slowest[0].duration_ns):
                self.freeze("FROZEN on a stall", slowest)

    def freeze(self, why: str, slowest: tuple[TriggeringCall, WatchRowKey] | None = None) -> None:
        """Freeze the view, and keep its trace; that of the ``slowest`` call, if it is the reason."""
        source = self.source
        if source.moment is not None:
            why = f"{why} at {time.strftime('%H:%M:%S')}"
            state = replace(self.state, frozen=source.moment, frozen_why=why, gpu=source.gpu_values)
            if source.kept_traces is not None:
                source.kept_traces.keep(None if slowest is None else slowest[0])
            self.show(state if slowest is None else state.selecting(slowest[1]))

    def thaw(self) -> None:
        """Have the view move again."""
        if self.source.kept_traces is not None:
            self.source.kept_traces.show_present()
        self.show(replace(self.state, frozen=None, frozen_why=""))

    # Drawing.

    def draw(self) -> None:
        """Draw every panel."""
        self.changed, self._shown = False, None
        self._show_calls()
        self.query_one("#output", Panel).view = self.source.output
        self._show_beside()
        self._show_header()

    def _show_calls(self, tables: bool = True) -> None:
        """Draw table, histogram, headline and slow calls; without ``tables`` only what moves with frames."""
        moment, table, histograms = self.moment, self.query_one(WatchTable), self.query_one("#histograms", Panel)
        if moment is None:
            return
        table.view = replace(table.view, now_ns=moment.at_ns)
        if moment is self._shown:
            return
        if not tables:
            row = self.state.row(moment)
            if histograms.view is not None and row is not None:
                histograms.view = replace(histograms.view, live={Channel(Phase.CALL): row.recent})
            return
        self._shown, self.state = moment, self.state.on_row_of(moment)
        table.view = table_view(self.state, moment)
        self.query_one("#division", Panel).view = division_view(self.state, moment)
        self.query_one("#lost", Panel).view = headlines(moment.findings, moment.program)
        self.query_one("#slow", Panel).view = moment
        self.query_one("#kernels", Panel).view = moment.findings
        histograms.view = histograms_view(self.state, moment)
        # The number of rows or of lines may be another one.
        self.rearrange()

    def _show_beside(self) -> None:
        if self.state.beside:
            self.query_one("#beside", Panel).view = beside_view(self.state, self.source)

    def _show_header(self) -> None:
        self.state = self.state.with_gpu(self.source.gpu_values)
        self.query_one(ScreenHead).view = header_view(self.state, self.source)
        self.show_note(self.source.note or ("freezes on the next stall" if self.trigger.armed else ""))

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes."""
        moment = self.moment
        rows = 0 if moment is None else len(moment.rows)
        lines = len(headline_lines(self.query_one("#lost", Panel).view, width))
        division = self.query_one("#division", Panel).view
        sizes = watch_layout(
            width,
            height,
            division.height,
            lines,
            rows,
            not self.source.output.elsewhere,
            self.state.enlarged,
            len(division.program_lines),
        )
        wide = width >= WIDE_COLUMNS and not self.state.enlarged
        self.set_class(wide, "wide")
        self.set_class(self.state.enlarged, "enlarged")
        if wide:
            shown = (sizes[name] for name in ("division", "lost", "calls", "slow"))
            # A hidden panel has no row.
            self.styles.grid_rows = " ".join(str(lines) for lines in (2, *shown) if lines)
        elif self.state.beside:
            # Rows of aggressors say more than a histogram of calls.
            sizes |= {"slow": sizes["slow"] + sizes["histograms"], "histograms": 0}
        lower = "beside" if self.state.beside else "kernels" if self.state.kernels else "slow"
        for name, lines in {**sizes, **dict.fromkeys(("slow", "kernels", "beside"), 0), lower: sizes["slow"]}.items():
            panel = self.query_one(f"#{name}")
            panel.styles.height = lines
            panel.display = lines > 0
        # It is the terminal size of the program.
        if self.source.program is not None:
            columns = width if not wide else width * 17 // 40 - 2
            self.source.program.resize(columns, max(sizes["output"] - 1, 1))

    # Actions.

    def action_seek(self, steps: int) -> None:
        """Go back or forward in the recording."""
        # The values before are those of another time.
        self.state = replace(self.state, utilization=())
        super().action_seek(steps)

    def action_trap(self) -> None:
        """Arm or disarm "freeze on stall"."""
        moment = self.source.moment
        self.state = replace(self.state, armed_ns=0 if moment is None else moment.at_ns)
        super().action_trap()

    def action_explain(self) -> None:
        """Open the explanation of the selected row, or of the selected line."""
        moment = self.moment
        row, line = self.state.row(moment), self.state.line(moment)
        if line is not None:
            self.app.push_screen(TextDialog(explained_line(line)))
        elif moment is not None and row is not None:
            self.app.push_screen(TextDialog(explained(row, moment.findings)))
        else:
            self.notify("There is no call to explain yet.")

    def action_watch_page(self, by: int) -> None:
        """Go pages up or down."""
        self.action_watch_row(by * self.query_one(WatchTable).page, around=False)

    def action_watch_row(self, by: int, around: bool = True) -> None:
        """Select another line or row; ``around``: after the last one comes the first."""
        if self.moment is not None:
            panel = self.query_one("#division", Panel)
            lines = panel.view.drawn_lines(panel.size.height) if panel.display else []
            keys: list[WatchRowKey | LineKey] = [line.key for line in lines]
            keys += [row.key for row in self.moment.rows]
            self.show(self.state.stepped(keys, by, around))

    def action_watch_worst(self) -> None:
        """Select the row that lost most time."""
        moment = self.moment
        worst = max(() if moment is None else moment.rows, key=lambda row: row.lost_ns, default=None)
        if worst is None or not worst.lost_ns:
            self.notify("No call has lost time.")
        else:
            self.show(self.state.selecting(worst.key))

    def action_watch_output(self) -> None:
        """Enlarge the pane of the program's output, or reduce it."""
        self.show(replace(self.state, enlarged=not self.state.enlarged))
        self.rearrange()

    def action_watch_kernels(self) -> None:
        """Show the kernels in place of the slow calls, or the slow calls again."""
        self.show(replace(self.state, kernels=not self.state.kernels, beside=False))
        self.rearrange()

    def action_watch_beside(self) -> None:
        """Show the aggressors beside the program in place of the slow calls, or the slow calls again."""
        self.show(replace(self.state, beside=not self.state.beside, kernels=False))
        self.rearrange()

    def action_beside(self, key: str) -> None:
        """Let the aggressor of a key run beside the program, in turns, or no longer; the first time it asks."""
        trial, place = self.source.trial, AGGRESSOR_KEYS.index(key)
        names = beside_programs()
        if trial is None or place >= len(names) or self.source.program_state.exit_code is not None:
            self.warn(f"{key}: no program runs beside which an aggressor could." if trial else f"{key} has no effect.")
            return
        name = names[place]
        if not self.state.beside:
            self.action_watch_beside()
        if name in trial.chosen:
            self._choose(name, False)
        elif self.state.disturbs or trial.chosen:
            self._choose(name, True)
        else:
            program = self.source.program_state
            who = program.title if program.pid is None else f"{program.title} (pid {program.pid})"
            question = (
                f"{name} runs in a process of stallscope's on the GPU of {who}, in turns. The program becomes slower, "
                "and so do all ranks of its job. Disturb it?"
            )
            self.ask(Ask(question), lambda _: self._choose(name, True))

    def _choose(self, name: str, on: bool) -> None:
        if self.source.trial is not None:
            self.source.trial.choose(name, on)
            self.show(replace(self.state, disturbs=self.state.disturbs or on))

    def action_all_off(self) -> None:
        """Switch all aggressors off."""
        if self.source.trial is not None:
            self.source.trial.choose_none()
            self.mark_changed()

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Without an aggressor that is chosen, none can be switched off."""
        trial = self.source.trial
        return () if trial is not None and trial.chosen else ("watch_all_off",)

    @property
    def more_keys(self) -> Mapping[Group, tuple[str, str]]:
        """The keys of aggressors."""
        digits = f"{AGGRESSOR_KEYS[0]} … {AGGRESSOR_KEYS[len(beside_programs()) - 1]}"
        return {} if self.replayed else {Group.RUN: (digits, "aggressor on or off")}

    def action_copy(self) -> None:
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
    @on(LineWidget.Clicked, "#division")
    def select_clicked_row(self, message: LineWidget.Clicked) -> None:
        """Select the clicked row or line; if it is selected, explain it."""
        if message.target == self.state.selected:
            self.action_explain()
        else:
            self.show(self.state.selecting(message.target))

    @on(LineWidget.Clicked, "#slow")
    def explain_clicked_call(self, message: LineWidget.Clicked) -> None:
        """Select the row of the clicked call, and explain it."""
        self.show(self.state.selecting(message.target))
        self.action_explain()


# Class of this module's screen, which the app looks up by this name.
SCREEN = WatchScreen
