"""A reading's samples and calls, taken out of the rows once for all sums over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import CallKind, HostTask
from stallprobes.records.rows import Rows, rows_at, rows_where
from stallprobes.watch.division.call_columns import AWAITS_WORK, by_number
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.instants import LIMITS, NO_SPANS, Calls, Flags, Spans
from stallprobes.watch.division.pending import outermost_calls
from stallprobes.watch.intervals import NONE, Int64s, distinct, int64s, numbered
from stallprobes.watch.reading.process import NO_CALLS, NO_SAMPLES_OF_TIME, CallBatch

# Property of a function: it submits work.
_submits = attrgetter("submits")
# Kinds of calls that wait for the GPU's work, as AWAITS_OR_FREES.
WAITING = (int(CallKind.WAITS), int(CallKind.COPIES), int(CallKind.FREES))


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
    def calls(self) -> Calls:
        """Its outermost calls, in the order of their ends.

        A short copy from pageable memory did not block: it was staged, so that it is of the kind SUBMITS. One to
        pageable memory returns only when it is done.
        """
        calls, rows = self._outermost
        staged = (calls.kinds == int(CallKind.COPIES)) & (calls.lengths < LIMITS.blocked_ns)
        if staged.any():
            staged &= rows["target"] != int(MemoryKind.PAGEABLE)
            calls.kinds[staged], calls.holds[staged] = int(CallKind.SUBMITS), int(HostTask.NOTHING)
        return calls

    @cached_property
    def _outermost(self) -> tuple[Calls, Rows]:
        return outermost_calls(self._batch.rows, self._batch.functions)

    @cached_property
    def polls(self) -> Flags:
        """Flags of the calls that are runs of queries: waits of the last query's function."""
        calls, rows = self._outermost
        return np.asarray(calls.begins < rows["began_ns"], dtype=np.bool_)

    @cached_property
    def ending(self) -> Flags:
        """Flags of the calls with which the work of their thread may have ended."""
        blocked = (self.calls.lengths >= LIMITS.blocked_ns) & AWAITS_WORK[self.calls.kinds]
        return np.asarray(blocked | (by_number(self._batch.functions, _submits)[self.calls.functions] != 0))

    @cached_property
    def places(self) -> Mapping[int, Int64s]:
        """The places of the calls of each thread, in order."""
        return dict(_by_thread(self.calls.threads))

    def places_of(self, thread: int) -> Int64s:
        """The places of a thread's calls."""
        return self.places.get(thread, NONE)

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


# Reading without samples and calls.
NO_READING = Reading(NO_SAMPLES_OF_TIME.rows, NO_CALLS, {})


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
