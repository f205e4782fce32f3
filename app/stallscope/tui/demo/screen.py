"""The screen of the demo: the monitor, which goes through the patterns by itself."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult

from stallprobes.demo import plan
from stallprobes.demo.plan import DemoPhase, DemoStep
from stallprobes.patterns import patterns
from stallprobes.recording.observation import EngineCondition, Observation
from stallscope.report import demo_text
from stallscope.report.text import USUAL_WIDTH, TextWriter
from stallscope.tui import probe_sets
from stallscope.tui.common.lines import LineWidget
from stallscope.tui.common.screen import ScreenContext
from stallscope.tui.demo.caption import CAPTION_LINES, DemoCaption, caption
from stallscope.tui.demo.finale import Finale, FinaleView
from stallscope.tui.demo.tour import DemoTour
from stallscope.tui.monitor.header import Header
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.multiples import Multiples
from stallscope.tui.monitor.probe_table import ProbeTable
from stallscope.tui.monitor.screen import SPANS_S, Monitor
from stallscope.tui.monitor.verdict_log import VerdictLog, VerdictLogView
from stallscope.tui.sources.source import ProbeSource

if TYPE_CHECKING:
    from stallprobes.recording.recorder import Recorder

SECONDS = 8.0
# The class of the screen while the finale is shown, in place of the monitor's panels.
ENDED = "ended"
# Height from which the heat map with the GPU's values fits below the caption; the log is then one verdict high.
_COMPACT_FROM, _LOG, _LEAST_HEAT_MAP, _LEAST_HISTOGRAMS = 24, 3, 8, 3


class DemoScreen(Monitor, inherit_bindings=False):
    """The monitor with the course of a demo, which is the tour in its context, by default that of all patterns."""

    NAME = "demo"
    BINDINGS = Monitor.PROBE_BINDINGS

    def __init__(self, context: ScreenContext, source: ProbeSource, recorder: Recorder | None = None) -> None:
        super().__init__(context, source, recorder)
        self.state = replace(self.state, span_s=SPANS_S[0])
        self.tour = context.controller(DemoTour, lambda: DemoTour(plan.steps(patterns().values()), SECONDS))
        # The step in which the panels follow the stall, until the user selects a probe.
        self._followed_step: DemoStep | None = None

    def compose(self) -> ComposeResult:
        """The caption, the panels of the monitor, and the finale."""
        yield DemoCaption(id="caption")
        yield from super().compose()
        yield Finale(id="finale")

    def tick(self) -> None:
        """Read the observations that are due, let the demo continue, and draw one frame."""
        super().tick()
        tour, observation = self.tour, self.state.observation
        if self.live is None or observation is None or self.live.fatal is not None:
            return
        before = tour.step, tour.state, tour.page
        tour.tick(self.clock(), observation, self.analyzer, watched=self.app.screen is self)
        if tour.order is not None and observation.engine.state is not EngineCondition.STARTING:
            self._follow(*tour.order)
            tour.order = None
        if tour.finished:
            self.app.exit()
            return
        if tour.ended is not self.has_class(ENDED):
            self.set_class(tour.ended, ENDED)
            self.rearrange()
        if (tour.step, tour.state, tour.page) != before:
            self.mark_changed()
        if tour.step is not self._followed_step:
            # What the user selected was of another step.
            self._followed_step = tour.step
            self.show(self.state.follow_again(None))

    def _follow(self, load: bool, on: bool) -> None:
        """Load the present step, or keep the present engine, with the aggressors on or off."""
        live, base, step = self.live, self.state.probe_set, self.tour.step
        if live is None or base is None:
            return
        if not load:
            self.if_sharing_allowed(lambda: live.switch_aggressors(on), self.tour.end, disturbs=on)
            return
        new = probe_sets.for_variant(base, step.pattern, step.variant)
        switches = dict.fromkeys(probe_sets.aggressors(new), True) if on else {}
        self.if_sharing_allowed(lambda: live.load(new, switches), self.tour.end, disturbs=bool(switches))

    def log_view(self, observation: Observation) -> VerdictLogView:
        """The view of the verdict log. The caption says what to expect, and the next step shows the remedy."""
        view = super().log_view(observation)
        return replace(view, expect="", guide=replace(view.guide, next_step=""), remedy_key="", blame_key="")

    def show_header(self, observation: Observation) -> None:
        """Draw header, key bar, and caption or finale, whose seconds move."""
        super().show_header(observation)
        tour, finale = self.tour, self.query_one(Finale)
        if self.replayed:
            tour.follow_recorded(observation)
        self.query_one(DemoCaption).view = caption(tour, self.monitor_view, observation, self.replayed)
        note = "PAUSED" if tour.paused else f"{math.ceil(tour.left_s)} s"
        finale.view = FinaleView(tour.result, tour.page, note)
        tour.pages = finale.pages

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes; those of the monitor share what the caption leaves."""
        lines = height - CAPTION_LINES
        super().place_panels(width, max(lines, min(height, _COMPACT_FROM)))
        heat_map, histograms = self.query_one(HeatMap), self.query_one(Multiples)
        if self.has_class(ENDED):
            heat_map.display = False
        elif self._compact:
            # In a low screen header, log and histogram give the lines of the caption.
            self.query_one(Header).styles.height, self.query_one(VerdictLog).styles.height = 1, _LOG
            table = self.query_one(ProbeTable).styles.height
            rest = lines - 1 - _LOG - 1 - (0 if table is None else int(table.value))
            usual = histograms.styles.height
            above = max(_LEAST_HISTOGRAMS, min(rest - _LEAST_HEAT_MAP, 0 if usual is None else int(usual.value)))
            histograms.styles.height, heat_map.styles.height = above, rest - above

    # Actions.

    @on(LineWidget.Clicked, "DemoCaption")
    def go_to_clicked_phase(self, message: LineWidget.Clicked) -> None:
        """Go to the step that was clicked."""
        self.go_to(message.target)

    @on(LineWidget.Clicked, "Finale")
    def turn_page(self, message: LineWidget.Clicked) -> None:
        """Show the next page of the finale."""
        self.turn(message.target)

    def go_to(self, phase: DemoPhase) -> None:
        """Go to a step of the present pattern."""
        self.tour.go_to(phase)
        self.mark_changed()

    def turn(self, pages: int) -> None:
        """Turn pages of the finale."""
        self.tour.turn(pages)
        self.mark_changed()

    def action_demo_next(self) -> None:
        """Go to the next step."""
        self.tour.next()
        self.mark_changed()

    def action_demo_back(self) -> None:
        """Go to the previous step."""
        self.tour.back()
        self.mark_changed()

    def action_demo_pause(self) -> None:
        """Pause or resume the demo. The probes keep running."""
        self.tour.paused = not self.tour.paused
        self.mark_changed()

    def action_demo_end(self) -> None:
        """Go to the finale."""
        if not self.tour.ended:
            self.tour.end()
            self.mark_changed()

    def action_demo_page_up(self) -> None:
        """Show the page of the finale before this one."""
        self.turn(-1)

    def action_demo_page_down(self) -> None:
        """Show the next page of the finale."""
        self.turn(1)

    def action_remedy(self) -> None:
        """Go to the remedy of the pattern."""
        self.go_to(DemoPhase.REMEDY)

    def action_restart(self) -> None:
        """Begin the pattern again with a new engine."""
        self.tour.restart()
        self.mark_changed()

    def action_focus_row(self, rows: int) -> None:
        """Focus the row above or below; turn the pages of the finale."""
        if self.has_class(ENDED):
            self.turn(rows)
        else:
            super().action_focus_row(rows)

    def action_copy(self) -> None:
        """Copy the report of the view, at the end the table of what was found, to the terminal's clipboard."""
        if not self.has_class(ENDED):
            super().action_copy()
            return
        text = io.StringIO()
        demo_text.write_demo(TextWriter(text, width=USUAL_WIDTH), self.tour.result)
        self.copy_report(text.getvalue())


SCREEN = DemoScreen
