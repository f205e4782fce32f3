"""The screen of the demo: the monitor, which goes through the patterns by itself."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from stallprobes.demo import plan
from stallprobes.demo.plan import DemoStep
from stallprobes.patterns import patterns
from stallprobes.recording.observation import EngineCondition, Observation
from stallscope.report import demo_text
from stallscope.report.text import TextWriter
from stallscope.tui import probe_sets
from stallscope.tui.common.printable_text import PrintableStatic, PrintableText
from stallscope.tui.common.screen import ScreenContext
from stallscope.tui.demo.caption import DemoCaption, caption_height, recorded_caption, tour_caption
from stallscope.tui.demo.tour import DemoTour
from stallscope.tui.monitor.guide import Guide
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.monitor.verdict_log import VerdictLogView
from stallscope.tui.sources.source import ProbeSource

if TYPE_CHECKING:
    from stallprobes.recording.recorder import Recorder

SECONDS = 8.0
# Columns beside the table at the end: its scroll bar and a margin.
_BESIDE_TABLE = 4
# The class of the screen while the table is shown, in place of the monitor's panels.
ENDED = "ended"
_MEASURING = "Measuring the baseline…"
_EMPTY_LOG = "No stall: every victim is as fast as its baseline."


class DemoScreen(Monitor, inherit_bindings=False):
    """The monitor with the course of a demo, which is the tour in its context, by default that of all patterns."""

    NAME = "demo"
    VIEWS = ()
    BINDINGS = Monitor.PROBE_BINDINGS

    def __init__(self, context: ScreenContext, source: ProbeSource, recorder: Recorder | None = None) -> None:
        super().__init__(context, source, recorder)
        self.tour = context.controller(DemoTour, lambda: DemoTour(plan.plans(patterns().values()), SECONDS))
        # The step in which the panels follow the stall, until the user selects a probe.
        self._followed_step: DemoStep | None = None

    def compose(self) -> ComposeResult:
        """The panels of the monitor, the caption, and the table at the end."""
        yield from super().compose()
        yield DemoCaption(id="caption")
        with VerticalScroll(id="results", can_focus=False):
            yield PrintableStatic(id="results-text")

    def tick(self) -> None:
        """Read the observations that are due, let the demo continue, and draw one frame."""
        super().tick()
        if self.live is None or self.state.observation is None or self.live.fatal is not None:
            return
        before = self.tour.step, self.tour.state
        self.tour.tick(self.clock(), self.state.observation, self.analyzer, watched=self.app.screen is self)
        order = self.tour.take_order()
        if order is not None:
            self._follow(*order)
        if self.tour.finished:
            self.app.exit()
            return
        if (self.tour.step, self.tour.state) != before:
            self.mark_changed()
        if self.tour.ended is not self.has_class(ENDED):
            self.set_class(self.tour.ended, ENDED)
            self.rearrange()
            self.mark_changed()
        if self.tour.step is not self._followed_step:
            # What the user selected was of another step.
            self._followed_step = self.tour.step
            self.show(self.state.follow_again(None))

    def log_view(self, observation: Observation) -> VerdictLogView:
        """The view of the verdict log. The caption says what to expect, and which keys there are."""
        view = super().log_view(observation)
        view = replace(view, expect="", guide=replace(view.guide, next_step=""))
        if observation.engine.state is not EngineCondition.READY or self.analyzer is None:
            return view
        if self.analyzer.without_baseline:
            return replace(view, guide=Guide(_MEASURING))
        return replace(view, guide=Guide(_EMPTY_LOG)) if self.analyzer.worst is None else view

    def show_header(self, observation: Observation) -> None:
        """Draw header, key bar and caption, whose seconds move."""
        super().show_header(observation)
        view = recorded_caption(observation) if self.replayed else tour_caption(self.tour)
        if view is not None:
            self.query_one(DemoCaption).view = view

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes; those of the monitor share what the caption leaves. The table has its own width."""
        lines = caption_height(width)
        self.query_one(DemoCaption).styles.height = lines
        super().place_panels(width, height - lines)
        if self.has_class(ENDED):
            self.query_one(HeatMap).display = False
            text = io.StringIO()
            demo_text.write_demo(TextWriter(text, width=self.size.width - _BESIDE_TABLE), self.tour.result)
            self.query_one("#results-text", PrintableStatic).show(PrintableText(text.getvalue()))

    def _follow(self, step: DemoStep | None, on: bool) -> None:
        """Load ``step``, or keep the present engine, with the aggressors on or off."""
        live, base = self.live, self.state.probe_set
        if live is None or base is None:
            return
        if step is None:
            self.if_sharing_allowed(lambda: live.switch_aggressors(on), self.tour.end, disturbs=on)
            return
        new = probe_sets.for_variant(base, step.pattern, step.variant)
        switches = dict.fromkeys(probe_sets.aggressors(new), True) if on else {}
        self.if_sharing_allowed(lambda: live.load(new, switches), self.tour.end, disturbs=bool(switches))

    # Actions.

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
        """Go to the table at the end."""
        if not self.tour.ended:
            self.tour.end()
            self.mark_changed()

    def action_remedy(self) -> None:
        """Go to the remedy of the pattern."""
        self.tour.go_to_remedy()
        self.mark_changed()

    def action_restart(self) -> None:
        """Begin the pattern again with a new engine."""
        self.tour.restart()
        self.mark_changed()

    def action_focus_row(self, rows: int) -> None:
        """Focus the row above or below; scroll the table at the end."""
        if self.has_class(ENDED):
            self.query_one("#results").scroll_relative(y=rows, animate=False)
        else:
            super().action_focus_row(rows)


SCREEN = DemoScreen
