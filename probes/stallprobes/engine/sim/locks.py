"""The driver's locks, of two kinds, which decides whether a waiting thread can starve.

A context's lock for submissions goes to one of the waiters. The locks of streams, of a context's memory and
content, and of its staging buffers are barging: a running thread that asks again at once gets the lock before a waiter
that has to wake up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from stallprobes.engine.sim.clock import Clock, Process, Wait
from stallprobes.engine.sim.sampling import QUANTILES, LatencyDistribution, RandomStream

# Random numbers below it give the lock to the newest waiter.
_TO_NEWEST = QUANTILES * 35 // 100
# Fewer waiters have no order among them.
_FEW = 3


class Waiter(Protocol):
    """A thread that can wait for a lock; ``random`` is its stream of random numbers."""

    random: RandomStream


@dataclass(frozen=True)
class WakeupLatency:
    """How long a waiting thread takes to notice a free lock: ``spinning`` before ``spin_ns``, then ``asleep``."""

    spin_ns: int
    spinning: LatencyDistribution
    asleep: LatencyDistribution

    def draw(self, waited_ns: int, random: RandomStream) -> int:
        """A random time in ns until a thread that has waited ``waited_ns`` reacts."""
        return (self.spinning if waited_ns < self.spin_ns else self.asleep).draw(random)


class HandoverLock:
    """Handed over to one of the waiters, and held for it while it wakes up.

    Of three or more it is the newest about every third time, since that one runs most likely, else any of them. That
    fits what H200s show: launches of 16 threads (p50 9.2 to 11.8, p90 30 to 40, p99 105 to 153 us), graphs that 16
    threads launch (p50 26 to 54, p90 63 to 111 us), and launches beside these (p90 7.2, p99 26 to 27 us). A waiter
    spins anew after each hand-over to another one, so that a queue of many threads that hold the lock for microseconds
    does not fall asleep.
    """

    def __init__(self, clock: Clock, wakeup: WakeupLatency) -> None:
        self.owner: Waiter | None = None
        self._handed_over = 0
        self._clock = clock
        self._wakeup = wakeup
        self._queue: list[tuple[Waiter, Any]] = []

    def acquire(self, waiter: Waiter) -> Wait:
        """Wait for the lock and take it."""
        if self.owner is None:
            self.owner = waiter
            return ()
        return self._wait(waiter)

    def _wait(self, waiter: Waiter) -> Process:
        since = self._clock.now
        granted = self._clock.event()
        self._queue.append((waiter, granted))
        handed_over = yield granted
        waited_ns = self._clock.now - max(since, handed_over)
        yield from self._clock.wait(self._wakeup.draw(waited_ns, waiter.random))

    def release(self) -> None:
        """Release the lock to a waiter, if there is one."""
        before, self.owner = self.owner, None
        if self._queue:
            waiting = len(self._queue)
            chosen = 0
            if before is not None and waiting > 1:
                number = before.random.next_number()
                chosen = number % waiting if number >= _TO_NEWEST or waiting < _FEW else waiting - 1
            self.owner, granted = self._queue.pop(chosen)
            granted.succeed(self._handed_over)
            self._handed_over = self._clock.now


class BargingLock:
    """Free when released: a waiter that wakes up may find it taken again and waits on.

    Waiters that spin slow each other down, so each reacts later the more there are. That fits three victims beside
    cuMemAlloc on an H200, of which each waits for several of its calls where one alone waits for one.
    """

    def __init__(self, clock: Clock, wakeup: WakeupLatency) -> None:
        self.owner: Waiter | None = None
        self._clock = clock
        self._wakeup = wakeup
        self._queue: deque[Any] = deque()

    def acquire(self, waiter: Waiter) -> Wait:
        """Wait for the lock and take it; there is no limit if other threads are always faster."""
        if self.owner is None:
            self.owner = waiter
            return ()
        return self._wait(waiter)

    def _wait(self, waiter: Waiter) -> Process:
        since = self._clock.now
        woken = self._clock.event()
        self._queue.append(woken)
        while True:
            yield woken
            slept = self._clock.now - since >= self._wakeup.spin_ns
            react_ns = self._wakeup.draw(self._clock.now - since, waiter.random)
            yield from self._clock.wait(react_ns if slept else react_ns * (1 + len(self._queue)))
            if self.owner is None:
                self.owner = waiter
                return
            if slept:
                # After a wake-up it spins again before it sleeps.
                since = self._clock.now
            woken = self._clock.event()
            self._queue.appendleft(woken)

    def release(self) -> None:
        """Release the lock and wake the longest waiter, which gets it only if no other thread is faster."""
        self.owner = None
        if self._queue:
            self._queue.popleft().succeed()


Lock = HandoverLock | BargingLock
