"""Slow calls of a process as arrays, with what each function waits for and what it makes other threads wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.driver_calls import CallFamily, plain_name
from stallprobes.watch.attribution.causes import WaitCause
from stallprobes.watch.division.call_kinds import waits_of
from stallprobes.watch.intervals import Int64s, int64s, running_maximum
from stallprobes.watch.reading.process import FinishedCall

# Correlation numbers have 32 bits and start again; those of one time differ by less than half of that.
_WRAP = 1 << 32
_HALF = 1 << 31


@cache
def blame_of(function: str, family: CallFamily | None, pageable: bool) -> WaitCause | None:
    """What ``function`` is as a cause for other threads of its context; None if it is none.

    ``pageable``: one end of a copy is pageable memory.
    """
    name = plain_name(function)
    match family:
        case CallFamily.COPY:
            return WaitCause.PAGEABLE_COPY if pageable and name.startswith("cuMemcpy") else None
        case CallFamily.ALLOCATION:
            if "Async" in name or "Pool" in name:
                return WaitCause.ASYNC_ALLOCATION
            return WaitCause.FREE if name.startswith("cuMemFree") else WaitCause.ALLOCATION
        case CallFamily.HOST_MEMORY:
            return WaitCause.HOST_REGISTRATION if "egister" in name else WaitCause.HOST_ALLOCATION
        case CallFamily.GRAPH:
            return None if "Capture" in name or "Recapture" in name else WaitCause.GRAPH
        case CallFamily.MODULE:
            return WaitCause.MODULE
        case CallFamily.CONTEXT:
            return WaitCause.CONTEXT
        case CallFamily.STREAM:
            return WaitCause.STREAM if "Create" in name or "Destroy" in name else None
        case _:
            return None


@dataclass(frozen=True, eq=False)
class CallTable:
    """Slow calls in the order of ``calls``. Times in ns; ``excess`` is the duration less the row's median.

    ``order_of`` makes correlation numbers comparable across their wrap.
    """

    calls: Sequence[FinishedCall]
    begins: Int64s
    ends: Int64s
    excess: Int64s
    threads: Int64s
    contexts: Int64s
    correlations: Int64s
    waits: NDArray[np.int64]
    first_correlation: int

    @classmethod
    def of(cls, calls: Sequence[FinishedCall], excess: Sequence[int]) -> CallTable:
        """The table of ``calls``, with the excess of each."""
        plain = np.array(
            [(one.begin_ns, one.end_ns, one.thread, one.context, one.correlation) for one in calls],
            dtype=np.int64,
        ).reshape(-1, 5)
        waits = int64s([waits_of(one.function, one.family) for one in calls])
        begins, ends, threads, contexts, correlations = (np.ascontiguousarray(column) for column in plain.T)
        first = int(correlations[0]) if len(calls) else 0
        return cls(calls, begins, ends, int64s(excess), threads, contexts, correlations, waits, first)

    def __len__(self) -> int:
        return len(self.calls)

    def order_of(self, correlations: Int64s) -> Int64s:
        """Numbers that ascend with time, for correlation numbers of the time of these calls."""
        return (correlations - self.first_correlation + _HALF) % _WRAP

    def nested(self) -> NDArray[np.bool_]:
        """Which calls another slow call of their thread contains."""
        order = np.lexsort((-self.ends, self.begins, self.threads))
        _, groups = np.unique(self.threads[order], return_inverse=True)
        groups, ends = groups.reshape(-1), self.ends[order]
        found = np.zeros(len(self), dtype=np.bool_)
        # The latest end among the calls of the thread that began before.
        found[order[1:]] = (running_maximum(groups, ends)[:-1] >= ends[1:]) & (groups[1:] == groups[:-1])
        return found

    def places_of(self, correlations: Int64s) -> Int64s:
        """The place of the call with each correlation number; -1 without one."""
        if not len(self):
            return np.full(len(correlations), -1, dtype=np.int64)
        order = np.argsort(self.correlations, kind="stable")
        places = np.searchsorted(self.correlations[order], correlations)
        found = order[np.minimum(places, len(order) - 1)]
        return np.where((self.correlations[found] == correlations) & (correlations != 0), found, -1)
