"""Views of the monitor's panels, made from its state and the view model of the analyzer."""

from __future__ import annotations

from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import MonitorView
from stallprobes.recording.observation import EngineCondition, Observation
from stallscope.tui.monitor import status
from stallscope.tui.monitor.header import HeaderView
from stallscope.tui.monitor.probe_table import ProbeTableView, probe_keys
from stallscope.tui.monitor.state import MonitorState
from stallscope.tui.monitor.verdict_log import VerdictLogView


def header_view(
    state: MonitorState, observation: Observation, model: MonitorView | None, position: str | None
) -> HeaderView:
    """The header; ``position`` is that of a replay, None in a live view."""
    if position is None:
        frozen = state.frozen is not None
        position = status.frozen_text(state.frozen_why, observation.engine.state) if frozen else ""
    return HeaderView(observation, model, position, observation.wall_s - state.ready_at, state.utilization)


def table_view(state: MonitorState, observation: Observation, model: MonitorView | None) -> ProbeTableView:
    """The probe table."""
    return ProbeTableView(model, probe_keys(observation.probe_set), state.focus_name, observation.engine.sentence)


def log_view(
    observation: Observation, model: MonitorView | None, analyzer: Analyzer | None, replayed: bool
) -> VerdictLogView:
    """The verdict log; ``analyzer`` is the one that ``model`` shows."""
    ready = observation.engine.state is EngineCondition.READY
    return VerdictLogView(
        () if model is None else model.log,
        status.empty_log_text(observation, analyzer, replayed=replayed),
        observation.probe_set.expect,
        model.progress if model is not None and ready else (),
        observation.engine.state in status.STOPPED_STATES,
    )
