"""A host thread of the simulated process: what it does between the entry of a call and its return."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from stallprobes.engine.sim.clock import NEVER, Call, Wait
from stallprobes.engine.sim.device import GpuContext, SimStream, Simulation, us
from stallprobes.engine.sim.jobs import Job
from stallprobes.engine.sim.locks import Lock
from stallprobes.engine.sim.sampling import LatencyDistribution, RandomStream
from stallprobes.model import StreamKind

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_CONTEXT = 201
PEER_ACCESS_UNSUPPORTED = 217
INVALID_HANDLE = 400
NOT_READY = 600
PEER_ACCESS_ALREADY_ENABLED = 704

TEXTS = {
    INVALID_VALUE: "CUDA_ERROR_INVALID_VALUE",
    OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY",
    INVALID_CONTEXT: "CUDA_ERROR_INVALID_CONTEXT",
    PEER_ACCESS_UNSUPPORTED: "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
    INVALID_HANDLE: "CUDA_ERROR_INVALID_HANDLE",
    NOT_READY: "CUDA_ERROR_NOT_READY",
    PEER_ACCESS_ALREADY_ENABLED: "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
}

# The part of a copy's call that looks its pointers up, under the lock of the device's memory management.
_LOOKUP_SHIFT = 3
_SHORT_SLEEP_NS = 1_000_000
_NEVER_MADE = -1


class HostThread:
    """One host thread: its chance, and the contexts it has made current, the last one being so now."""

    def __init__(self, simulation: Simulation, name: str, seed: int) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        self.name = name
        self.random = RandomStream(seed, name)
        self.contexts: list[GpuContext] = []
        self.slept_ns = 0
        self._made: dict[Hashable, int] = {}
        self._awake = False

    @property
    def context(self) -> GpuContext | None:
        """The current context."""
        return self.contexts[-1] if self.contexts else None

    def base_ns(self, call: str, extra_ns: int = 0) -> int:
        """How long ``call`` takes, with ``extra_ns`` for the size of what it does."""
        cost = self.simulation.profile.cost(call)
        ns = cost.draw(self.random)
        if extra_ns:
            # The same luck for the call and for what it does.
            ns += extra_ns * ns // max(cost.p50_ns, 1)
        return ns

    def call_ns(self, call: str, extra_ns: int = 0, kind: Hashable = None) -> int:
        """The same for a call of the driver: longer when this thread has slept since it made one of its ``kind`` (by
        default the call itself), since code and data have left the caches, and while something keeps the bus busy."""
        ns = self.base_ns(call, extra_ns)
        kind = call if kind is None else kind
        made = self._made.get(kind, _NEVER_MADE)
        if made != self.slept_ns:
            figures = self.simulation.profile.locks
            if made == _NEVER_MADE:
                ns += us(figures.cold_first_us)
            else:
                most = figures.cold_more_us if self._awake else figures.cold_us
                ns += round(us(most) * min((self.slept_ns - made) / (1e6 * figures.cold_ms), 1))
            self._made[kind] = self.slept_ns
        self._awake = True
        context = self.context
        return context.gpu.slowed_ns(ns) if context is not None else ns

    def record_sleep(self, ns: int) -> None:
        """The thread sleeps for ``ns``. A short sleep leaves the caches as they are."""
        if ns > _SHORT_SLEEP_NS:
            self.slept_ns += ns - _SHORT_SLEEP_NS
            self._awake = False

    def uncontended_latency(self, call: str, *locks: Lock) -> LatencyDistribution | None:
        """What ``call`` takes if that is nothing but a time that is drawn: the thread is warm, the ``locks`` are free,
        and nothing drags. Else None."""
        if self._made.get(call, _NEVER_MADE) != self.slept_ns or not self._awake:
            return None
        if any(lock.owner is not None for lock in locks):
            return None
        if self.context is not None and self.context.gpu.is_slowed:
            return None
        return self.simulation.profile.cost(call)

    def sample_ns(self, cost: LatencyDistribution) -> int:
        """A time of its own luck."""
        return cost.draw(self.random)

    def work_under(self, ns: int, *locks: Lock) -> Wait:
        """``ns`` of work with ``locks``, taken in this order."""
        clock = self.clock
        if clock.is_idle_until(clock.now + ns) and all(lock.owner is None for lock in locks):
            clock.advance_to(clock.now + ns)
            return
        for lock in locks:
            yield from lock.acquire(self)
        yield from clock.wait(ns)
        for lock in reversed(locks):
            lock.release()

    def submit_call(self, ns: int, stream: SimStream) -> Wait:
        """``ns`` of a call that submits to ``stream``: under its lock and its context's."""
        yield from self.pass_streams(stream)
        yield from self.work_under(ns, stream.lock, stream.context.lock)

    def pass_streams(self, stream: SimStream) -> Wait:
        """A call on the legacy default stream looks at every stream of its context, each under that one's lock."""
        if stream.kind is not StreamKind.NULL:
            return
        for other in stream.context.streams:
            if other is not stream and other.lock.owner is not None:
                yield from other.lock.acquire(self)
                other.lock.release()

    def copy_call(self, ns: int, stream: SimStream) -> Wait:
        """The call of an asynchronous copy: it looks its pointers up and then submits under the context's lock.

        The memory management's lock is given back before the context's is asked for.
        """
        clock, lock, memory = self.clock, stream.context.lock, stream.context.gpu.memory_lock
        yield from self.pass_streams(stream)
        until = clock.now + ns
        if stream.lock.owner is None and lock.owner is None and memory.owner is None and clock.is_idle_until(until):
            clock.advance_to(until)
            return
        yield from stream.lock.acquire(self)
        yield from self.work_under(ns >> _LOOKUP_SHIFT, memory)
        yield from self.work_under(ns - (ns >> _LOOKUP_SHIFT), lock)
        stream.lock.release()

    def wait_for_job(self, job: Job) -> Wait:
        """Wait until ``job`` is done."""
        clock = self.clock
        if job.end < NEVER and clock.is_idle_until(job.end):
            if job.end > clock.now:
                clock.advance_to(job.end)
            return
        while job.end > clock.now:
            done = clock.event()
            job.on_end(done.succeed)
            yield done

    def wait_for_jobs(self, jobs: list[Job]) -> Wait:
        """Wait until ``jobs`` are done and this thread has seen it."""
        for job in jobs:
            yield from self.wait_for_job(job)
        late = self.sample_ns(self.simulation.poll)
        for job in jobs:
            if job.staging is not None and job.staging.copies:
                late += job.staging.delay_ns(self.clock.now, self)
        yield from self.clock.wait(late)

    def wait_for_word(self, word: Any, until: int) -> Wait:
        """Wait until somebody stores into ``word``, or until ``until``."""
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


Function = Callable[..., Call]

CALLS: dict[str, Function] = {}


def call(name: str) -> Callable[[Function], Function]:
    """Registers what a call of ``name`` does. Its arguments are the host thread and the op's, resolved."""

    def register(function: Function) -> Function:
        CALLS[name] = function
        return function

    return register


LatencyFunction = Callable[..., LatencyDistribution | None]

LATENCY_ONLY: dict[str, LatencyFunction] = {}


def latency_only(name: str) -> Callable[[LatencyFunction], LatencyFunction]:
    """Registers when a call of ``name``, with its arguments, is nothing but a time that is drawn: then its Cost."""

    def register(function: LatencyFunction) -> LatencyFunction:
        LATENCY_ONLY[name] = function
        return function

    return register
