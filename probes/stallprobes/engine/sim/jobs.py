"""Work on the GPU and the streams that keep it in order.

A job's times are known as soon as nothing can change them any more but a pre-emption. Only when somebody waits for its
end is that end put on the clock: most jobs end unwatched, and cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from stallprobes.engine.sim.clock import NEVER, Clock
from stallprobes.engine.sim.locks import BargingLock, Reaction
from stallprobes.model import StreamKind

if TYPE_CHECKING:
    from stallprobes.engine.sim.device import GpuContext


class JobEngine(Protocol):
    """Something on the GPU, or a thread of the driver, that does jobs."""

    def enter(self, job: Job, ready: int) -> None:
        """Take a job over whose predecessors are done; it may begin at ``ready`` (ns)."""
        ...


class Job:
    """One piece of work.

    ``lead_ns`` passes from its submission to its start when nothing is before it, ``gap_ns`` from the end of what
    was before it. ``need`` is its number of threads on the SMs, ``ns`` its time there; ``by_clock``: it counts that
    time itself, also while it is pre-empted. ``start`` and ``end`` are
    NEVER until known, and ``end`` may still move when it is pre-empted.
    """

    __slots__ = (
        "_callbacks",
        "_clock",
        "_left",
        "_watched",
        "by_clock",
        "context",
        "end",
        "engine",
        "gap_ns",
        "lead_ns",
        "need",
        "ns",
        "on_start",
        "rest_ns",
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
    ) -> None:
        self._clock = clock
        self._callbacks: list[Callable[[], Any]] = []
        self._left = 0
        self._watched = False
        self.engine = engine
        self.ns = ns
        self.rest_ns = ns
        self.lead_ns = lead_ns
        self.gap_ns = gap_ns
        self.need = need
        self.on_start = on_start
        self.what = what
        self.by_clock = False
        self.context: GpuContext | None = None
        self.submitted = NEVER
        self.start = NEVER
        self.end = NEVER

    def begins(self, start: int) -> None:
        """Its start is known; told once, the first time it gets on the engine."""
        self.start = start
        if self.on_start is not None:
            began = self.on_start
            self._clock.at(start, lambda _: began())

    def ends(self, end: int) -> None:
        """Its end is known, as things are."""
        self.end = end
        if self._callbacks:
            self._watch()

    def then(self, what: Callable[[], Any]) -> None:
        """Call ``what`` when the job is done, at once if it is."""
        if self.end <= self._clock.now:
            what()
            return
        self._callbacks.append(what)
        if self.end < NEVER:
            self._watch()

    def after(self, others: list[Job]) -> None:
        """Submit it, behind ``others``, which are not done."""
        self.submitted = self._clock.now
        self._left = len(others)
        if not others:
            self.engine.enter(self, self.submitted + self.lead_ns)
        for other in others:
            other.then(self._one_done)

    def _one_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            now = self._clock.now
            self.engine.enter(self, max(now + self.gap_ns, self.submitted + self.lead_ns))

    def _watch(self) -> None:
        if not self._watched:
            self._watched = True
            self._clock.at(self.end, self._ripe)

    def _ripe(self, _: Any) -> None:
        self._watched = False
        if self.end > self._clock.now:
            # Pre-empted meanwhile. While it is off the engine its end is unknown, and nobody looks.
            if self.end < NEVER:
                self._watch()
            return
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class SimStream:
    """Jobs in order.

    ``tail`` is the last one submitted. ``waits`` are jobs of other streams that the next one has to wait for.
    ``pending`` holds the launches that may still fill its queue.
    """

    __slots__ = ("_clock", "context", "kind", "lock", "name", "pending", "tail", "waits")

    def __init__(self, clock: Clock, context: GpuContext, kind: StreamKind, reaction: Reaction, name: str = "") -> None:
        self._clock = clock
        self.context = context
        self.kind = kind
        self.name = name
        self.lock = BargingLock(clock, reaction)
        self.tail: Job | None = None
        self.waits: list[Job] = []
        self.pending: deque[Job] = deque()

    def submit(self, job: Job, also_after: Job | None = None) -> None:
        """Put ``job`` behind all that the rules of CUDA say it has to wait for, and behind ``also_after``."""
        before = self.unfinished()
        now = self._clock.now
        for other in (*self.waits, also_after):
            if other is not None and other.end > now and other not in before:
                before.append(other)
        self.waits.clear()
        self.tail = job
        job.context = self.context
        job.after(before)

    def unfinished(self) -> list[Job]:
        """The jobs that work put into the stream now would have to wait for, events aside.

        The legacy default stream waits for the blocking streams of its context, and they for it; a non-blocking
        stream knows only itself.
        """
        now = self._clock.now
        tails = [self.tail]
        if self.kind is StreamKind.NULL:
            tails += [stream.tail for stream in self.context.streams if stream.kind is StreamKind.BLOCKING]
        elif self.kind is StreamKind.BLOCKING:
            tails.append(self.context.null.tail)
        return [job for job in tails if job is not None and job.end > now]
