"""The simulated machine's state: GPUs, contexts, streams, memory, events and modules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import cache
from typing import Any

from stallprobes.engine.sim.clock import NEVER, Clock
from stallprobes.engine.sim.copy_engine import CopyEngine
from stallprobes.engine.sim.graphics_engine import GraphicsEngine
from stallprobes.engine.sim.host_functions import HostFunctionThread
from stallprobes.engine.sim.jobs import ContextQueue, Job, StagedCopies
from stallprobes.engine.sim.locks import BargingLock, HandoverLock, Lock, WakeupLatency
from stallprobes.engine.sim.parameters import LockParameters
from stallprobes.engine.sim.profile import Profile
from stallprobes.engine.sim.sampling import LatencyDistribution
from stallprobes.model import HostFunction, Space, StreamKind

# Nanoseconds in a microsecond.
US = 1_000


@cache
def us(value: float) -> int:
    """``value`` microseconds, the unit of profiles, in ns."""
    return round(value * US)


def transfer_ns(nbytes: int, gbps: float) -> int:
    """Duration in ns of a transfer of ``nbytes`` at ``gbps`` GB/s."""
    return round(nbytes / gbps)


class HostWord:
    """A word of host memory. ``value`` is what a call stored: a number, a handle, or a Storage."""

    __slots__ = ("_watchers", "value")

    def __init__(self) -> None:
        self.value: Any = 0
        self._watchers: list[Callable[[], Any]] = []

    def put(self, value: Any) -> None:
        """Store ``value`` and call the watchers."""
        self.value = value
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                watcher()

    def add(self, value: int) -> None:
        """Add ``value`` to the word."""
        self.put(self.value + value)

    def watch(self, callback: Callable[[], Any]) -> None:
        """Call ``callback`` at the next ``put``."""
        self._watchers.append(callback)

    def unwatch(self, callback: Callable[[], Any]) -> None:
        """Remove ``callback`` from the watchers."""
        if callback in self._watchers:
            self._watchers.remove(callback)


@dataclass(eq=False)
class Storage:
    """A block of memory. ``touched``: its pages exist. ``gpu``: the GPU that holds device memory, else None."""

    space: Space
    nbytes: int
    gpu: SimGpu | None = None
    touched: bool = True
    live: bool = True


@dataclass(eq=False)
class BoundHostFunction:
    """A native host function with its word, its counter of timeouts, and its timeout in ns."""

    function: HostFunction
    word: HostWord
    forced: HostWord
    timeout_ns: int


@dataclass(eq=False)
class EventHandle:
    """A CUDA event; ``job`` is the job of its last record. ``blocking``: a thread that waits for it sleeps."""

    timing: bool
    job: Job | None = None
    blocking: bool = False


@dataclass(eq=False)
class LoadedFunction:
    """A kernel function. ``spins``: it runs for a given time. ``loaded``: the code of ``module`` is on the GPU."""

    spins: bool
    loaded: bool = True
    module: Module | None = None


@dataclass(eq=False)
class GraphHandle:
    """A graph or an executable graph of ``nodes`` kernels."""

    nodes: int
    live: bool = True


@dataclass(eq=False)
class Module:
    """A loaded module image; ``on_gpu``: its code is on the GPU."""

    live: bool = True
    on_gpu: bool = False


class Slowdowns:
    """Factors by which calls take longer, each until its time.

    ``parts``: those that may be in effect now, each with its time (ns); without any, none is.
    """

    __slots__ = ("_clock", "_polling", "_threads", "parts")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.parts: list[tuple[float, int]] = []
        # The number of threads that poll now, and their part.
        self._threads = 0
        self._polling: tuple[float, int] | None = None

    def add(self, factor: float, until: int) -> None:
        """Make calls take ``factor`` times as long until the time ``until`` (ns)."""
        self.parts.append((factor, until))

    def add_polling(self, threads: int, share: float) -> None:
        """Let ``threads`` more threads poll, or fewer; each makes calls take longer by ``share`` of their time."""
        self.parts = [part for part in self.parts if part is not self._polling]
        self._threads += threads
        self._polling = (1 + share * self._threads, NEVER) if share and self._threads else None
        if self._polling is not None:
            self.parts.append(self._polling)

    @property
    def factor(self) -> float:
        """The largest factor in effect now, 1 if there is none."""
        if not self.parts:
            return 1.0
        now = self._clock.now
        self.parts = [part for part in self.parts if part[1] > now]
        return max((factor for factor, _ in self.parts), default=1.0)


class SimGpu:
    """One GPU: its engines, its free memory, and the slowdowns of the calls of all its contexts.

    ``staging``: staged copies to the host, during which no thread notices the GPU's progress. ``on_submit`` is called
    with each job that is submitted to a stream.
    """

    def __init__(self, clock: Clock, profile: Profile, index: int) -> None:
        parameters = profile.engine
        threads = profile.machine.sms * profile.machine.threads_per_sm
        self._clock = clock
        self.profile = profile
        self.index = index
        self.graphics = GraphicsEngine(clock, parameters, threads, profile.machine.sms)
        self.threads = threads
        base_ns, slice_ns = us(profile.copy.base_us), us(profile.copy.slice_us)
        self.to_host = CopyEngine(clock, base_ns, slice_ns)
        self.to_gpu = CopyEngine(clock, base_ns, slice_ns)
        self.to_peer = CopyEngine(clock, us(profile.copy.peer_base_us), slice_ns)
        # The context on the copy engine in which the kernel driver clears memory.
        self._kernel_driver = ContextQueue("kernel driver")
        self.staging: StagedCopies = []
        self.on_submit: Callable[[SimStream, Job], None] | None = None
        self.slowdowns = Slowdowns(clock)
        # Figures of the profile in ns that each launch needs.
        self.start_ns, self.gap_ns = us(parameters.start_us), us(parameters.gap_us)
        self.empty_ns, self.spin_extra_ns = us(parameters.empty_us), us(parameters.spin_extra_us)
        self.free_bytes = int(profile.machine.memory_gib * (1 << 30))
        self._bus_read_ns = us(profile.copy.bus_read_us)

    def kernel(
        self,
        ns: int,
        need: int,
        what: str,
        nbytes: int = 0,
        reads: int = 1,
        on_start: Callable[[], None] | None = None,
    ) -> Job:
        """Work of ``ns`` for the graphics engine on ``need`` threads, before whose start the GPU has to make ``reads``
        reads of the host's memory."""
        lead_ns = self.lead_ns(self.start_ns, reads)
        return Job(self._clock, self.graphics, ns, lead_ns, self.gap_ns, need, on_start, what, nbytes)

    def clear(self, nbytes: int) -> None:
        """Clear ``nbytes`` that were freed: the kernel driver does it, by the engine of copies to the GPU.

        H200s show this. A copy of 1 MiB to the GPU waits for it, one to the host does not: 100 us in place of 25 behind
        cuMemFree of its context, and 130 to 190 beside a thread that allocates and frees in another one; in time-slices
        of the copy engine where that thread frees faster (agreement-h200.json.gz). A thread that creates and releases
        64 MiB is held up to 160 us for each in the mean, on two machines (h200-threads-1.json.gz and 2).
        """
        ns = transfer_ns(nbytes, self.profile.copy.clear_gbps)
        job = Job(self._clock, self.to_gpu, ns, what="clear", nbytes=nbytes)
        job.queue = self._kernel_driver
        self.to_gpu.clear(job)

    def work_counts(self) -> tuple[int, int, int, int, int]:
        """The time in ns in which kernels ran, and the bytes moved to the GPU and to the host, since the start; then
        the time of SMs with a kernel and of its threads, summed over them."""
        copy = self.profile.copy
        to_gpu, to_host = self.to_gpu.moved_ns * copy.h2d_gbps, self.to_host.moved_ns * copy.d2h_gbps
        return self.graphics.busy_ns, round(to_gpu), round(to_host), *self.graphics.occupied_ns

    def lead_ns(self, lead_ns: int, reads: int) -> int:
        """``lead_ns`` (ns), longer while a transfer to the GPU occupies the bus, over which the GPU has to make
        ``reads`` reads of the host's memory before it starts."""
        return lead_ns + reads * self._bus_read_ns if self.to_gpu.is_busy else lead_ns


