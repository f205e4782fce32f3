"""Turns of an experiment beside a program: the times of each kind, and how the program's time is divided in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stallprobes.watch.division.binned_sums import Times
from stallprobes.watch.division.instants import Flags, Instants
from stallprobes.watch.division.parts import ORDER
from stallprobes.watch.intervals import FOREVER, Int64s, int64s

# Largest number of turns that are shown.
_MOST_SHOWN = 256
# Kind of the turns in which no aggressor runs, and of the times in which one begins or ends.
NO_AGGRESSOR, CHANGING = "", "changing"


class TurnTimes:
    """The turns of an experiment beside a process, in their order. One thread adds them, as their times pass."""

    def __init__(self) -> None:
        # Kind, begin and end (ns) of each turn; the last one may be open.
        self._turns: list[tuple[str, int, int]] = []
        self._sums: dict[tuple[int, int], dict[str, Int64s]] = {}

    def begin(self, kind: str, at_ns: int) -> None:
        """Begin a turn of a kind, such as an aggressor that runs."""
        self.end(at_ns)
        self._turns.append((kind, at_ns, FOREVER))

    def end(self, at_ns: int) -> None:
        """End the open turn, if there is one."""
        if self._turns and self._turns[-1][2] == FOREVER:
            kind, begin_ns, _ = self._turns.pop()
            self._turns.append((kind, begin_ns, max(at_ns, begin_ns)))

    def last(self) -> tuple[tuple[str, int, int], ...]:
        """The last turns as kind, begin and end (ns); the end of an open one is far."""
        return tuple(self._turns[-_MOST_SHOWN:])

    def add(self, key: tuple[int, int], instants: Instants) -> None:
        """Add the time of a sequence (first thread and GPU), as far as it lies in turns."""
        if not self._turns or not len(instants.begins):
            return
        first_ns, last_ns = int(instants.begins[0]), int(instants.ends[-1])
        sums = self._sums.setdefault(key, {})
        for kind, begin_ns, end_ns in self._turns:
            if begin_ns < last_ns and end_ns > first_ns:
                inside = np.maximum(np.minimum(instants.ends, end_ns) - np.maximum(instants.begins, begin_ns), 0)
                added = np.bincount(instants.parts, inside, len(ORDER)).astype(np.int64)
                sums[kind] = int64s(sums[kind] + added) if kind in sums else int64s(added)

    def sums(self, key: tuple[int, int]) -> dict[str, Int64s]:
        """The time (ns) of each part of a sequence in all turns of each kind."""
        return dict(self._sums.get(key, {}))

    def kinds_at(self, times: Int64s) -> Iterator[tuple[str, Flags]]:
        """The kinds of the last turns in which some ``times`` lie, with which ones do."""
        for kind, begin_ns, end_ns in self.last():
            inside = (times >= begin_ns) & (times < end_ns)
            if inside.any():
                yield kind, inside

    def disturb(self, times: Int64s) -> Flags:
        """Which of some times lie in turns with an aggressor, or in which one begins or ends."""
        flags = np.zeros(len(times), dtype=np.bool_)
        for kind, begin_ns, end_ns in self._turns:
            if kind != NO_AGGRESSOR and len(times) and end_ns > times[0]:
                flags |= (times >= begin_ns) & (times < end_ns)
        return flags

    def without(self, times: Times, kind: str, before_ns: int) -> Times:
        """``times`` without all turns but those of ``kind``, and without ``before_ns`` before each."""
        left = list(times)
        for _, begin_ns, end_ns in (turn for turn in self._turns if turn[0] != kind):
            left = [
                part
                for begin, end in left
                for part in ((begin, min(end, begin_ns - before_ns)), (max(begin, end_ns), end))
                if part[0] < part[1]
            ]
        return left
