"""Jobs, pieces of work on the simulated GPU, and the engines that execute them: graphics engine, copy engines, host.

The start and the end of a job are computed as soon as only a pre-emption can still change them. The end becomes an
event of the clock only if something waits for it; most jobs end unobserved and cost no event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from stallprobes.engine.sim.clock import NEVER, Clock, Process, Wait


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
        """Whether a job waits for the engine."""
        return bool(self.pending or self.preempted)


@dataclass
class StagedCopy:
    """A staged copy: from ``start`` to ``end`` it is busy for the first ``busy_ns`` of each ``period_ns``."""

    start: int
    end: int
    busy_ns: int
    period_ns: int

    def remaining_busy_ns(self, time: int) -> int:
        """How long from ``time`` on the copy stays busy with its current chunk, in ns."""
        if not self.start <= time < self.end:
            return 0
        return max(self.busy_ns - (time - self.start) % self.period_ns, 0)


class StagedCopies:
    """The staged copies of one GPU to the host, each with the thread that makes it."""

    __slots__ = ("copies",)

    def __init__(self) -> None:
        self.copies: list[tuple[object, StagedCopy]] = []

    def add(self, owner: object, copy: StagedCopy) -> None:
        """Add a copy made by the thread ``owner``."""
        self.copies.append((owner, copy))

    def delay_ns(self, now: int, thread: object) -> int:
        """How long from ``now`` on ``thread`` cannot see the GPU's progress, in ns.

        That is while another thread, of any context, is busy with a chunk of a staged copy.
        """
        self.copies = [(owner, copy) for owner, copy in self.copies if copy.end > now]
        return max((copy.remaining_busy_ns(now) for owner, copy in self.copies if owner is not thread), default=0)


class Job:
    """One piece of work.

    ``lead_ns`` is the time from submission to start without a predecessor, ``gap_ns`` the time from the end of the
    last predecessor to the start. ``need`` is the number of threads it occupies on the SMs, ``ns`` its duration.
    ``own_clock``: it ends ``ns`` after its start even if it was pre-empted. ``queue`` belongs to the
    context of its stream, ``staging`` to the GPU. ``what`` and ``nbytes`` describe it for the timeline. ``start`` and
    ``end`` are NEVER while unknown; ``end`` moves when the job is pre-empted.
    """

    __slots__ = (
        "_callbacks",
        "_clock",
        "_end_scheduled",
        "_predecessors",
        "end",
        "engine",
        "gap_ns",
        "lead_ns",
        "nbytes",
        "need",
        "ns",
        "on_start",
        "own_clock",
        "queue",
        "remaining_ns",
        "staging",
        "start",
        "submitted",
        "what",
    )

    def __init__(
        self,
        clock: Clock,
        engine: JobEngine,
        ns: int,
        lead_ns: int = 0,
        gap_ns: int = 0,
        need: int = 0,
        on_start: Callable[[], None] | None = None,
        what: str = "",
        nbytes: int = 0,
    ) -> None:
        self._clock = clock
        self._callbacks: list[Callable[[], Any]] = []
        self._predecessors = 0
        self._end_scheduled = False
        self.engine = engine
        self.ns = ns
        self.remaining_ns = ns
        self.lead_ns = lead_ns
        self.gap_ns = gap_ns
        self.need = need
        self.on_start = on_start
        self.what = what
        self.nbytes = nbytes
        self.own_clock = False
        self.queue: ContextQueue | None = None
        self.staging: StagedCopies | None = None
        self.submitted = NEVER
        self.start = NEVER
        self.end = NEVER

    def set_start(self, start: int) -> None:
        """Set the time of the first start, in ns; until then it can be set again, to a later time."""
        before, self.start = self.start, start
        if self.on_start is not None and before == NEVER:
            self._clock.call_at(start, self._at_start)

    def _at_start(self, _: Any) -> None:
        if self.start > self._clock.now:
            self._clock.call_at(self.start, self._at_start)
        elif self.on_start is not None:
            self.on_start()

    def set_end(self, end: int) -> None:
        """Set the time of the end in ns, as far as it is known now."""
        self.end = end
        if self._callbacks:
            self._schedule_end()

    def on_end(self, callback: Callable[[], Any]) -> None:
        """Call ``callback`` when the job is done, now if it already is."""
        if self.end <= self._clock.now:
            callback()
            return
        self._callbacks.append(callback)
        if self.end < NEVER:
            self._schedule_end()

    def submit_after(self, others: list[Job]) -> None:
        """Submit the job behind ``others``, at least one, which are not done."""
        self.submitted = self._clock.now
        self._predecessors = len(others)
        for other in others:
            other.on_end(self._predecessor_done)

    def _predecessor_done(self) -> None:
        self._predecessors -= 1
        if self._predecessors == 0:
            now = self._clock.now
            self.engine.enqueue(self, max(now + self.gap_ns, self.submitted + self.lead_ns))

    def _schedule_end(self) -> None:
        if not self._end_scheduled:
            self._end_scheduled = True
            self._clock.call_at(self.end, self._at_end)

    def _at_end(self, _: Any) -> None:
        self._end_scheduled = False
        if self.end > self._clock.now:
            # It was pre-empted. While it is off the engine its end is unknown, and nothing is scheduled.
            if self.end < NEVER:
                self._schedule_end()
            return
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


@dataclass(frozen=True)
class GraphicsTiming:
    """Times of the graphics engine in ns, and ``threads``, the number of threads that its SMs hold.

    A context switch in the middle of kernels takes ``save_ns`` plus ``save_ns_per_thread`` for each running thread
    plus ``restore_ns``; the change-over from an idle context takes ``yield_ns``, whether it was idle for long or not.
    After an idle time of ``wakeup_after_ns`` or longer a kernel starts ``wakeup_ns`` later, after a shorter one in
    proportion. That the delay grows so is a guess; it is 0 unless a profile or ``--sim-set`` says otherwise, since no
    recorded machine shows it.
    """

    timeslice_ns: int
    save_ns: int
    save_ns_per_thread: float
    restore_ns: int
    yield_ns: int
    threads: int
    wakeup_ns: int = 0
    wakeup_after_ns: int = 1_000_000_000


class GraphicsEngine:
    """Runs kernels of one context at a time.

    Within a context kernels start in order, each when the SMs have room for it. While other contexts have work, a
    context keeps the engine for its time-slice, then all its kernels are pre-empted; an idle context leaves earlier.
    """

    def __init__(self, clock: Clock, timing: GraphicsTiming) -> None:
        self._clock = clock
        self._timing = timing
        self._contexts: list[ContextQueue] = []
        self._current: ContextQueue | None = None
        self._running: list[Job] = []
        self._free = timing.threads
        self._available = 0
        self._slice_start = 0
        self._slice_end = NEVER
        self._timer_due = NEVER
        self._busy_ns = 0
        self._busy_until = 0
        # Called with the context that leaves the engine and when, and the one that gets it and when.
        self.on_switch: Callable[[ContextQueue | None, int, ContextQueue, int], None] | None = None

    @property
    def busy_ns(self) -> int:
        """Time in which a kernel was running, up to now, in ns."""
        return self._busy_ns - max(self._busy_until - int(self._clock.now), 0)

    @property
    def available(self) -> int:
        """The time at which the last change-over to another context ends, in ns."""
        return self._available

    @property
    def contexts(self) -> int:
        """Number of contexts on the GPU, without green ones."""
        return len(self._contexts)

    def add_context(self, context: ContextQueue) -> None:
        """Add a context."""
        self._contexts.append(context)

    def remove_context(self, context: ContextQueue) -> None:
        """Remove a context, which has no work."""
        if context in self._contexts:
            self._contexts.remove(context)
        if self._current is context:
            self._current = None

    def enqueue(self, job: Job, ready: int) -> None:
        """Accept a kernel that may start at ``ready`` (ns)."""
        assert job.queue is not None
        context = job.queue
        if job.need > self._timing.threads:
            job.need = self._timing.threads
        if self._running:
            self._remove_finished()
        if self._current is context:
            # A job without threads needs no room, so it passes kernels that wait for some.
            if job.need == 0 or (not context.pending and job.need <= self._free):
                self._start(job, ready)
                if self._timer_due < NEVER:
                    self._schedule_timer()
                return
        elif not self._running and not self._waiting_beside(None):
            context.pending.append((job, ready))
            self._switch(context, self._timing.yield_ns if self._current is not None else 0)
            return
        context.pending.append((job, ready))
        self._schedule_timer()

    def _remove_finished(self) -> None:
        now = self._clock.now
        for job in self._running:
            if job.end <= now:
                break
        else:
            return
        if len(self._running) == 1:
            self._running = []
            self._free = self._timing.threads
            return
        self._running = [job for job in self._running if job.end > now]
        self._free = self._timing.threads - sum([job.need for job in self._running])

    def _start(self, job: Job, ready: int) -> None:
        available, busy_until = self._available, self._busy_until
        start = available if available > ready else ready
        if self._timing.wakeup_ns and start > busy_until:
            start += round(self._timing.wakeup_ns * min((start - busy_until) / self._timing.wakeup_after_ns, 1))
        if job.start == NEVER:
            job.set_start(start)
        self._running.append(job)
        self._free -= job.need
        # A kernel that reads the GPU's clock ends when its time has passed, on the engine or not.
        end = max(start, job.start + job.ns) if job.own_clock else start + job.remaining_ns
        job.set_end(end)
        if end > busy_until:
            self._busy_ns += end - (busy_until if busy_until > start else start)
            self._busy_until = end

    def _start_pending(self) -> None:
        """Start the pending kernels of the current context for which there is room, in order."""
        current = self._current
        if current is None:
            return
        now = self._clock.now
        while current.pending and current.pending[0][0].need <= self._free:
            job, ready = current.pending.popleft()
            self._start(job, max(ready, now))

    def _others_waiting(self) -> bool:
        return self._waiting_beside(self._current)

    def _waiting_beside(self, one: ContextQueue | None) -> bool:
        """Whether a context other than ``one`` has work that waits."""
        return any(context is not one and (context.pending or context.preempted) for context in self._contexts)

    def _schedule_timer(self) -> None:
        """Schedule the next time at which the engine has to be updated."""
        now = self._clock.now
        others = self._others_waiting()
        if not self._running and others and not (self._current is not None and self._current.pending):
            self._switch_to_next(self._timing.yield_ns if self._current is not None else 0)
            return
        due = NEVER
        if self._current is not None and self._current.pending and self._running:
            due = min(job.end for job in self._running)
        if others:
            if self._slice_end == NEVER:
                # A slice that ends while no other context has work starts again.
                whole = (now - self._slice_start) // self._timing.timeslice_ns + 1
                self._slice_end = self._slice_start + max(whole, 1) * self._timing.timeslice_ns
            due = min(due, max(self._slice_end, now))
            if self._running and self._current is not None and not self._current.pending:
                due = min(due, max(job.end for job in self._running))
        if due < self._timer_due:
            self._timer_due = due
            self._clock.call_at(due, self._on_timer)

    def _on_timer(self, _: Any) -> None:
        now = self._clock.now
        if now < self._timer_due:
            # A timer that an earlier one has replaced.
            return
        self._timer_due = NEVER
        self._remove_finished()
        if now >= self._slice_end:
            self._slice_end = NEVER
            if self._others_waiting():
                self._preempt()
                return
        self._start_pending()
        self._schedule_timer()

    def _preempt(self) -> None:
        now = self._clock.now
        if self._busy_until > now:
            self._busy_ns -= self._busy_until - now
            self._busy_until = now
        threads = sum(job.need for job in self._running)
        for job in self._running:
            if max(job.start, self._available) < now:
                job.remaining_ns = job.end - now
            job.end = NEVER
            if self._current is not None:
                self._current.preempted.append(job)
        self._running = []
        self._free = self._timing.threads
        timing = self._timing
        self._switch_to_next(timing.save_ns + round(timing.save_ns_per_thread * threads) + timing.restore_ns)

    def _switch_to_next(self, cost_ns: int) -> None:
        """Switch to the next context that has work, round robin."""
        place = self._contexts.index(self._current) if self._current in self._contexts else -1
        order = self._contexts[place + 1 :] + self._contexts[: place + 1]
        self._switch(next(context for context in order if context.has_work), cost_ns)

    def _switch(self, context: ContextQueue, cost_ns: int) -> None:
        before, self._current = self._current, context
        left = max(self._available, self._clock.now)
        self._available = left + cost_ns
        if self.on_switch is not None:
            self.on_switch(before, left, context, self._available)
        self._slice_start = self._available
        self._slice_end = NEVER
        resumed, context.preempted = context.preempted, []
        for job in resumed:
            self._start(job, self._available)
        self._start_pending()
        self._schedule_timer()


@dataclass(eq=False)
class _Transfer:
    """An accepted transfer, and for how long it still occupies the engine (ns).

    It may start at ``ready`` (ns). ``over_bus``: between host and GPU.
    """

    job: Job
    ready: int
    left_ns: int
    over_bus: bool

    @property
    def context(self) -> ContextQueue | None:
        """The queue of its context."""
        return self.job.queue


@dataclass(frozen=True)
class _Segment:
    """A time, from ``start`` to ``end`` (ns), in which a transfer has the engine.

    ``slice_end`` is when its context loses the engine to one that waits; NEVER while none does.
    """

    transfer: _Transfer
    start: int
    end: int
    slice_end: int = NEVER


class CopyEngine:
    """Executes the transfers of one direction, one at a time: those of a context in the order in which they are ready.

    While a transfer of another context waits, a context keeps the engine for a time-slice from then on, and then its
    transfer is interrupted. On H200s a copy of 4 KiB to the host beside copies of 64 MiB of another context, 1187 us
    long, waits 1008 to 1065 us and 106 to 162 us in turn: for a time-slice, then for the rest of the copy. Beside those
    of its own context it waits for the whole one (check-h200x2-1.json.gz and the six beside it). ``moved_ns`` is the
    duration of all transfers so far without the base of each, also of chunks of staged copies.
    """

    def __init__(self, clock: Clock, base_ns: int, timeslice_ns: int) -> None:
        """``base_ns``: the part of a transfer's duration in which no data moves."""
        self._clock = clock
        self._base_ns = base_ns
        self._timeslice_ns = timeslice_ns
        # The time at which all accepted transfers are done, in ns.
        self.free_at = 0
        self.moved_ns = 0
        self.staging: list[StagedCopy] = []
        # The transfers that may not be done, in the order of their acceptance.
        self._accepted: list[_Transfer] = []
        # What runs when; empty while all of them are of one context.
        self._plan: list[_Segment] = []

    @property
    def is_busy(self) -> bool:
        """Whether a transfer over the bus or a chunk of a staged copy occupies the engine now."""
        now = self._clock.now
        if self.free_at > now and any(one.over_bus and one.job.end > now for one in self._accepted):
            return True
        if not self.staging:
            return False
        self._remove_ended_copies(now)
        return any(staged.remaining_busy_ns(now) for staged in self.staging)

    def enqueue(self, job: Job, ready: int) -> None:
        """Accept a transfer that may start at ``ready`` (ns)."""
        self.moved_ns += job.ns - self._base_ns
        self._accept(_Transfer(job, ready, job.ns, over_bus=True), between_chunks=True)

    def relay(self, job: Job, ready: int) -> None:
        """Accept the first half of a copy to the other GPU that the driver stages in host memory."""
        self.moved_ns += job.ns
        self._accept(_Transfer(job, ready, job.ns, over_bus=True), between_chunks=False)

    def clear(self, job: Job) -> None:
        """Accept a job that clears memory of the GPU."""
        self._accept(_Transfer(job, self._clock.now, job.ns, over_bus=False), between_chunks=True)

    def _accept(self, one: _Transfer, between_chunks: bool) -> None:
        """``between_chunks``: the transfer begins where no chunk of a staged copy occupies the engine."""
        now = self._clock.now
        if self.free_at <= now:
            self._accepted, self._plan = [], []
        elif not self._plan:
            self._accepted = [other for other in self._accepted if other.job.end > now]
        alone = not self._plan and all(other.context is one.context for other in self._accepted)
        start = max(one.ready, self.free_at) if alone else one.ready
        if between_chunks and self.staging:
            start = self._skip_staged_copies(start)
        self._accepted.append(one)
        if alone:
            self.free_at = start + one.left_ns
            one.job.set_start(start)
            one.job.set_end(self.free_at)
        else:
            one.ready = start
            self._make_plan()

    def _make_plan(self) -> None:
        """Compute what runs when from now on, with the transfer that was accepted last."""
        now, last = self._clock.now, self._accepted[-1]
        before = self._plan or [_Segment(one, one.job.start, one.job.end) for one in self._accepted[:-1]]
        for part in before:
            part.transfer.left_ns -= max(min(part.end, now) - part.start, 0)
        running = next((part for part in before if part.start <= now < part.end), None)
        current = None if running is None else running.transfer.context
        slice_end = NEVER if running is None else running.slice_end
        self._accepted = [one for one in self._accepted if one.left_ns > 0 or one is last]
        self._plan, left, time = [], {one: one.left_ns for one in self._accepted}, now
        while left:
            ready = [one for one in left if one.ready <= time]
            if not ready:
                time = min(one.ready for one in left)
                continue
            chosen = next((one for one in ready if one.context is current), None)
            if chosen is None or time >= slice_end:
                chosen = next((one for one in ready if one.context is not current), ready[0])
                current, slice_end = chosen.context, NEVER
            end = time + left[chosen]
            rival = min((one.ready for one in left if one.context is not current), default=NEVER)
            if rival < end:
                slice_end = min(slice_end, max(time, rival) + self._timeslice_ns)
                end = min(end, slice_end)
            self._plan.append(_Segment(chosen, time, end, slice_end))
            left[chosen] -= end - time
            if not left[chosen]:
                del left[chosen]
            time = end
        self.free_at = time
        starts = {part.transfer: part.start for part in reversed(self._plan)}
        for part in self._plan:
            job = part.transfer.job
            if job.start > now:
                job.set_start(starts[part.transfer])
            job.set_end(part.end)

    def _skip_staged_copies(self, start: int) -> int:
        """The first time from ``start`` on at which no chunk of a staged copy occupies the engine."""
        self._remove_ended_copies(self._clock.now)
        for staged in self.staging:
            start += staged.remaining_busy_ns(start)
        return start

    def _remove_ended_copies(self, now: int) -> None:
        self.staging = [staged for staged in self.staging if staged.end > now]


