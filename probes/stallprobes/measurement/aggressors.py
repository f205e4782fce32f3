"""Aggressors beside a program that is not ours: in a process of their own on the GPU of the program.

They never run at the program's cost: the GPU must admit several processes and keep memory free, no MPS server of the
program is used, every kernel is bounded, all of them together take less than 1 GiB, and their process ends with this
one. While they run, a thread looks at the free memory; where it shrinks to the limit, they end at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from stallprobes.catalog import entries, in_threads
from stallprobes.catalog.entry import Entry
from stallprobes.engine.backend import GIB, Options
from stallprobes.engine.session import Session
from stallprobes.engine.snapshot import ProbeSnapshot, has_run
from stallprobes.errors import BesideRefused, EngineError, NvmlUnavailable, Unsupported
from stallprobes.foreign_text import printable
from stallprobes.machine import nvml
from stallprobes.machine.gpus import COMPUTE_MODES, GpuProcess, processes_on
from stallprobes.machine.telemetry import FIELDS, Telemetry, TelemetryField
from stallprobes.model import MIB, Probe
from stallprobes.native.layouts.board import ProbeState

# Sizes (bytes) in place of those of the catalogue: the buffers of all aggressors together stay below 512 MiB.
_SIZES = {"h2d-pinned-large": 64 * MIB, "d2h-pinned-large": 64 * MIB, "alloc-free": 64 * MIB}
# Name of the aggressor that has a thread for each CPU, and its largest number of threads.
_OF_ALL_CPUS, _MOST_THREADS = "host-load", 64
# Free memory of the GPU at which aggressors end: the larger one of so many bytes and this share of its memory.
_LEAST_FREE, _LEAST_FREE_SHARE = 4 * GIB, 0.1
# Memory (bytes) that must be free beside that when they start: what the aggressors take with their contexts.
_TAKEN = GIB
# Period (s) of the looks at the free memory, and the largest age (s) of an answer of NVML.
_LOOK_S, _OLDEST_S = 0.1, 2.0
# Longest wait (s) for NVML's first answer.
_FIRST_S = 5.0
# Time (s) after the end of the last call of aggressors until their last kernels have ended. Contexts take turns on the
# GPU, so a kernel of 50 ms takes longer beside others.
_LAST_KERNEL_S = 0.15
_FREE, _TOTAL, _CLOCK = "memory_free_bytes", "memory_total_bytes", "sm_clock_mhz"


def least_free_bytes(total_bytes: int) -> int:
    """The free memory (bytes) below which aggressors end on a GPU with ``total_bytes``."""
    return max(_LEAST_FREE, int(total_bytes * _LEAST_FREE_SHARE))


def probes_of(name: str, cpus: int | None = None) -> tuple[Probe, ...]:
    """The probes of an aggressor that may run beside a program, which may use so many ``cpus``, if that is known."""
    entry: Entry = entries()[name]
    probe = entry.probe(size=_SIZES.get(name))
    if name != _OF_ALL_CPUS:
        return (probe,)
    own = min(len(os.sched_getaffinity(0)), _MOST_THREADS)
    # More threads would use up the quota of a control group that they share with the program.
    return in_threads(probe, own if cpus is None else max(min(own, cpus), 1), name)


class Aggressors:
    """Aggressors ``names`` of the catalogue on the GPU ``uuid`` (without GPU- or MIG-), of which one runs at a time.

    ``pids`` are the processes of the program, which may use so many ``cpus`` (None: not known). Other processes on the
    GPU are disturbed only if ``shared_allowed``. ``ended`` says why they ended by themselves, "" while they may run.
    ``refused`` has reasons by aggressor. ``make`` makes the session of some probes, ``load`` returns the NVML module.
    """

    def __init__(
        self,
        names: Sequence[str],
        uuid: str,
        pids: Collection[int],
        cpus: int | None = None,
        *,
        shared_allowed: bool = False,
        make: Callable[[Sequence[Probe], Options], Session] = lambda probes, options: Session(probes, options=options),
        load: Callable[[], Any] = nvml.load,
    ) -> None:
        self.names = tuple(names)
        self.ended = ""
        self.refused: dict[str, str] = {}
        self.least_free_bytes: int | None = None
        # Least free memory (bytes) since the start.
        self.free_bytes: int | None = None
        self._uuid, self._pids, self._shared_allowed = uuid, frozenset(pids), shared_allowed
        self._make, self._load = make, load
        self._probes = {name: probes_of(name, cpus) for name in self.names}
        self._session: Session | None = None
        self._telemetry: Telemetry | None = None
        self._running = ""
        self._marked: dict[str, ProbeSnapshot] = {}
        self._idle_s: float | None = None
        self._quit = threading.Event()
        self._stopping = threading.Lock()

    def start(self) -> None:
        """Start their process. May take seconds. Raises BesideRefused; nothing runs then."""
        try:
            device = _device(self._load, self._uuid)
            for why in _refusals(device, self._pids, self._shared_allowed):
                raise BesideRefused(f"{why}.")
            self._telemetry = Telemetry(device.name, load=self._load, fields=_fields())
            self._telemetry.start()
            self._require_room()
            self._start_session(device.name)
            threading.Thread(target=self._guard, name="free GPU memory", daemon=True).start()
        except BaseException:
            self.stop()
            raise

    def run(self, name: str) -> None:
        """Let one aggressor run; "" for none."""
        self._running, self._idle_s = name, None
        session = self._session
        if session is not None:
            session.set_running({probe.name: key == name for key in self._probes for probe in self._probes[key]})
            self.mark()

    def mark(self) -> None:
        """Remember what the running aggressor has done until now."""
        self._marked = self._snapshots(self._running)

    @property
    def has_run(self) -> bool:
        """True if each thread of the running aggressor has done something since the last mark."""
        now = self._snapshots(self._running)
        probes = self._probes.get(self._running, ())
        return bool(now) and all(
            probe.name in self._marked and has_run(probe, now[probe.name].minus(self._marked[probe.name]))
            for probe in probes
        )

    @property
    def is_idle(self) -> bool:
        """True once no call of an aggressor is in flight, and the last kernel must have ended."""
        for name, probes in self._probes.items():
            now = self._snapshots(name)
            for probe, part in ((probe, now[probe.name]) for probe in probes if probe.name in now):
                queued = probe.program.guard is not None and part.proof < part.iterations
                if queued or part.in_flight is not None or part.state is ProbeState.RUNNING:
                    self._idle_s = None
                    return False
        now_s = time.monotonic()
        self._idle_s = self._idle_s or now_s
        return now_s - self._idle_s >= _LAST_KERNEL_S

    @property
    def sm_clock_mhz(self) -> float | None:
        """The SM clock by NVML; None if not known."""
        telemetry = self._telemetry
        value = None if telemetry is None else telemetry.snapshot().readings[_CLOCK].value
        return None if value is None else float(value)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the aggressors' process; empty if it does not run."""
        return () if self._session is None else self._session.process_ids

    def stop(self) -> None:
        """End their process and free everything. It takes at most 2 s."""
        self._quit.set()
        with self._stopping:
            if self._session is not None:
                self._session.stop()
            if self._telemetry is not None:
                self._telemetry.stop()

    def _start_session(self, uuid: str) -> None:
        """Start the session, without aggressors that this machine has not."""
        while True:
            left = [name for name in self.names if name not in self.refused]
            session = self._make(
                [probe for name in left for probe in self._probes[name]], Options(gpu=uuid, without_mps=True)
            )
            try:
                session.start()
            except Unsupported as error:
                lacking = [name for name in left if {probe.name for probe in self._probes[name]} & set(error.probes)]
                self.refused.update(dict.fromkeys(lacking, error.reason))
                if not lacking or len(lacking) == len(left):
                    raise BesideRefused(f"the aggressors cannot run: {error.reason}.") from error
                continue
            except EngineError as error:
                raise BesideRefused(f"the aggressors cannot run: {error.sentence.rstrip('.')}.") from error
            self._probes = {name: self._probes[name] for name in left}
            self._session = session
            return

    def _require_room(self) -> None:
        """Raise BesideRefused where NVML does not say that enough memory is free."""
        until_s = time.monotonic() + _FIRST_S
        free, total = self._memory()
        while (free is None or total is None) and time.monotonic() < until_s:
            time.sleep(_LOOK_S / 10)
            free, total = self._memory()
        if free is None or total is None:
            raise BesideRefused("NVML does not say how much memory of the GPU is free.")
        self.free_bytes, self.least_free_bytes = free, least_free_bytes(total)
        if free < self.least_free_bytes + _TAKEN:
            raise BesideRefused(
                f"{_gib(free)} of {_gib(total)} GiB of the GPU's memory are free: {_gib(self.least_free_bytes)} GiB "
                f"must stay free, and the aggressors take up to {_gib(_TAKEN)} GiB."
            )

    def _memory(self) -> tuple[int | None, int | None]:
        """Free and whole memory (bytes) of the GPU by NVML, None where it has not answered lately."""
        telemetry = self._telemetry
        if telemetry is None:
            return None, None
        snapshot = telemetry.snapshot()
        age_s = snapshot.readings[_FREE].age_s(snapshot.at_ns)
        recent = age_s is not None and age_s <= _OLDEST_S
        return snapshot.readings[_FREE].value if recent else None, snapshot.readings[_TOTAL].value

    def _guard(self) -> None:
        """End the aggressors where the GPU's free memory shrinks to the limit, or is not known any more."""
        assert self.least_free_bytes is not None
        while not self._quit.wait(_LOOK_S):
            free, _ = self._memory()
            failure = None if self._session is None else self._session.failure()
            if free is not None:
                self.free_bytes = min(free, self.free_bytes or free)
            if free is None:
                self.ended = "NVML no longer says how much memory of the GPU is free."
            elif free <= self.least_free_bytes:
                self.ended = (
                    f"only {_gib(free)} GiB of the GPU's memory were free, and {_gib(self.least_free_bytes)} GiB must "
                    "stay free."
                )
            elif failure is not None:
                self.ended = f"{failure.sentence.rstrip('.')}."
            if self.ended:
                self.stop()

    def _snapshots(self, name: str) -> dict[str, ProbeSnapshot]:
        session = self._session
        try:
            names = [probe.name for probe in self._probes.get(name, ())]
            return {} if session is None else session.probe_snapshots(names, with_channels=False)
        except RuntimeError:
            # The guard has stopped it.
            return {}


