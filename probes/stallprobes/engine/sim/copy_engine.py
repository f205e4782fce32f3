"""A copy engine of the simulated GPU: the transfers of one direction, with time-slices between contexts."""

from __future__ import annotations

from dataclasses import dataclass

from stallprobes.engine.sim.clock import NEVER, Clock
from stallprobes.engine.sim.jobs import ContextQueue, Job, StagedCopy


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
    """Executes the transfers of one direction, one at a time; transfers of one context run in the order of readiness.

    While a transfer of another context waits, a context keeps the engine for one time-slice from then on; afterwards
    its transfer is interrupted. On H200s a copy of 4 KiB to the host beside copies of 64 MiB of another context, 1187
    us long, waits 1008 to 1065 us and 106 to 162 us in turn: for a time-slice, then for the rest of the copy. Beside
    copies of its own context it waits for the whole copy (check-h200x2-1.json.gz and the six beside it). ``moved_ns``
    is the duration of all transfers so far without the base of each, with the chunks of staged copies.
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
        """True if a transfer over the bus or a chunk of a staged copy occupies the engine now."""
        now = self._clock.now
        if self.free_at > now and any(transfer.over_bus and transfer.job.end > now for transfer in self._accepted):
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

    def _accept(self, transfer: _Transfer, between_chunks: bool) -> None:
        """``between_chunks``: the transfer begins where no chunk of a staged copy occupies the engine."""
        now = self._clock.now
        if self.free_at <= now:
            self._accepted, self._plan = [], []
        elif not self._plan:
            self._accepted = [other for other in self._accepted if other.job.end > now]
        alone = not self._plan and all(other.context is transfer.context for other in self._accepted)
        start = max(transfer.ready, self.free_at) if alone else transfer.ready
        if between_chunks and self.staging:
            start = self._skip_staged_copies(start)
        self._accepted.append(transfer)
        if alone:
            self.free_at = start + transfer.left_ns
            transfer.job.set_start(start)
            transfer.job.set_end(self.free_at)
        else:
            transfer.ready = start
            self._make_plan()

    def _make_plan(self) -> None:
        """Compute the schedule from now on, with the transfer that was accepted last."""
        now, last = self._clock.now, self._accepted[-1]
        before = self._plan or [
            _Segment(transfer, transfer.job.start, transfer.job.end) for transfer in self._accepted[:-1]
        ]
        for part in before:
            part.transfer.left_ns -= max(min(part.end, now) - part.start, 0)
        running = next((part for part in before if part.start <= now < part.end), None)
        current = None if running is None else running.transfer.context
        slice_end = NEVER if running is None else running.slice_end
        self._accepted = [transfer for transfer in self._accepted if transfer.left_ns > 0 or transfer is last]
        self._plan, left, time = [], {transfer: transfer.left_ns for transfer in self._accepted}, now
        while left:
            ready = [transfer for transfer in left if transfer.ready <= time]
            if not ready:
                time = min(transfer.ready for transfer in left)
                continue
            chosen = next((transfer for transfer in ready if transfer.context is current), None)
            if chosen is None or time >= slice_end:
                chosen = next((transfer for transfer in ready if transfer.context is not current), ready[0])
                current, slice_end = chosen.context, NEVER
            end = time + left[chosen]
            rival = min((transfer.ready for transfer in left if transfer.context is not current), default=NEVER)
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
