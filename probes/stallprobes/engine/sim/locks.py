"""The driver's locks, of two kinds, which decides whether a waiting thread can starve.

A context's lock for submissions goes to one of the waiters. The locks of streams, of a context's memory and
content, and of its staging buffers are barging: a running thread that asks again at once gets the lock before a waiter
that has to wake up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from stallprobes.engine.sim.clock import Clock, Process, Wait
from stallprobes.engine.sim.sampling import QUANTILES, LatencyDistribution, RandomStream


class Waiter(Protocol):
    """A thread that can wait for a lock; ``random`` is its stream of random numbers."""

    random: RandomStream


@dataclass(frozen=True)
class WakeupLatency:
    """Time in which a waiting thread notices a free lock: ``spinning`` before ``spin_ns``, then ``asleep``.

    ``backoff_ns`` is its first pause between two looks at the lock.
    """

    spin_ns: int
    backoff_ns: int
    spinning: LatencyDistribution
    asleep: LatencyDistribution

    def draw(self, waited_ns: int, random: RandomStream) -> int:
        """A random time in ns until a thread that has waited ``waited_ns`` reacts."""
        return (self.spinning if waited_ns < self.spin_ns else self.asleep).draw(random)

    def pause_ns(self, waited_ns: int) -> int:
        """The pause between two looks at the lock of a thread that has waited ``waited_ns``: it grows with the wait."""
        return max(min(waited_ns, self.spin_ns), self.backoff_ns, 1)


class HandoverLock:
    """A lock that passes to the first waiter to look at it, and stays held while this waiter wakes up.

    The longer a thread has waited, the longer it pauses between two looks, up to the time after which it sleeps. A
    newcomer is therefore likely to be faster, and a few threads wait very long. The model fits H200s: launches of 16
    threads (p25 6.8 to 8.2, p50 9.4 to 11.7, p75 17 to 21, p90 32 to 39, p99 126 to 173 us, the longest 420 to 710),
    and graphs that 16 threads launch (p50 26 to 54, p90 63 to 111 us). CUDA's documentation does not cover it. A waiter
    spins anew after each hand-over to another waiter, so that a queue of many threads with the lock for microseconds
    each does not fall asleep.
    """

    def __init__(self, clock: Clock, wakeup: WakeupLatency) -> None:
        self.owner: Waiter | None = None
        self._handed_over = 0
        self._clock = clock
        self._wakeup = wakeup
        # Each waiting thread with the time since which it waits (ns), and the event that wakes it.
        self.waiting: list[tuple[Waiter, int, Any]] = []

    def acquire(self, waiter: Waiter) -> Wait:
        """Wait for the lock and take it."""
        if self.owner is None:
            self.owner = waiter
            return ()
        return self._wait(waiter)

    def _wait(self, waiter: Waiter) -> Process:
        since = self._clock.now
        granted = self._clock.event()
        self.waiting.append((waiter, since, granted))
        handed_over = yield granted
        waited_ns = self._clock.now - max(since, handed_over)
        yield from self._clock.wait(self._wakeup.draw(waited_ns, waiter.random))

    def release(self) -> None:
        """Release the lock to a waiter, if there is one."""
        before, self.owner = self.owner, None
        if self.waiting:
            chosen = 0 if before is None or len(self.waiting) == 1 else self._first_to_look(before.random)
            self.owner, _, granted = self.waiting.pop(chosen)
            granted.succeed(self._handed_over)
            self._handed_over = self._clock.now

    def _first_to_look(self, random: RandomStream) -> int:
        """The place in the queue of the waiter that looks first, by chance: each in inverse proportion to its pause."""
        now, pause_ns = self._clock.now, self._wakeup.pause_ns
        reached = list(accumulate(1 / pause_ns(now - since) for _, since, _ in self.waiting))
        return bisect_right(reached, reached[-1] * random.next_number() / QUANTILES)


class BargingLock:
    """A lock that is free when released: a waiter that wakes up may find it taken again, and waits on.

    The more waiters spin, the later each of them reacts. The model fits three victims beside cuMemAlloc on an H200:
    each waits for several calls of cuMemAlloc, a single victim for one.
    """

    def __init__(self, clock: Clock, wakeup: WakeupLatency) -> None:
        self.owner: Waiter | None = None
        self._clock = clock
        self._wakeup = wakeup
        # The events of the threads that a release wakes, which may be some while the lock is free.
        self.waiting: deque[Any] = deque()
        # The events of the threads that wait for a release and do not want the lock.
        self._passing: list[Any] = []

    def acquire(self, waiter: Waiter) -> Wait:
        """Wait for the lock and take it; there is no limit if other threads are always faster."""
        if self.owner is None:
            self.owner = waiter
            return ()
        return self._wait(waiter)

    def _wait(self, waiter: Waiter) -> Process:
        since = self._clock.now
        woken = self._clock.event()
        self.waiting.append(woken)
        while True:
            yield woken
            slept = self._clock.now - since >= self._wakeup.spin_ns
            react_ns = self._wakeup.draw(self._clock.now - since, waiter.random)
            yield from self._clock.wait(react_ns if slept else react_ns * (1 + len(self.waiting)))
            if self.owner is None:
                self.owner = waiter
                return
            if slept:
                # After a wake-up it spins again before it sleeps.
                since = self._clock.now
            woken = self._clock.event()
            self.waiting.appendleft(woken)

    def pass_through(self, waiter: Waiter) -> Process:
        """Wait until the lock can be taken, without keeping it."""
        if self.owner is not None:
            yield from self.acquire(waiter)
            self.release()

    def wait_until_free(self, waiter: Waiter, polls_ns: int) -> Process:
        """Wait until the lock is free, without keeping it.

        For ``polls_ns`` the waiter polls and misses no release; afterwards it waits as if to take the lock.
        """
        since = self._clock.now
        released = self._clock.event()
        self._passing.append(released)
        yield released
        polls = self._clock.now - since <= polls_ns
        yield from self._clock.wait((self._wakeup.spinning if polls else self._wakeup.asleep).draw(waiter.random))
        if not polls:
            yield from self.acquire(waiter)
            self.release()

    def release(self) -> None:
        """Release the lock and wake the longest waiter, which gets it only if no other thread is faster."""
        self.owner = None
        if self._passing:
            passing, self._passing = self._passing, []
            for released in passing:
                released.succeed()
        if self.waiting:
            self.waiting.popleft().succeed()


Lock = HandoverLock | BargingLock