class _Device:
    """A GPU, or an instance of one in MIG mode, by NVML: its ``name`` is its UUID with GPU- or MIG-."""

    def __init__(self, module: Any, name: str, handle: Any) -> None:
        self.module, self.name, self.handle = module, name, handle
        self.is_instance = name.startswith("MIG-")

    def ask(self, function: str, handle: Any = None) -> Any:
        """The answer of a function of NVML, None without one."""
        try:
            return getattr(self.module, function)(self.handle if handle is None else handle)
        except (self.module.NVMLError, AttributeError):
            return None


def _device(load: Callable[[], Any], uuid: str) -> _Device:
    try:
        module = load()
    except NvmlUnavailable as error:
        raise BesideRefused(f"how much memory of the GPU is free is not known: {error.reason}.") from error
    for name in (f"GPU-{uuid}", f"MIG-{uuid}"):
        try:
            return _Device(module, name, module.nvmlDeviceGetHandleByUUID(name))
        except module.NVMLError:
            continue
    raise BesideRefused("NVML does not list the GPU of the program.")


def _refusals(device: _Device, pids: Collection[int], shared_allowed: bool) -> Iterator[str]:
    """Reasons why no aggressor may run on a GPU beside the processes ``pids``."""
    mig = device.ask("nvmlDeviceGetMigMode")
    if not device.is_instance and mig is not None and mig[0]:
        yield "the GPU is in MIG mode, and which of its instances the program uses is not known"
    whole = device.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle") if device.is_instance else device.handle
    mode = None if whole is None else device.ask("nvmlDeviceGetComputeMode", whole)
    if mode:
        yield f'the GPU is in the compute mode "{COMPUTE_MODES.get(mode, mode)}", in which it is not shared'
    others = () if shared_allowed else _others(device, pids)
    if others is None:
        yield "which other processes use the GPU is not known, and they would be disturbed; --allow-shared allows it"
    elif others:
        named = ", ".join(f"{printable(other.name)} (pid {other.pid})" for other in others[:3])
        yield f"other processes use the GPU too, and would be disturbed: {named}; --allow-shared allows it"


def _others(device: _Device, pids: Collection[int]) -> tuple[GpuProcess, ...] | None:
    """Processes on a GPU that are neither of the program nor of this one; None if NVML does not list them."""
    try:
        listed = processes_on(device.module, device.handle)
    except device.module.NVMLError:
        return None
    others = tuple(process for process in listed if process.pid not in pids and process.pid != os.getpid())
    # In a container NVML has other process ids: as many of them without a name here are the program's.
    known = len(listed) - len(others)
    nameless = [other for other in others if other.name == "?"][: max(len(pids) - known, 0)]
    return tuple(other for other in others if other not in nameless)


def _fields() -> tuple[TelemetryField, ...]:
    """What is read of the GPU while aggressors run."""
    free = TelemetryField(_FREE, _LOOK_S, lambda module, handle: int(module.nvmlDeviceGetMemoryInfo(handle).free))
    return (free, *(each for each in FIELDS if each.name in (_TOTAL, _CLOCK)))


def _gib(count: int) -> str:
    return f"{count / GIB:.1f}"
