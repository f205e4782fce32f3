"""Views of the monitor's panels, made from its state and the view model of the analyzer, and their texts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import MonitorView
from stallprobes.recording.observation import CUDA, EngineCondition, Observation, ProbeSet
from stallscope.tui import probe_sets
from stallscope.tui.common.bars import HeadView
from stallscope.tui.common.histograms import HistogramsView
from stallscope.tui.monitor.guide import guide
from stallscope.tui.monitor.header import head_view
from stallscope.tui.monitor.probe_table import ProbeTableView, probe_keys
from stallscope.tui.monitor.state import MonitorState
from stallscope.tui.monitor.verdict_log import VerdictLogView
from stallscope.tui.probe_sets import gpu_label

if TYPE_CHECKING:
    from stallprobes.recording.recorder import Recorder

# Conditions in which the engine, the process that runs the probes, gives no new values. The probe table then keeps
# the last values and shows these words as the state.
STOPPED_STATES = {EngineCondition.LOST: "engine lost", EngineCondition.SILENT: "silent"}


def header_view(
    state: MonitorState, observation: Observation, model: MonitorView | None, position: str | None
) -> HeadView:
    """The header; ``position`` is the position of a replay, None in a live view."""
    if position is None:
        position = frozen_text(state.frozen_why, observation.engine.state) if state.frozen_why else ""
    return head_view(observation, model, position, observation.wall_s - state.ready_at, state.utilization)


def table_view(
    state: MonitorState, observation: Observation, model: MonitorView | None, keys: Mapping[str, str], *, compact: bool
) -> ProbeTableView:
    """The probe table; ``keys`` are the keys of the actions by name."""
    keys_of, before = probe_keys(observation.probe_set), None
    if model is not None and model.before is not None:
        row = replace(model.before.row, on=True, state=f"before {keys['remedy']}", mark="ghost")
        before = probe_keys(model.before.probe_set)[row.name], row
    return ProbeTableView(model, keys_of, state.focus_name, observation.engine.sentence, compact, before)


def histograms_view(
    state: MonitorState, observation: Observation, model: MonitorView | None, keys: Mapping[str, str]
) -> HistogramsView | None:
    """The histograms of the probe in focus, None without one; ``keys`` are the keys of the actions by name."""
    if model is None or model.focus is None:
        return None
    notes, stalled, before = choice_notes(state, keys), "", model.before
    if before is not None:
        stalled = f"{probe_keys(before.probe_set)[before.row.name]} {before.row.name}, before {keys['remedy']}".strip()
        if before.counterpart is None:
            notes = (before.relation, *notes)
    return HistogramsView(model.focus.row, model.focus.channels, stalled=stalled, notes=notes)


def header_lines(observation: Observation | None) -> int:
    """Lines of the header in a compact layout: one where the heat map shows all that matters of NVML's values."""
    telemetry = None if observation is None else observation.telemetry
    if observation is None or telemetry is None or telemetry.state != "live" or observation.other_processes:
        return 2
    return 1 if observation.engine.state is EngineCondition.READY and not observation.probe_set.why_simulated else 2


def choice_notes(state: MonitorState, keys: Mapping[str, str]) -> tuple[str, ...]:
    """The notes that the probe in focus was selected, and the key that ends the selection, the longest text first; none
    if the focus follows the stall."""
    if not state.selected:
        return ()
    return f"selected · {keys['follow']} shows the worst", "selected"


def log_view(
    state: MonitorState,
    observation: Observation,
    model: MonitorView | None,
    analyzer: Analyzer | None,
    keys: Mapping[str, str],
    *,
    replayed: bool,
) -> VerdictLogView:
    """The verdict log; ``model`` shows ``analyzer``, and ``keys`` are the keys of the actions by name."""
    ready = observation.engine.state is EngineCondition.READY
    advice = guide(state, observation, model, analyzer, keys, replayed=replayed)
    on = probe_sets.aggressors_on(observation)
    has_remedy = not replayed and probe_sets.next_remedy(observation.probe_set, state.probe(state.focus_name), on)
    return VerdictLogView(
        () if model is None else model.log,
        advice,
        _expected(observation.probe_set),
        model.progress if model is not None and ready else (),
        observation.engine.state in STOPPED_STATES,
        probe_keys(observation.probe_set),
        keys["remedy"] if has_remedy else "",
        "" if replayed else keys["blame"],
    )


def _expected(probe_set: ProbeSet) -> str:
    """The expected result of the variant, with its name; "" without a pattern."""
    return f"Expected of {probe_set.variant}: {probe_set.expect}" if probe_set.expect else ""


def engine_obstacle(state: EngineCondition, restart_key: str, pick_key: str) -> str:
    """Why an action that needs the engine has no effect, and the remedy; "" where it has one."""
    return {
        EngineCondition.LOST: f"The engine is lost, so this key has no effect: {restart_key} restarts it.",
        EngineCondition.REFUSED: f"No engine runs, so this key has no effect: {pick_key} selects other probes.",
        EngineCondition.SILENT: "The engine does not answer, so this key has no effect yet.",
    }.get(state, "")


def frozen_text(reason: str, engine_state: EngineCondition) -> str:
    """Reason of a frozen view, and whether the probes run."""
    return f"{reason}, probes keep running" if engine_state == EngineCondition.READY else reason


def warning_text(recorder: Recorder | None, trigger_armed: bool) -> str:
    """Note in the key bar: a problem of the recording, or the armed trigger."""
    if recorder is not None and recorder.problem:
        return recorder.problem
    if recorder is not None and recorder.dropped:
        return f"recording: {recorder.dropped} observations lost, the disk is slow"
    return "freezes on the next stall" if trigger_armed else ""


def report_head(observation: Observation) -> list[str]:
    """First lines of a report: GPU, time and probe set."""
    probe_set = observation.probe_set
    simulated = "SIMULATED " if probe_set.backend != CUDA else ""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(observation.wall_s))
    machine = " · ".join(part for part in (gpu_label(probe_set), *probe_set.details) if part)
    return [f"stallscope · {simulated}{machine} · {when}", f"probes: {probe_set.title}"]
