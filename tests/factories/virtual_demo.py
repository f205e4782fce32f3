"""A demo without a screen: its tour over simulated GPUs in this process, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from factories.virtual_session import VirtualSession
from factories.waiting import LIMIT_S
from stallprobes.demo import DemoStep
from stallprobes.engine.backend import Options, ProbeFailure
from stallprobes.errors import Unsupported
from stallprobes.live.analyzer import Analyzer
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, GpuName, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallscope.tui.demo.tour import DemoTour
from stallscope.tui.probe_sets import aggressors, for_variant
from stallscope.tui.sources.engine_thread import LiveEngine

STEP_S = 0.1
# Longer than any demo of the tests.
_LIMIT_S = 300.0


class VirtualDemo:
    """The stage of ``tour``: its engines are virtual sessions with ``options``.

    ``shown`` is the list of steps as (pattern, variant, aggressors on). ``lost`` ends the engine of that variant,
    ``failing`` makes a probe fail there. The observations are recorded to ``record``.
    """

    def __init__(
        self,
        tour: DemoTour,
        *,
        machine: str = "2",
        lost: str = "",
        failing: str = "",
        record: Path | None = None,
    ) -> None:
        self.tour = tour
        self.shown: list[tuple[str, str, bool]] = []
        self.now_s = 0.0
        self._machine, self._lost, self._failing = machine, lost, failing
        self._set = tour.first_probe_set()
        self._session: VirtualSession | None = None
        self._analyzer: Analyzer | None = None
        self._status = EngineStatus(EngineCondition.STARTING)
        self._recorder = None if record is None else Recorder(record)
        self._start(structs.replace(self._set, backend=SIM), {})

    @property
    def probe_set(self) -> ProbeSet:
        """The probe set that runs."""
        return self._set

    def load(self, step: DemoStep) -> None:
        """Start the session of ``step``."""
        new = for_variant(self._set, step.pattern, step.variant)
        self.shown.append((step.pattern.name, step.variant.name, step.aggressors_on))
        self._start(new, dict.fromkeys(aggressors(new), step.aggressors_on))

    def switch(self, on: bool) -> None:
        """Switch the aggressors."""
        self.shown.append((self._set.pattern, self._set.variant, on))
        self._engine.switches.update(dict.fromkeys(aggressors(self._set), on))

    def _start(self, probe_set: ProbeSet, on: dict[str, bool]) -> None:
        if self._session is not None:
            self._session.stop()
        self._set = structs.replace(probe_set, gpus=(), details=())
        options = Options(profile="h200", sim_set={"machine.gpus": self._machine})
        self._engine = LiveEngine.of(self._set, on)
        self._session, self._analyzer = (
            VirtualSession(probe_set.probes, backend=SIM, options=options),
            Analyzer(self._set),
        )
        try:
            info = self._session.start()
        except Unsupported as error:
            self._status = EngineStatus(EngineCondition.REFUSED, 0.0, error.reason)
            return
        self._set = structs.replace(self._set, gpus=(GpuName(str(info.get("gpu_model"))),))
        self._status = EngineStatus(EngineCondition.READY)
        self._analyzer = Analyzer(self._set)
        self._engine.apply(self._session, held=True, idle=False)

    def run(self, until: Callable[[], bool] | None = None, watched: bool = True) -> None:
        """Let time pass until ``until`` holds, by default until the table is shown."""
        done = until or (lambda: self.tour.ended)
        while not done():
            assert self.now_s < _LIMIT_S
            self.step(watched)

    def step(self, watched: bool = True) -> None:
        """Let a tenth of a second pass."""
        self.now_s += STEP_S
        session, analyzer = self._session, self._analyzer
        failures: tuple[ProbeFailure, ...] = ()
        snapshot = None
        assert session is not None
        assert analyzer is not None
        if self._status.state is EngineCondition.READY:
            if self._set.variant == self._lost:
                self._status = EngineStatus(EngineCondition.LOST, 0.0, "the engine was killed")
            if self._set.variant == self._failing:
                failures = (ProbeFailure(self._set.probes[0].name, "cuLaunchKernel", 700, "illegal address"),)
            self._engine.apply(session, held=analyzer.holds_aggressors, idle=not analyzer.holds_aggressors)
            session.run_for(STEP_S)
            snapshot = session.snapshot()
        observation = Observation(
            wall_s=self.now_s, probe_set=self._set, engine=self._status, snapshot=snapshot, probe_failures=failures
        )
        analyzer.feed(observation)
        if self._recorder is not None:
            self._recorder.put_blocking(observation, analyzer.baselines)
        self.tour.tick(self.now_s, observation, analyzer, watched)
        on = self.tour.step.aggressors_on and not self.tour.ended
        if not self.tour.ended and not self.tour.step.is_shown_by(self._set):
            self.load(self.tour.step)
        elif any(self._engine.switches.get(one, False) is not on for one in aggressors(self._set)):
            self.switch(on)

    def close(self) -> None:
        """End the session, and close the recording."""
        if self._recorder is not None:
            self._recorder.close(LIMIT_S)
        if self._session is not None:
            self._session.stop()