class ContextLocks:
    """The locks of one context in the driver; a green context shares its primary context's.

    - ``submission``: of a call that submits work.
    - ``memory``: of memory management, and of the pointer lookup of copies.
    - ``content``: of a change of the context's memory, modules or streams, and of a call on the legacy default stream,
      which concerns them all.
    - ``staging``: of the buffers through which copies to pageable memory and to another GPU pass.
    - ``mapping``: of memory that is created, mapped and unmapped without cuMemAlloc, for which no other call waits.
    - ``submitter``: the thread that submitted last, until ``submitted_ns``.
    - ``synchronizations``: the number of calls that waited for all work of the context.
    """

    def __init__(self, clock: Clock, wakeup: WakeupLatency) -> None:
        self.submission = HandoverLock(clock, wakeup)
        self.memory = BargingLock(clock, wakeup)
        self.content = BargingLock(clock, wakeup)
        self.staging = BargingLock(clock, wakeup)
        self.mapping = BargingLock(clock, wakeup)
        self.submitter: object = None
        self.submitted_ns = 0
        self.synchronizations = 0


class GpuContext:
    """A context: its locks in the driver, its streams, and its queue on the graphics engine.

    ``lock`` is the lock that submission takes. ``driver_stream`` is the driver's own; no call waits for it alone.
    """

    def __init__(
        self, clock: Clock, name: str, gpu: SimGpu, wakeup: WakeupLatency, within: GpuContext | None = None
    ) -> None:
        """``within``: the primary context that a green context is part of."""
        self._clock = clock
        self.name = name
        self.gpu = gpu
        self.wakeup = wakeup
        self.locks: ContextLocks = ContextLocks(clock, wakeup) if within is None else within.locks
        self.lock: HandoverLock = self.locks.submission
        self.queue: ContextQueue = ContextQueue(name) if within is None else within.queue
        self.slowdowns: Slowdowns = Slowdowns(clock) if within is None else within.slowdowns
        self.callbacks: HostFunctionThread = HostFunctionThread(clock) if within is None else within.callbacks
        self._green: list[GpuContext] = []
        if within is None:
            gpu.graphics.add_context(self.queue)
        else:
            within._green.append(self)
        self.peers: set[GpuContext] = set()
        self.streams: list[SimStream] = []
        self.hardware: HardwareQueues = (
            HardwareQueues(clock, gpu.profile.engine.hardware_queues) if within is None else within.hardware
        )
        self.live = True
        self.null = self.create_stream(StreamKind.NULL)
        self.driver_stream = SimStream(clock, self, StreamKind.NON_BLOCKING, wakeup)

    def create_stream(self, kind: StreamKind, name: str = "") -> SimStream:
        """A new stream of the context."""
        stream = SimStream(self._clock, self, kind, self.wakeup, name)
        self.streams.append(stream)
        return stream

    def run_internal(self, ns: int) -> None:
        """Run a job of ``ns`` on the graphics engine that belongs to no stream: the driver's own work."""
        job = Job(self._clock, self.gpu.graphics, ns, what="driver")
        job.queue = self.queue
        self.gpu.graphics.enqueue(job, self._clock.now + us(self.gpu.profile.engine.start_us))

    def slowed_ns(self, ns: int) -> int:
        """The duration now of a call that takes ``ns`` on an idle machine, by the largest factor in effect."""
        own, gpu = self.slowdowns, self.gpu.slowdowns
        if not (own.parts or gpu.parts):
            return ns
        factor = max(own.factor, gpu.factor)
        return round(ns * factor) if factor != 1.0 else ns

    def unfinished(self) -> list[Job]:
        """The last job of each stream that is not done.

        Those of its green contexts count for a primary context, as CUDA's documentation of cuCtxSynchronize says.
        """
        now, contexts = self._clock.now, (self, *self._green)
        tails = [stream.tail for context in contexts for stream in context.streams]
        return [tail for tail in tails if tail is not None and tail.end > now]

    def destroy(self) -> None:
        """Remove the context from the GPU."""
        self.live = False
        self.gpu.graphics.remove_context(self.queue)


