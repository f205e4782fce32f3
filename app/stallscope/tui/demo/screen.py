"""The screen of the demo: the monitor, which goes through the patterns by itself."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult

from stallprobes.demo.plan import DemoPhase, steps
from stallprobes.patterns import patterns
from stallprobes.recording.observation import EngineCondition, Observation
from stallscope.report import demo_text
from stallscope.report.text import USUAL_WIDTH, TextWriter
from stallscope.tui import probe_sets
from stallscope.tui.actions import AGGRESSOR_KEYS, Group
from stallscope.tui.common.lines import LineWidget
from stallscope.tui.common.screen import ScreenContext
from stallscope.tui.demo.caption import CAPTION_LINES, DemoCaption, caption
from stallscope.tui.demo.finale import Finale, FinaleView
from stallscope.tui.demo.tour import PAGE_S, DemoTour
from stallscope.tui.monitor.header import Header
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.multiples import Multiples
from stallscope.tui.monitor.probe_table import ProbeTable
from stallscope.tui.monitor.screen import SPANS_S, Monitor
from stallscope.tui.monitor.verdict_log import VerdictLog, VerdictLogView
from stallscope.tui.sources.live import LiveSource
from stallscope.tui.sources.source import ProbeSource

if TYPE_CHECKING:
    from stallprobes.recording.recorder import Recorder

# The class of the screen while the finale is shown, in place of the monitor's panels.
ENDED = "ended"
# Height from which the heat map with the GPU's values fits below the caption, and heights of a compact layout: the log
# has one verdict, without its remedy where there are many victims.
_COMPACT_FROM, _LOG, _LEAST_LOG, _LEAST_HEAT_MAP, _LEAST_HISTOGRAMS = 24, 3, 2, 8, 4


class DemoScreen(Monitor, inherit_bindings=False):
    """The monitor with the course of a demo, which is the tour in its context, by default that of all patterns."""

    NAME = "demo"
    VIEWS = ()

    def __init__(self, context: ScreenContext, source: ProbeSource, recorder: Recorder | None = None) -> None:
        super().__init__(context, source, recorder)
        self.state = replace(self.state, span_s=SPANS_S[0])
        self.tour = context.controller(DemoTour, lambda: DemoTour(steps(patterns().values())))
        # Step, state and pause that are drawn.
        self._shown: tuple[object, ...] = ()

    @property
    def more_keys(self) -> Mapping[Group, tuple[str, str]]:
        """None: the tour switches the probes."""
        return {}

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
        tour.tick(self.clock(), observation, self.analyzer, watched=self.app.screen is self)
        if tour.finished:
            self.app.exit()
            return
        if self.app.screen is self and observation.engine.state is not EngineCondition.STARTING:
            self._run_step(self.live, observation)
        shown = tour.step, tour.state, tour.paused
        if shown != self._shown:
            if tour.step not in self._shown:
                # What the user selected was of another step.
                self.show(self.state.follow_again(None))
            self._shown = shown
            self.set_class(tour.ended, ENDED)
            self.rearrange()
            self.mark_changed()

    def _run_step(self, live: LiveSource, observation: Observation) -> None:
        """Have the engine run the present step, after a confirmation if that disturbs other processes."""
        (present, switches), step, on = live.requested(), self.tour.step, self.tour.aggressors_on
        if not self.tour.ended and not step.is_shown_by(present):
            new = probe_sets.for_variant(observation.probe_set, step.pattern, step.variant)
            wanted = dict.fromkeys(probe_sets.aggressors(new), True) if on else {}
            self.if_sharing_allowed(lambda: live.load(new, wanted), self.tour.end, disturbs=on)
        elif any(switches.get(name, False) is not on for name in probe_sets.aggressors(present)):
            self.if_sharing_allowed(lambda: live.switch_aggressors(on), self.tour.end, disturbs=on)

    def log_view(self, observation: Observation) -> VerdictLogView:
        """The view of the verdict log. The caption says what to expect, and aggressors have no keys."""
        view = super().log_view(observation)
        keys_of = {name: key for name, key in view.keys_of.items() if key not in AGGRESSOR_KEYS}
        guide = replace(view.guide, next_step="")
        return replace(view, expect="", guide=guide, keys_of=keys_of, remedy_key="", blame_key="")

    def show_header(self, observation: Observation) -> None:
        """Draw header, key bar, and caption or finale, whose seconds move."""
        super().show_header(observation)
        tour, finale = self.tour, self.query_one(Finale)
        if self.replayed:
            tour.follow_recorded(observation)
        self.query_one(DemoCaption).view = caption(tour, self.monitor_view, observation, self.replayed)
        note = "PAUSED" if tour.paused else f"{math.ceil(tour.left_s)} s"
        finale.view = FinaleView(tour.result, len(tour.patterns), int(tour.elapsed_s / PAGE_S), note)
        tour.pages = finale.pages

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes; those of the monitor share what the caption leaves."""
        lines = height - CAPTION_LINES
        compact = height >= _COMPACT_FROM
        super().place_panels(width, max(lines, _COMPACT_FROM) if compact else lines)
        if self.has_class(ENDED):
            self.query_one(HeatMap).display = False
        elif self._compact:
            # In a low screen header, log and histogram give the lines of the caption.
            table, usual = (self.query_one(one).styles.height for one in (ProbeTable, Multiples))
            rest = lines - 2 - int(table.value if table else 0)
            log = max(_LEAST_LOG, min(_LOG, rest - _LEAST_HEAT_MAP - _LEAST_HISTOGRAMS))
            above = min(int(usual.value if usual else 0), rest - log - _LEAST_HEAT_MAP)
            heights = {Header: 1, VerdictLog: log, Multiples: above, HeatMap: rest - log - above}
            for panel, of_panel in heights.items():
                self.query_one(panel).styles.height = of_panel

    # Actions.

    @on(LineWidget.Clicked, "DemoCaption")
    def go_to_clicked_phase(self, message: LineWidget.Clicked) -> None:
        """Go to the step that was clicked."""
        self.tour.go_to(message.target)

    @on(LineWidget.Clicked, "Finale")
    def action_demo_page_down(self) -> None:
        """Show the next page of the finale."""
        self.query_one(Finale).turned += 1

    def action_demo_page_up(self) -> None:
        """Show the page of the finale before this one."""
        self.query_one(Finale).turned -= 1

    def action_demo_next(self) -> None:
        """Go to the next step."""
        self.tour.next()

    def action_demo_back(self) -> None:
        """Go to the previous step."""
        self.tour.back()

    def action_demo_pause(self) -> None:
        """Pause or resume the demo. The probes keep running."""
        self.tour.paused = not self.tour.paused

    def action_demo_end(self) -> None:
        """Go to the finale."""
        if not self.tour.ended:
            self.tour.end()

    def action_remedy(self) -> None:
        """Go to the remedy of the pattern."""
        self.tour.go_to(DemoPhase.REMEDY)

    def action_restart(self) -> None:
        """Begin the pattern again with a new engine."""
        super().action_restart()
        self.tour.go_to()

    def action_focus_row(self, rows: int) -> None:
        """Focus the row above or below; in the finale the next or previous page."""
        if self.tour.ended:
            self.query_one(Finale).turned += rows
        else:
            super().action_focus_row(rows)

    def action_copy(self) -> None:
        """Copy the report of the view, at the end the table of what was found, to the terminal's clipboard."""
        if self.tour.ended:
            text = io.StringIO()
            demo_text.write_demo(TextWriter(text, width=USUAL_WIDTH), self.tour.result)
            self.copy_report(text.getvalue())
        else:
            super().action_copy()


SCREEN = DemoScreen
