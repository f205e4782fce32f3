"""Kernels that communicate, of one sequence, and what the sequence did between any two of them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stallprobes.records.rows import Rows, joined
from stallprobes.watch.division.instants import COMMUNICATION, KERNEL, Instants, Operations, Spans, united
from stallprobes.watch.division.parts import NUMBERS, ORDER, Part
from stallprobes.watch.intervals import Int64s, distinct

# Largest number of slices of time whose collectives are kept until the analysis of ranks takes the collectives. With
# more slices, the oldest slice is dropped. Reason: the memory stays limited if no analysis takes the collectives.
_MOST_BATCHES = 64
# Number of parts (kernels, copies, locks, …) into which the time of a sequence (threads that call by turns) is
# divided.
_PARTS = len(ORDER)
# Row of a collective's kernel. ``name`` is the position of the kernel's name in the file. ``parts`` has the time (ns)
# of the sequence in each part (kernels, copies, locks, …), summed from a fixed earlier time to the kernel's end. The
# difference of two rows is therefore the time in each part between the ends of two kernels.
COLLECTIVE = np.dtype(
    [("start", "i8"), ("end", "i8"), ("stream", "u4"), ("name", "u4"), ("parts", "i8", (_PARTS,))]
)  # fmt: skip
# Regular expression for the operation in the name of a kernel, in lower case and without underscores. The expression
# fits the names of all versions of NCCL: ncclDevKernel_AllReduce_Sum_f32_RING_LL,
# ncclKernel_AllReduce_RING_LL_Sum_float, ncclAllReduceRingLLKernel_sum_f32, ncclDevKernel_SendRecv.
_OPERATION = re.compile("allreduce|allgather|reducescatter|broadcast|sendrecv|alltoall|reduce|gather|scatter")


class CollectiveBatch(NamedTuple):
    """The kernels (COLLECTIVE, in the order of their ends) of a sequence that ended from ``begin_ns`` to ``until_ns``.

    ``exposed`` are the times in which they ran and no other kernel did, ``recorded`` those in which all work was
    recorded. ``kernels`` is the time (ns) of each other kernel by the place of its name.
    """

    rows: Rows
    exposed: Spans
    recorded: Spans
    kernels: Mapping[int, int]
    begin_ns: int
    until_ns: int


class CollectiveLog:
    """The kernels of a sequence that communicate, slice after slice, until somebody takes them."""

    def __init__(self) -> None:
        self._sums: Int64s | None = None
        self._batches: deque[CollectiveBatch] = deque(maxlen=_MOST_BATCHES)

    @staticmethod
    def ends(work: Operations, begin_ns: int, until_ns: int) -> Int64s:
        """The ends of such kernels among operations in a slice, at which its spans must be divided."""
        ends = work.ends.compress(work.kinds == COMMUNICATION)
        return np.sort(ends[(ends > begin_ns) & (ends <= until_ns)])

    def add(self, work: Operations, instants: Instants, recorded: Spans, begin_ns: int, until_ns: int) -> None:
        """Add a slice; no span of its ``instants`` contains one of its ``ends``."""
        ended = (work.ends > begin_ns) & (work.ends <= until_ns)
        mine = work.where(ended & (work.kinds == COMMUNICATION))
        if not len(mine) and self._sums is None:
            return
        before = np.zeros(_PARTS, dtype=np.int64) if self._sums is None else self._sums
        mine = mine.at(np.argsort(mine.ends, kind="stable"))
        batch = np.zeros(len(mine), COLLECTIVE)
        batch["start"], batch["end"], batch["name"] = mine.starts, mine.ends, mine.names
        # Without the number of its context.
        batch["stream"] = mine.streams & 0xFFFFFFFF
        ends = distinct(mine.ends)
        segments = np.searchsorted(ends, instants.begins, "right")
        lengths = instants.ends - instants.begins
        sums = np.bincount(segments * _PARTS + instants.parts, lengths, (len(ends) + 1) * _PARTS)
        running = before + np.cumsum(sums.reshape(-1, _PARTS).astype(np.int64), axis=0)
        batch["parts"] = running[np.searchsorted(ends, mine.ends)]
        self._sums = running[-1]
        exposed = instants.parts == NUMBERS[Part.COMMUNICATION]
        self._batches.append(
            CollectiveBatch(
                batch,
                Spans.united(instants.begins[exposed], instants.ends[exposed]),
                recorded.within(begin_ns, until_ns),
                _kernel_times(work.where(ended & (work.kinds == KERNEL))),
                begin_ns,
                until_ns,
            )
        )

    def take(self) -> CollectiveBatch | None:
        """Batch of everything since the last call; None without kernels that communicate."""
        batches = list(self._batches)
        self._batches.clear()
        if not batches:
            return None
        if len(batches) == 1:
            return batches[0]
        kernels: dict[int, int] = {}
        for batch in batches:
            for name, ns in batch.kernels.items():
                kernels[name] = kernels.get(name, 0) + ns
        return CollectiveBatch(
            joined(COLLECTIVE, (part.rows for part in batches)),
            united(part.exposed for part in batches),
            united(part.recorded for part in batches),
            kernels,
            batches[0].begin_ns,
            batches[-1].until_ns,
        )


def is_nccl(name: str) -> bool:
    """True if a kernel is one of NCCL's, whose ranks wait for each other."""
    return "nccl" in name.lower()


@lru_cache(maxsize=1024)
def operation_of(name: str) -> str:
    """What a kernel that communicates does: ``allreduce``; its whole name where that is not known."""
    operation = _OPERATION.search(name.lower().replace("_", ""))
    return operation[0] if operation else name


def _kernel_times(kernels: Operations) -> Mapping[int, int]:
    names, places = np.unique(kernels.names, return_inverse=True)
    times = np.bincount(places.reshape(-1), kernels.ends - kernels.starts, len(names))
    return dict(zip(names.tolist(), times.astype(np.int64).tolist(), strict=True))
