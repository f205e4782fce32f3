"""What does the jobs: the graphics engine, copy engines, event markers, and whatever the host itself ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stallprobes.engine.sim.clock import NEVER, Clock
from stallprobes.engine.sim.jobs import Job


class Residents:
    """A context as the graphics engine sees it; a green context is the same one as its primary context."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending: deque[tuple[Job, int]] = deque()
        self.preempted: list[Job] = []

    @property
    def wants(self) -> bool:
        """Whether it has work that is not on the engine."""
        return bool(self.pending or self.preempted)


@dataclass
class Segment:
    """A piece of a job's time on the graphics engine, for whoever wants to check."""

    context: str
    job: Job
    start: int
    end: int


@dataclass(frozen=True)
class Slices:
    """The figures of the graphics engine, ns."""

    timeslice_ns: int
    save_ns: int
    save_ns_per_thread: float
    restore_ns: int
    yield_ns: int
    threads: int


class GraphicsEngine:
    """Runs kernels of one context at a time.

    Within a context a kernel begins, in order, when the SMs have room for it. A context stays for its time-slice
    while others want the engine, then all its kernels are pre-empted; it goes earlier when it has nothing to do.
    """

    def __init__(self, clock: Clock, figures: Slices) -> None:
        self._clock = clock
        self._figures = figures
        self._ring: list[Residents] = []
        self._current: Residents | None = None
        self._running: list[Job] = []
        self._free = figures.threads
        self._available = 0
        self._slice_began = 0
        self._slice_ends = NEVER
        self._alarm = NEVER
        self.log: list[Segment] | None = None

    def join(self, context: Residents) -> None:
        """One more context."""
        self._ring.append(context)

    def leave(self, context: Residents) -> None:
        """A context is gone; it has no work any more."""
        if context in self._ring:
            self._ring.remove(context)
        if self._current is context:
            self._current = None

    def enter(self, job: Job, ready: int) -> None:
        """A kernel that may begin at ``ready``."""
        assert job.context is not None
        context = job.context.residents
        job.need = min(job.need, self._figures.threads)
        self._retire()
        if self._current is context:
            if not context.pending and job.need <= self._free:
                self._run(job, ready)
                if self._alarm < NEVER:
                    self._plan()
                return
        elif not self._running and not any(other.wants for other in self._ring):
            context.pending.append((job, ready))
            self._change(context, self._figures.yield_ns if self._current is not None else 0)
            return
        context.pending.append((job, ready))
        self._plan()

    def _retire(self) -> None:
        now = self._clock.now
        if self._running and min(job.end for job in self._running) <= now:
            self._running = [job for job in self._running if job.end > now]
            self._free = self._figures.threads - sum(job.need for job in self._running)

    def _run(self, job: Job, ready: int) -> None:
        start = max(ready, self._available)
        if job.start == NEVER:
            job.begins(start)
        self._running.append(job)
        self._free -= job.need
        # A kernel that looks at the GPU's clock ends when its time has come, on the engine or not.
        job.ends(max(start, job.start + job.ns) if job.by_clock else start + job.rest_ns)
        if self.log is not None and job.context is not None:
            self.log.append(Segment(job.context.residents.name, job, start, job.end))

    def _fill(self) -> None:
        """Start what has room, in order."""
        current = self._current
        if current is None:
            return
        now = self._clock.now
        while current.pending and current.pending[0][0].need <= self._free:
            job, ready = current.pending.popleft()
            self._run(job, max(ready, now))

    def _others(self) -> bool:
        return any(other.wants for other in self._ring if other is not self._current)

    def _plan(self) -> None:
        """See to it that the engine is looked at again when something has to change."""
        now = self._clock.now
        others = self._others()
        if not self._running and others and not (self._current is not None and self._current.pending):
            self._next(self._figures.yield_ns if self._current is not None else 0)
            return
        due = NEVER
        if self._current is not None and self._current.pending and self._running:
            due = min(job.end for job in self._running)
        if others:
            if self._slice_ends == NEVER:
                # A slice that ends unwanted is simply begun again.
                whole = (now - self._slice_began) // self._figures.timeslice_ns + 1
                self._slice_ends = self._slice_began + max(whole, 1) * self._figures.timeslice_ns
            due = min(due, max(self._slice_ends, now))
            if self._running and self._current is not None and not self._current.pending:
                due = min(due, max(job.end for job in self._running))
        if due < self._alarm:
            self._alarm = due
            self._clock.at(due, self._look)

    def _look(self, _: Any) -> None:
        now = self._clock.now
        if now < self._alarm:
            # An earlier plan, which another one has replaced.
            return
        self._alarm = NEVER
        self._retire()
        if now >= self._slice_ends:
            self._slice_ends = NEVER
            if self._others():
                self._preempt()
                return
        self._fill()
        self._plan()

    def _preempt(self) -> None:
        now = self._clock.now
        threads = sum(job.need for job in self._running)
        for job in self._running:
            if max(job.start, self._available) < now:
                job.rest_ns = job.end - now
            if self.log is not None:
                self._cut(job, now)
            job.end = NEVER
            if self._current is not None:
                self._current.preempted.append(job)
        self._running = []
        self._free = self._figures.threads
        figures = self._figures
        self._next(figures.save_ns + round(figures.save_ns_per_thread * threads) + figures.restore_ns)

    def _cut(self, job: Job, now: int) -> None:
        for segment in reversed(self.log or []):
            if segment.job is job:
                segment.end = max(now, segment.start)
                return

    def _next(self, cost_ns: int) -> None:
        """On to the next context that wants the engine, in turn."""
        place = self._ring.index(self._current) if self._current in self._ring else -1
        order = self._ring[place + 1 :] + self._ring[: place + 1]
        self._change(next(context for context in order if context.wants), cost_ns)

    def _change(self, context: Residents, cost_ns: int) -> None:
        self._current = context
        self._available = max(self._available, self._clock.now) + cost_ns
        self._slice_began = self._available
        self._slice_ends = NEVER
        resumed, context.preempted = context.preempted, []
        for job in resumed:
            self._run(job, self._available)
        self._fill()
        self._plan()