@dataclass(slots=True, eq=False, repr=False)
class HardwareQueue:
    """A queue of the GPU that several streams of a context share.

    ``last`` is the last job that entered the queue. ``blocked_by`` is the record of a blocking event at its end: it
    interrupts the host once the work of its stream is done, and the kernels of other streams behind it in the queue
    wait for this interrupt.
    """

    blocked_by: Job | None = None
    last: Job | None = None


class HardwareQueues:
    """The hardware queues of one context; a green context shares its primary context's.

    A stream without unfinished work takes the next free queue, or the next one in turn if none is free; the legacy
    default stream keeps its queue. The model fits the waits on an H200: each of 16 threads with blocking events waited
    for one to five kernels, a launch on the default stream waited for one kernel in each second, and none of 4 threads
    waited for another. CUDA's documentation does not cover it. ``used``: a blocking event was recorded, so that streams
    can wait here.
    """

    def __init__(self, clock: Clock, number: int) -> None:
        self.used = False
        self._clock = clock
        self._queues = [HardwareQueue() for _ in range(number)]
        self._next = 0

    def take(self) -> HardwareQueue:
        """The queue of the next stream that begins to work."""
        now, queues = self._clock.now, self._queues
        in_turn = [(self._next + step) % len(queues) for step in range(1, len(queues) + 1)]
        free = (number for number in in_turn if (last := queues[number].last) is None or last.end <= now)
        self._next = next(free, in_turn[0])
        return queues[self._next]


