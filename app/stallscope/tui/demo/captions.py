"""Captions of the demo: of the steps of a tour, of its end, and of a recording."""

from __future__ import annotations

import math

from stallprobes.demo.plan import DemoStep, recorded_step
from stallprobes.model import Role
from stallprobes.patterns import patterns
from stallprobes.recording.observation import Observation
from stallscope.tui.demo.caption import CaptionView
from stallscope.tui.demo.tour import DemoState, DemoTour

_NOTES = {
    DemoState.STARTING: "the engine starts",
    DemoState.BASELINE: "measuring the baseline",
    DemoState.STOPPED: "no engine answers",
    DemoState.REFUSED: "not possible on this machine",
}


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
