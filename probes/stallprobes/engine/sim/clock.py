"""Virtual time: SimPy's environment in whole ns, with a short cut while no other event is due."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from types import MethodType
from typing import Any

import simpy
from simpy.events import NORMAL, URGENT

# What a process waits for, one after the other; empty if the time has already been moved.
Wait = Iterable[Any]
# A thread of the simulation.
Process = Generator[Any, Any, None]
# A function of the simulation that waits in several places, with its result.
Call = Generator[Any, Any, int]

# Virtual time (ns) at the start of the simulation. Reason for a time above 0: in the memory that engine and session
# share, 0 stands for no virtual time.
EPOCH_NS = 1_000_000_000
# Virtual time (ns) of an event that does not come.
NEVER = 1 << 62


@dataclass(slots=True, eq=False)
class Sleep:
    """An entry of the queue: ``process`` continues. Not an event, since nothing else can wait for it."""

    process: ClockProcess
    _value: None = None


class ClockProcess(simpy.Process):  # type: ignore[misc]
    """A process of the clock; its generator yields the events to wait for, or a time in ns.

    Nothing interrupts the process and none of its events fails, so that it needs no general way to resume, as SimPy
    has.
    """

    def __init__(self, clock: Clock, generator: Process) -> None:
        """Run ``generator`` from now on."""
        self._send = generator.send
        # The process waits for one event at a time, so that one entry serves for all delays.
        self._sleep = Sleep(self)
        super().__init__(clock, generator)

    def _resume(self, event: Any) -> None:
        clock = self.env
        clock._active_proc = self
        while True:
            try:
                event = self._send(event._value)
            except StopIteration as end:
                self._end(end.value)
                break
            if type(event) is int:
                heappush(clock.queue, (clock.now + event, NORMAL, next(clock._eid), self._sleep))
                break
            if event.callbacks is not None:
                event.callbacks.append(self._resume)
                break
        clock._active_proc = None

    def _end(self, value: Any) -> None:
        self._ok, self._value = True, value
        self.env.schedule(self)


class Clock(simpy.Environment):  # type: ignore[misc]
    """Virtual time in ns.

    A process that waits for the next event of the clock need not be suspended: it moves ``now`` there at once, which is
    faster and gives the same results. Only the running process may do so.

    ``now`` is an attribute and the loop over the events is in one function, because a simulated call takes no more
    than a few of SimPy's properties and functions. The order of the events is SimPy's.
    """

    now = EPOCH_NS
    _active_proc: Any

    def __init__(self) -> None:
        super().__init__(EPOCH_NS)
        # SimPy does this for its own class only.
        self.event = MethodType(simpy.Event, self)
        self.process = MethodType(ClockProcess, self)
        # The events that are due, for whoever compares their times more often than a function call is worth.
        self.queue: list[tuple[int, int, int, Any]] = self._queue

    def schedule(self, event: simpy.Event, priority: int = NORMAL, delay: int = 0) -> None:
        """Add ``event`` to the queue."""
        heappush(self._queue, (self.now + delay, priority, next(self._eid), event))

    def peek(self) -> int:
        """The time of the next event, NEVER without one."""
        queue = self._queue
        return queue[0][0] if queue else NEVER

    def run(self, until: int | simpy.Event) -> None:
        """Process events until the time ``until`` or until the event ``until`` has been processed."""
        if isinstance(until, int):
            stop = simpy.Event(self)
            stop._ok = True
            self.schedule(stop, URGENT, until - self.now)
        else:
            stop = until
        event = None
        while event is not stop:
            self.now, _, _, event = heappop(self._queue)
            if type(event) is Sleep:
                event.process._resume(event)
                continue
            callbacks, event.callbacks = event.callbacks, None
            for callback in callbacks:
                callback(event)
            if not event._ok:
                raise event._value

    def wait(self, ns: int) -> Wait:
        """Wait ``ns``."""
        until = self.now + ns
        queue = self._queue
        if not queue or queue[0][0] > until:
            self.now = until
            return ()
        return (ns,) if ns > 0 else ()

    def call_at(self, time: int, what: Callable[[Any], None]) -> None:
        """Call ``what`` with the event that fired, at ``time``."""
        simpy.Timeout(self, time - self.now).callbacks.append(what)
