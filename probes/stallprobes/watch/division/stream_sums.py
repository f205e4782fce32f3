"""How a sequence's work is spread over streams, and how much of it runs in kernels of few blocks."""

from __future__ import annotations

from typing import NamedTuple

from stallprobes.records.rows import Rows
from stallprobes.watch.division.binned_sums import BinnedSums, Times, add_at
from stallprobes.watch.division.instants import COPY
from stallprobes.watch.division.pending import column
from stallprobes.watch.division.result import LEAST_FEW
from stallprobes.watch.intervals import distinct

# Largest number of streams that are told apart; the others count as one.
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

    def add(self, rows: Rows) -> None:
        """Add operations (OPERATION), at their ends."""
        ends = column(rows, "end") - 1
        lasted = ends + 1 - column(rows, "start")
        streams = column(rows, "context") << 32 | column(rows, "stream")
        for stream in distinct(streams).tolist():
            key = stream if stream in self._streams or len(self._streams) < _MOST_STREAMS else -1
            chosen = streams == stream
            add_at(self._streams.setdefault(key, BinnedSums(self._origin_ns, columns=1)), ends[chosen], lasted[chosen])
        kernels = rows["kind"] != COPY
        add_at(self._kernels, ends[kernels], lasted[kernels])
        few = kernels & rows["few"]
        add_at(self._few, ends[few], lasted[few])

    def use(self, times: Times) -> WorkSpread:
        """How the work in ``times`` is spread."""
        streams = [int(sums.during(times).sum()) for sums in self._streams.values()]
        kernels, few = (int(sums.during(times).sum()) for sums in (self._kernels, self._few))
        return WorkSpread(few / kernels if kernels else 0.0, max(streams) / sum(streams) if any(streams) else 1.0)
