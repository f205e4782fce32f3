"""The caption of the demo: the steps of the pattern as a bar, what there is to see, and why one should care."""

from __future__ import annotations

import math
from dataclasses import dataclass

from textual.reactive import var

from stallprobes.demo.plan import DemoPhase, DemoStep
from stallprobes.live.view_model import MonitorView
from stallprobes.model import Role
from stallprobes.recording.observation import Observation
from stallprobes.units import duration_ns
from stallscope.report.columns import wrapped
from stallscope.tui.common.lines import Line, LineWidget, cut, length, spread
from stallscope.tui.demo.tour import DemoState, DemoTour

CAPTION_LINES = 3
# Longer lines are hard to read.
_LONGEST_LINE = 120
_LEAST_TITLE = 12


@dataclass(frozen=True)
class CaptionView:
    """The present phase of ``phases`` with the ``title`` before them and a ``note`` at the end of the line; ``texts``
    are alternatives, the longest first."""

    title: str = ""
    phase: DemoPhase = DemoPhase.QUIET
    phases: tuple[DemoPhase, ...] = ()
    note: str = ""
    texts: tuple[str, ...] = ("The engine starts.",)


class DemoCaption(LineWidget):
    """Draws a caption; the target of a click is a phase."""

    view = var(CaptionView())

    def lines(self, width: int, height: int) -> list[Line]:
        """The bar of the steps, and the longest text that fits in two lines."""
        view, note = self.view, f" {self.view.note} "
        bars = [_bar(view, dash) for dash in ("─" * 4, "─")]
        rest = width - len(note) - 4
        title = f"demo {view.title}"
        bar = next((one for one in bars if length(one) + len(title) <= rest), bars[-1])
        left: Line = [(" ", ""), (cut(title, max(_LEAST_TITLE, rest - length(bar))), "strong"), ("  ", "")]
        self.targets = [[]]
        for text, style in bar:
            if text[2:] in view.phases:
                self.targets[0].append((length(left), length(left) + len(text), DemoPhase(text[2:])))
            left.append((text, style))
        room = min(width - 2, _LONGEST_LINE)
        texts = [wrapped(text, room) for text in view.texts]
        first, *more = next((lines for lines in texts if len(lines) < CAPTION_LINES), texts[-1])
        folded: list[Line] = [[(f" {line}", "strong")] for line in (first, cut(" ".join(more), room))]
        return [spread(left, [(note, "accent")], width), *folded]


def _bar(view: CaptionView, dash: str) -> Line:
    """``● quiet ──── ● stall ──── □ remedy``: the present phase is bold, those to come have empty marks."""
    line: Line = []
    order = tuple(DemoPhase)
    for number, phase in enumerate(view.phases):
        done = order.index(phase) <= order.index(view.phase)
        style = "warn" if phase is view.phase else "" if done else "dim"
        line += [(f" {dash} ", "faint")] if number else []
        line.append((f"{'●' if done else '□'} {phase}", style))
    return line


def caption(tour: DemoTour, model: MonitorView | None, observation: Observation, replayed: bool) -> CaptionView:
    """The caption of the present step, with figures of ``model``."""
    step = tour.step
    note = f"{math.ceil(tour.left_s)} s left" if tour.state is DemoState.RUNNING else tour.state.value
    note = "" if replayed else "PAUSED" if tour.paused else note
    title = f"{tour.patterns.index(step.pattern.name) + 1}/{len(tour.patterns)} {step.pattern.name}"
    return CaptionView(title, step.phase, tuple(tour.phases), note, _texts(step, model, observation))


def _texts(step: DemoStep, model: MonitorView | None, observation: Observation) -> tuple[str, ...]:
    """What there is to see, then why one should care; what runs is first where there is room."""
    pattern, variant = step.pattern, step.variant
    if step.phase is DemoPhase.QUIET:
        see, runs, why = _before(step, model), "", f"{pattern.title}."
    elif step.phase is DemoPhase.STALL:
        see, runs, why = variant.expect, variant.title, _utilisation(observation) or _first(pattern.why)
    else:
        see, runs, why = variant.expect, variant.title, _first(pattern.remedy)
    runs = f"{runs[:1].upper()}{runs[1:]}. " if runs else ""
    return f"{runs}{see} {why}", f"{see} {why}", f"{runs}{see}", see


def _before(step: DemoStep, model: MonitorView | None) -> str:
    """The latencies of the victims before the stall."""
    rows = [] if model is None else [row for row in model.rows if row.role is Role.VICTIM and row.p50_ns]
    figures = ", ".join(f"{row.name} {row.phase or ''} {duration_ns(row.p50_ns)}" for row in rows)
    watch = "Watch the lines: at least one is" if len(step.variant.victims) > 1 else "Watch the line: it is"
    return f"{figures}{'. ' if figures else ''}{watch} about to move."


def _utilisation(observation: Observation) -> str:
    """What NVML says meanwhile; "" where it says nothing."""
    percent = observation.telemetry and observation.telemetry["utilisation_percent"].value
    return "" if percent is None else f"Utilisation is {percent} %: it does not say who waits."


def _first(text: str) -> str:
    """The first sentence of ``text``."""
    return f"{text.split('. ')[0].rstrip('.')}."
