"""The graphics engine of the simulated GPU: kernels of all contexts, one context at a time, with time-slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stallprobes.engine.sim.clock import NEVER, Clock
from stallprobes.engine.sim.jobs import ContextQueue, Job


@dataclass(frozen=True)
class GraphicsTiming:
    """Times of the graphics engine in ns, and ``threads``, the number of threads that its SMs hold.

    A context switch in the middle of kernels takes ``save_ns`` plus ``save_ns_per_thread`` for each running thread plus
    ``restore_ns``; the change-over from an idle context takes ``yield_ns``, whether it was idle for long or not. After
    an idle time of ``wakeup_after_ns`` or longer a kernel starts ``wakeup_ns`` later, after a shorter one in
    proportion. The growth of the delay is a guess; the delay is 0 by default, since no recorded machine shows it: a
    profile or ``--sim-set`` can set it.
    """

    timeslice_ns: int
    save_ns: int
    save_ns_per_thread: float
    restore_ns: int
    yield_ns: int
    threads: int
    sms: int
    wakeup_ns: int = 0
    wakeup_after_ns: int = 1_000_000_000


# Number of threads in a block of the probes' kernels.
_BLOCK = 256


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
        # Time (ns) of all SMs with a kernel, and of all threads of kernels, until the ends of the running kernels.
        self._sm_ns = 0
        self._thread_ns = 0
        # Called with the context that leaves the engine and its time, and the next context and its time.
        self.on_switch: Callable[[ContextQueue | None, int, ContextQueue, int], None] | None = None

    @property
    def busy_ns(self) -> int:
        """Time in which a kernel was running, up to now, in ns."""
        return self._busy_ns - max(self._busy_until - int(self._clock.now), 0)

    @property
    def occupied_ns(self) -> tuple[int, int]:
        """Time (ns) of SMs with a kernel, summed over the SMs, and of the threads of kernels, up to now."""
        now = int(self._clock.now)
        left = [(job, max(job.end - max(now, job.start), 0)) for job in self._running if job.end < NEVER]
        sm_ns = self._sm_ns - sum(self._sms(job) * ns for job, ns in left)
        return sm_ns, self._thread_ns - sum(job.need * ns for job, ns in left)

    @property
    def available(self) -> int:
        """The time at which the last change-over to another context ends, in ns."""
        return self._available

    @property
    def contexts(self) -> int:
        """Number of contexts on the GPU, without green ones."""
        return len(self._contexts)

    def _sms(self, job: Job) -> int:
        """The number of SMs on which the blocks of ``job`` are, of one block each where there is room."""
        return min(-(-job.need // _BLOCK), self._timing.sms)

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
        self._sm_ns += self._sms(job) * (end - start)
        self._thread_ns += job.need * (end - start)
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

    def _waiting_beside(self, queue: ContextQueue | None) -> bool:
        """Whether a context other than ``queue`` has work that waits."""
        return any(context is not queue and (context.pending or context.preempted) for context in self._contexts)

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
            left_ns = max(job.end - max(now, job.start), 0)
            self._sm_ns -= self._sms(job) * left_ns
            self._thread_ns -= job.need * left_ns
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
