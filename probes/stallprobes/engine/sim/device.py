"""GPUs, contexts, memory, events: the things that calls work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stallprobes.engine.sim.clock import Clock
from stallprobes.engine.sim.dice import Cost
from stallprobes.engine.sim.engines import CopyEngine, GraphicsEngine, Residents, Slices, Staging, UncontendedEngine
from stallprobes.engine.sim.jobs import Job, SimStream
from stallprobes.engine.sim.locks import BargingLock, FairLock, Reaction
from stallprobes.engine.sim.profile import Profile
from stallprobes.model import Space, StreamKind

US = 1_000


def us(value: float) -> int:
    """Microseconds of a profile as nanoseconds."""
    return round(value * US)


def transfer_ns(nbytes: int, gbps: float) -> int:
    """How long ``nbytes`` take at ``gbps`` GB/s."""
    return round(nbytes / gbps)


class HostWord:
    """A word of host memory. Its value may be whatever a call put there: a number, a handle, memory."""

    __slots__ = ("_watchers", "value")

    def __init__(self) -> None:
        self.value: Any = 0
        self._watchers: list[Callable[[], Any]] = []

    def put(self, value: Any) -> None:
        """Store a value and tell whoever watches."""
        self.value = value
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                watcher()

    def add(self, value: int) -> None:
        """Add to it."""
        self.put(self.value + value)

    def watch(self, what: Callable[[], Any]) -> None:
        """Call ``what`` at the next ``put``."""
        self._watchers.append(what)

    def unwatch(self, what: Callable[[], Any]) -> None:
        """No longer."""
        if what in self._watchers:
            self._watchers.remove(what)


@dataclass(eq=False)
class Storage:
    """A piece of memory. ``touched``: its pages are there; ``gpu``: the GPU it lies on, for device memory."""

    space: Space
    nbytes: int
    gpu: SimGpu | None = None
    touched: bool = True
    live: bool = True


@dataclass(eq=False)
class Gate:
    """What the native host function looks at: a word, a counter of forced openings, and its patience."""

    word: HostWord
    forced: HostWord
    timeout_ns: int


@dataclass(eq=False)
class EventHandle:
    """A CUDA event: the job that stands for its last record."""

    timing: bool
    job: Job | None = None


@dataclass(eq=False)
class Function:
    """A kernel: ``spins`` for the time it is given. ``loaded``: its code, that of ``module``, is on the GPU."""

    spins: bool
    loaded: bool = True
    module: Module | None = None


@dataclass(eq=False)
class GraphHandle:
    """A graph or an executable one."""

    nodes: int
    live: bool = True


@dataclass(eq=False)
class Module:
    """A loaded module image; ``on_gpu``: its code is there."""

    live: bool = True
    on_gpu: bool = False


@dataclass
class _Drag:
    """Something that makes calls take longer, until a time."""

    factor: float
    until: int


class SimGpu:
    """One GPU: its engines, and the lock of its memory management."""

    def __init__(self, clock: Clock, profile: Profile, index: int, reaction: Reaction) -> None:
        figures = profile.engine
        threads = profile.machine.sms * profile.machine.threads_per_sm
        self._clock = clock
        self.profile = profile
        self.index = index
        self.graphics = GraphicsEngine(
            clock,
            Slices(
                timeslice_ns=max(us(figures.timeslice_us), 1),
                save_ns=us(figures.save_us),
                save_ns_per_thread=figures.save_ns_per_thread,
                restore_ns=us(figures.restore_us),
                yield_ns=us(figures.yield_us),
                threads=threads,
            ),
        )
        self.threads = threads
        self.to_host = CopyEngine(clock)
        self.to_gpu = CopyEngine(clock)
        self.to_peer = CopyEngine(clock)
        self.memory_lock = BargingLock(clock, reaction)
        self.free_bytes = int(profile.machine.memory_gib * (1 << 30))
        self._drags: list[_Drag] = []

    def drag(self, factor: float, until: int) -> _Drag:
        """Make calls take ``factor`` as long until a time; the result can be shortened by its ``until``."""
        drag = _Drag(factor, until)
        self._drags.append(drag)
        return drag

    @property
    def drags(self) -> bool:
        """Whether something makes calls take longer now."""
        if self._drags:
            now = self._clock.now
            self._drags = [drag for drag in self._drags if drag.until > now]
        return bool(self._drags)

    def dragged(self, ns: int) -> int:
        """What a call of ``ns`` takes now."""
        return round(ns * max(drag.factor for drag in self._drags)) if self.drags else ns


class GpuContext:
    """A context: its lock in the driver, its streams, and its place on the graphics engine."""

    def __init__(
        self, clock: Clock, name: str, gpu: SimGpu, reaction: Reaction, within: GpuContext | None = None
    ) -> None:
        """``within``: the primary context that a green context is a part of."""
        self._clock = clock
        self.name = name
        self.gpu = gpu
        self.reaction = reaction
        self.lock: FairLock = FairLock(clock, reaction) if within is None else within.lock
        self.residents: Residents = Residents(name) if within is None else within.residents
        if within is None:
            gpu.graphics.join(self.residents)
        self.peers: set[GpuContext] = set()
        self.staging: list[tuple[object, Staging]] = []
        self.streams: list[SimStream] = []
        self.live = True
        self.null = self.stream(StreamKind.NULL)

    def stream(self, kind: StreamKind, name: str = "") -> SimStream:
        """A new stream of it."""
        stream = SimStream(self._clock, self, kind, self.reaction, name)
        self.streams.append(stream)
        return stream

    def unfinished(self) -> list[Job]:
        """The last jobs of its streams, as far as they are not done."""
        now = self._clock.now
        return [stream.tail for stream in self.streams if stream.tail is not None and stream.tail.end > now]

    def hidden(self, now: int, thread: object) -> int:
        """For how long from ``now`` on ``thread`` cannot see what the GPU did: while another thread of the context
        is busy with a chunk of a staged copy."""
        self.staging = [(owner, staged) for owner, staged in self.staging if staged.end > now]
        return max((staged.left(now) for owner, staged in self.staging if owner is not thread), default=0)

    def end(self) -> None:
        """Take it off the GPU."""
        self.live = False
        self.gpu.graphics.leave(self.residents)


@dataclass
class StagedRoute:
    """The one way, in order of submission, of all transfers between two GPUs that the driver stages."""

    tail: Job | None = None


@dataclass
class World:
    """All that host threads share."""

    clock: Clock
    profile: Profile
    reaction: Reaction
    gpus: list[SimGpu]
    staged_route: StagedRoute = field(default_factory=StagedRoute)
    uncontended: UncontendedEngine = field(default_factory=UncontendedEngine)
    quit: bool = False
    rings: bool = True
    poll: Cost = field(init=False)
    timer: Cost = field(init=False)

    def __post_init__(self) -> None:
        self.poll = self.profile.poll
        self.timer = self.profile.timer

    @classmethod
    def of(cls, profile: Profile) -> World:
        """A machine as ``profile`` has it, with nothing on it."""
        clock = Clock()
        locks = profile.locks
        reaction = Reaction(us(locks.spin_us), profile.react, profile.wake)
        gpus = [SimGpu(clock, profile, index, reaction) for index in range(profile.machine.gpus)]
        return cls(clock, profile, reaction, gpus)
