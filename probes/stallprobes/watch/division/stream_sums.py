"""How a sequence's work is spread over streams, and how much of it runs in kernels of few blocks."""

from __future__ import annotations

from typing import NamedTuple

from stallprobes.watch.division.binned_sums import BinnedSums, Times, add_at
from stallprobes.watch.division.instants import COPY, Flags, Operations
from stallprobes.watch.division.result import LEAST_FEW
from stallprobes.watch.intervals import distinct, int64s

# Largest number of streams that have sums of their own. All other streams share one sum.
_MOST_STREAMS = 64
# Columns of the sums: two numbers, and times in ns.
# _OPERATIONS, _SUBMITTED: number of operations, and of calls that submitted operations.
# _KERNELS, _FEW: time of kernels, and of kernels with few blocks.
# _STREAMS: first of the columns with the time of a stream's operations.
_OPERATIONS, _SUBMITTED, _KERNELS, _FEW, _STREAMS = range(5)


class WorkSpread(NamedTuple):
    """Shares (0 to 1): of kernels with few blocks in the time of all kernels, and of the busiest stream in that of all
    work. ``busiest_ns``: for how long the busiest stream had work."""

    few_blocks: float = 0.0
    busiest: float = 1.0
    busiest_ns: int = 0

    @property
    def could_overlap(self) -> bool:
        """True if work of several streams runs that leaves most of the GPU to other work."""
        return self.few_blocks >= LEAST_FEW and self.busiest < 1


class StreamSums:
    """Sums of operations since ``origin_ns``: number, and time by stream, of kernels, and of kernels with few
    blocks."""

    def __init__(self, origin_ns: int) -> None:
        self._sums = BinnedSums(origin_ns, columns=_STREAMS + 1)
        # The column of each stream.
        self._columns: dict[int, int] = {}

    def add(self, work: Operations, called: Flags) -> None:
        """Add operations, at their ends; of those ``called``, each has a call of its own."""
        if not len(work):
            return
        ends, streams = work.ends, work.streams
        lasted = ends - work.starts
        present = distinct(streams)
        for stream in present.tolist():
            if len(self._columns) < _MOST_STREAMS:
                self._columns.setdefault(stream, _STREAMS + len(self._columns))
        columns = [self._columns.get(stream, _STREAMS + _MOST_STREAMS) for stream in present.tolist()]
        self._sums.widen(max(columns) + 1)
        add_at(self._sums, ends - 1, _OPERATIONS, None, called, lasted * (work.kinds != COPY), lasted * work.few)
        if len(columns) == 1:
            add_at(self._sums, ends - 1, columns[0], lasted)
            return
        add_at(self._sums, ends - 1, int64s(columns)[present.searchsorted(streams)], lasted)

    def counts(self, times: Times) -> tuple[int, int]:
        """The number of operations in ``times``, and of the calls that submitted them."""
        operations, submitted, *_ = self._sums.during(times).sum(axis=0).tolist()
        return operations, submitted

    def use(self, times: Times) -> WorkSpread:
        """How the work in ``times`` is spread."""
        _, _, kernels, few, *streams = self._sums.during(times).sum(axis=0).tolist()
        busiest_ns = max(streams)
        return WorkSpread(
            few / kernels if kernels else 0.0,
            busiest_ns / sum(streams) if any(streams) else 1.0,
            busiest_ns,
        )
