"""The panels of the demo: those of the monitor, with the caption above the keys and a table at the end."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

from stallprobes.demo.plan import DemoStep, recorded_step
from stallprobes.model import Role
from stallprobes.patterns import patterns
from stallprobes.recording.observation import EngineCondition, Observation
from stallscope.report import demo_text
from stallscope.report.text import TextWriter
from stallscope.tui.common.printable_text import PrintableStatic, PrintableText
from stallscope.tui.demo.caption import DemoCaption, caption_height
from stallscope.tui.demo.tour import DemoState
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.panels import MonitorPanels
from stallscope.tui.monitor.verdict_log import VerdictLog

if TYPE_CHECKING:
    from stallscope.tui.demo.screen import DemoScreen

_NOTES = {
    DemoState.STARTING: "the engine starts",
    DemoState.BASELINE: "measuring the baseline",
    DemoState.STOPPED: "no engine answers",
    DemoState.REFUSED: "not possible on this machine",
}
# The class of the screen while the table is shown, in place of the monitor's panels.
ENDED = "ended"
_MEASURING = "Measuring the baseline…"
_EMPTY_LOG = "No stall: every victim is as fast as its baseline."


class DemoPanels(MonitorPanels):
    """The panels of ``screen``."""

    def __init__(self, screen: DemoScreen) -> None:
        super().__init__(screen)
        self._demo = screen

    def update(self, observation: Observation) -> None:
        """Give all panels what they draw. The caption says what to expect, and which keys there are."""
        super().update(observation)
        log = self._demo.query_one(VerdictLog)
        log.expect = ""
        analyzer = self._demo.analyzer
        if observation.engine.state is EngineCondition.READY and analyzer is not None:
            if analyzer.without_baseline:
                log.empty = _MEASURING
            elif analyzer.worst is None:
                log.empty = _EMPTY_LOG

    def update_header(self, observation: Observation) -> None:
        """Give header, key bar and caption what they draw, and draw the caption, whose seconds move."""
        super().update_header(observation)
        self._update_caption(observation)
        self.redraw(DemoCaption)

    def _update_caption(self, observation: Observation) -> None:
        if self._demo.replayed:
            step = self._recorded_step(observation)
            if step is not None:
                self._show(step, step.pattern.name, "")
            return
        tour = self._demo.tour
        if tour.ended:
            self._show_end()
            return
        position = f"{tour.number}/{len(tour.plans)} {tour.step.pattern.name}"
        left = f"{math.ceil(tour.left_s)} s left"
        self._show(tour.step, position, "PAUSED" if tour.paused else _NOTES.get(tour.state, left))

    def _show(self, step: DemoStep, position: str, note: str) -> None:
        caption = self._demo.query_one(DemoCaption)
        caption.title, caption.note = f"{position}: {step.pattern.title}", note
        caption.runs, caption.look = step.runs, step.look

    def _show_end(self) -> None:
        tour, caption = self._demo.tour, self._demo.query_one(DemoCaption)
        left_s = math.ceil(tour.left_s)
        caption.title, caption.note = "the demo has ended", "PAUSED" if tour.paused else ""
        if tour.loop:
            caption.title, what = "the end of a round", "It starts again"
        else:
            what = "The program ends, and prints this table,"
        caption.runs = "What was found here, beside what the reporters found"
        caption.look = "The table stays." if tour.paused else f"{what} in {left_s} s."

    def write_results(self, width: int) -> None:
        """Fill the table at the end, for ``width`` columns."""
        text = io.StringIO()
        demo_text.write_demo(TextWriter(text, width=width), self._demo.tour.result)
        self._demo.query_one("#results-text", PrintableStatic).show(PrintableText(text.getvalue()))

    def _recorded_step(self, observation: Observation) -> DemoStep | None:
        """The step that a recording of a demo shows; None in a recording of something else."""
        probe_set, snapshot = observation.probe_set, observation.snapshot
        pattern = patterns().get(probe_set.pattern)
        if pattern is None:
            return None
        aggressors = [probe.name for probe in probe_set.probes if probe.role is Role.AGGRESSOR]
        on = snapshot is not None and any(snapshot.probes[name].on for name in aggressors)
        return recorded_step(probe_set, pattern, on)

    def place(self, width: int, height: int) -> None:
        """Set the panels' sizes; those of the monitor share what the caption leaves."""
        lines = caption_height(width)
        self._demo.query_one(DemoCaption).styles.height = lines
        super().place(width, height - lines)
        if self._demo.has_class(ENDED):
            self._demo.query_one(HeatMap).display = False
