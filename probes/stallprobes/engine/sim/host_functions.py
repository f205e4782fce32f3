"""The driver's thread that calls the host functions of a context."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from stallprobes.engine.sim.clock import Clock, Process, Wait
from stallprobes.engine.sim.jobs import Job

# Time (ns) for which the driver's thread for host functions stays awake after a host function has returned. A later
# host function must wake the thread.
_AWAKE_NS = 200_000


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