@dataclass
class Staging:
    """A staged copy that is busy for ``busy_ns`` of each ``period_ns`` from ``start`` to ``end``."""

    start: int
    end: int
    busy_ns: int
    period_ns: int

    def left(self, time: int) -> int:
        """For how much longer than ``time`` it is busy with the chunk of that time."""
        if not self.start <= time < self.end:
            return 0
        return max(self.busy_ns - (time - self.start) % self.period_ns, 0)


class CopyEngine:
    """Transfers of one direction, one after the other in the order in which they become ready."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at = 0
        self.staging: list[Staging] = []

    @property
    def free_at(self) -> int:
        """When it will have done all that it has."""
        return self._free_at

    def enter(self, job: Job, ready: int) -> None:
        """A transfer that may begin at ``ready``."""
        start = max(ready, self._free_at)
        if self.staging:
            start = self._between(start)
        self._free_at = start + job.ns
        job.begins(start)
        job.ends(self._free_at)

    def hold(self, start: int, ns: int) -> int:
        """Use it for ``ns`` from ``start`` on, or from when it is free; when that begins."""
        start = max(start, self._free_at)
        self._free_at = start + ns
        return start

    def _between(self, start: int) -> int:
        """The first time from ``start`` on at which no chunk of a staged copy is on the engine."""
        self.staging = [staged for staged in self.staging if staged.end > self._clock.now]
        for staged in self.staging:
            start += staged.left(start)
        return start


class UncontendedEngine:
    """Jobs that disturb nobody: events, and copies that have a way of their own."""

    def enter(self, job: Job, ready: int) -> None:
        """Done ``job.ns`` after ``ready``."""
        job.begins(ready)
        job.ends(ready + job.ns)


class HostEngine:
    """Jobs that a host thread does: told when they may begin, they end when that thread says so."""

    def __init__(self, begin: Callable[[Job, int], None]) -> None:
        self._begin = begin

    def enter(self, job: Job, ready: int) -> None:
        """Hand it to the host."""
        job.begins(ready)
        self._begin(job, ready)


class RelayEngine:
    """A copy to the other GPU that the driver stages in the host: half of it is a transfer to the host."""

    def __init__(self, to_host: CopyEngine, half_ns: int) -> None:
        self._to_host = to_host
        self._half_ns = half_ns

    def enter(self, job: Job, ready: int) -> None:
        """Done ``job.ns`` after the first chunk got the copy engine."""
        start = self._to_host.hold(ready, self._half_ns)
        job.begins(start)
        job.ends(start + job.ns)
