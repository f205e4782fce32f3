"""State of the monitor, frozen: the newest observation, the focus, and the frozen view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stallprobes.live.analyzer import Analyzer
from stallprobes.model import Probe, Role
from stallprobes.recording.observation import EngineCondition, Observation, ProbeSet
from stallscope.tui import probe_sets
from stallscope.tui.common.bars import with_utilization
from stallscope.tui.common.screen import MovingState
from stallscope.tui.monitor.following import Following, Weight


@dataclass(frozen=True, eq=False)
class MonitorState(MovingState):
    """State of the monitor: ``observation``, the newest one, and ``focus_name``, the probe in focus.

    ``selected``: the user has selected that probe, and it stays. Otherwise ``following`` chooses a victim. ``frozen``
    is a copy of the analyzer while the view is paused. ``ready_at`` is when the engine became ready (s since 1970).
    ``tried``: an aggressor was switched on since the start. ``span_s`` is the chosen length of the time axis in s, None
    for the length of the settings. ``way_back`` has the probes before
    remedies and patterns, the victim that was shown, and whether the user had selected it.
    """

    observation: Observation | None = None
    focus_name: str | None = None
    selected: bool = False
    following: Following = field(default_factory=Following)
    frozen: Analyzer | None = None
    ready_at: float = 0.0
    tried: bool = False
    span_s: float | None = None
    way_back: tuple[ProbeSet, str | None, bool] | None = None

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

    def select(self, name: str | None) -> MonitorState:
        """The state after the user selected the probe called ``name``."""
        return replace(self, focus_name=name, selected=name is not None)

    def observed(self, observation: Observation) -> MonitorState:
        """The state after ``observation``. A selection ends when its probe is not among the new probes."""
        state = self
        if observation.probe_set is not self.probe_set:
            state = state._with_probes(observation.probe_set)
        ready_at, utilization = self.ready_at, self.utilization
        before, now = self.engine_state, observation.engine.state
        # A silent engine continues its session, so the clock does not restart.
        if before is None or (
            before not in (EngineCondition.READY, EngineCondition.SILENT) and now == EngineCondition.READY
        ):
            ready_at = observation.wall_s
        if observation.telemetry is not None:
            utilization = with_utilization(utilization, observation.telemetry)
        return replace(
            state,
            observation=observation,
            ready_at=ready_at,
            utilization=utilization,
            tried=self.tried or bool(probe_sets.aggressors_on(observation)),
        )

    def _with_probes(self, probe_set: ProbeSet) -> MonitorState:
        if self.way_back is not None and probe_set.probes == self.way_back[0].probes:
            _, name, selected = self.way_back
            return replace(self, way_back=None, following=Following(name=name), focus_name=name, selected=selected)
        victims = tuple(probe.name for probe in probe_set.probes if probe.role is Role.VICTIM)
        state = replace(self, following=self.following.within(victims))
        if self.selected and probe_set.probe(self.focus_name or "") is not None:
            return state
        return replace(state, focus_name=state.following.name or probe_sets.first_victim(probe_set), selected=False)

    def follow(self, stalls: Mapping[str, Weight], now_s: float) -> MonitorState:
        """The state after a judgement: ``stalls`` has the weight of each victim that stalls.

        A frozen view and a selected probe stay; the choice is made all the same.
        """
        following = self.following.after(stalls, now_s)
        if self.selected or self.frozen is not None or following.name is None:
            return replace(self, following=following)
        return replace(self, following=following, focus_name=following.name)

    def follow_again(self, worst: str | None) -> MonitorState:
        """The state without a selected probe: it shows ``worst``, or without it the victim with the latest stall."""
        name = worst or self.following.name
        if name is None and self.probe_set is not None:
            name = probe_sets.first_victim(self.probe_set)
        following = self.following if name == self.following.name else Following(name=worst)
        return replace(self, focus_name=name, selected=False, following=following)
