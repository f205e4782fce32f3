"""The graphics engine of the simulated GPU: kernels of all contexts, one context at a time, with time-slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stallprobes.engine.sim.clock import NEVER, Clock
from stallprobes.engine.sim.jobs import ContextQueue, Job
from stallprobes.engine.sim.parameters import EngineParameters
from stallprobes.model import US

# Number of threads in a block of the probes' long kernels (THREADS of the catalogue).
_BLOCK = 256


class GraphicsEngine:
    """Runs kernels of one context at a time.

    Within a context kernels start in order, each when the SMs have room for it. While other contexts have work, a
    context keeps the engine for its time-slice, then all its kernels are pre-empted; an idle context leaves earlier.

    A context switch in the middle of kernels takes ``save_us`` of ``parameters`` plus ``save_ns_per_thread`` for each
    running thread plus ``restore_us``; the change-over from an idle context takes ``yield_us``, whether it was idle for
    long or not. After an idle time of ``wakeup_ms`` or longer a kernel starts ``wakeup_us`` later, after a shorter one
    in proportion. The growth of the delay is a guess; the delay is 0 by default, since no recorded machine shows it: a
    profile or ``--sim-set`` can set it.
    """

    def __init__(self, clock: Clock, parameters: EngineParameters, threads: int, sms: int) -> None:
        """``threads``: the number of threads that the ``sms`` SMs hold."""
        self._clock = clock
        self._parameters = parameters
        self._threads = threads
        self._sms = sms
        self._timeslice_ns = max(round(US * parameters.timeslice_us), 1)
        self._save_ns, self._restore_ns = round(US * parameters.save_us), round(US * parameters.restore_us)
        self._yield_ns, self._wakeup_ns = round(US * parameters.yield_us), round(US * parameters.wakeup_us)
        self._contexts: list[ContextQueue] = []
        self._current: ContextQueue | None = None
        self._running: list[Job] = []
        self._free = threads
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
        sm_ns = self._sm_ns - sum(self._sms_of(job) * ns for job, ns in left)
        return sm_ns, self._thread_ns - sum(job.need * ns for job, ns in left)

    @property
    def available(self) -> int:
        """The time at which the last change-over to another context ends, in ns."""
        return self._available

    @property
    def contexts(self) -> int:
        """Number of contexts on the GPU, without green ones."""
        return len(self._contexts)

    def _sms_of(self, job: Job) -> int:
        """The number of SMs on which the blocks of ``job`` are, of one block each where there is room."""
        return min(-(-job.need // _BLOCK), self._sms)

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
        if job.need > self._threads:
            job.need = self._threads
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
            self._switch(context, self._yield_ns if self._current is not None else 0)
            return
        context.pending.append((job, ready))
        self._schedule_timer()

    def _remove_finished(self) -> None:
        now = self._clock.now
        self._running = [job for job in self._running if job.end > now]
        self._free = self._threads - sum([job.need for job in self._running])

    def _start(self, job: Job, ready: int) -> None:
        available, busy_until = self._available, self._busy_until
        start = available if available > ready else ready
        if self._wakeup_ns and start > busy_until:
            start += round(self._wakeup_ns * min((start - busy_until) / round(1e6 * self._parameters.wakeup_ms), 1))
        if job.start == NEVER:
            job.set_start(start)
        self._running.append(job)
        self._free -= job.need
        # A kernel that reads the GPU's clock ends when its time has passed, on the engine or not.
        end = max(start, job.start + job.ns) if job.own_clock else start + job.remaining_ns
        job.set_end(end)
        self._sm_ns += self._sms_of(job) * (end - start)
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
        """True if a context other than ``queue`` has work that waits."""
        return any(context is not queue and (context.pending or context.preempted) for context in self._contexts)

    def _schedule_timer(self) -> None:
        """Schedule the next time at which the engine has to be updated."""
        now = self._clock.now
        others = self._others_waiting()
        if not self._running and others and not (self._current is not None and self._current.pending):
            self._switch_to_next(self._yield_ns if self._current is not None else 0)
            return
        due = NEVER
        if self._current is not None and self._current.pending and self._running:
            due = min(job.end for job in self._running)
        if others:
            if self._slice_end == NEVER:
                # A slice that ends while no other context has work starts again.
                whole = (now - self._slice_start) // self._timeslice_ns + 1
                self._slice_end = self._slice_start + max(whole, 1) * self._timeslice_ns
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
            self._sm_ns -= self._sms_of(job) * left_ns
            self._thread_ns -= job.need * left_ns
            if max(job.start, self._available) < now:
                job.remaining_ns = job.end - now
            job.end = NEVER
            if self._current is not None:
                self._current.preempted.append(job)
        self._running = []
        self._free = self._threads
        per_thread_ns = self._parameters.save_ns_per_thread
        self._switch_to_next(self._save_ns + round(per_thread_ns * threads) + self._restore_ns)

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
