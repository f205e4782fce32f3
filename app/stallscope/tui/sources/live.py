"""Where frames come from: the live engine. Nothing here draws, and nothing that a screen calls here waits.

Starting and stopping an engine, and asking the driver, may take seconds or hang; a worker thread does them, one after
the other. The screen only takes what there is.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from stallprobes.engine.backend import Options
from stallprobes.engine.process import SpareEngine
from stallprobes.engine.session import Session
from stallprobes.errors import EXIT_NO_GPU, EXIT_USAGE, EngineFailed, NoGpu, Unsupported
from stallprobes.live.observation import (
    CUDA,
    LOST,
    READY,
    REFUSED,
    SILENT,
    SIM,
    STARTING,
    EngineStatus,
    Observation,
    ProbeSet,
)
from stallprobes.machine import gpus
from stallprobes.machine.gpus import Gpu
from stallprobes.machine.telemetry import Telemetry
from stallprobes.model import Probe, Role
from stallscope.tui import probe_sets

SILENT_AFTER_S = 0.5
_LEAVE_S = 0.5


@dataclass(frozen=True)
class Wish:
    """What the user asked for: ``gpu`` by index, UUID or PCI address, or ``sim``, a profile of the simulated GPU."""

    gpu: str | None = None
    sim: str | None = None
    seed: int = 1
    sim_set: Mapping[str, str] = field(default_factory=dict)
    allow_shared: bool = False


@dataclass(frozen=True)
class Ground:
    """What somebody else may run on while the engine rests; ``gpu`` are UUIDs by commas, None on a simulated GPU."""

    backend: str
    gpu: str | None
    options: Options
    survey: gpus.Survey | None
    label: str = ""
    facts: tuple[str, ...] = ()


class Live:
    """The engine as a source of frames. ``start`` begins; ``observation`` is what is known now; ``close`` ends it.

    ``fatal`` is an exit code and a sentence once it is clear that there will never be an engine.
    """

    replayed = False

    def __init__(
        self, wish: Wish, *, survey: Callable[[], gpus.Survey] | None = None, spare: SpareEngine | None = None
    ) -> None:
        """``survey`` is asked each time for the GPUs of this machine, ``spare`` an engine that was started ahead."""
        self.wish = wish
        self.allowed = wish.allow_shared
        self.fatal: tuple[int, str] | None = None
        self._ask = survey or gpus.survey
        self._spare = spare
        self._survey: gpus.Survey | None = None
        # Bench and session change together, so that nobody reads the board of one by the names of another.
        self._on: tuple[ProbeSet, Session | None] = (ProbeSet("starting", (), SIM if wish.sim else CUDA), None)
        self._telemetry: Telemetry | None = None
        self._chosen: tuple[gpus.Gpu, ...] = ()
        self._status = (STARTING, time.monotonic(), "asking the driver which GPUs there are")
        self._wanted: dict[str, bool] = {}
        self._applied: dict[str, bool] = {}
        self._engines: set[int] = set()
        self._held: frozenset[str] = frozenset()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="conductor", daemon=True)

    # What the screen calls. Nothing here waits.

    def start(self) -> None:
        """Begin to look for a GPU, and put the first bench on it. Again does nothing."""
        if self._worker.ident is not None:
            return
        self._worker.start()
        self._jobs.put(lambda: self._begin(self.wish.gpu))

    def observation(self) -> Observation:
        """What is known now."""
        probe_set, session = self._on
        state, since, sentence = self._status
        now = time.monotonic()
        age, snapshot = now - since, None
        if session is not None and state in (READY, LOST):
            with contextlib.suppress(RuntimeError):
                snapshot = session.snapshot()
        if state == READY and session is not None and snapshot is not None:
            silent_s = now - snapshot.engine_heartbeat_ns / 1e9
            if not session.alive:
                state, age, sentence = LOST, 0.0, "the engine ended"
                self._lost(session)
            elif silent_s > SILENT_AFTER_S:
                state, age, sentence = (
                    SILENT,
                    silent_s,
                    "the engine does not answer: stopped, or the machine is very busy",
                )
        return Observation(
            wall_s=time.time(),
            probe_set=probe_set,
            engine=EngineStatus(state, age, sentence),
            snapshot=snapshot,
            telemetry=None if self._telemetry is None else self._telemetry.snapshot(),
            probe_failures=() if session is None else session.probe_failures(),
            held=self._held,
            others=self._others(session),
        )

    def take(self) -> list[Observation]:
        """What is known now, as the frames that are due."""
        return [self.observation()]

    def switch(self, name: str, on: bool) -> None:
        """Say whether a probe shall run. An aggressor waits until quiet is measured."""
        self._wanted[name] = on

    def wanted(self, name: str) -> bool:
        """Whether a probe shall run."""
        probe = self._on[0].probe(name)
        return self._wanted.get(name, probe is not None and probe.role is not Role.AGGRESSOR)

    def all_off(self) -> None:
        """Switch every aggressor off."""
        for name in probe_sets.aggressors(self._on[0]):
            self._wanted[name] = False

    def apply(self, quiet_missing: bool) -> None:
        """Switch what has to be switched, now that quiet is there or still ``quiet_missing``."""
        probe_set, session = self._on
        if session is None or self._status[0] != READY:
            return
        aims, held = {}, set()
        for probe in probe_set.probes:
            aim = self._aim(probe)
            if aim and probe.role is Role.AGGRESSOR and quiet_missing:
                held.add(probe.name)
                aim = False
            aims[probe.name] = aim
        self._held = frozenset(held)
        changed = {name: on for name, on in aims.items() if self._applied.get(name) != on}
        if changed:
            with contextlib.suppress(KeyError):
                session.set_running(changed)
                self._applied.update(changed)

    def _aim(self, probe: Probe) -> bool:
        return self._wanted.get(probe.name, probe.role is not Role.AGGRESSOR)

    def set_period(self, name: str, period_ns: int) -> None:
        """Change the pace of a probe."""
        session = self._on[1]
        if session is not None:
            session.set_period(name, period_ns)

    def open(self, probe_set: ProbeSet, wanted: Mapping[str, bool]) -> None:
        """Stop the engine and start one for ``probe_set``. ``wanted`` says what shall run where that is not the usual:
        victims on, aggressors off. Those that are on wait until quiet is measured."""
        self._jobs.put(lambda: self._put_on(probe_set, dict(wanted)))

    def restart(self) -> None:
        """Start a new engine for the same bench, with everything that disturbs switched off."""
        probe_set = self._on[0]
        if probe_set.probes:
            self.open(replace(probe_set), {})
        else:
            self._jobs.put(lambda: self._begin(self.wish.gpu))

    def lend(self, count: int = 1) -> Future[Ground]:
        """End the engine, so that a check has the GPU for itself. The answer comes as soon as the engine is gone;
        ``restart`` begins anew. With a ``count`` of 2 another GPU comes with it, if nobody computes there."""
        lent: Future[Ground] = Future()
        self._jobs.put(lambda: self._lend(lent, count))
        return lent

    def choose(self, gpu: str) -> None:
        """Go to another GPU with the bench that is on."""
        self._jobs.put(lambda: self._begin(gpu))

    @property
    def gpus(self) -> tuple[gpus.Gpu, ...]:
        """The GPUs that CUDA sees; none while that is not known."""
        found = () if self._survey is None else self._survey.gpus
        return tuple(gpu for gpu in found if gpu.cuda_index is not None)

    @property
    def engine_pid(self) -> int | None:
        """The engine's process, None without one."""
        session = self._on[1]
        return None if session is None else session.engine_pid

    def close(self) -> None:
        """End the engine. Waits half a second at most, and not for one that does not answer anyway; whatever hangs then
        is killed with this process's end."""
        patience_s = _LEAVE_S if self.observation().engine.state != SILENT else 0.0
        if self._telemetry is not None:
            self._telemetry.stop()
        self._jobs.put(None)
        if self._worker.ident is not None:
            self._worker.join(patience_s)
        if self._worker.is_alive():
            pid = self.engine_pid
            if pid is not None:
                with contextlib.suppress(OSError):
                    os.kill(pid, 9)

    # What the worker does. It may wait.

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        session = self._on[1]
        if session is not None:
            session.stop()

    def _say(self, state: str, sentence: str = "") -> None:
        self._status = (state, time.monotonic(), sentence)

    def _begin(self, gpu: str | None) -> None:
        """Find out what there is to run on, and put a bench there."""
        base = self._on[0] if self._on[0].probes else ProbeSet("first look", probe_sets.first(), CUDA)
        if self.wish.sim is not None:
            self._put_on(_simulated(base, None), {})
            return
        self._say(STARTING, "asking the driver which GPUs there are")
        self._survey = self._ask()
        try:
            self._chosen = gpus.choose(gpu, self._survey, probe_sets.gpus_needed(base))
        except NoGpu as error:
            if gpu is not None:
                self.fatal = (EXIT_NO_GPU, str(error))
                return
            self._put_on(_simulated(base, str(error)), {})
            return
        one = self._chosen[0]
        facts = [f"driver {self._survey.driver_version or 'n/a'}", f"CUDA {self._survey.driver.cuda_version_text}"]
        if self._telemetry is None or self._telemetry.uuid != one.uuid:
            if self._telemetry is not None:
                self._telemetry.stop()
            self._telemetry = Telemetry(one.uuid)
            self._telemetry.start()
        self._put_on(replace(base, backend=CUDA, facts=tuple(facts), why_simulated=None), {})

    def _put_on(self, probe_set: ProbeSet, wanted: dict[str, bool]) -> None:
        before = self._on[1]
        self._say(STARTING, "ending the engine before" if before is not None else "the engine starts")
        if before is not None:
            before.stop()
        self._on, self._held = (probe_set, None), frozenset()
        self._wanted, self._applied = wanted, {}
        self._say(STARTING, "the engine makes contexts, streams and buffers")
        if probe_set.backend == CUDA and self._survey is not None:
            needed = probe_sets.gpus_needed(probe_set)
            try:
                self._chosen = gpus.choose(",".join(one.uuid for one in self._chosen) or None, self._survey, needed)
            except NoGpu as error:
                self._say(REFUSED, str(error))
                return
            first, *others = self._chosen[:needed]
            probe_set = replace(probe_set, gpu=first.label, more_gpus=tuple(one.label for one in others))
            self._on = (probe_set, None)
        session = Session(
            probe_set.probes, backend=probe_set.backend, options=self._options(probe_set), spare=self._spare
        )
        try:
            info = session.start()
        except Unsupported as error:
            self._say(REFUSED, error.reason)
        except EngineFailed as error:
            self._say(LOST, error.sentence)
            if error.exit_code == EXIT_USAGE:
                # What was asked for does not exist (a profile), so no key can mend it.
                self.fatal = (error.exit_code, error.sentence)
        else:
            self._engines.add(session.engine_pid or 0)
            # Victims run from now on, and not only once a screen has looked.
            self._applied = {
                probe.name: self._aim(probe) and probe.role is not Role.AGGRESSOR for probe in probe_set.probes
            }
            session.set_running(self._applied)
            self._on = (_told(probe_set, info), session)
            self._say(READY)
        if self._spare is not None:
            # For another backend than it turned out to be.
            self._spare.close()
            self._spare = None

    def _lend(self, lent: Future[Ground], count: int) -> None:
        probe_set, session = self._on
        self._say(STARTING, "the check has the GPU for itself")
        if session is not None:
            session.stop()
        self._on, self._held = (probe_set, None), frozenset()
        self._wanted, self._applied = {}, {}
        options, survey = replace(self._options(probe_set), paced=False), None
        if probe_set.backend == CUDA:
            lent_gpus = (*self._chosen, *self._idle(count - len(self._chosen)))
            options = replace(options, gpu=",".join(one.cuda_uuid or one.uuid for one in lent_gpus))
            survey = self._survey
        lent.set_result(Ground(probe_set.backend, options.gpu, options, survey, probe_set.gpu, probe_set.facts))

    def _idle(self, count: int) -> tuple[Gpu, ...]:
        """As many more GPUs as are wanted and there are, on which nobody else computes just now."""
        if count <= 0:
            return ()
        self._survey = self._ask()
        ours = {gpu.uuid for gpu in self._chosen}
        found = [gpu for gpu in self.gpus if gpu.uuid not in ours and gpu.processes is not None]
        return tuple(gpu for gpu in found if self.allowed or not gpu.processes)[:count]

    def _options(self, probe_set: ProbeSet) -> Options:
        if probe_set.backend == SIM:
            return Options(profile=self.wish.sim, seed=self.wish.seed, sim_set=self.wish.sim_set, paced=True)
        return Options(gpu=",".join(one.cuda_uuid or one.uuid for one in self._chosen) or None)

    def _lost(self, session: Session) -> None:
        self._say(LOST, "the engine ended")
        # Its last words may take a moment to be had.
        self._jobs.put(lambda: self._last_words(session))

    def _last_words(self, session: Session) -> None:
        failure = session.failure()
        # The board stays as it is, to be looked at; only the process is taken off the table.
        session.stop()
        if session is self._on[1] and failure is not None:
            self._say(LOST, failure.sentence)

    def _others(self, session: Session | None) -> tuple[str, ...]:
        if self._telemetry is None:
            return ()
        known = self._telemetry.snapshot().processes
        # NVML's list is seconds old: an engine that has just ended may still be in it.
        # A check's engines are children of this process too, and nobody tells their names.
        self._engines.update(one.pid for one in known if _parent(one.pid) == os.getpid())
        ours = {os.getpid(), *self._engines}
        strangers = [one for one in known if one.pid not in ours]
        # Inside a container NVML's process ids are not ours: our engine is then one of the nameless.
        if session is not None and session.engine_pid is not None and not any(one.pid in ours for one in known):
            nameless = next((one for one in strangers if one.name == "?"), None)
            if nameless is not None:
                strangers.remove(nameless)
        return tuple(f"{one.name} (pid {one.pid})" for one in strangers)


def _told(probe_set: ProbeSet, info: Mapping[str, object]) -> ProbeSet:
    """``probe_set`` with what the engine said of its GPU, where that is not known from elsewhere."""
    if probe_set.backend != SIM:
        return probe_set
    facts = (f"profile {info.get('profile')}", f"seed {info.get('seed')}")
    gpu = str(info.get("gpu", probe_set.gpu)).removesuffix(" (SIMULATED)")
    return replace(probe_set, gpu=gpu, more_gpus=(gpu,) * (probe_sets.gpus_needed(probe_set) - 1), facts=facts)


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _simulated(probe_set: ProbeSet, why: str | None) -> ProbeSet:
    return replace(probe_set, backend=SIM, gpu="simulated GPU", more_gpus=(), facts=(), why_simulated=why)
