"""Least gaps: the time that a GPU takes from one operation of a stream to the next, however early that is submitted.

Where the host submits small kernels one by one, each gap between them begins before the next is submitted, so its time
is the host's. A faster host would not make it shorter than this.
"""

from __future__ import annotations

import numpy as np

from stallprobes.watch.division.instants import SequenceTimes
from stallprobes.watch.intervals import NONE, Int64s

# Largest accepted value (ns) of the least gap, which is the shortest time that the GPU itself needs between two
# kernels. A larger value is ignored, since the gap then has another cause. On H200s with records, the GPU needed 1.1 to
# 1.3 us between two kernels.
_MOST_ACCEPTED_NS = 2_000
# Share of the gaps in a slice of time that are shorter than the least gap of the slice.
_SHORTER = 0.01
# Smallest number of gaps in a slice of time from which the least gap is computed.
_LEAST_SEEN = 64
# Largest number of gaps in a slice of time from which the least gap is computed. From more gaps, an even selection is
# used.
_MOST_SEEN = 4096
# Time (ns) between two operations above which the time counts as a gap. Shorter times occur within graphs and between
# overlapping kernels, where the next operation was submitted in time.
_NO_GAP_NS = 200


class LeastGaps:
    """The least gap of a sequence, slice after slice."""

    def __init__(self) -> None:
        self._least_ns: int | None = None

    def of(self, times: SequenceTimes, begin_ns: int, until_ns: int) -> tuple[Int64s, Int64s]:
        """The least gaps before operations that start between two times and that the host has submitted late: when
        these start, and what the GPU took at least before each (ns)."""
        work = times.work
        if len(work) < 2:
            return NONE, NONE
        ends = np.maximum.accumulate(work.ends)[:-1]
        starts, gaps = work.starts[1:], work.starts[1:] - ends
        following = (gaps > _NO_GAP_NS) & (starts > begin_ns) & (starts <= until_ns)
        # The operation before it is of the same stream, and the last one that ended.
        following &= (work.streams[1:] == work.streams[:-1]) & (work.ends[:-1] == ends)
        if len(times.recorded.begins) > 1:
            recorded = times.recorded.place_ascending(ends)
            following &= (recorded >= 0) & (recorded == times.recorded.place_ascending(starts))
        seen = gaps.compress(following)
        seen = seen[:: 1 + len(seen) // _MOST_SEEN]
        if len(seen) >= _LEAST_SEEN:
            # As np.percentile, which takes several times as long.
            at = (len(seen) - 1) * _SHORTER
            below, above = np.sort(seen)[int(at) :][:2].tolist()
            part = at % 1
            least = int(below + (above - below) * part if part < 0.5 else above - (above - below) * (1 - part))
            if least <= _MOST_ACCEPTED_NS:
                self._least_ns = least if self._least_ns is None else min(self._least_ns, least)
        if self._least_ns is None:
            return NONE, NONE
        # Else the gap is one between kernels as a whole.
        late = following & (work.returned[1:] > ends - times.limits.launch_ns)
        return starts.compress(late), np.minimum(gaps.compress(late), self._least_ns)
