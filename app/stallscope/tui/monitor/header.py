"""The header: GPU, state and age of the baseline; then NVML's values."""

from __future__ import annotations

import math

from stallprobes.live.view_model import MonitorView
from stallprobes.recording.observation import SIM, EngineCondition, Observation
from stallscope.tui.common.bars import HeadView, clock, nvml_line
from stallscope.tui.common.lines import Line
from stallscope.tui.probe_sets import gpu_label, gpus_needed

# Time (s) for which the header says why the GPU is simulated. The time begins when the engine (the process that runs
# the probes) is ready. After this time, the header shows the simulated GPU's NVML values.
WHY_SIMULATED_S = 60.0


# Header before the first observation.
STARTING = HeadView([(1, [("starting", "warn")])])


def head_view(
    observation: Observation,
    model: MonitorView | None,
    position: str = "",
    live_s: float = 0.0,
    utilization: tuple[int, ...] = (),
) -> HeadView:
    """The header; ``position`` is the position of a replay, or the reason of a frozen view, "" without either.

    ``live_s`` is the time since the engine became ready; ``utilization`` are the GPU's last figures in percent.
    """
    probe_set = observation.probe_set
    left: list[tuple[int, Line]] = [(0, [(" SIMULATED ", "notice")])] if probe_set.backend == SIM else []
    gpus = gpu_label(probe_set)
    left.append((2, [(f" {gpus}", "")] if gpus else []))
    left += [(4 + number, [(f" · {detail}", "")]) for number, detail in enumerate(probe_set.details)]
    right = _state(observation, model, position, live_s)
    return HeadView(left, right, lambda width, _: [_nvml(observation, live_s, utilization, width)])


def _state(observation: Observation, model: MonitorView | None, position: str, live_s: float) -> list[tuple[int, Line]]:
    """The parts at the right end with their ranks; engine state and view have the first ones."""
    engine = observation.engine
    parts: list[tuple[int, Line]] = []
    if engine.state == EngineCondition.LOST:
        parts += [(0, [(" ENGINE LOST ", "alarm")]), (3, [(" R restarts", "dim")])]
    elif engine.state == EngineCondition.REFUSED:
        parts.append((0, [(" NOT POSSIBLE HERE ", "notice")]))
    elif engine.state == EngineCondition.SILENT:
        parts.append((0, [(f" ENGINE SILENT {engine.age_s:.1f} s ", "alarm")]))
    elif engine.state == EngineCondition.STARTING:
        parts.append((0, [(f"starting {engine.age_s:.1f} s", "warn")]))
    elif not position:
        parts += [(0, [("● live", "good")]), (9, [(f" {clock(live_s)}", "dim")])]
    if position:
        parts.append((1, [(" ", ""), (f" {position} ", "notice")]))
    if engine.state == EngineCondition.READY and model is not None:
        parts.append((3, _baseline(model)))
    return parts


def _nvml(observation: Observation, live_s: float, utilization: tuple[int, ...], width: int) -> Line:
    """NVML's values, or why there are none."""
    engine, probe_set = observation.engine, observation.probe_set
    if engine.sentence and engine.state != EngineCondition.READY:
        return [(f" {engine.sentence}", "warn" if engine.state == EngineCondition.STARTING else "bad")]
    why = probe_set.why_simulated
    if observation.telemetry is None or (why and live_s < WHY_SIMULATED_S):
        return [(f" no usable GPU: {why}" if why else " NVML n/a: the GPU is simulated", "dim")]
    name = "GPU" if gpus_needed(probe_set) == 1 else "first GPU"
    if probe_set.backend == SIM:
        name = f"simulated {name}"
    return nvml_line(observation.telemetry, observation.other_processes, utilization, width, name)


def _baseline(monitor_view: MonitorView) -> Line:
    seconds = monitor_view.baseline_age_s
    if seconds is not None:
        age = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return [(f"  baseline {age} old", "dim")]
    if monitor_view.baseline_left_s is None:
        return [("  no baseline", "warn")]
    return [(f"  measuring baseline, {max(1, math.ceil(monitor_view.baseline_left_s))} s", "warn")]
