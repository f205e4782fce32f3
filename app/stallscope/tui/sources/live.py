"""Source of observations from a live engine. No method blocks.

What can block is executed by the engine's thread, one job after the other; the screen reads what that has published.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from msgspec import structs

from stallprobes.engine.backend import Options
from stallprobes.engine.process import SpareEngine
from stallprobes.engine.session import Session
from stallprobes.engine.snapshot import ProbeSnapshot
from stallprobes.machine import gpus
from stallprobes.machine.simulated_telemetry import SimulatedTelemetry
from stallprobes.recording.observation import CUDA, SIM, EngineCondition, EngineStatus, Observation, ProbeSet
from stallscope.tui import probe_sets
from stallscope.tui.sources.engine_thread import ENDED, EngineTarget, EngineThread, LiveEngine
from stallscope.tui.sources.live_timeline import LiveTimeline
from stallscope.tui.sources.selected_gpus import SelectedGpus

# Time (s) without an answer from the engine (the process that runs the probes) after which the screen calls the engine
# silent.
SILENT_AFTER_S = 0.5
# Longest wait (s) for the end of the thread that controls the engine (the process that runs the probes), when the
# screen closes. After this wait, the screen kills the engine and waits once more. The screen kills a silent or starting
# engine without the first wait.
_CLOSE_S = 0.5


class LiveSource:
    """A live engine as a source of observations; the screen's thread calls all of it.

    ``options`` are those of its engines; their ``profile`` is None for a real GPU. With ``sharing_allowed`` aggressors
    may run beside other processes on the GPU. ``timeline`` is the engine's.
    """

    program = playback = recorded_traces = None
    report_s = 0.0

    def __init__(
        self,
        options: Options,
        *,
        first: ProbeSet | None = None,
        sharing_allowed: bool = False,
        gpm_counters: bool = True,
        survey: Callable[[], gpus.Survey] | None = None,
        spare: SpareEngine | None = None,
    ) -> None:
        """``first`` are the probes at the start, None for the monitor's. With ``gpm_counters``, NVML's are read.

        ``survey`` returns this machine's GPUs; ``spare`` is an engine process that is already started.
        """
        self.engine = self
        self.options = options
        self.sharing_allowed = sharing_allowed
        self._thread = EngineThread(options, first, SelectedGpus(survey or gpus.survey, gpm_counters), spare)
        self.timeline = LiveTimeline()
        # The last request for an engine; it is done when that was started.
        self._requested: tuple[Future[None], LiveEngine] | None = None
        # Aggressors stay off while the program is suspended, and in this session, while a baseline is missing.
        self._suspended = False
        self._held: Session | None = None
        # The session in which a blame experiment switches the aggressors.
        self._experiment: Session | None = None

    def start(self) -> None:
        """Select a GPU and start an engine with the default probes. A second call does nothing."""
        if self._thread.ident is None:
            self._thread.start()
            self._thread.submit(lambda: self._thread.select_gpu(self.options.gpu))

    @property
    def fatal(self) -> tuple[int, str] | None:
        """An exit code and a sentence once no engine can be started."""
        return self._thread.fatal

    def observation(self) -> Observation:
        """The current observation."""
        engine, now = self._thread.engine, time.monotonic()
        probe_set, session, snapshot = engine.probe_set, engine.session, None
        status = EngineStatus(engine.condition, now - engine.since_s, engine.sentence)
        if session is not None and engine.condition is not EngineCondition.STARTING:
            with contextlib.suppress(RuntimeError):
                snapshot = session.snapshot()
        if engine.condition is EngineCondition.READY and session is not None and snapshot is not None:
            silent_s = now - snapshot.engine_heartbeat_ns / 1e9
            if not session.alive:
                status = EngineStatus(EngineCondition.LOST, 0.0, ENDED)
                self._thread.submit(lambda: self._thread.report_end(session))
            elif silent_s > SILENT_AFTER_S:
                sentence = "the engine does not answer: it is stopped, or the machine is overloaded"
                status = EngineStatus(EngineCondition.SILENT, silent_s, sentence)
        telemetry = self._thread.gpus.telemetry
        if probe_set.backend == SIM:
            telemetry = None if session is None else SimulatedTelemetry(session.sensors).snapshot()
        held = session is not None and session is self._held
        return Observation(
            wall_s=time.time(),
            probe_set=probe_set,
            engine=status,
            snapshot=snapshot,
            telemetry=telemetry,
            probe_failures=() if session is None else session.probe_failures(),
            waiting=frozenset(name for name in probe_sets.aggressors(probe_set) if held and engine.switches[name]),
            other_processes=self._thread.gpus.other_processes(() if session is None else session.process_ids),
            experiment=session is not None and session is self._experiment,
            timeline=self.timeline.is_on,
        )

    def probe_snapshot(self, probe_set: ProbeSet, name: str) -> ProbeSnapshot | None:
        """The statistics of one probe of ``probe_set`` now; None unless that is the current set and its engine runs."""
        engine = self._thread.engine
        session = engine.ready_session if engine.probe_set is probe_set else None
        with contextlib.suppress(KeyError, RuntimeError):
            return None if session is None else session.probe_snapshots([name])[name]
        return None

    def observations(self) -> list[Observation]:
        """The observations that are due: the current one."""
        return [self.observation()]

    # Switches and periods of the probes.

    def switch(self, name: str, on: bool) -> None:
        """Switch a probe on or off. An aggressor starts when the baseline is complete."""
        self._thread.engine.switches[name] = on

    def is_on(self, name: str) -> bool:
        """True if a probe is switched on; an aggressor may still be waiting for the baseline."""
        return self._thread.engine.switches.get(name, False)

    def switch_aggressors(self, on: bool) -> None:
        """Switch all aggressors on or off. They start when the baseline is complete."""
        engine = self._thread.engine
        engine.switches.update(dict.fromkeys(probe_sets.aggressors(engine.probe_set), on))

    def update_engine(self, baseline_missing: bool) -> None:
        """Apply the switches to the engine, with the switch of the timeline.

        While ``baseline_missing``, aggressors stay off, and a probe with another period of its baseline has this
        period.
        """
        engine = self._thread.engine
        session = engine.ready_session
        self.timeline.follow(session)
        if session is None or session is self._experiment:
            return
        held = baseline_missing or self._suspended
        self._held = session if held else None
        engine.apply(session, held=held, idle=not baseline_missing)

    def suspend(self) -> None:
        """Switch the aggressors off at once, until ``resume``."""
        self._suspended = True
        engine = self._thread.engine
        if engine.session is not None:
            engine.session.set_running(dict.fromkeys(probe_sets.aggressors(engine.probe_set), False))

    def resume(self) -> None:
        """Switch the aggressors on again with the next ``update_engine``."""
        self._suspended = False

    def begin_experiment(self, probe_set: ProbeSet) -> Session | None:
        """The session of ``probe_set``, whose aggressors the caller may switch until ``end_experiment``.

        Meanwhile the switches have no effect. The caller restores the states that it found. None if no engine runs
        ``probe_set``.
        """
        engine = self._thread.engine
        if engine.probe_set is probe_set and self.observation().engine.state is EngineCondition.READY:
            self._experiment = engine.session
        return self._experiment

    def end_experiment(self) -> None:
        """Apply the switches again."""
        self._experiment = None

    def period_ns(self, name: str) -> int | None:
        """The time between the calls of a probe, as last set; with another period of its baseline, the period
        afterwards.

        None for a probe that is not loaded.
        """
        return self._thread.engine.periods_ns.get(name)

    def set_period(self, name: str, period_ns: int) -> bool:
        """Set it. Returns whether the probe's baseline has this period too, and has to be measured again."""
        engine = self._thread.engine
        probe = engine.probe_set.probe(name)
        if engine.session is None or probe is None:
            return False
        engine.periods_ns[name] = period_ns
        if probe.baseline_period_ns is None:
            engine.session.set_period(name, period_ns)
        return probe.baseline_period_ns is None

    # Engines.

    def load(self, probe_set: ProbeSet, switches: Mapping[str, bool]) -> None:
        """Stop the engine and start one for ``probe_set``.

        ``switches`` are probes whose state differs from the default: victims on, aggressors off. Aggressors start when
        the baseline is complete.
        """
        if self._requested is not None:
            # Only the last of several requests counts: a key that is held would start an engine for each.
            self._requested[0].cancel()
        engine = LiveEngine.of(probe_set, switches)
        self._requested = self._thread.submit(lambda: self._thread.start_engine(engine)), engine

    def requested(self) -> tuple[ProbeSet, dict[str, bool]]:
        """The probe set that is being loaded, else the loaded one, and the state of each probe's switch.

        An edit begins with it: several keys may come before the engine of the first one runs.
        """
        waits = self._requested is not None and not self._requested[0].done()
        engine = self._requested[1] if self._requested is not None and waits else self._thread.engine
        return engine.probe_set, dict(engine.switches)

    def restart(self) -> None:
        """Start a new engine for the same probes, with all aggressors off."""
        probe_set = self._thread.engine.probe_set
        if probe_set.probes:
            self.load(structs.replace(probe_set), {})
        else:
            self.use_gpu(self.options.gpu)

    def release_gpu(self, count: int = 1) -> Future[EngineTarget]:
        """Stop the engine, so that a check has the GPU to itself. The result is there when the engine has ended;
        ``restart`` starts it again. With ``count`` 2 it includes a second GPU, if no other process computes there."""
        return self._thread.submit(lambda: self._thread.release_gpu(count, self.sharing_allowed))

    def use_gpu(self, gpu: str | None) -> None:
        """Move the probes to another GPU; None for the usual one."""
        self._thread.submit(lambda: self._thread.select_gpu(gpu))

    def disturbed_processes(self) -> tuple[str, ...]:
        """Other processes on the GPU that aggressors would disturb without permission."""
        observation = self.observation()
        disturbs = observation.probe_set.backend == CUDA and not self.sharing_allowed
        return observation.other_processes if disturbs else ()

    @property
    def engine_pid(self) -> int | None:
        """Process id of the engine, of one that starts too; None without one."""
        session = self._thread.starting or self._thread.engine.session
        return None if session is None else session.engine_pid

    def close(self) -> None:
        """End the engine. Waits at most half a second for one that runs; one that is silent or starts is killed."""
        silent = self.observation().engine.state == EngineCondition.SILENT
        self._thread.gpus.stop()
        self._thread.jobs.put(None)
        if self._thread.ident is None:
            return
        for patience_s in (0.0 if silent or self._thread.starting is not None else _CLOSE_S, _CLOSE_S):
            self._thread.join(patience_s)
            pid = self.engine_pid if self._thread.is_alive() else None
            if pid is not None:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
