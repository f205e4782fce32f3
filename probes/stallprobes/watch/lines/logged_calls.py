"""Columns of the calls of a reading, which are taken out of the rows once for all sums over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import CallKind, HostTask
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import Rows, rows_at, rows_where
from stallprobes.watch.division.call_columns import by_number, columns_of, polls_of
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.instants import LIMITS, NO_SPANS, Flags, Spans
from stallprobes.watch.intervals import NONE, Int64s, distinct, int64s, numbered
from stallprobes.watch.reading.process import CallBatch

# Property of a function: it submits work.
_submits = attrgetter("submits")
# Kinds of calls that wait for the GPU's work: waits, copies that block, and frees.
WAITING = (int(CallKind.WAITS), int(CallKind.COPIES), int(CallKind.FREES))
# Flags by number of CallKind: a call of this kind waits. The last flag is for the time between calls, whose number is
# -1.
_IS_WAITING = np.isin(np.arange(len(CallKind) + 1), WAITING)
# Flags by number of CallKind: a call of this kind ends when work of the GPU has ended. The last flag is for the time
# between calls.
_ENDS_WORK = np.isin(np.arange(len(CallKind) + 1), (int(CallKind.WAITS), int(CallKind.COPIES)))


def is_waiting(kinds: Int64s) -> Flags:
    """Flags of the kinds in WAITING; BETWEEN may be among ``kinds``."""
    return np.asarray(_IS_WAITING[kinds], dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class LoggedCalls:
    """The calls of a reading that no other call of their thread contains, in the order of their ends: int64[n] each.

    ``holds`` is what calls of other threads may wait for (HostTask). A short copy from pageable memory did not block:
    it was staged, so that it is of the kind SUBMITS. One to pageable memory returns only when it is done. ``ending``:
    the work of a thread may have ended with the call. ``polls``: it is a run of queries, a wait of the last one's
    function.
    """

    begins: Int64s
    ends: Int64s
    functions: Int64s
    kinds: Int64s
    holds: Int64s
    threads: Int64s
    contexts: Int64s
    ending: Flags
    polls: Flags

    @classmethod
    def of(cls, batch: CallBatch) -> LoggedCalls:
        """Outermost calls of a batch."""
        rows = batch.rows
        rows = rows_where(rows, (rows["flags"] & int(CallFlag.NESTED)) == 0)
        (first, last, kept), begins = polls_of(rows, batch.functions), np.array(rows["began_ns"], dtype=np.int64)
        polls = np.zeros(len(rows), dtype=np.bool_)
        if len(last):
            begins[last], polls[last] = begins[first], True
            rows, begins, polls = rows_where(rows, kept), begins[kept], polls[kept]
        names = "returned_ns", "function", "thread", "context"
        ends, functions, threads, contexts = (np.ascontiguousarray(rows[name], dtype=np.int64) for name in names)
        kinds, holds = columns_of(rows, batch.functions)
        kinds[polls] = int(CallKind.WAITS)
        blocked = ends - begins >= LIMITS.blocked_ns
        staged = (kinds == int(CallKind.COPIES)) & ~blocked
        if staged.any():
            staged &= rows["target"] != int(MemoryKind.PAGEABLE)
            kinds[staged], holds[staged] = int(CallKind.SUBMITS), int(HostTask.NOTHING)
        submits = by_number(batch.functions, _submits) != 0
        ending = submits[functions] | (blocked & _ENDS_WORK[kinds])
        return cls(begins, ends, functions, kinds, holds, threads, contexts, ending, polls)

    def __len__(self) -> int:
        return len(self.begins)

    @cached_property
    def lengths(self) -> Int64s:
        """Duration of each call (ns)."""
        return self.ends - self.begins

    @cached_property
    def places(self) -> Mapping[int, Int64s]:
        """The places of the calls of each thread, in order."""
        return dict(_by_thread(self.threads))

    def places_of(self, thread: int) -> Int64s:
        """The places of a thread's calls."""
        return self.places.get(thread, NONE)


# Empty table of calls.
NO_CALLS = LoggedCalls(*(NONE,) * 7, *(np.zeros(0, dtype=np.bool_),) * 2)


class Reading:
    """The samples (TimeSample) and calls of a reading, and when calls began that have not returned, by thread.

    In ``unfollowed`` times other calls are in no log, so that nothing of these times counts.
    """

    def __init__(
        self, rows: NDArray[Any], batch: CallBatch, in_flight: Mapping[int, int], unfollowed: Spans = NO_SPANS
    ) -> None:
        self.in_flight, self.unfollowed = in_flight, unfollowed
        if len(unfollowed.begins):
            rows = rows[~unfollowed.contain(int64s(rows["at_ns"]))]
            kept = ~unfollowed.contain(int64s(batch.rows["began_ns"]))
            batch = replace(batch, rows=rows_where(batch.rows, kept))
        self._rows, self._batch = rows, batch

    @cached_property
    def calls(self) -> LoggedCalls:
        """Its outermost calls."""
        return LoggedCalls.of(self._batch)

    @cached_property
    def samples(self) -> Mapping[int, Rows]:
        """The samples of each thread, in order."""
        return {thread: rows_at(self._rows, places) for thread, places in _by_thread(int64s(self._rows["thread"]))}

    def is_known(self, divider: ProcessDivider) -> bool:
        """True if the sequences of all threads with samples or calls are known."""
        return all(divider.knows(thread, self._until_ns) for thread in self.thread_ids)

    @cached_property
    def _until_ns(self) -> int:
        return max(int(self._rows["at_ns"].max(initial=0)), int(self._batch.rows["returned_ns"].max(initial=0)))

    @cached_property
    def thread_ids(self) -> list[int]:
        """The threads with samples or calls."""
        threads: list[int] = np.union1d(self._rows["thread"], distinct(int64s(self._batch.rows["thread"]))).tolist()
        return threads


def _by_thread(threads: Int64s) -> Iterator[tuple[int, Int64s]]:
    """The places of each thread among ``threads``, in order."""
    ids, numbers = numbered(threads)
    if len(ids) == 1:
        yield int(ids[0]), np.arange(len(threads))
        return
    order = np.argsort(numbers.astype(np.min_scalar_type(len(ids))), kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(ids))).tolist()
    for thread, begin, end in zip(ids.tolist(), [0, *ends], ends, strict=False):
        yield thread, order[begin:end]
