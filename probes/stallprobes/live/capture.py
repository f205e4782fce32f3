"""Recording of a probe set without a screen: before, with and after its aggressors, for replay on the screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from msgspec import structs

from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.errors import RecordingError
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.trace_keeper import TraceKeeper
from stallprobes.machine.simulated_telemetry import SimulatedTelemetry
from stallprobes.machine.telemetry import Telemetry, all_fields
from stallprobes.model import Role
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, GpuName, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder

# Time (s) between two observations in a recording without a screen.
STEP_S = 0.1
# Longest time (s) for which a recording without a screen measures the baseline.
_LONGEST_BASELINE_S = 30.0
# Time (s) for which a recording continues after the aggressors are switched off, to show the recovery.
_AFTER_S = 2.0
# Longest wait (s) until the recorder has written everything.
_CLOSE_S = 10.0


@dataclass(frozen=True)
class CaptureResult:
    """Numbers of observations and traces in a recording; ``traces_left_out`` are those beyond the limits."""

    observations: int
    traces: int = 0
    traces_left_out: int = 0


@dataclass(frozen=True)
class CaptureProgress:
    """Progress of a recording: the current step, and how much of its time is over.

    ``left_s`` is the time until the end of the recording, ``share`` the recorded share; None before the baseline is
    there, which takes at most ``at_most_s``.
    """

    text: str
    share: float | None = None
    left_s: float | None = None
    at_most_s: float | None = None


class CaptureSuspension(Protocol):
    """Suspension of the process, at a time that suits a recording."""

    @property
    def requested(self) -> bool:
        """True if the process is to be suspended."""

    def suspend(self) -> None:
        """Stop the process and return once it continues."""


def capture(
    probe_set: ProbeSet,
    path: Path,
    *,
    options: Options,
    seconds: float,
    uuid: str | None = None,
    gpm_counters: bool = True,
    others: tuple[str, ...] = (),
    stop: Callable[[], bool] = lambda: False,
    suspension: CaptureSuspension | None = None,
    progress: Callable[[CaptureProgress], None] = lambda _: None,
) -> CaptureResult:
    """Record ``probe_set`` to ``path``: the baseline, ``seconds`` with all aggressors running, 2 s without.

    ``uuid`` names the GPU whose NVML values are recorded too, with ``gpm_counters`` the GPM counters among them;
    ``others`` are the processes on it as a trace names them. ``stop`` is called every 0.1 s; once it returns True, the
    recording ends there. ``suspension`` is asked as often; while the process is suspended the aggressors are off. With
    ``options.timeline``, it also keeps the trace around each slow call and each new stall verdict (``TraceKeeper``).
    ``progress`` is called at each step, and every 0.1 s once the remaining time is known.

    Raises RecordingError, Unsupported or EngineFailed (NoTimeline is one). Whatever ends it, the file has what was
    measured until then; there is none without an observation.
    """
    recorder = Recorder(path)
    telemetry = keeper = None
    session = Session(probe_set.probes, backend=probe_set.backend, options=options)
    try:
        progress(CaptureProgress("starting the engine"))
        info = session.start()
        if probe_set.backend == SIM:
            facts = (f"profile {info.get('profile')}", f"seed {info.get('seed')}")
            gpu = GpuName(str(info.get("gpu_model", "simulated GPU")))
            probe_set = structs.replace(probe_set, gpus=(gpu,), details=facts)
        if uuid is not None:
            telemetry = Telemetry(uuid, fields=all_fields(gpm_counters))
            telemetry.start()
        if options.timeline:
            session.require_timeline()
            simulated = probe_set.backend == SIM
            keeper = TraceKeeper(probe_set.probes, recorder.put_trace_blocking, others=others, simulated=simulated)
        loop = _CaptureLoop(session, probe_set, recorder, telemetry, keeper, stop, suspension)
        session.set_periods(idle=False)
        session.set_running([probe.name for probe in probe_set.probes if probe.role is not Role.AGGRESSOR])
        progress(CaptureProgress("the baseline", at_most_s=_LONGEST_BASELINE_S))
        loop.run_for(_LONGEST_BASELINE_S, until=lambda _: not loop.analyzer.without_baseline)
        total_s, done_s = seconds + _AFTER_S, 0.0
        for on, phase_s, text in ((True, seconds, "the aggressors run"), (False, _AFTER_S, "without aggressors")):
            if loop.stopped:
                break
            session.set_periods(idle=on)
            loop.switch_aggressors(on)

            def report(passed_s: float, before_s: float = done_s, text: str = text) -> bool:
                over_s = before_s + passed_s
                progress(CaptureProgress(text, over_s / total_s, total_s - over_s))
                return False

            loop.run_for(phase_s, report)
            done_s += phase_s
    finally:
        try:
            if keeper is not None:
                # What led to the end of an engine counts most.
                keeper.finish()
            if telemetry is not None:
                telemetry.stop()
            session.stop()
        finally:
            recorder.close(_CLOSE_S)
    if recorder.problem is not None:
        raise RecordingError(recorder.problem)
    left_out = recorder.traces_dropped + (0 if keeper is None else keeper.passed_over)
    return CaptureResult(recorder.written, recorder.traces, left_out)


@dataclass(eq=False)
class _CaptureLoop:
    """Records an observation every 0.1 s."""

    _session: Session
    _probe_set: ProbeSet
    _recorder: Recorder
    _telemetry: Telemetry | SimulatedTelemetry | None
    _keeper: TraceKeeper | None
    _stop: Callable[[], bool]
    _suspension: CaptureSuspension | None
    _at_ns: int = 0
    _wall_offset_s: float | None = None
    _aggressors_on: bool = False

    def __post_init__(self) -> None:
        self.analyzer = Analyzer(self._probe_set)
        if self._probe_set.backend == SIM:
            self._telemetry = SimulatedTelemetry(self._session.sensors, lambda: self._at_ns)

    @property
    def stopped(self) -> bool:
        """True if the recording ends here: a stop was requested, or writing has failed."""
        return self._recorder.problem is not None or self._stop()

    def switch_aggressors(self, on: bool) -> None:
        """Switch all aggressors on or off."""
        aggressors = [probe.name for probe in self._probe_set.probes if probe.role is Role.AGGRESSOR]
        self._session.set_running(dict.fromkeys(aggressors, on))
        self._aggressors_on = on

    def run_for(self, seconds: float, until: Callable[[float], bool]) -> None:
        """Record for ``seconds``, or until ``until`` returns True, which is called with the seconds that are over."""
        for step in range(round(seconds / STEP_S)):
            if self.stopped:
                return
            if self._suspension is not None and self._suspension.requested:
                self._suspend(self._suspension)
            stops = self._session.stops
            self._session.run_for(STEP_S)
            # What was in flight while a signal had stopped the engine was not stalled.
            self._observe(EngineCondition.READY if self._session.stops == stops else EngineCondition.SILENT)
            if until((step + 1) * STEP_S):
                return

    def _suspend(self, suspension: CaptureSuspension) -> None:
        """Suspend the process with the aggressors off.

        The observations before and after the suspension are without aggressors, so that no verdict covers both.
        """
        on = self._aggressors_on
        self.switch_aggressors(False)
        self._session.run_for(STEP_S)
        self._observe()
        suspension.suspend()
        self._observe()
        self.switch_aggressors(on)

    def _observe(self, condition: EngineCondition = EngineCondition.READY) -> None:
        snapshot = self._session.snapshot()
        self._at_ns = snapshot.at_ns
        if self._wall_offset_s is None:
            self._wall_offset_s = time.time() - snapshot.at_ns / 1e9
        observation = Observation(
            wall_s=snapshot.at_ns / 1e9 + self._wall_offset_s,
            probe_set=self._probe_set,
            engine=EngineStatus(condition),
            snapshot=snapshot,
            telemetry=None if self._telemetry is None else self._telemetry.snapshot(),
            probe_failures=self._session.probe_failures(),
            timeline=self._keeper is not None,
        )
        self.analyzer.feed(observation)
        self._recorder.put_blocking(observation, self.analyzer.baselines)
        if self._keeper is not None:
            rows = self._session.timeline_rows(self._keeper.position)
            self._keeper.feed(rows, observation, self.analyzer)