@dataclass(slots=True, eq=False, repr=False)
class SimStream:
    """A stream: jobs in order, through the hardware queue ``hardware``.

    ``tail`` is the last job submitted. ``waits`` are jobs of other streams that the next job has to wait for.
    ``pending`` are the launches that still occupy the stream's launch queue.
    """

    clock: Clock
    context: GpuContext
    kind: StreamKind
    wakeup: InitVar[WakeupLatency]
    name: str = ""
    hardware: HardwareQueue | None = None
    tail: Job | None = None
    waits: list[Job] = field(default_factory=list)
    pending: deque[Job] = field(default_factory=deque)
    is_null: bool = field(init=False)
    lock: BargingLock = field(init=False)
    # The stream of the context that this one's jobs wait for as well.
    _waits_for: SimStream | None = field(init=False)

    def __post_init__(self, wakeup: WakeupLatency) -> None:
        self.is_null = self.kind is StreamKind.NULL
        self.lock = BargingLock(self.clock, wakeup)
        self._waits_for = self.context.null if self.kind is StreamKind.BLOCKING else None

    def submit(self, job: Job, *also_after: Job | None) -> None:
        """Submit ``job`` behind everything that CUDA's stream rules require, and behind ``also_after``."""
        clock, before = self.clock, self.unfinished()
        if self.waits or also_after:
            now = clock.now
            for other in (*self.waits, *also_after):
                if other is not None and other.end > now and other not in before:
                    before.append(other)
            self.waits.clear()
        self.tail = job
        context = self.context
        gpu = context.gpu
        if context.hardware.used:
            self._enter_hardware_queue(job, before)
        job.queue = context.queue
        job.staging = gpu.staging
        if before:
            job.submit_after(before)
        else:
            job.submitted = clock.now
            job.engine.enqueue(job, clock.now + job.lead_ns)
        on_submit = gpu.on_submit
        if on_submit is not None:
            on_submit(self, job)

    def _enter_hardware_queue(self, job: Job, before: list[Job]) -> None:
        queue = self.hardware_queue(busy=bool(before))
        queue.last = job
        if queue.blocked_by is not None and job.engine is self.context.gpu.graphics:
            if queue.blocked_by.end <= self.clock.now:
                queue.blocked_by = None
            elif queue.blocked_by not in before:
                before.append(queue.blocked_by)

    def hardware_queue(self, busy: bool) -> HardwareQueue:
        """The queue of the next job; a stream that is not ``busy`` takes another one."""
        if self.hardware is None or not (busy or self.is_null):
            self.hardware = self.context.hardware.take()
        return self.hardware

    def unfinished(self) -> list[Job]:
        """The jobs that a job submitted now would have to wait for, without events.

        The legacy default stream waits for the blocking streams of its context, and they wait for it; a non-blocking
        stream waits only for itself.
        """
        now, tail, waits_for = self.clock.now, self.tail, self._waits_for
        jobs = [tail] if tail is not None and tail.end > now else []
        if waits_for is not None:
            tail = waits_for.tail
            if tail is not None and tail.end > now:
                jobs.append(tail)
        elif self.is_null:
            tails = [stream.tail for stream in self.context.streams if stream.kind is StreamKind.BLOCKING]
            jobs += [job for job in tails if job is not None and job.end > now]
        return jobs


