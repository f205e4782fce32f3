"""Work of the GPU as arrays, by stream and by context, with what was submitted before a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import GPU_WORK
from stallprobes.records.rows import of_kinds, rows_at
from stallprobes.watch.attribution.slow_calls import CallTable
from stallprobes.watch.division.instants import CoveredTime, Spans
from stallprobes.watch.division.pending import needs_engine
from stallprobes.watch.intervals import (
    GroupedTimes,
    Int64s,
    IntervalGroups,
    int64s,
    numbered,
    running_maximum,
)

Flags = NDArray[np.bool_]


class PriorEnds:
    """Latest end of the work of a group that was submitted before a call."""

    def __init__(self, groups: Int64s, orders: Int64s, ends: Int64s) -> None:
        # As one number, which NumPy sorts in two thirds of the time; orders have 32 bits.
        place = np.argsort(groups << 32 | orders, kind="stable")
        self._orders = GroupedTimes(groups[place], orders[place])
        self._ends = running_maximum(groups[place], ends[place])

    def before(self, groups: Int64s, orders: Int64s, otherwise: Int64s) -> Int64s:
        """End for each group and call; ``otherwise`` where nothing of the group was submitted before."""
        places = self._orders.last(groups, orders - 1)
        return np.where(places >= 0, self._ends[places], otherwise) if len(self._ends) else otherwise


@dataclass(frozen=True, eq=False)
class WorkTable:
    """Kernels, copies and memsets in the order of their starts.

    All work of a graph is in the stream of its first piece, in which it was launched: branches have streams of their
    own (H200, CUPTI 13.5), for which nobody can wait.

    - ``rows``: the records.
    - ``streams``: numbers of (context, stream) from 0, by ``stream_numbers``.
    - ``contexts``: numbers of the contexts from 0, by ``context_numbers``.
    - ``owners``: the place of the slow call that submitted the work, or -1.
    - ``first_of_call`` and ``last_of_call``: the rows that each slow call submitted first and last, or -1.
    - ``orders``: numbers that ascend with the time at which the work was submitted, as ``CallTable.order_of`` gives
      them.
    """

    rows: NDArray[Any]
    starts: Int64s
    ends: Int64s
    streams: Int64s
    contexts: Int64s
    owners: Int64s
    first_of_call: Int64s
    last_of_call: Int64s
    stream_numbers: Mapping[tuple[int, int], int]
    context_numbers: Mapping[int, int]
    by_owner: IntervalGroups
    orders: Int64s

    @classmethod
    def of(cls, records: NDArray[Any], calls: CallTable) -> WorkTable:
        """The work among ``records``, which are in the layout of the file. Records without an end are left out."""
        starts, ends = int64s(records["start"]), int64s(records["end"])
        places = np.flatnonzero(of_kinds(records, *GPU_WORK) & (ends >= starts))
        places = places[np.argsort(starts[places], kind="stable")]
        rows, starts, ends = rows_at(records, places), starts[places], ends[places]
        pairs, streams = numbered(_pair(rows["context"], rows["stream"]))
        distinct, contexts = numbered(int64s(rows["context"]))
        correlations = int64s(rows["correlation"])
        streams = _with_branches(streams, contexts, correlations, len(pairs))
        owners, orders = calls.places_of(correlations), calls.order_of(correlations)
        owned = np.flatnonzero(owners >= 0)
        first, last = np.full(len(calls), -1, dtype=np.int64), np.full(len(calls), -1, dtype=np.int64)
        # The last value that is written to a place stays.
        first[owners[owned[::-1]]], last[owners[owned]] = owned[::-1], owned
        return cls(
            rows=rows,
            starts=starts,
            ends=ends,
            streams=streams,
            contexts=contexts,
            owners=owners,
            first_of_call=first,
            last_of_call=last,
            stream_numbers={(int(pair) >> 32, int(pair) & 0xFFFFFFFF): at for at, pair in enumerate(pairs)},
            context_numbers={int(context): at for at, context in enumerate(distinct)},
            by_owner=IntervalGroups(owners[owned], starts[owned], ends[owned]),
            orders=orders,
        )

    @cached_property
    def engine(self) -> Flags:
        """Which work needs the graphics engine."""
        return needs_engine(self.rows)

    @cached_property
    def by_stream(self) -> IntervalGroups:
        """The times in which each stream works."""
        return IntervalGroups(self.streams, self.starts, self.ends)

    @cached_property
    def by_context(self) -> IntervalGroups:
        """The times in which each context works."""
        return IntervalGroups(self.contexts, self.starts, self.ends)

    @cached_property
    def prior_of_stream(self) -> PriorEnds:
        """The ends of the work of each stream."""
        return PriorEnds(self.streams, self.orders, self.ends)

    @cached_property
    def prior_of_context(self) -> PriorEnds:
        """The ends of the work of each context."""
        return PriorEnds(self.contexts, self.orders, self.ends)

    @cached_property
    def prior_engine_of_stream(self) -> PriorEnds:
        """The ends of the work of each stream that needs the graphics engine."""
        return PriorEnds(self.streams[self.engine], self.orders[self.engine], self.ends[self.engine])

    @cached_property
    def prior_engine_of_context(self) -> PriorEnds:
        """The ends of the work of each context that needs the graphics engine."""
        return PriorEnds(self.contexts[self.engine], self.orders[self.engine], self.ends[self.engine])

    def __len__(self) -> int:
        return len(self.rows)

    def covered(self, rows: Int64s | slice, begins: Int64s, ends: Int64s) -> Int64s:
        """Time (ns) that work at some rows covers from each of ``begins`` to the end."""
        return CoveredTime(Spans.united(self.starts[rows], self.ends[rows])).during(begins, ends)

    def own_start(self, otherwise: int) -> Int64s:
        """When the work of each slow call began; ``otherwise`` for one without work."""
        owned, starts = self.first_of_call >= 0, np.full(len(self.first_of_call), otherwise, dtype=np.int64)
        starts[owned] = self.starts[self.first_of_call[owned]]
        return starts


def _with_branches(streams: Int64s, contexts: Int64s, correlations: Int64s, count: int) -> Int64s:
    """The streams of work in the order of its starts, of which one call has one in each context."""
    if count < 2:
        return streams
    keys = contexts << 32 | correlations
    order = np.argsort(keys, kind="stable")
    new = np.append(True, keys[order[1:]] != keys[order[:-1]])[: len(order)]
    first = np.empty(len(order), dtype=np.int64)
    first[order] = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
    return np.where(correlations == 0, streams, streams[first])


def _pair(contexts: NDArray[Any], streams: NDArray[Any]) -> NDArray[np.uint64]:
    return (contexts.astype(np.uint64) << np.uint64(32)) | streams.astype(np.uint64)
