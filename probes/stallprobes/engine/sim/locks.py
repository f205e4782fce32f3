"""The driver's locks. Which kind a lock is decides who starves.

A context's lock goes to the thread that waits longest. The lock of a stream, and that of the device's memory
management, are free for whoever comes first: a thread that returns for it at once is faster than one that must wake.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from stallprobes.engine.sim.clock import Clock, Wait
from stallprobes.engine.sim.sampling import LatencyDistribution, RandomStream


class Waiter(Protocol):
    """A host thread as a lock sees it."""

    random: RandomStream


@dataclass(frozen=True)
class WakeupLatency:
    """How soon a waiting thread sees that a lock is free: while it still spins (up to ``spin_ns``), or asleep."""

    spin_ns: int
    spinning: LatencyDistribution
    asleep: LatencyDistribution

    def draw(self, waited_ns: int, random: RandomStream) -> int:
        """The time in ns until a thread that has waited so long reacts."""
        return (self.spinning if waited_ns < self.spin_ns else self.asleep).draw(random)


class FairLock:
    """Handed to the longest waiter, and reserved for it while it wakes."""

    def __init__(self, clock: Clock, wakeup: WakeupLatency) -> None:
        self.owner: Waiter | None = None
        self._clock = clock
        self._wakeup = wakeup
        self._queue: deque[tuple[Waiter, Any]] = deque()

    def acquire(self, waiter: Waiter) -> Wait:
        """Wait for the lock and take it."""
        if self.owner is None:
            self.owner = waiter
            return
        since = self._clock.now
        iteration = self._clock.event()
        self._queue.append((waiter, iteration))
        yield iteration
        yield from self._clock.wait(self._wakeup.draw(self._clock.now - since, waiter.random))

    def release(self) -> None:
        """Give it up, to the longest waiter if there is one."""
        self.owner = None
        if self._queue:
            self.owner, iteration = self._queue.popleft()
            iteration.succeed()


class BargingLock:
    """Free for whoever comes first: the thread that is woken may find it taken again, and waits on."""

    def __init__(self, clock: Clock, wakeup: WakeupLatency) -> None:
        self.owner: Waiter | None = None
        self._clock = clock
        self._wakeup = wakeup
        self._queue: deque[Any] = deque()

    def acquire(self, waiter: Waiter) -> Wait:
        """Wait for the lock and take it; for ever if others are always faster."""
        if self.owner is None:
            self.owner = waiter
            return
        since = self._clock.now
        woken = self._clock.event()
        self._queue.append(woken)
        while True:
            yield woken
            slept = self._clock.now - since >= self._wakeup.spin_ns
            yield from self._clock.wait(self._wakeup.draw(self._clock.now - since, waiter.random))
            if self.owner is None:
                self.owner = waiter
                return
            if slept:
                # Awake now, it spins once more before it sleeps.
                since = self._clock.now
            woken = self._clock.event()
            self._queue.appendleft(woken)

    def release(self) -> None:
        """Give it up and wake the longest waiter, which still has to be in time."""
        self.owner = None
        if self._queue:
            self._queue.popleft().succeed()


Lock = FairLock | BargingLock
