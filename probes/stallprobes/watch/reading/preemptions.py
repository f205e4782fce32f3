"""Times in which threads of a watched process were ready to run and had no CPU, since the kernel gave it to others."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from stallprobes.machine.perf_events import SwitchEvents

# Largest number of threads of a process whose CPU is followed: those with most calls.
_MOST_THREADS = 8
# Number of pages of memory for the switches of a thread. They have room for 2 700 switches between two readings.
_PAGES = 16
# Largest rate of switches (a second) of a thread that is followed. Reason: each takes it 0.55 us (22 000 round trips
# through a pipe a second, with and without), so that this is 0.3 % of its time; threads that switch more sleep often.
_MOST_PER_S = 5000
# Shortest time (s) from one reading to the next in which a rate is known.
_LEAST_S = 0.05
# Largest number of times of a thread that are kept, the latest ones.
_MOST_TIMES = 1 << 14


class Preemptions:
    """Times without a CPU of the threads of one process with most calls, since they were looked at first."""

    def __init__(self) -> None:
        self._events: dict[int, SwitchEvents | None] = {}
        self._times: dict[int, deque[tuple[int, int]]] = {}
        self._looked_s = time.monotonic()

    def look(self, threads: Iterable[tuple[int, int]]) -> None:
        """Read the switches of threads, each known to its process by the first number and here by the second."""
        for own, here in threads:
            if len(self._events) >= _MOST_THREADS:
                break
            if own not in self._events:
                self._events[own] = None
                with contextlib.suppress(OSError):
                    self._events[own] = SwitchEvents(here, _PAGES)
        now_s = time.monotonic()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        for thread, events in self._events.items():
            if events is None:
                continue
            before = events.switches
            self._times.setdefault(thread, deque(maxlen=_MOST_TIMES)).extend(events.read())
            if events.switches - before > _MOST_PER_S * max(passed_s, _LEAST_S):
                events.close()
                self._events[thread] = None

    def times(self) -> Mapping[int, NDArray[np.int64]]:
        """By thread, int64[n][2], ascending: begin and end (ns on CLOCK_MONOTONIC) of each time without a CPU."""
        return {
            thread: np.array(times, dtype=np.int64).reshape(-1, 2) for thread, times in self._times.items() if times
        }

    def close(self) -> None:
        """End the events; the times stay."""
        for thread, events in self._events.items():
            if events is not None:
                events.close()
                self._events[thread] = None