@dataclass
class ProcessProfiler:
    """CUPTI in a process: attached by the first of its calls, until ``cuptiFinalize``.

    ``locks`` are the locks for submissions of the process's contexts. ``added_ns`` is what each call that submits work
    takes longer now. ``profiles`` counts how often kinds were enabled when none was.
    """

    parameters: LockParameters
    attached: bool = False
    kinds: set[int] = field(default_factory=set)
    locks: list[Lock] = field(default_factory=list)
    added_ns: int = 0
    profiles: int = 0

    def update(self, attached: bool) -> None:
        """Set ``attached`` and ``added_ns``, after a call of CUPTI."""
        self.attached = attached
        added_us = self.parameters.profiled_call_us if self.kinds else self.parameters.attached_call_us
        self.added_ns = us(added_us) if attached else 0


@dataclass
class Simulation:
    """The state that all host threads share: the clock, the profile, the GPUs.

    ``staged_tail`` is the last submitted transfer among all staged transfers between two GPUs, which are in one order.
    ``quit``: the threads are to end.
    """

    clock: Clock
    profile: Profile
    wakeup: WakeupLatency
    gpus: list[SimGpu]
    poll: LatencyDistribution
    timer: LatencyDistribution
    callback_wake: LatencyDistribution
    staged_tail: Job | None = None
    quit: bool = False

    @property
    def uses_one_gpu(self) -> bool:
        """True if there are contexts on one GPU only."""
        return sum(gpu.graphics.contexts > 0 for gpu in self.gpus) == 1

    @classmethod
    def of(cls, profile: Profile) -> Simulation:
        """A machine with the parameters of ``profile``, without contexts."""
        clock = Clock()
        locks = profile.locks
        wakeup = WakeupLatency(
            us(locks.spin_us), us(locks.backoff_us), profile.delay("spin_react"), profile.delay("wake")
        )
        gpus = [SimGpu(clock, profile, index) for index in range(profile.machine.gpus)]
        poll, timer, callback_wake = map(profile.delay, ("poll", "timer", "callback_wake"))
        return cls(clock, profile, wakeup, gpus, poll, timer, callback_wake)
