"""Sequences: threads that call the driver one after the other, so that their calls hardly overlap."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from stallprobes.watch.division.instants import CoveredTime, Spans

# Largest overlap of two threads' calls in one sequence, as a share of the less busy thread's time in calls. The threads
# of a sequence call by turns. Threads of one sequence are separated only if the overlap exceeds twice this share.
MOST_OVERLAP = 0.05
# CPU times of threads if none is known.
NO_TIMES: Mapping[int, float] = MappingProxyType({})
# Largest number of threads whose calls are compared to find sequences (threads that call by turns): the last threads
# that made calls.
MOST_THREADS = 64
# Number of slices of time at the beginning that are all searched for threads that call by turns.
_FIRST_SLICES = 8
# Distance, in slices of time, between two searches for threads that call by turns, after the first slices
# (_FIRST_SLICES). Slices with a new thread are searched as well. Reason: each search takes time.
_EVERY = 8


class SequenceBook:
    """Who is in a sequence with whom, by the calls of all slices of time so far.

    PyTorch's forward and autograd threads are in one; threads of a server are not.
    """

    def __init__(self) -> None:
        self._slices = 0
        self._busy: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._overlap: dict[tuple[int, int], int] = {}
        self._leaders: dict[int, int] = {}

    def note(self, threads: Mapping[int, Spans], cpu_ns: Mapping[int, float] = NO_TIMES, length_ns: int = 0) -> None:
        """Note the calls of a slice by thread. ``cpu_ns`` has the known CPU times (ns) of threads in the slice,
        ``length_ns`` is the length of the slice."""
        self._slices += 1
        # A thread that is new is compared at once.
        if self._slices > _FIRST_SLICES and self._slices % _EVERY and all(thread in self._busy for thread in threads):
            return
        known = [thread for thread in threads if thread in self._busy]
        self._seen.update(dict.fromkeys(known, self._slices))
        for thread in self._busiest(threads, max(MOST_THREADS - len(known), 1)):
            self._forget(MOST_THREADS - 1)
            self._busy[thread], self._seen[thread] = 0, self._slices
        compared = {thread: spans for thread, spans in threads.items() if thread in self._busy and len(spans.begins)}
        inside: dict[int, CoveredTime] = {}
        busy: dict[int, float] = {}
        for thread, spans in compared.items():
            own = CoveredTime(spans)
            busy[thread] = max(float(own.whole_ns), cpu_ns.get(thread, 0.0))
            for other, of_other in inside.items():
                key = min(thread, other), max(thread, other)
                overlap = of_other.before_ascending(spans.ends) - of_other.before_ascending(spans.begins)
                # Two threads overlap by at least the excess of their busy times over the length of the slice.
                least = busy[thread] + busy[other] - (1 + MOST_OVERLAP) * length_ns if length_ns else 0.0
                self._overlap[key] = self._overlap.get(key, 0) + max(int(overlap.sum()), int(least))
            inside[thread] = own
            self._busy[thread] += inside[thread].whole_ns
        self._group()

    def leader(self, thread: int) -> int:
        """The first thread of the sequence that a thread belongs to, which may have ended."""
        return self._leaders.get(thread, thread)

    def knows(self, thread: int) -> bool:
        """True if calls of a thread were noted, and the thread not forgotten since."""
        return thread in self._busy

    def _busiest(self, threads: Mapping[int, Spans], most: int) -> list[int]:
        """The new ones of ``threads``, at most so many: those with most time in calls."""
        new = [thread for thread in threads if thread not in self._busy]
        if len(new) <= most:
            return new
        times = {thread: int((threads[thread].ends - threads[thread].begins).sum()) for thread in new}
        chosen = set(sorted(new, key=lambda thread: -times[thread])[:most])
        return [thread for thread in new if thread in chosen]

    def _group(self) -> None:
        """Add each thread to the first sequence whose calls its own hardly overlap."""
        groups: dict[int, list[int]] = {}
        for thread in self._busy:
            for leader, members in groups.items():
                if all(self._alternate(thread, member) for member in members):
                    members.append(thread)
                    self._leaders[thread] = leader
                    break
            else:
                # A sequence keeps its name when its first thread is forgotten.
                leader = self._leaders.get(thread, thread)
                leader = thread if leader in groups or leader in self._busy else leader
                groups.setdefault(leader, []).append(thread)
                self._leaders[thread] = leader

    def _forget(self, most: int) -> None:
        """Forget the threads that have made no call for longest, of these the least busy, until there are at most so
        many.

        Where threads come and go by the hundred, those that stay are known.
        """
        while len(self._busy) > most:
            oldest = min(self._busy, key=lambda thread: (self._seen[thread], self._busy[thread]))
            del self._busy[oldest], self._seen[oldest]
            self._leaders.pop(oldest, None)
            self._overlap = {pair: ns for pair, ns in self._overlap.items() if oldest not in pair}

    def _alternate(self, thread: int, other: int) -> bool:
        overlap = self._overlap.get((min(thread, other), max(thread, other)), 0)
        least = min(self._busy[thread], self._busy[other])
        same = self._leaders.get(thread, thread) == self._leaders.get(other, other)
        return overlap <= MOST_OVERLAP * (2 if same else 1) * least
