"""Gaps of the graphics engine: times in which work waited for the engine and no context of this program had it."""

from __future__ import annotations

import numpy as np

from stallprobes.records.rows import Rows
from stallprobes.traces.delay import LONGEST_CHANGE_NS, on_graphics_engine
from stallprobes.traces.trace import OPEN, Int64s, Trace


class _Union:
    """The union of spans that are added in any order: ``begins`` and ``ends``, apart and in order."""

    def __init__(self) -> None:
        self.begins: Int64s = np.zeros(0, dtype=np.int64)
        self.ends: Int64s = np.zeros(0, dtype=np.int64)

    def add(self, begins: Int64s, ends: Int64s) -> None:
        """Add spans; those without a length are left out."""
        whole = ends > begins
        if not whole.any():
            return
        begins, ends = begins[whole], ends[whole]
        # What ended before all of them stays as it is.
        place = int(np.searchsorted(self.ends, begins.min()))
        begins, ends = np.concatenate((self.begins[place:], begins)), np.concatenate((self.ends[place:], ends))
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order], np.maximum.accumulate(ends[order])
        first = np.flatnonzero(np.concatenate(([True], begins[1:] > ends[:-1])))
        last = np.concatenate((first[1:], [len(begins)])) - 1
        self.begins = np.concatenate((self.begins[:place], begins[first]))
        self.ends = np.concatenate((self.ends[:place], ends[last]))

    def drop(self, before_ns: int) -> None:
        """Drop what ended before a time."""
        place = int(np.searchsorted(self.ends, before_ns))
        self.begins, self.ends = self.begins[place:], self.ends[place:]


class EngineGaps:
    """The gaps of the graphics engine in a trace that is fed in any order and any parts."""

    def __init__(self) -> None:
        self._waits = _Union()
        self._held = _Union()

    def feed(self, work: Rows, tenures: Rows) -> None:
        """Add rows of a trace's work and of its ended tenures."""
        returned, start = work["returned_ns"], work["start_ns"]
        waited = (returned > 0) & (start > returned) & on_graphics_engine(work)
        self._waits.add(returned[waited], start[waited])
        self._held.add(tenures["start_ns"], tenures["end_ns"])

    def drop(self, before_ns: int) -> None:
        """Drop what ended before a time, of which nothing is asked later."""
        self._waits.drop(before_ns)
        self._held.drop(before_ns)

    def gaps(self, begin_ns: int, end_ns: int, since_ns: int = OPEN) -> Int64s:
        """The gaps between two times as int64[n][2]; from ``since_ns`` on a context has the engine.

        A gap is longer than a change between two contexts takes.
        """
        begins, ends = _long(np.maximum(self._waits.begins, begin_ns), np.minimum(self._waits.ends, end_ns))
        free = _long(
            np.concatenate(([begin_ns], self._held.ends)), np.minimum(np.append(self._held.begins, end_ns), since_ns)
        )
        # Each wait overlaps a run of the times in which the engine was free.
        first, last = np.searchsorted(free[1], begins, "right"), np.searchsorted(free[0], ends)
        count = np.maximum(last - first, 0)
        waits = np.repeat(np.arange(len(begins)), count)
        places = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        gaps = _long(np.maximum(begins[waits], free[0][places]), np.minimum(ends[waits], free[1][places]))
        return np.column_stack(gaps)


def foreign_gaps(trace: Trace) -> Int64s:
    """The times in which work waited for the graphics engine and none of the recorded contexts had it, int64[n][2]."""
    gaps = EngineGaps()
    if trace.context_switches:
        gaps.feed(trace.work, trace.tenures)
    return gaps.gaps(trace.engine_known_ns, trace.end_ns)


def _long(begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """The spans that are longer than a change between two contexts."""
    long = ends - begins > LONGEST_CHANGE_NS
    return begins[long], ends[long]