class UncontendedEngine:
    """Executes each job at once: event records, and copies on a path that nothing else uses."""

    def enqueue(self, job: Job, ready: int) -> None:
        """Start the job at ``ready`` (ns); it ends ``job.ns`` later."""
        job.set_start(ready)
        job.set_end(ready + job.ns)


# For so long after a call the driver's thread for host functions is awake.
_AWAKE_NS = 200_000


class CallingEngine:
    """Executes jobs by a function: ``begin`` is called with the job and the time from which on it may start (ns)."""

    def __init__(self, begin: Callable[[Job, int], None]) -> None:
        self.enqueue = begin


class HostFunctionThread:
    """The driver's thread that calls the host functions of a context, one after the other.

    On an H200 it does so for independent streams, and a launch on another stream waits for no host function. The
    thread sleeps soon after a call.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[Job, int, Callable[[], Wait]]] = deque()
        self._running = False
        self._returned = -_AWAKE_NS

    def add(self, job: Job, ready: int, call: Callable[[], Wait], wake_ns: int) -> None:
        """Accept a job that may start at ``ready`` (ns) and lasts as long as the waits of ``call``.

        It starts ``wake_ns`` later if the thread sleeps.
        """
        if not self._running and ready - self._returned >= _AWAKE_NS:
            ready += wake_ns
        self._waiting.append((job, ready, call))
        if not self._running:
            self._running = True
            self._clock.process(self._run())

    def _run(self) -> Process:
        clock = self._clock
        while self._waiting:
            job, ready, call = self._waiting.popleft()
            yield from clock.wait(max(ready - clock.now, 0))
            job.set_start(clock.now)
            yield from call()
            job.set_end(clock.now)
            self._returned = clock.now
        self._running = False
