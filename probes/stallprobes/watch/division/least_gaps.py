"""Least gaps: the time that a GPU takes from one operation of a stream to the next, however early that is submitted.

Where the host submits small kernels one by one, each gap between them begins before the next is submitted, so its time
is the host's. A faster host would not make it shorter than this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stallprobes.watch.division.instants import SequenceTimes
from stallprobes.watch.intervals import NONE, Int64s

# A gap (ns) above this is no least gap, on any GPU: 1.1 to 1.3 us on H200s between kernels, with records.
_MOST_NS = 2_000
# The least gap is this percentile of those that were seen, of so many at least and at most.
_PERCENTILE, _LEAST_SEEN, _MOST_SEEN = 1, 64, 4096
# Gaps (ns) below this are those of graphs and of overlapping kernels: the next operation was submitted before.
_NONE_NS = 200


class LeastGap(NamedTuple):
    """When operations start that follow one of their stream, and what the GPU took at least before each (ns)."""

    starts: Int64s
    times: Int64s


class LeastGaps:
    """The least gap of a sequence, slice after slice."""

    def __init__(self) -> None:
        self._least_ns: int | None = None

    def of(self, times: SequenceTimes, begin_ns: int, until_ns: int) -> LeastGap:
        """The least gaps before operations that start between two times and that the host has submitted late."""
        work = times.work
        if len(work) < 2:
            return LeastGap(NONE, NONE)
        ends = np.maximum.accumulate(work.ends)[:-1]
        starts, gaps = work.starts[1:], work.starts[1:] - ends
        following = (gaps > _NONE_NS) & (starts > begin_ns) & (starts <= until_ns)
        # The operation before it is of the same stream, and the last one that ended.
        following &= (work.streams[1:] == work.streams[:-1]) & (work.ends[:-1] == ends)
        if len(times.recorded.begins) > 1:
            recorded = times.recorded.place_ascending(ends)
            following &= (recorded >= 0) & (recorded == times.recorded.place_ascending(starts))
        seen = gaps[following]
        seen = seen[:: 1 + len(seen) // _MOST_SEEN]
        if len(seen) >= _LEAST_SEEN:
            least = int(np.percentile(seen, _PERCENTILE))
            if least <= _MOST_NS:
                self._least_ns = least if self._least_ns is None else min(self._least_ns, least)
        if self._least_ns is None:
            return LeastGap(NONE, NONE)
        # Else the gap is one between kernels as a whole.
        late = following & (work.returned[1:] > ends - times.limits.launch_ns)
        return LeastGap(starts[late], np.minimum(gaps[late], self._least_ns))
