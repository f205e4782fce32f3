"""Source of observations from a live engine. No method that a screen calls blocks.

Starting and stopping an engine and asking the driver can take seconds or hang. A worker thread runs these jobs one
after the other, and the screen reads the current state.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from stallprobes.engine.backend import Options
from stallprobes.engine.process import SpareEngine
from stallprobes.engine.session import Session
from stallprobes.engine.snapshot import ProbeSnapshot
from stallprobes.errors import EXIT_NO_GPU, EXIT_USAGE, EngineFailed, NoGpu, Unsupported
from stallprobes.machine import gpus
from stallprobes.machine.gpus import Gpu
from stallprobes.machine.simulated_telemetry import SimulatedTelemetry
from stallprobes.model import Probe, Role
from stallprobes.recording.observation import CUDA, SIM, EngineCondition, EngineStatus, GpuName, Observation, ProbeSet
from stallscope.tui import probe_sets
from stallscope.tui.sources.live_timeline import LiveTimeline
from stallscope.tui.sources.selected_gpus import SelectedGpus

SILENT_AFTER_S = 0.5
_CLOSE_S = 0.5


@dataclass(frozen=True)
class EngineRequest:
    """The command line's choice: ``gpu`` by index, UUID or PCI address, or ``sim``, a profile of the simulated GPU.

    With ``together``, victims of different contexts run at the same time instead of in slots. ``first`` are the probes
    at the start, by default those of the monitor.
    """

    gpu: str | None = None
    sim: str | None = None
    seed: int = 1
    sim_set: Mapping[str, str] = field(default_factory=dict)
    allow_shared: bool = False
    together: bool = False
    first: ProbeSet | None = None


@dataclass(frozen=True)
class EngineTarget:
    """Where another engine can run. ``gpu`` are UUIDs separated by commas, None on the simulated GPU."""

    backend: str
    gpu: str | None
    options: Options
    survey: gpus.Survey | None
    label: str = ""
    details: tuple[str, ...] = ()


class IdlePeriods:
    """The periods of ``probes``: of those whose baseline has another one, that at first.

    ``wanted_ns`` has the period of each probe; of one whose baseline has another period, the longer one, also in the
    baseline.
    """

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.wanted_ns = {probe.name: probe.period_ns for probe in probes}
        self._baselines = {one.name: one.baseline_period_ns for one in probes if one.baseline_period_ns is not None}
        self._idle = False

    def switch(self, session: Session, idle: bool) -> None:
        """Give the probes the longer periods, or those of their baselines."""
        if idle is not self._idle:
            self._idle = idle
            self.apply(session)

    def change(self, session: Session, name: str, period_ns: int) -> bool:
        """Change the period of a probe; returns whether it is that of the baseline too."""
        self.wanted_ns[name] = period_ns
        if name in self._baselines:
            self.apply(session)
            return False
        session.set_period(name, period_ns)
        return True

    def apply(self, session: Session) -> None:
        """Set the present periods of the probes whose baselines have other ones."""
        for name, baseline_ns in self._baselines.items():
            session.set_period(name, self.wanted_ns[name] if self._idle else baseline_ns)


class LiveSource:
    """A live engine as a source of observations.

    ``fatal`` is an exit code and a sentence once no engine can be started. With ``sharing_allowed`` aggressors may run
    beside other processes on the GPU. ``timeline`` is that of the engine, to be read; ``switch_timeline`` switches it.
    """

    program = playback = recorded_traces = None

    def __init__(
        self,
        request: EngineRequest,
        *,
        survey: Callable[[], gpus.Survey] | None = None,
        spare: SpareEngine | None = None,
    ) -> None:
        """``survey`` returns this machine's GPUs; ``spare`` is an engine process that is already started."""
        self.engine = self
        self.request = request
        self.sharing_allowed = request.allow_shared
        self.fatal: tuple[int, str] | None = None
        self.timeline = LiveTimeline()
        self._gpus = SelectedGpus(survey or gpus.survey)
        self._spare = spare
        # One tuple, so that no reader combines the board of one probe set with the names of another.
        self._current: tuple[ProbeSet, Session | None] = (ProbeSet("starting", (), SIM if request.sim else CUDA), None)
        self._status = (EngineCondition.STARTING, time.monotonic(), "asking the driver for GPUs")
        # Probes that were switched, by name. The board has the states that the engine got.
        self._switches: dict[str, bool] = {}
        self._periods = IdlePeriods(())
        # Aggressors stay off while the program is suspended, and while a baseline is missing.
        self._suspended = self._held = False
        # The last request for an engine.
        self._wanted: tuple[ProbeSet, dict[str, bool]] | None = None
        # The session in which a blame experiment switches the aggressors.
        self._experiment: Session | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._run_jobs, name="live source", daemon=True)

    # Called by the screen; never blocks.

    def start(self) -> None:
        """Select a GPU and start an engine with the default probes. A second call does nothing."""
        if self._worker.ident is not None:
            return
        self._worker.start()
        self._jobs.put(lambda: self._start(self.request.gpu))

    def observation(self) -> Observation:
        """The current observation."""
        probe_set, session = self._current
        state, since, sentence = self._status
        now = time.monotonic()
        age, snapshot = now - since, None
        if session is not None and state in (EngineCondition.READY, EngineCondition.LOST):
            with contextlib.suppress(RuntimeError):
                snapshot = session.snapshot()
        if state == EngineCondition.READY and session is not None and snapshot is not None:
            silent_s = now - snapshot.engine_heartbeat_ns / 1e9
            if not session.alive:
                state, age, sentence = EngineCondition.LOST, 0.0, "the engine ended"
                self._report_lost(session)
            elif silent_s > SILENT_AFTER_S:
                state, age = EngineCondition.SILENT, silent_s
                sentence = "the engine does not answer: it is stopped, or the machine is overloaded"
        telemetry = self._gpus.telemetry
        if probe_set.backend == SIM:
            telemetry = None if session is None else SimulatedTelemetry(session.sensors).snapshot()
        return Observation(
            wall_s=time.time(),
            probe_set=probe_set,
            engine=EngineStatus(state, age, sentence),
            snapshot=snapshot,
            telemetry=telemetry,
            probe_failures=() if session is None else session.probe_failures(),
            waiting=frozenset(name for name in probe_sets.aggressors(probe_set) if self._held and self.is_on(name)),
            other_processes=self._gpus.other_processes(() if session is None else session.process_ids),
            experiment=session is not None and session is self._experiment,
            timeline=self.timeline.is_on,
        )

    def probe_snapshot(self, probe_set: ProbeSet, name: str) -> ProbeSnapshot | None:
        """The statistics of one probe of ``probe_set`` now; None unless that is the current set and its engine runs."""
        present, session = self._current
        if present is not probe_set or session is None or self._status[0] != EngineCondition.READY:
            return None
        try:
            return session.probe_snapshots([name])[name]
        except (KeyError, RuntimeError):
            return None

    def observations(self) -> list[Observation]:
        """The observations that are due: the current one."""
        return [self.observation()]

    def switch(self, name: str, on: bool) -> None:
        """Switch a probe on or off. An aggressor starts when the baseline is complete."""
        self._switches[name] = on

    def is_on(self, name: str) -> bool:
        """Whether a probe is switched on; an aggressor may still be waiting for the baseline."""
        probe = self._current[0].probe(name)
        return probe is not None and self._switched_on(probe)

    def switch_timeline(self, on: bool) -> None:
        """Switch the timeline on or off, for this engine and those that follow."""
        self.timeline.want(on)
        self._jobs.put(self.timeline.apply)

    def switch_aggressors(self, on: bool) -> None:
        """Switch all aggressors on or off. They start when the baseline is complete."""
        self._switches.update(dict.fromkeys(probe_sets.aggressors(self._current[0]), on))

    def update_engine(self, baseline_missing: bool) -> None:
        """Apply the switches to the engine.

        While ``baseline_missing`` aggressors stay off, and probes whose baseline has another period have that one.
        """
        probe_set, session = self._current
        if session is None or self._status[0] != EngineCondition.READY or session is self._experiment:
            return
        self._held, running = baseline_missing or self._suspended, session.running()
        wanted = {
            probe.name: self._switched_on(probe) and not (self._held and probe.role is Role.AGGRESSOR)
            for probe in probe_set.probes
        }
        changed = {name: on for name, on in wanted.items() if running.get(name) is not on}
        if changed:
            session.set_running(changed)
        self._periods.switch(session, not baseline_missing)

    def suspend(self) -> None:
        """Switch the aggressors off at once, until ``resume``."""
        self._suspended = True
        probe_set, session = self._current
        if session is not None:
            session.set_running(dict.fromkeys(probe_sets.aggressors(probe_set), False))

    def resume(self) -> None:
        """Switch the aggressors on again with the next ``update_engine``."""
        self._suspended = False

    def begin_experiment(self, probe_set: ProbeSet) -> Session | None:
        """The session of ``probe_set``, whose aggressors the caller may switch until ``end_experiment``.

        Meanwhile the switches have no effect. The caller restores the states that it found. None if the engine of that
        probe set does not run.
        """
        present, session = self._current
        if present is not probe_set or session is None or self.observation().engine.state != EngineCondition.READY:
            return None
        self._experiment = session
        return session

    def end_experiment(self) -> None:
        """Apply the switches again."""
        self._experiment = None

    def _switched_on(self, probe: Probe) -> bool:
        return self._switches.get(probe.name, probe.role is not Role.AGGRESSOR)

    def period_ns(self, name: str) -> int | None:
        """The time between the calls of a probe, as last set; of one whose baseline has another period, that after it.

        None for a probe that is not loaded.
        """
        return self._periods.wanted_ns.get(name)

    def set_period(self, name: str, period_ns: int) -> bool:
        """Set it. Returns whether the probe's baseline has this period too, and has to be measured again."""
        session = self._current[1]
        return session is not None and self._periods.change(session, name, period_ns)

    def load(self, probe_set: ProbeSet, switches: Mapping[str, bool]) -> None:
        """Stop the engine and start one for ``probe_set``.

        ``switches`` are probes whose state differs from the default: victims on, aggressors off. Aggressors start when
        the baseline is complete.
        """
        self._wanted = wanted = (probe_set, dict(switches))

        def start() -> None:
            # Only the last of several requests counts: a key that is held would start an engine for each.
            if self._wanted is wanted:
                self._start_engine(*wanted)
            if self._wanted is wanted:
                self._wanted = None

        self._jobs.put(start)

    def requested(self) -> tuple[ProbeSet, dict[str, bool]]:
        """The probe set that runs, or the last one that was requested, and the state of each probe's switch.

        An edit begins with it: several keys may come before the engine of the first one runs.
        """
        probe_set, switches = self._wanted or (self._current[0], self._switches)
        return probe_set, {
            probe.name: switches.get(probe.name, probe.role is not Role.AGGRESSOR) for probe in probe_set.probes
        }

    def restart(self) -> None:
        """Start a new engine for the same probes, with all aggressors off."""
        probe_set = self._current[0]
        if probe_set.probes:
            self.load(replace(probe_set), {})
        else:
            self._jobs.put(lambda: self._start(self.request.gpu))

    def release_gpu(self, count: int = 1) -> Future[EngineTarget]:
        """Stop the engine, so that a check has the GPU to itself. The result is there when the engine has ended;
        ``restart`` starts it again. With ``count`` 2 it includes a second GPU, if no other process computes there."""
        target: Future[EngineTarget] = Future()
        self._jobs.put(lambda: self._release_gpu(target, count))
        return target

    def use_gpu(self, gpu: str) -> None:
        """Move the probes to another GPU."""
        self._jobs.put(lambda: self._start(gpu))

    def disturbed_processes(self) -> tuple[str, ...]:
        """Other processes on the GPU that aggressors would disturb without permission."""
        probe_set, session = self._current
        if self.sharing_allowed or probe_set.backend != CUDA:
            return ()
        return self._gpus.other_processes(() if session is None else session.process_ids)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that CUDA sees; empty before the survey."""
        return self._gpus.visible

    @property
    def engine_pid(self) -> int | None:
        """Process id of the engine, None without one."""
        session = self._current[1]
        return None if session is None else session.engine_pid

    def close(self) -> None:
        """End the engine. Waits at most half a second, and not at all for a silent engine, which is killed."""
        patience_s = _CLOSE_S if self.observation().engine.state != EngineCondition.SILENT else 0.0
        self._gpus.stop()
        self._jobs.put(None)
        if self._worker.ident is not None:
            self._worker.join(patience_s)
        if self._worker.is_alive():
            pid = self.engine_pid
            if pid is not None:
                with contextlib.suppress(OSError):
                    os.kill(pid, 9)

    # Called by the worker thread; may block.

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        session = self._current[1]
        if session is not None:
            session.stop()

    def _set_status(self, state: EngineCondition, sentence: str = "") -> None:
        self._status = (state, time.monotonic(), sentence)

    def _start(self, gpu: str | None) -> None:
        """Select a GPU, and start an engine there."""
        first = self.request.first or ProbeSet("default", probe_sets.default_probes(), CUDA)
        base = self._current[0] if self._current[0].probes else first
        if self.request.sim is not None:
            self._start_engine(_simulated(base, None), {})
            return
        self._set_status(EngineCondition.STARTING, "asking the driver for GPUs")
        try:
            details = self._gpus.select(gpu, probe_sets.gpus_needed(base))
        except NoGpu as error:
            if gpu is not None:
                self.fatal = (EXIT_NO_GPU, str(error))
                return
            self._start_engine(_simulated(base, str(error)), {})
            return
        self._start_engine(replace(base, backend=CUDA, details=details, why_simulated=None), {})

    def _start_engine(self, probe_set: ProbeSet, switches: dict[str, bool]) -> None:
        previous = self._current[1]
        self._set_status(
            EngineCondition.STARTING, "stopping the previous engine" if previous is not None else "starting the engine"
        )
        self.timeline.attach(None)
        if previous is not None:
            previous.stop()
        self._current, self._held = (probe_set, None), False
        self._switches = switches
        self._periods = IdlePeriods(probe_set.probes)
        self._set_status(EngineCondition.STARTING, "creating contexts, streams and buffers")
        if probe_set.backend == CUDA and self._gpus.survey is not None:
            try:
                names = self._gpus.select_more(self._gpus.survey, probe_sets.gpus_needed(probe_set))
            except NoGpu as error:
                self._set_status(EngineCondition.REFUSED, str(error))
                return
            probe_set = replace(probe_set, gpus=names)
            self._current = (probe_set, None)
        session = Session(
            probe_set.probes, backend=probe_set.backend, options=self._options(probe_set), spare=self._spare
        )
        try:
            info = session.start()
        except Unsupported as error:
            self._set_status(EngineCondition.REFUSED, error.reason)
        except EngineFailed as error:
            self._set_status(EngineCondition.LOST, error.sentence)
            if error.exit_code == EXIT_USAGE:
                # A name on the command line is wrong (a profile), which no key can repair.
                self.fatal = (error.exit_code, error.sentence)
        else:
            self._gpus.own_processes.add(session.process_ids)
            # Victims start here and not at the screen's next update.
            self._periods.apply(session)
            victims = (probe for probe in probe_set.probes if probe.role is not Role.AGGRESSOR)
            session.set_running(probe.name for probe in victims if self._switched_on(probe))
            self._current = (_with_simulated_details(probe_set, info), session)
            self._set_status(EngineCondition.READY)
            self.timeline.attach(session)
        if self._spare is not None:
            # Unused where it was started for another backend.
            self._spare.close()
            self._spare = None

    def _release_gpu(self, target: Future[EngineTarget], count: int) -> None:
        probe_set, session = self._current
        self._set_status(EngineCondition.STARTING, "the check has the GPU to itself")
        self.timeline.attach(None)
        if session is not None:
            session.stop()
        self._current, self._held = (probe_set, None), False
        self._switches = {}
        options, survey = replace(self._options(probe_set), paced=False), None
        if probe_set.backend == CUDA:
            options = replace(options, gpu=self._gpus.cuda_uuids(count, self.sharing_allowed))
            survey = self._gpus.survey
        label = probe_set.gpus[0].label if probe_set.gpus else ""
        target.set_result(EngineTarget(probe_set.backend, options.gpu, options, survey, label, probe_set.details))

    def _options(self, probe_set: ProbeSet) -> Options:
        if probe_set.backend == SIM:
            request = self.request
            simulated = Options(profile=request.sim, seed=request.seed, sim_set=request.sim_set, paced=True)
            return replace(simulated, together=request.together)
        return Options(gpu=self._gpus.cuda_uuids(), together=self.request.together)

    def _report_lost(self, session: Session) -> None:
        self._set_status(EngineCondition.LOST, "the engine ended")
        # Reading the reason can take a moment.
        self._jobs.put(lambda: self._read_failure(session))

    def _read_failure(self, session: Session) -> None:
        failure = session.failure()
        # The board stays readable; only the process is cleaned up.
        session.stop()
        if session is self._current[1] and failure is not None:
            self._set_status(EngineCondition.LOST, failure.sentence)


def _with_simulated_details(probe_set: ProbeSet, info: Mapping[str, object]) -> ProbeSet:
    """``probe_set`` with model, profile and seed from the simulated engine's ``info``; unchanged for CUDA."""
    if probe_set.backend != SIM:
        return probe_set
    details = (f"profile {info.get('profile')}", f"seed {info.get('seed')}")
    # Without the word SIMULATED, which the screen shows itself.
    model = str(info.get("gpu_model", "simulated GPU"))
    return replace(probe_set, gpus=(GpuName(model),) * probe_sets.gpus_needed(probe_set), details=details)


def _simulated(probe_set: ProbeSet, why: str | None) -> ProbeSet:
    return replace(probe_set, backend=SIM, gpus=(GpuName("simulated GPU"),), details=(), why_simulated=why)
