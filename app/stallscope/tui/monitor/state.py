"""State of the monitor, frozen: the newest observation, the focus, and the frozen view."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stallprobes.live.analyzer import Analyzer
from stallprobes.model import Probe
from stallprobes.recording.observation import EngineCondition, Observation, ProbeSet
from stallscope.tui import probe_sets
from stallscope.tui.common.bars import with_utilization
from stallscope.tui.common.screen import MovingState


@dataclass(frozen=True, eq=False)
class MonitorState(MovingState):
    """What the monitor shows: ``observation``, the newest one, and ``focus_name``, the probe in focus.

    ``frozen`` is a copy of the analyzer while the view is paused. ``ready_at`` is when the engine became ready (s since
    1970).
    """

    observation: Observation | None = None
    focus_name: str | None = None
    frozen: Analyzer | None = None
    ready_at: float = 0.0

    @property
    def probe_set(self) -> ProbeSet | None:
        """The current probe set."""
        return None if self.observation is None else self.observation.probe_set

    @property
    def engine_state(self) -> EngineCondition | None:
        """The condition of the engine; None before the first observation."""
        return None if self.observation is None else self.observation.engine.state

    def probe(self, name: str | None) -> Probe | None:
        """The probe called ``name`` of the current set, None where there is none."""
        return None if self.probe_set is None or name is None else self.probe_set.probe(name)

    def observed(self, observation: Observation) -> MonitorState:
        """The state after ``observation``. If the focus is not in its probe set, the first victim gets it."""
        focus, ready_at, utilization = self.focus_name, self.ready_at, self.utilization
        if observation.probe_set is not self.probe_set and observation.probe_set.probe(focus or "") is None:
            focus = probe_sets.first_victim(observation.probe_set)
        before, now = self.engine_state, observation.engine.state
        if before is None or (before != EngineCondition.READY and now == EngineCondition.READY):
            ready_at = observation.wall_s
        if observation.telemetry is not None:
            utilization = with_utilization(utilization, observation.telemetry)
        return replace(self, observation=observation, focus_name=focus, ready_at=ready_at, utilization=utilization)
