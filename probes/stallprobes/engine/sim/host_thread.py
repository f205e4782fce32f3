"""Host thread of the simulated process: latency, locking and waiting of the calls it makes, and ops bound to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from stallprobes.engine.sim.clock import Call, Process, Wait
from stallprobes.engine.sim.device import ContextLocks, GpuContext, HostWord, ProcessProfiler, SimStream, Simulation, us
from stallprobes.engine.sim.jobs import Job, staging_delay_ns
from stallprobes.engine.sim.locks import Lock
from stallprobes.engine.sim.sampling import RandomStream
from stallprobes.model import Channel, Op

# Result codes of simulated calls, those of the CUDA driver (CUresult).
SUCCESS = 0
INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
PEER_ACCESS_UNSUPPORTED = 217  # CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
INVALID_HANDLE = 400  # CUDA_ERROR_INVALID_HANDLE
NOT_READY = 600  # CUDA_ERROR_NOT_READY
PEER_ACCESS_ALREADY_ENABLED = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED

# Names of the error codes that simulated calls return.
TEXTS = {
    INVALID_VALUE: "CUDA_ERROR_INVALID_VALUE",
    OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY",
    INVALID_CONTEXT: "CUDA_ERROR_INVALID_CONTEXT",
    PEER_ACCESS_UNSUPPORTED: "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
    INVALID_HANDLE: "CUDA_ERROR_INVALID_HANDLE",
    NOT_READY: "CUDA_ERROR_NOT_READY",
    PEER_ACCESS_ALREADY_ENABLED: "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
}

# Share of the pointer lookup in a simulated asynchronous copy's call time, as a right shift: 3 means an eighth. The
# lookup holds the lock of the device's memory management. The rest of the call holds the context's lock.
_LOOKUP_SHIFT = 3
# Longest sleep or wait (ns) after which the caches of a simulated thread are still warm. Only the time beyond this
# limit cools the caches.
_SHORT_SLEEP_NS = 1_000_000
# Time asleep (ns) above which a simulated thread's next call takes additional time, up to the profile's cold_long_us.
# The thread's next wait then ends later, by up to cold_long_wait_us. Each sleep counts without its first
# _SHORT_SLEEP_NS.
_COLD_FROM_NS = 2_000_000
# Time waited in calls (ns) above which a simulated thread's next call takes additional time, up to the profile's
# cold_wait_long_us. Each wait counts without its first _SHORT_SLEEP_NS.
_LONG_WAIT_NS = 3_000_000


class HostThread:
    """One host thread: its random numbers and its stack of contexts, the last one being current."""

    def __init__(self, simulation: Simulation, name: str, seed: int, profiler: ProcessProfiler) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        self.name = name
        self.random = RandomStream(seed, name)
        self._costs = simulation.profile.costs
        self.contexts: list[GpuContext] = []
        # Time (ns) of its sleeps, and of its waits in calls, beyond the time for which caches stay warm.
        self._away = (0, 0)
        self._noticed = 0
        # The value of ``_away`` at the last call of each kind.
        self._made: dict[Hashable, tuple[int, int]] = {}
        self._awake = False
        # What a long sleep before it has added to the last call.
        self._late_ns = 0
        self.profiler = profiler
        # The number of synchronizations of each context, by its locks, at the last look at its progress.
        self._synchronizations: dict[ContextLocks, int] = {}
        # The last profile in which this thread has submitted work.
        self._profiles = 0
        # Whether it has, or waits for, a context's lock in order to submit.
        self.submits = False

    @property
    def context(self) -> GpuContext | None:
        """The current context."""
        return self.contexts[-1] if self.contexts else None

    @property
    def current(self) -> GpuContext:
        """The current context, of a thread that has one."""
        return self.contexts[-1]

    def base_ns(self, call: str, extra_ns: int = 0) -> int:
        """A random latency of ``call`` in ns, plus ``extra_ns`` for the size of its work, scaled by the same factor."""
        cost = self._costs[call]
        ns = cost.draw(self.random)
        if extra_ns:
            ns += extra_ns * ns // max(cost.p50_ns, 1)
        return ns

    def call_ns(self, call: str, extra_ns: int = 0, kind: Hashable = None) -> int:
        """A random latency in ns of the driver call ``call``.

        It is longer if this thread has slept or waited for long since its last call of the same ``kind`` (by default
        the call itself), because the caches are cold, and while other work keeps the bus busy.
        """
        ns = self.base_ns(call, extra_ns)
        self._late_ns = 0
        if kind is None:
            kind = call
        made = self._made.get(kind)
        if made is not self._away:
            ns += us(self.simulation.profile.locks.cold_first_us) if made is None else self._cold_ns(made)
            self._made[kind] = self._away
        self._awake = True
        return self.contexts[-1].slowed_ns(ns) if self.contexts else ns

    def _cold_ns(self, made: tuple[int, int]) -> int:
        """The additional time (ns) of a call; its kind was last made when the thread had been away for ``made``."""
        parameters = self.simulation.profile.locks
        cold_ns = 1e6 * parameters.cold_ms
        slept_ns, waited_ns = self._away[0] - made[0], self._away[1] - made[1]
        most = parameters.cold_more_us if self._awake else parameters.cold_us
        ns = round(us(most) * min(slept_ns / cold_ns, 1) + us(parameters.cold_wait_us) * min(waited_ns / cold_ns, 1))
        ns += _part_ns(parameters.cold_wait_long_us, waited_ns - _LONG_WAIT_NS, parameters.cold_wait_long_ms)
        if not self._awake:
            self._late_ns = _part_ns(parameters.cold_long_us, slept_ns - _COLD_FROM_NS, parameters.cold_long_ms)
        return ns + self._late_ns

    def record_sleep(self, ns: int) -> None:
        """Record that the thread sleeps for ``ns``. A short sleep does not cool the caches."""
        if ns > _SHORT_SLEEP_NS:
            slept_ns, waited_ns = self._away
            self._away = (slept_ns + ns - _SHORT_SLEEP_NS, waited_ns)
            self._awake = False

    def record_wait(self, ns: int) -> None:
        """Record that the thread has waited for ``ns`` in a call, awake. A long wait cools the caches too.

        After one of 1.9 to 10 ms a launch takes 0.1 to 1.8 us longer on H200s of a quiet host, 4 to 10 of busy ones.
        """
        if ns > _SHORT_SLEEP_NS:
            slept_ns, waited_ns = self._away
            self._away = (slept_ns, waited_ns + ns - _SHORT_SLEEP_NS)

    def record_synchronization(self) -> None:
        """Record that this thread has waited for all work of its current context."""
        locks = self.current.locks
        locks.synchronizations += 1
        self._synchronizations[locks] = locks.synchronizations

    def looks_after_another(self, context: GpuContext) -> bool:
        """True if another thread has waited for all work of ``context`` since this one last looked at its progress.

        Then its next look is shorter, if the process uses one GPU. On H200s a wait for an idle stream takes 0.4 to 0.8
        us in place of 1.5 beside cuCtxSynchronize, cuMemFree, cuModuleUnload and cuMemHostUnregister, and a query of a
        pending event 0.7 to 1.0 in place of 1.6 (check-h200-noisy-1.json.gz and 2, agreement-h200.json.gz); with two
        GPUs both keep their time (check-h200x2-1.json.gz). The mechanism is not documented.
        """
        locks = context.locks
        return locks.synchronizations != self._synchronizations.get(locks, 0) and self.simulation.uses_one_gpu

    def shared_look_ns(self, ns: int, context: GpuContext) -> int:
        """The duration of a call of ``ns`` that looks at the progress of work in ``context``."""
        if not self.looks_after_another(context):
            return ns
        self._synchronizations[context.locks] = context.locks.synchronizations
        return round(ns * self.simulation.profile.locks.shared_look)

    def work_under(self, ns: int, *locks: Lock) -> Process:
        """Work for ``ns`` while holding ``locks``, acquired in this order."""
        for lock in locks:
            yield from lock.acquire(self)
        yield from self.clock.wait(ns)
        for lock in reversed(locks):
            lock.release()

    def submit_call(self, ns: int, stream: SimStream) -> Wait:
        """Spend ``ns`` in a call that submits to ``stream``, under the stream's and the context's lock.

        A profiler of the process makes it longer.
        """
        ns += self.profiler.added_ns and self._profiled_ns()
        if stream.is_null:
            return self._submit_to_null(ns, stream)
        clock, lock, locks = self.clock, stream.context.lock, stream.context.locks
        if locks.submitter is not self:
            parameters = self.simulation.profile.locks
            if clock.now - locks.submitted_ns < us(parameters.submit_shared_us):
                # What a submission writes is in another core's cache.
                ns = round(ns * parameters.submit_shared)
            locks.submitter = self
        locks.submitted_ns = clock.now + ns
        return self._submit_under(ns, stream.lock, lock)

    def _profiled_ns(self) -> int:
        """The time that a profiler of the process adds to a call, more to the thread's first call in a profile."""
        profiler = self.profiler
        if not profiler.kinds or profiler.profiles == self._profiles:
            return profiler.added_ns
        self._profiles = profiler.profiles
        return profiler.added_ns + us(profiler.parameters.profiled_first_us)

    def _submit_under(self, ns: int, stream_lock: Lock, context_lock: Lock) -> Process:
        """The call prepares its command under the stream's lock, and submits it under the context's lock too.

        What a long sleep adds to it passes before: a core that has slept runs its first code slowly.
        """
        held_ns = round((ns - self._late_ns) * self.simulation.profile.locks.submit_share)
        yield from stream_lock.acquire(self)
        if held_ns < ns:
            yield from self.clock.wait(ns - held_ns)
        self.submits = True
        yield from self.work_under(held_ns, context_lock)
        self.submits = False
        stream_lock.release()

    def record_call(self, ns: int, stream: SimStream) -> Wait:
        """Spend ``ns`` in an event record on ``stream``, under the stream's lock.

        It waits for the context's lock only while another call than a submission holds it: beside 15 threads that
        launch, a record takes 1.3 us at p99 on an H200, and a launch 140 us.
        """
        ns += self.profiler.added_ns and self._profiled_ns()
        if stream.is_null:
            return self._submit_to_null(ns, stream)
        owner = stream.context.lock.owner
        if owner is None or (isinstance(owner, HostThread) and owner.submits):
            return self.work_under(ns, stream.lock)
        return self.work_under(ns, stream.lock, stream.context.lock)

    def _submit_to_null(self, ns: int, stream: SimStream) -> Process:
        yield from self._pass_streams(stream)
        yield from self.work_under(ns, stream.lock, stream.context.lock)

    def pass_streams(self, stream: SimStream) -> Wait:
        """For a call on the legacy default stream: it concerns all streams of its context.

        It acquires and releases the lock of the context's content, and waits until the lock of each stream is free. On
        H200s a launch waits for one of the pageable copies that another thread makes on another stream where they take
        3.6 to 8.7 ms, and for all of them where they take 14 ms.
        """
        return self._pass_streams(stream) if stream.is_null else ()

    def _pass_streams(self, stream: SimStream) -> Process:
        yield from stream.context.locks.content.pass_through(self)
        profile = self.simulation.profile
        for other in stream.context.streams:
            if other is not stream and other.lock.owner is not None:
                yield from other.lock.wait_until_free(self, us(profile.locks.null_polls_us))
            if len(other.pending) >= profile.engine.queue:
                yield from self.clock.wait(us(profile.locks.full_queue_us))

    def copy_call(self, ns: int, stream: SimStream) -> Process:
        """Spend ``ns`` in the call of an asynchronous copy: pointer lookup, then submission under the context's lock.

        The lock of the memory management is released before the context's lock is acquired. A profiler of the process
        makes the call longer.
        """
        ns += self.profiler.added_ns and self._profiled_ns()
        lock, memory = stream.context.lock, stream.context.locks.memory
        yield from self.pass_streams(stream)
        yield from stream.lock.acquire(self)
        yield from self.work_under(ns >> _LOOKUP_SHIFT, memory)
        self.submits = True
        yield from self.work_under(ns - (ns >> _LOOKUP_SHIFT), lock)
        self.submits = False
        stream.lock.release()

    def wait_for_job(self, job: Job) -> Process:
        """Wait until ``job`` is done."""
        clock = self.clock
        while job.end > clock.now:
            done = clock.event()
            job.on_end(done.succeed)
            yield done

    def wait_for_jobs(self, jobs: list[Job]) -> Process:
        """Wait until ``jobs`` are done and this thread has noticed it."""
        began = self.clock.now
        for job in jobs:
            yield from self.wait_for_job(job)
        self.record_wait(self.clock.now - began)
        yield from self.clock.wait(self._notice_ns(jobs))

    def _notice_ns(self, jobs: list[Job]) -> int:
        """A random time in ns until this thread notices that ``jobs`` are done."""
        late = self.simulation.poll.draw(self.random)
        slept_ns = self._away[0]
        late_ns = slept_ns - self._noticed - _COLD_FROM_NS
        if late_ns > 0:
            parameters = self.simulation.profile.locks
            late += _part_ns(parameters.cold_long_wait_us, late_ns, parameters.cold_long_ms)
        self._noticed = slept_ns
        for job in jobs:
            if job.staging:
                late += staging_delay_ns(job.staging, self.clock.now, self)
        return late

    def wait_at_most(self, jobs: list[Job], until: int) -> Process:
        """Wait until the last of ``jobs`` is done, at most until ``until`` (ns)."""
        clock = self.clock
        changed = clock.event()
        waiting = True

        def wake() -> None:
            nonlocal waiting
            if waiting and (clock.now >= until or all(job.end <= clock.now for job in jobs)):
                waiting = False
                changed.succeed()

        clock.call_at(until, lambda _: wake())
        for job in jobs:
            job.on_end(wake)
        if waiting:
            yield changed

    def wait_for_word(self, word: Any, until: int) -> Process:
        """Wait until another thread stores into ``word``, at most until ``until`` (ns)."""
        clock = self.clock
        changed = clock.event()
        fired = False

        def fire() -> None:
            nonlocal fired
            if not fired:
                fired = True
                changed.succeed()

        word.watch(fire)
        clock.call_at(until, lambda _: fire())
        yield changed
        word.unwatch(fire)


