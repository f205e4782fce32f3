"""Order of the GPU's work across streams: which operation waited for one of another stream, and replays of that.

Operations of different streams could run at the same time unless one waits for the other. No record says that. It shows
where an operation that was submitted before starts as soon as one of another stream ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stallprobes.watch.division.instants import COPY, NO_END, Flags, Operations
from stallprobes.watch.intervals import Int64s, distinct, int64s, numbered

# Longest time (ns) from an operation's end to the start of another one that counts as waiting for it.
_STARTS_NS = 10_000
# Largest number of operations in a slice of time that waited for those of other streams, up to which the order is
# replayed. Reason: a replay takes a microsecond for each.
_MOST_HELD = 4096
# Smallest number of operations in a slice of time of which a replay says when they end, if there are as many.
_LEAST_KNOWN = 256
# Longest time (ns) of operations together, and of a slice, that is replayed.
_LONGEST_NS = 2**60


class WorkOrder(NamedTuple):
    """Operations in the order of their starts, each with what it waited for: arrays of equal length.

    ``lines``: numbers of the streams; those with kernels that may fill the GPU have one number. ``took``: duration
    (ns), with the GPU's own time from the operation before. ``behind``: place of the operation of another line that it
    waited for, -1 without one. ``avoidable``: both are kernels of few blocks, with room for each other.
    """

    lines: Int64s
    took: Int64s
    behind: Int64s
    avoidable: Flags

    @classmethod
    def of(cls, work: Operations, launch_ns: int) -> WorkOrder | None:
        """The order of ``work``, or of the first operations if many of it waited; None if all of it is in one line.
        An operation that was submitted ``launch_ns`` before could have started."""
        if not len(work) or work.starts[-1] - work.starts[0] > _LONGEST_NS:
            return None
        filling = distinct(work.streams[(work.kinds != COPY) & ~work.few])
        lines = numbered(work.streams)[1] + 1
        lines[np.isin(work.streams, filling)] = 0
        if (lines == lines[0]).all():
            return None
        starts, ends, returned = work.starts, work.ends, work.returned
        done = replace(work, streams=lines).before(NO_END)
        by_end = np.argsort(ends, kind="stable")
        last = by_end[np.maximum(np.searchsorted(ends[by_end], starts, "right") - 1, 0)]
        held = (returned >= 0) & (starts - np.maximum(returned, done) >= launch_ns) & (lines[last] != lines)
        held &= (ends[last] <= starts) & (starts - ends[last] <= _STARTS_NS) & (last < np.arange(len(last)))
        # The times of a damaged file are too long for a sum.
        if (ends - starts).sum(dtype=np.float64) > _LONGEST_NS:
            return None
        direct = (returned >= 0) & (returned <= done - launch_ns) & (done <= starts) & (starts - done <= _STARTS_NS)
        took, behind = ends - np.where(direct, done, starts), np.where(held, last, -1)
        waited = np.flatnonzero(held)
        first = slice(int(waited[_MOST_HELD]) if len(waited) > _MOST_HELD else None)
        return cls(lines[first], took[first], behind[first], np.asarray(held & work.few & work.few[last])[first])

    def replayed(self, released: Int64s, groups: Int64s) -> tuple[Int64s, Int64s]:
        """Places of some operations in the order of their starts, the last of each stream in each group among them, and
        when each ends (ns after the begin of its group), if each starts when it is ``released`` (likewise), and the one
        before it in its line and the one that it waited for have ended.

        ``groups`` are numbers that ascend.
        """
        behind, held = self.behind, self.behind >= 0
        held[held] = groups[behind[held]] == groups[held]
        order = np.argsort(self.lines, kind="stable")
        lines, of_group = self.lines[order], groups[order]
        chosen = held.copy()
        chosen[behind[held]] = True
        chosen = chosen[order]
        chosen[:-1] |= (lines[1:] != lines[:-1]) | (of_group[1:] != of_group[:-1])
        chosen[-1] = True
        chosen[:: 1 + len(chosen) // _LEAST_KNOWN] = True
        # Between two chosen operations of a line, each starts when the one before has ended, or later when it is
        # released: the end of the second is the largest of these moments, plus what is behind it.
        nodes = np.flatnonzero(chosen)
        done = np.cumsum(self.took[order])
        slack = np.maximum.reduceat(released[order] - done + self.took[order], np.append(0, nodes[:-1] + 1))
        places = order[nodes]
        by_start = np.argsort(places)
        places = places[by_start]
        found = np.full(len(held), -1, dtype=np.int64)
        found[places] = np.arange(len(places))
        columns = (
            groups[places], self.lines[places], slack[by_start], done[nodes][by_start], self.took[places],
            np.where(held[places], found[behind[places]], -1),
        )  # fmt: skip
        ends, latest, current = list[int](), dict[int, int](), -1
        for group, line, least, until, took, waits in zip(*(each.tolist() for each in columns), strict=True):
            if group != current:
                current, latest = group, {}
            begin = max(least, latest.get(line, least))
            if waits >= 0:
                begin = max(begin, ends[waits] - until + took)
            latest[line] = begin
            ends.append(begin + until)
        return places, int64s(ends)
