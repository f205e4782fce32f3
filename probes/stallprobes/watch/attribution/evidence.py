"""Evidence of a slow call as data: the work, the calls and the contexts that overlap it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.files.codec import attributes
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.watch.attribution.findings import CallAlongside, OthersTime, WaitEvidence, WorkInFront
from stallprobes.watch.attribution.gpu_waits import GpuWaits, Neighbours
from stallprobes.watch.attribution.gpu_work import WorkTable
from stallprobes.watch.attribution.other_processes import OthersWork, OtherWork, nobody, user_of
from stallprobes.watch.attribution.other_threads import CulpritCalls
from stallprobes.watch.attribution.slow_calls import COPIES, CallTable
from stallprobes.watch.intervals import GroupMembers, Int64s, int64s
from stallprobes.watch.reading.kernel_names import demangle_all
from stallprobes.watch.reading.process import DriverCall
from stallprobes.watch.reading.words import DIRECTIONS, GPU_WORK, Direction

# Largest number of pieces of GPU work that are read for a call: the last pieces before the call's end.
MOST_PIECES = 4096
# Largest number of groups of GPU work in a call's evidence: the groups that overlap the call longest. A group is work
# of one kind, name, direction, context and stream. The call's own work has groups of its own.
MOST_GROUPS = 8


class EvidenceReader:
    """Reads the evidence of one slow call after another."""

    def __init__(
        self,
        calls: CallTable,
        work: WorkTable,
        names: Mapping[int, str],
        thread_names: Mapping[int, str],
        waits: GpuWaits,
        others: OthersWork = nobody,
    ) -> None:
        self._calls, self._work, self._names, self._thread_names = calls, work, names, thread_names
        self._waits, self._others = waits, others
        owned = np.flatnonzero(work.owners >= 0)
        self._own_rows = owned[np.argsort(work.owners[owned], kind="stable")]
        self._own_calls = work.owners[self._own_rows]

    @cached_property
    def _by_stream(self) -> GroupMembers:
        return GroupMembers(self._work.streams, self._work.starts, self._work.ends)

    @cached_property
    def _by_context(self) -> GroupMembers:
        return GroupMembers(self._work.contexts, self._work.starts, self._work.ends)

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """Kind, name of a kernel, direction of a copy, context, stream and bytes of each piece."""
        rows = self._work.rows
        kinds = int64s(rows["kind"])
        return np.column_stack(
            (
                kinds,
                np.where(kinds == int(RecordKind.KERNEL), int64s(rows["name"]), 0),
                np.where(np.isin(kinds, COPIES), int64s(rows["subkind"]), 0),
                int64s(rows["context"]),
                int64s(rows["stream"]),
                np.where(kinds == int(RecordKind.KERNEL), 0, int64s(rows["bytes"])),
            )
        )

    def gpu(self, at: int) -> WaitEvidence:
        """Evidence of a call that waited for the GPU."""
        waits, begin_ns = self._waits, int(self._calls.begins[at])
        stream, whole, until = int(waits.stream[at]), int(waits.whole[at]), int(waits.until[at])
        rows = self._own(at)
        if stream >= 0:
            # Its own work in the stream is among that of the stream.
            rows = np.concatenate(
                (rows[self._work.streams[rows] != stream], self._by_stream.during(stream, begin_ns, until, MOST_PIECES))
            )
        elif whole >= 0:
            rows = self._by_context.during(whole, begin_ns, until, MOST_PIECES)
        if at in waits.staged:
            rows = np.union1d(rows, waits.staged[at])
        engine = self._engine(at) if waits.context[at] or waits.process[at] else ()
        return WaitEvidence(int(waits.total[at]), self._grouped(at, rows), engine=engine)

    def own(self, at: int) -> WaitEvidence:
        """Evidence of a call that took long itself: the work that it submitted."""
        return WaitEvidence(int(self._calls.excess[at]), self._grouped(at, self._own(at)))

    def behind(self, at: int, rows: Int64s, ns: int) -> WaitEvidence:
        """Evidence of a call that waited for work of other streams at ``rows``, which covers ``ns`` of it."""
        return WaitEvidence(ns, self._grouped(at, rows))

    def neighbour(self, at: int, near: Neighbours) -> WaitEvidence:
        """Evidence of a call that ended with the work of a stream."""
        begin_ns, until = int(self._calls.begins[at]), int(near.until[at])
        rows = self._by_stream.during(int(near.stream[at]), begin_ns, until, MOST_PIECES)
        return WaitEvidence(int(near.covered[at]), self._grouped(at, rows))

    def other_threads(
        self, asked: Int64s, culprit_calls: CulpritCalls, groups: Int64s, covered: Int64s
    ) -> Mapping[int, WaitEvidence]:
        """Evidence of the calls at the places ``asked``; the calls of the group of each cover ``covered`` ns of it.

        ``groups`` and ``covered`` have one value for each slow call.
        """
        calls = self._calls
        owners, members = culprit_calls.during_each(groups[asked], calls.begins[asked], calls.ends[asked])
        at, functions = asked[owners], calls.numbers[members]
        overlaps = np.minimum(calls.ends[members], calls.ends[at]) - np.maximum(calls.begins[members], calls.begins[at])
        # The last one that is written stays: the longest, of equal ones the first.
        order = np.lexsort((-np.arange(len(owners)), overlaps))
        longest = np.zeros(len(asked), dtype=np.int64)
        longest[owners[order]] = members[order]
        same = np.bincount(owners, functions == calls.numbers[longest[owners]], len(asked)).astype(np.int64)
        evidence = {}
        columns = (asked, longest, same, covered[asked], calls.ends[longest] - calls.begins[longest])
        for place, culprit, count, ns, duration_ns in zip(*(column.tolist() for column in columns), strict=True):
            call = calls.calls[culprit]
            own = {"thread_name": self._thread_names.get(call.thread, ""), "duration_ns": duration_ns}
            fields = attributes(call, DriverCall) | own
            evidence[place] = WaitEvidence(ns, calls=(CallAlongside(**fields, calls=count, overlap_ns=ns),))
        return evidence

    def _own(self, at: int) -> Int64s:
        first, last = self._own_calls.searchsorted((at, at + 1))
        return self._own_rows[first:last]

    def _engine(self, at: int) -> tuple[OthersTime, ...]:
        """The contexts that had the graphics engine meanwhile, the longest first."""
        waits, begin_ns, end_ns = self._waits, int(self._calls.begins[at]), int(self._waits.engine_until[at])
        used: dict[int | None, int] = {}
        for tenures in waits.tenures.values():
            first, last = np.searchsorted(tenures.ends, begin_ns, "right"), np.searchsorted(tenures.starts, end_ns)
            contexts = tenures.contexts[first:last]
            times = np.minimum(tenures.ends[first:last], end_ns) - np.maximum(tenures.starts[first:last], begin_ns)
            for context in np.unique(contexts[contexts != self._calls.contexts[at]]).tolist():
                used[context] = used.get(context, 0) + int(times[contexts == context].sum())
        if waits.process[at]:
            used[None] = int(waits.process[at])
        process = ""
        if waits.process[at]:
            process = user_of(self._other_work, self._device(at), begin_ns, end_ns)
        return tuple(
            OthersTime(context, ns, process if context is None else "")
            for context, ns in sorted(used.items(), key=lambda item: -item[1])
        )

    @cached_property
    def _other_work(self) -> tuple[OtherWork, ...]:
        return tuple(self._others())

    def _device(self, at: int) -> int:
        """The GPU for which a call waits."""
        stream = int(self._waits.stream[at])
        if stream >= 0:
            return int(self._devices_of_streams[stream])
        return int(self._devices_of_contexts[int(self._waits.whole[at])])

    @cached_property
    def _devices_of_streams(self) -> Int64s:
        return _of_groups(self._work.streams, self._work.rows["device"])

    @cached_property
    def _devices_of_contexts(self) -> Int64s:
        return _of_groups(self._work.contexts, self._work.rows["device"])

    def _grouped(self, at: int, rows: Int64s) -> tuple[WorkInFront, ...]:
        """Pieces of work by name, kind, context and stream, the longest overlap first."""
        work, begin_ns, end_ns = self._work, int(self._calls.begins[at]), int(self._calls.ends[at])
        sums: dict[tuple[int, ...], list[int]] = {}
        rows = rows[-MOST_PIECES:]
        columns = (self._columns[rows], work.starts[rows], work.ends[rows], work.owners[rows] == at)
        for (*place, size), start, end, own in zip(*(column.tolist() for column in columns), strict=True):
            total = sums.setdefault((*place, own), [0, 0, 0, 0])
            total[0] += 1
            total[1] += end - start
            total[2] += max(min(end, end_ns) - max(start, begin_ns), 0)
            total[3] += size
        longest = sorted(sums.items(), key=lambda item: -item[1][2])[:MOST_GROUPS]
        names = {place: self._names.get(place, "") for (_, place, *_), _ in longest}
        functions = demangle_all(names.values())
        return tuple(
            WorkInFront(
                kind=GPU_WORK[kind],
                name=functions[names[name]],
                direction=DIRECTIONS.get(direction, Direction.UNKNOWN) if kind in COPIES else None,
                context=context,
                stream=stream,
                count=count,
                total_ns=total_ns,
                overlap_ns=overlap_ns,
                bytes=size,
                own=bool(own),
            )
            for (kind, name, direction, context, stream, own), (count, total_ns, overlap_ns, size) in longest
        )


def _of_groups(groups: Int64s, values: NDArray[Any]) -> Int64s:
    """Value of each group (from 0); all rows of a group have the same value."""
    values_of_groups = np.zeros(int(groups.max(initial=-1)) + 1, dtype=np.int64)
    values_of_groups[groups] = values
    return values_of_groups