def _part_ns(most_us: float, away_ns: int, longest_ms: float) -> int:
    """The part of ``most_us`` in ns that ``away_ns`` of at most ``longest_ms`` add."""
    return round(us(most_us) * min(max(away_ns, 0) / (1e6 * longest_ms), 1))


LoadedFunction = Callable[..., Call]

# Simulated calls by the name of the driver's function. Each module of calls adds its calls when the module is imported.
CALLS: dict[str, LoadedFunction] = {}


def call(name: str) -> Callable[[LoadedFunction], LoadedFunction]:
    """Registers the implementation of the call ``name``: a function of the host thread and the op's arguments."""

    def register(function: LoadedFunction) -> LoadedFunction:
        CALLS[name] = function
        return function

    return register


def call_without_effect(name: str, cost: str = "native:store") -> None:
    """Registers the call ``name``, which only takes the time of the call ``cost``."""

    @call(name)
    def only_wait(host: HostThread, *_arguments: object) -> Call:
        yield from host.clock.wait(host.base_ns(cost))
        return SUCCESS


@dataclass(frozen=True)
class BoundOp:
    """An op bound to a thread: ``call`` makes the call; ``channel`` and ``label`` are rows of its histograms or -1."""

    call: Callable[[], Call]
    channel: int
    label: int
    into: HostWord | None
    value: HostWord | None
    ok: tuple[int, ...]
    repeat: int

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of its histograms."""
        return tuple(row for row in (self.channel, self.label) if self.channel >= 0 and row >= 0)


def bound_op(
    op: Op,
    call: Callable[[], Call],
    words: Callable[[Any], HostWord],
    channels: Sequence[Channel],
) -> BoundOp:
    """``op`` bound to a thread; without ``channels`` it is not measured. ``words`` gives the HostWord of a word."""
    measured = op.phase is not None and bool(channels)
    return BoundOp(
        call=call,
        channel=channels.index(Channel(op.phase)) if measured and op.phase is not None else -1,
        label=channels.index(Channel(op.phase, op.label)) if measured and op.label and op.phase is not None else -1,
        into=None if op.into is None else words(op.into),
        value=None if op.value is None else words(op.value),
        ok=(0, *op.ok),
        repeat=op.repeat,
    )
