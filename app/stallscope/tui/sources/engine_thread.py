"""Thread of a live source that owns the engine: it selects GPUs, and starts and stops engines.

Starting an engine and asking the driver can take seconds or hang. The screen therefore only submits jobs, and reads the
published state.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from msgspec import structs

from stallprobes.engine.backend import Options
from stallprobes.engine.process import SpareEngine
from stallprobes.engine.session import Session
from stallprobes.errors import EXIT_NO_GPU, EXIT_USAGE, EngineFailed, NoGpu, Unsupported
from stallprobes.machine.gpus import Survey
from stallprobes.model import Role
from stallprobes.recording.observation import CUDA, SIM, EngineCondition, GpuName, ProbeSet
from stallscope.tui import probe_sets
from stallscope.tui.sources.selected_gpus import SelectedGpus

Result = TypeVar("Result")
# Reason shown if the engine (the process that runs the probes) has ended by itself and was not stopped by the user.
ENDED = "the engine ended"


@dataclass(frozen=True)
class EngineTarget:
    """Where another engine can run: its backend and options, the last survey, and the name of the GPU."""

    backend: str
    options: Options
    survey: Survey | None
    label: str = ""


@dataclass(frozen=True, eq=False)
class LiveEngine:
    """An engine that starts, runs or has ended.

    One object has the whole state, so that no reader combines the board of one probe set with the names of another.
    ``switches`` and ``periods_ns`` have the wanted state of each probe by name: only keys change them; the board has
    the state that the engine got. ``since_s`` is the begin of the condition on the monotonic clock.
    """

    probe_set: ProbeSet
    switches: dict[str, bool]
    periods_ns: dict[str, int]
    condition: EngineCondition = EngineCondition.STARTING
    sentence: str = ""
    since_s: float = field(default_factory=time.monotonic)
    session: Session | None = None

    @classmethod
    def of(cls, probe_set: ProbeSet, known: Mapping[str, bool]) -> LiveEngine:
        """An engine before its start. Without a ``known`` switch, a victim is on and an aggressor off."""
        switches = {probe.name: known.get(probe.name, probe.role is not Role.AGGRESSOR) for probe in probe_set.probes}
        return cls(probe_set, switches, {probe.name: probe.period_ns for probe in probe_set.probes})

    @property
    def ready_session(self) -> Session | None:
        """The session of an engine that is ready, else None."""
        return self.session if self.condition is EngineCondition.READY else None

    def apply(self, session: Session, *, held: bool, idle: bool) -> None:
        """Give the probes of ``session`` their wanted states. While ``held``, aggressors stay off.

        Unless ``idle``, a probe with another period of its baseline has this period.
        """
        for probe in self.probe_set.probes:
            if probe.baseline_period_ns is not None:
                session.set_period(probe.name, self.periods_ns[probe.name] if idle else probe.baseline_period_ns)
        running = session.running()
        wanted = {
            probe.name: self.switches[probe.name] and not (held and probe.role is Role.AGGRESSOR)
            for probe in self.probe_set.probes
        }
        changed = {name: on for name, on in wanted.items() if running.get(name) is not on}
        if changed:
            session.set_running(changed)


class EngineThread(threading.Thread):
    """Executes ``jobs`` one after the other until None, and publishes the ``engine`` and the ``gpus``.

    ``options`` are those of the engines, ``first`` the probes of the first one, None for the monitor's. ``fatal`` is an
    exit code and a sentence once no engine can be started. ``starting`` is the session of an engine that starts, else
    None.
    """

    def __init__(self, options: Options, first: ProbeSet | None, gpus: SelectedGpus, spare: SpareEngine | None) -> None:
        super().__init__(name="live source", daemon=True)
        self.options = options
        self._first = first
        self.fatal: tuple[int, str] | None = None
        self.gpus = gpus
        none = ProbeSet(title="starting", probes=(), backend=SIM if options.profile else CUDA)
        self.engine = LiveEngine(none, {}, {}, sentence="asking the driver for GPUs")
        self.starting: Session | None = None
        self._spare = spare
        self.jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    # Called by the screen.

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Have the thread execute ``job``, unless the future is cancelled before."""
        future: Future[Result] = Future()

        def execute() -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(job())

        self.jobs.put(execute)
        return future

    # Executed by the thread.

    def run(self) -> None:
        """Execute the jobs until the end."""
        while (execute := self.jobs.get()) is not None:
            execute()
        if self.engine.session is not None:
            self.engine.session.stop()

    def select_gpu(self, gpu: str | None) -> None:
        """Select a GPU, and start an engine there with the probes of the present engine, or the first ones."""
        base = self.engine.probe_set
        if not base.probes:
            base = self._first or ProbeSet(title="default", probes=probe_sets.default_probes(), backend=CUDA)
        selected = structs.replace(base, backend=SIM, gpus=(GpuName("simulated GPU"),), details=(), why_simulated=None)
        if self.options.profile is None:
            self._publish(EngineCondition.STARTING, "asking the driver for GPUs")
            try:
                details = self.gpus.select(gpu, probe_sets.gpus_needed(base))
                selected = structs.replace(base, backend=CUDA, details=details, why_simulated=None)
            except NoGpu as error:
                if gpu is not None:
                    self.fatal = (EXIT_NO_GPU, str(error))
                    return
                selected = structs.replace(selected, why_simulated=str(error))
        self.start_engine(LiveEngine.of(selected, {}))

    def start_engine(self, engine: LiveEngine) -> None:
        """Stop the present engine, and start ``engine``."""
        previous, probe_set = self.engine.session, engine.probe_set
        self._stop_engine("starting the engine" if previous is None else "stopping the previous engine")
        self.engine = replace(engine, sentence="creating contexts, streams and buffers", since_s=time.monotonic())
        if probe_set.backend == CUDA and self.gpus.survey is not None:
            try:
                names = self.gpus.select_more(self.gpus.survey, probe_sets.gpus_needed(probe_set))
            except NoGpu as error:
                self._publish(EngineCondition.REFUSED, str(error))
                return
            probe_set = structs.replace(probe_set, gpus=names)
            self.engine = replace(self.engine, probe_set=probe_set)
        session = Session(
            probe_set.probes, backend=probe_set.backend, options=self._options(probe_set), spare=self._spare
        )
        self.starting = session
        try:
            info = session.start()
        except Unsupported as error:
            self._publish(EngineCondition.REFUSED, error.reason)
        except EngineFailed as error:
            self._publish(EngineCondition.LOST, error.sentence)
            if error.exit_code == EXIT_USAGE:
                # A name on the command line is wrong (a profile), which no key can repair.
                self.fatal = (error.exit_code, error.sentence)
        else:
            self.gpus.own_processes.add(session.process_ids)
            # Victims start here and not at the screen's next update.
            engine.apply(session, held=True, idle=False)
            described = _with_simulated_details(probe_set, info)
            self._publish(EngineCondition.READY, probe_set=described, session=session)
        self.starting = None
        if self._spare is not None:
            # Unused where it was started for another backend.
            self._spare.close()

    def release_gpu(self, count: int, sharing_allowed: bool) -> EngineTarget:
        """Stop the engine, and return the GPUs for another engine, ``count`` GPUs if enough are idle."""
        self._stop_engine("the check has the GPU to itself")
        probe_set = self.engine.probe_set
        self.engine = replace(self.engine, session=None, switches=LiveEngine.of(probe_set, {}).switches)
        options, survey = replace(self._options(probe_set), paced=False), None
        if probe_set.backend == CUDA:
            options = replace(options, gpu=self.gpus.cuda_uuids(count, sharing_allowed))
            survey = self.gpus.survey
        return EngineTarget(probe_set.backend, options, survey, probe_set.gpus[0].label if probe_set.gpus else "")

    def report_end(self, session: Session) -> None:
        """Publish that the engine of ``session`` ended by itself, and why; reading the reason can take a moment."""
        if session is self.engine.ready_session:
            self._publish(EngineCondition.LOST, ENDED)
            failure = session.failure()
            # The board stays readable; only the process is cleaned up.
            session.stop()
            if failure is not None:
                self._publish(EngineCondition.LOST, failure.sentence)

    def _stop_engine(self, why: str) -> None:
        self._publish(EngineCondition.STARTING, why)
        if self.engine.session is not None:
            self.engine.session.stop()

    def _publish(self, condition: EngineCondition, sentence: str = "", **what: Any) -> None:
        self.engine = replace(self.engine, condition=condition, sentence=sentence, since_s=time.monotonic(), **what)

    def _options(self, probe_set: ProbeSet) -> Options:
        if probe_set.backend != SIM:
            return replace(self.options, gpu=self.gpus.cuda_uuids())
        return replace(self.options, gpu=None, paced=True)


def _with_simulated_details(probe_set: ProbeSet, info: Mapping[str, object]) -> ProbeSet:
    """``probe_set`` with model, profile and seed from the simulated engine's ``info``; unchanged for CUDA."""
    if probe_set.backend != SIM:
        return probe_set
    details = (f"profile {info.get('profile')}", f"seed {info.get('seed')}")
    # Without the word SIMULATED, which the screen shows itself.
    model = str(info.get("gpu_model", "simulated GPU"))
    return structs.replace(probe_set, gpus=(GpuName(model),) * probe_sets.gpus_needed(probe_set), details=details)
