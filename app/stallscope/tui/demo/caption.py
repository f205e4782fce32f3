"""The caption of the demo: the pattern with its position, what runs, and what to look at."""

from __future__ import annotations

import math
from dataclasses import dataclass

from textual.reactive import var

from stallprobes.demo.plan import DemoStep, recorded_step
from stallprobes.model import Role
from stallprobes.patterns import patterns
from stallprobes.recording.observation import Observation
from stallscope.report.columns import wrapped
from stallscope.tui.common.lines import Line, LineWidget, cut, rule
from stallscope.tui.demo.tour import DemoState, DemoTour

# From this width on, the longest text fits in one line.
_WIDE = 160
# Columns of a heading beside its title and its note.
_BESIDE_TITLE = 9
_NOTES = {
    DemoState.STARTING: "the engine starts",
    DemoState.BASELINE: "measuring the baseline",
    DemoState.STOPPED: "no engine answers",
    DemoState.REFUSED: "not possible on this machine",
}


@dataclass(frozen=True)
class CaptionView:
    """``title`` with ``note`` at its end, then ``runs``, what runs, and ``look``, what to look at."""

    title: str = ""
    note: str = ""
    runs: str = ""
    look: str = ""


class DemoCaption(LineWidget):
    """Draws a caption."""

    view = var(CaptionView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Three lines; four where the terminal is narrow."""
        view, room = self.view, max(20, width - 2)
        out: list[Line] = [
            # The title is cut so that the note fits.
            rule(cut(view.title, max(10, width - len(view.note) - _BESIDE_TITLE)), width, view.note),
            [(f" {cut(view.runs, room)}", "strong")],
        ]
        looks = wrapped(view.look, room)
        most = max(1, height - 2)
        if len(looks) > most:
            looks = [*looks[: most - 1], cut(" ".join(looks[most - 1 :]), room)]
        return [*out, *([(f" {text}", "accent")] for text in looks)][:height]


def caption_height(width: int) -> int:
    """Number of lines of the caption in a terminal of ``width`` columns."""
    return 3 if width >= _WIDE else 4


def tour_caption(tour: DemoTour) -> CaptionView:
    """The caption of the present step, or of the table at the end."""
    left_s = math.ceil(tour.left_s)
    if not tour.ended:
        position = f"{tour.number}/{len(tour.plans)} {tour.step.pattern.name}"
        return _step(tour.step, position, "PAUSED" if tour.paused else _NOTES.get(tour.state, f"{left_s} s left"))
    title, what = "the demo has ended", "The program ends, and prints this table,"
    if tour.loop:
        title, what = "the end of a round", "It starts again"
    look = "The table stays." if tour.paused else f"{what} in {left_s} s."
    return CaptionView(
        title, "PAUSED" if tour.paused else "", "What was found here, beside what the reporters found", look
    )


def recorded_caption(observation: Observation) -> CaptionView | None:
    """The caption of the step that a recording of a demo shows; None in a recording of something else."""
    probe_set, snapshot = observation.probe_set, observation.snapshot
    pattern = patterns().get(probe_set.pattern)
    if pattern is None:
        return None
    aggressors = [probe.name for probe in probe_set.probes if probe.role is Role.AGGRESSOR]
    step = recorded_step(probe_set, pattern, snapshot is not None and any(snapshot.probes[n].on for n in aggressors))
    return None if step is None else _step(step, step.pattern.name, "")


def _step(step: DemoStep, position: str, note: str) -> CaptionView:
    return CaptionView(f"{position}: {step.pattern.title}", note, step.runs, step.look)
