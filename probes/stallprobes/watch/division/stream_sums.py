"""How a sequence's work is spread over streams, and how much of it runs in kernels of few blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stallprobes.records.rows import Rows
from stallprobes.watch.division.binned_sums import BinnedSums, Times, add_at
from stallprobes.watch.division.instants import COPY, Flags
from stallprobes.watch.division.pending import column
from stallprobes.watch.division.result import LEAST_FEW
from stallprobes.watch.intervals import distinct

# Largest number of streams of which each has sums of its own; all others have common ones.
_MOST_STREAMS = 64


class WorkSpread(NamedTuple):
    """Shares (0 to 1): of kernels with few blocks in the time of all kernels, and of the busiest stream in that of all
    work."""

    few_blocks: float = 0.0
    busiest: float = 1.0

    @property
    def could_overlap(self) -> bool:
        """True if work of several streams runs that leaves most of the GPU to other work."""
        return self.few_blocks >= LEAST_FEW and self.busiest < 1


class StreamSums:
    """Sums of the time of operations since ``origin_ns``: by stream, of kernels, and of kernels with few blocks."""

    def __init__(self, origin_ns: int) -> None:
        self._origin_ns = origin_ns
        self._streams: dict[int, BinnedSums] = {}
        self._kernels, self._few = BinnedSums(origin_ns, columns=1), BinnedSums(origin_ns, columns=1)

    def add(self, rows: Rows, chosen: Flags) -> None:
        """Add the ``chosen`` operations (OPERATION), at their ends."""
        every = slice(None) if chosen.all() else np.flatnonzero(chosen)
        ends, starts, contexts, streams = (column(rows, name)[every] for name in ("end", "start", "context", "stream"))
        lasted, ends, streams = ends - starts, ends - 1, contexts << 32 | streams
        for stream in distinct(streams).tolist():
            key = stream if stream in self._streams or len(self._streams) < _MOST_STREAMS else -1
            same = streams == stream
            add_at(self._streams.setdefault(key, BinnedSums(self._origin_ns, columns=1)), ends[same], lasted[same])
        kernels, few = rows["kind"][every] != COPY, rows["few"][every]
        for sums, kind in ((self._kernels, kernels), (self._few, few)):
            if kind.any():
                add_at(sums, ends[kind], lasted[kind])

    def use(self, times: Times) -> WorkSpread:
        """How the work in ``times`` is spread."""
        streams = [int(sums.during(times).sum()) for sums in self._streams.values()]
        kernels, few = (int(sums.during(times).sum()) for sums in (self._kernels, self._few))
        return WorkSpread(few / kernels if kernels else 0.0, max(streams) / sum(streams) if any(streams) else 1.0)
