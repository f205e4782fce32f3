"""Jobs: pieces of work on the simulated GPU, with the engines that execute them without waiting for another job.

The start and the end of a job are computed as soon as only a pre-emption can still change them. The end becomes an
event of the clock only if something waits for it; most jobs end unobserved and cost no event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from stallprobes.engine.sim.clock import NEVER, Clock


class JobEngine(Protocol):
    """Executes jobs: an engine of the GPU, or a thread of the driver."""

    def enqueue(self, job: Job, ready: int) -> None:
        """Accept a job whose predecessors are done; it may start at ``ready`` (ns)."""
        ...


class ContextQueue:
    """The kernels of one context that wait for the graphics engine; a green context shares its primary context's.

    ``pending``: jobs that have not started, with the time from which each may start (ns). ``preempted``: jobs that
    were taken off the engine. ``traced``: the timeline records its work; CUPTI does so for the engine's own process.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending: deque[tuple[Job, int]] = deque()
        self.preempted: list[Job] = []
        self.traced = True

    @property
    def has_work(self) -> bool:
        """True if a job waits for the engine."""
        return bool(self.pending or self.preempted)


@dataclass
class StagedCopy:
    """A staged copy: from ``start`` to ``end`` it is busy for the first ``busy_ns`` of each ``period_ns``."""

    start: int
    end: int
    busy_ns: int
    period_ns: int

    def remaining_busy_ns(self, time: int) -> int:
        """Time (ns) from ``time`` on in which the copy stays busy with its current chunk."""
        if not self.start <= time < self.end:
            return 0
        return max(self.busy_ns - (time - self.start) % self.period_ns, 0)


# The staged copies of one GPU to the host, each with the thread that makes it.
StagedCopies = list[tuple[object, StagedCopy]]


def staging_delay_ns(copies: StagedCopies, now: int, thread: object) -> int:
    """Time (ns) from ``now`` on in which ``thread`` cannot see the GPU's progress; copies that ended are removed.

    That is while another thread, of any context, is busy with a chunk of one of ``copies``.
    """
    copies[:] = [(owner, copy) for owner, copy in copies if copy.end > now]
    return max((copy.remaining_busy_ns(now) for owner, copy in copies if owner is not thread), default=0)


@dataclass(slots=True, eq=False, repr=False)
class Job:
    """One piece of work.

    - ``ns``: its duration.
    - ``lead_ns``: the time from submission to start without a predecessor.
    - ``gap_ns``: the time from the end of the last predecessor to the start.
    - ``need``: the number of threads that it occupies on the SMs.
    - ``what`` and ``nbytes``: its description for the timeline.
    - ``own_clock``: it ends ``ns`` after its start even if it was pre-empted.
    - ``queue``: that of the context of its stream.
    - ``staging``: the staged copies of the GPU.
    - ``start`` and ``end``: NEVER while unknown; ``end`` moves when the job is pre-empted.
    """

    clock: Clock
    engine: JobEngine
    ns: int
    lead_ns: int = 0
    gap_ns: int = 0
    need: int = 0
    on_start: Callable[[], None] | None = None
    what: str = ""
    nbytes: int = 0
    own_clock: bool = False
    queue: ContextQueue | None = None
    staging: StagedCopies | None = None
    submitted: int = NEVER
    start: int = NEVER
    end: int = NEVER
    remaining_ns: int = field(init=False)
    _callbacks: list[Callable[[], Any]] = field(default_factory=list)
    _predecessors: int = 0
    _end_scheduled: bool = False

    def __post_init__(self) -> None:
        self.remaining_ns = self.ns

    def set_start(self, start: int) -> None:
        """Set the time of the first start, in ns; until then it can be set again, to a later time."""
        before, self.start = self.start, start
        if self.on_start is not None and before == NEVER:
            self.clock.call_at(start, self._at_start)

    def _at_start(self, _: Any) -> None:
        if self.start > self.clock.now:
            self.clock.call_at(self.start, self._at_start)
        elif self.on_start is not None:
            self.on_start()

    def set_end(self, end: int) -> None:
        """Set the time of the end in ns, as far as it is known now."""
        self.end = end
        if self._callbacks:
            self._schedule_end()

    def on_end(self, callback: Callable[[], Any]) -> None:
        """Call ``callback`` when the job is done, now if it already is."""
        if self.end <= self.clock.now:
            callback()
            return
        self._callbacks.append(callback)
        if self.end < NEVER:
            self._schedule_end()

    def submit_after(self, others: list[Job]) -> None:
        """Submit the job behind ``others``, at least one, which are not done."""
        self.submitted = self.clock.now
        self._predecessors = len(others)
        for other in others:
            other.on_end(self._predecessor_done)

    def _predecessor_done(self) -> None:
        self._predecessors -= 1
        if self._predecessors == 0:
            now = self.clock.now
            self.engine.enqueue(self, max(now + self.gap_ns, self.submitted + self.lead_ns))

    def _schedule_end(self) -> None:
        if not self._end_scheduled:
            self._end_scheduled = True
            self.clock.call_at(self.end, self._at_end)

    def _at_end(self, _: Any) -> None:
        self._end_scheduled = False
        if self.end > self.clock.now:
            # It was pre-empted. While it is off the engine its end is unknown, and nothing is scheduled.
            if self.end < NEVER:
                self._schedule_end()
            return
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class CallingEngine:
    """Executes jobs by a function: ``begin`` is called with the job and the time from which on it may start (ns)."""

    def __init__(self, begin: Callable[[Job, int], None]) -> None:
        self.enqueue = begin


def _run_at_once(job: Job, ready: int) -> None:
    job.set_start(ready)
    job.set_end(ready + job.ns)


# Part of a simulated GPU that runs each job at once, without a queue: an event record, the growth of a memory pool,
# or a copy on a path that nothing else uses.
UNCONTENDED = CallingEngine(_run_at_once)
