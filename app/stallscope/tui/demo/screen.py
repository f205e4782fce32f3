"""The screen of the demo: the monitor, which goes through the patterns by itself."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from textual import on
from textual.app import ComposeResult

from stallprobes.demo import DemoPhase
from stallprobes.patterns import patterns
from stallprobes.recording.observation import EngineCondition, Observation
from stallscope.report import demo_text
from stallscope.report.text import USUAL_WIDTH, TextWriter
from stallscope.tui import probe_sets
from stallscope.tui.actions import Group
from stallscope.tui.common.lines import LineWidget, Panel
from stallscope.tui.demo.panels import CAPTION_LINES, DemoCaption, FinaleView, caption, finale_lines
from stallscope.tui.demo.tour import DemoTour
from stallscope.tui.monitor.screen import SPANS_S, Monitor
from stallscope.tui.monitor.verdict_log import VerdictLogView

# Smallest height (lines) for which the demo lays out the monitor's panels. If the demo's caption leaves fewer lines,
# the log and the heat map are made lower than in the layout. Exception: on a screen lower than this height, the panels
# are laid out for the lines that the caption leaves.
_LEAST_LAYOUT = 24
# Heights (lines) of the monitor's panels in its compact layout, for low screens. _LOG: largest height of the log, with
# room for a verdict, its cause and its remedy. _WITHOUT_LISTS: sum of the heights of the header, the histogram, the
# heat map with its time axis, and the key bar.
_LOG, _WITHOUT_LISTS = 3, 1 + 4 + 8 + 1


class DemoScreen(Monitor, inherit_bindings=False):
    """The monitor with the course of a demo: the tour of its context, by default through all patterns."""

    NAME = "demo"
    VIEWS = ()

    @cached_property
    def tour(self) -> DemoTour:
        """The tour of the context, by default through all patterns."""
        return self.context.controller(DemoTour, lambda: DemoTour(patterns().values()))

    @property
    def span_s(self) -> float:
        """The length of the time axis in s, which no key changes."""
        return SPANS_S[0]

    @property
    def more_keys(self) -> Mapping[Group, tuple[str, str]]:
        """None: the tour switches the probes."""
        return {}

    def compose(self) -> ComposeResult:
        """The caption, the panels of the monitor, and the finale."""
        yield DemoCaption(id="caption")
        yield from super().compose()
        yield Panel(finale_lines, FinaleView(), id="finale")

    def tick(self) -> None:
        """Read the observations that are due, let the demo continue, and draw one frame."""
        super().tick()
        live, analyzer, tour, observation = self.live, self.analyzer, self.tour, self.state.observation
        if live is None or live.fatal is not None or observation is None or analyzer is None:
            return
        watched = self.app.screen is self
        tour.tick(self.clock(), observation, analyzer, watched)
        if tour.finished:
            self.app.exit()
        elif watched and observation.engine.state is not EngineCondition.STARTING:
            # The engine runs the present step, after a confirmation if that disturbs other processes.
            (present, switches), step, on = live.requested(), tour.step, tour.step.aggressors_on and not tour.ended
            if not tour.ended and not step.is_shown_by(present):
                new = probe_sets.for_variant(observation.probe_set, step.pattern, step.variant)
                wanted = dict.fromkeys(probe_sets.aggressors(new), on)
                self.if_sharing_allowed(lambda: live.load(new, wanted), tour.end, disturbs=on)
            elif any(switches.get(name, False) is not on for name in probe_sets.aggressors(present)):
                self.if_sharing_allowed(lambda: live.switch_aggressors(on), tour.end, disturbs=on)
        self.set_class(tour.ended, "ended")

    def log_view(self, observation: Observation) -> VerdictLogView:
        """The view of the verdict log: the caption says what to expect, and probes have no keys."""
        view = super().log_view(observation)
        guide = replace(view.guide, next_step="")
        return replace(view, expect="", guide=guide, remedy_key="", blame_key="")

    def show_header(self, observation: Observation) -> None:
        """Draw header, key bar, and caption or finale, whose seconds move."""
        super().show_header(observation)
        tour = self.tour
        if self.replayed:
            tour.follow_recorded(observation)
        self.query_one(DemoCaption).view = caption(tour, observation)
        note = "PAUSED" if tour.paused else f"{math.ceil(tour.left_s)} s"
        passed = tour.elapsed_s / (tour.elapsed_s + tour.left_s)
        self.query_one("#finale", Panel).view = FinaleView(
            tuple(tour.outcomes.values()), len(tour.patterns), passed, note
        )

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes; the monitor's panels share the rest below the caption."""
        lines = height - CAPTION_LINES
        super().place_panels(width, max(lines, _LEAST_LAYOUT) if height >= _LEAST_LAYOUT else lines)
        table, heat_map, log = (self.query_one(f"#{name}").styles for name in ("lists", "heat", "log"))
        if self._compact and table.height is not None:
            log.height, heat_map.height = min(_LOG, lines - _WITHOUT_LISTS - int(table.height.value)), "1fr"

    # Actions.

    @on(LineWidget.Clicked, "DemoCaption")
    def go_to_clicked_phase(self, message: LineWidget.Clicked) -> None:
        """Go to the step that was clicked."""
        self.tour.go_to(message.target)

    def action_demo_step(self, by: int) -> None:
        """Go to the next or the previous step."""
        self.tour.move(by)

    def action_demo_pause(self) -> None:
        """Pause or resume the demo. The probes keep running."""
        self.tour.paused = not self.tour.paused

    def action_demo_end(self) -> None:
        """Go to the finale."""
        self.tour.end()

    def action_remedy(self) -> None:
        """Go to the remedy of the pattern."""
        self.tour.go_to(DemoPhase.REMEDY)

    def action_restart(self) -> None:
        """Begin the pattern again with a new engine."""
        super().action_restart()
        self.tour.go_to()

    def action_copy(self) -> None:
        """Copy the report of the view, at the end the table of what was found, to the terminal's clipboard."""
        if self.tour.ended:
            text = io.StringIO()
            demo_text.write_demo(TextWriter(text, width=USUAL_WIDTH), self.tour.machine, self.tour.outcomes.values())
            self.copy_report(text.getvalue())
        else:
            super().action_copy()


# Class of this module's screen, which the app looks up by this name.
SCREEN = DemoScreen
