"""What streams wait for beside their own work: events that were recorded in other streams, host functions, values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.driver_calls import plain_name
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import DRIVER_CALL, Rows, joined, rows_at, rows_where
from stallprobes.watch.intervals import int64s
from stallprobes.watch.reading.process import CallBatch, FinishedCall, RecordBatch

# So long calls are kept: what a slow call waits for was mostly submitted just before.
KEPT_NS = 10_000_000_000
MOST_KEPT = 1 << 17
# Calls of a reading by which the numbers of streams are known, the last ones.
_MOST_NAMED = 4000
# Dependencies that are followed from one stream, the last ones, and how far.
MOST_OF_STREAM = 4
DEEPEST = 8
_RECORDS, _WAITS, _HOLDS, _SYNCHRONIZES = range(1, 5)
_HOLDERS = (
    "cuLaunchHostFunc", "cuStreamAddCallback", "cuStreamWaitValue", "cuStreamBatchMemOp", "cuWaitExternalSemaphores",
)  # fmt: skip


def _role(function: str) -> int:
    """What a function says of the order of streams, 0 if nothing."""
    name = plain_name(function)
    if name.startswith("cuEventRecord"):
        return _RECORDS
    if name == "cuStreamWaitEvent":
        return _WAITS
    if name == "cuEventSynchronize":
        return _SYNCHRONIZES
    return _HOLDS if name.startswith(_HOLDERS) else 0


@dataclass(frozen=True)
class Behind:
    """What is in front of a call in other streams than its own, and what holds those and its own.

    ``scopes`` are streams, by context and CUPTI's number, each with the correlation number before which their work was
    submitted. ``holders`` are rows of calls (DRIVER_CALL) after which a stream waits for something that is no work of
    the GPU, the last one first; ``functions`` are their names.
    """

    scopes: tuple[tuple[int, int, int], ...] = ()
    holders: tuple[np.void, ...] = ()
    functions: tuple[str, ...] = ()


NOTHING_BEHIND = Behind()


class StreamOrder:
    """The calls of a process that order its streams. Feed it each reading."""

    def __init__(self) -> None:
        self._rows: Rows = np.zeros(0, DRIVER_CALL)
        self._roles: NDArray[np.int64] = np.zeros(0, np.int64)
        self._functions: dict[int, str] = {}
        self._role_of: dict[int, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def add(self, calls: CallBatch, records: RecordBatch, now_ns: int) -> None:
        """Add the calls and records since the reading before."""
        for number, name in calls.functions.items():
            self._functions[number], self._role_of[number] = name, _role(name)
        known = np.zeros(max(self._role_of, default=0) + 1, np.int64)
        known[list(self._role_of)] = list(self._role_of.values())
        roles = known[calls.rows["function"]] if len(calls) else np.zeros(0, np.int64)
        self._note_numbers(calls.rows, records.rows)
        new = rows_where(calls.rows, roles > 0)
        if not len(new) and not len(self._rows):
            return
        rows, roles = joined(DRIVER_CALL, (self._rows, new)), np.concatenate((self._roles, roles[roles > 0]))
        kept = rows["began_ns"] >= now_ns - KEPT_NS
        kept[: max(len(rows) - MOST_KEPT, 0)] = False
        rows, roles = rows_where(rows, kept), roles[kept]
        order = np.argsort(rows["began_ns"], kind="stable")
        self._rows, self._roles = rows_at(rows, order), roles[order]

    def _note_numbers(self, calls: Rows, records: NDArray[Any]) -> None:
        """Note CUPTI's numbers of streams, by calls whose work has a record."""
        calls, records = calls[-_MOST_NAMED:], records[-4 * _MOST_NAMED :]
        calls = rows_where(calls, (calls["flags"] & int(CallFlag.STREAM)) > 0)
        if not len(calls) or not len(records):
            return
        correlations, places = np.unique(records["correlation"], return_index=True)
        at = np.minimum(np.searchsorted(correlations, calls["correlation"]), len(correlations) - 1)
        found = (correlations[at] == calls["correlation"]) & (calls["correlation"] > 0)
        streams = records["stream"][places[at[found]]]
        keys = zip(calls["context"][found].tolist(), calls["stream"][found].tolist(), strict=True)
        self._numbers.update(zip(keys, streams.tolist(), strict=True))

    def behind(self, call: FinishedCall) -> Behind:
        """What is in front of a call that waits for a stream, or for an event."""
        scopes: dict[tuple[int, int], int] = {}
        holders: list[int] = []
        seen: set[int] = set()
        if call.stream is not None:
            self._follow(call.context, call.stream, call.begin_ns, scopes, holders, seen, DEEPEST)
        else:
            own = self._last(_SYNCHRONIZES, call.begin_ns + 1, thread=call.thread, began_ns=call.begin_ns)
            if own is not None:
                self._follow_event(int(self._rows["event"][own]), call.begin_ns, scopes, holders, seen, DEEPEST)
        holders.sort(reverse=True)
        return Behind(
            scopes=tuple((context, stream, until) for (context, stream), until in scopes.items()),
            holders=tuple(self._rows[at] for at in holders),
            functions=tuple(self._functions.get(int(self._rows["function"][at]), "") for at in holders),
        )

    def _follow(
        self,
        context: int,
        stream: int,
        before_ns: int,
        scopes: dict[tuple[int, int], int],
        holders: list[int],
        seen: set[int],
        depth: int,
    ) -> None:
        """Follow what a stream waits for of the calls before a time."""
        rows = self._rows
        mine = np.isin(self._roles, (_WAITS, _HOLDS)) & (rows["stream"] == stream) & (rows["context"] == context)
        mine &= rows["began_ns"] < before_ns
        for at in np.flatnonzero(mine)[-MOST_OF_STREAM:].tolist():
            if at in seen:
                continue
            seen.add(at)
            if self._roles[at] == _HOLDS:
                holders.append(at)
            elif depth:
                began_ns = int(rows["began_ns"][at])
                self._follow_event(int(rows["event"][at]), began_ns, scopes, holders, seen, depth - 1)

    def _follow_event(
        self,
        event: int,
        before_ns: int,
        scopes: dict[tuple[int, int], int],
        holders: list[int],
        seen: set[int],
        depth: int,
    ) -> None:
        """Follow what an event waits for, as it was recorded last before a time."""
        at = self._last(_RECORDS, before_ns, event=event)
        if at is None or at in seen:
            return
        seen.add(at)
        row = self._rows[at]
        context, stream = int(row["context"]), int(row["stream"])
        number = self._numbers.get((context, stream))
        if number is not None:
            key = context, number
            scopes[key] = max(scopes.get(key, 0), int(row["correlation"]))
        self._follow(context, stream, int(row["began_ns"]), scopes, holders, seen, depth)

    def _last(self, role: int, before_ns: int, **columns: int) -> int | None:
        rows = self._rows
        mine = (self._roles == role) & (rows["began_ns"] < before_ns)
        for name, value in columns.items():
            mine &= rows[name] == value
        found = np.flatnonzero(mine)
        return int(found[-1]) if len(found) else None


def rows_behind(
    behind: Behind,
    streams: Mapping[tuple[int, int], int],
    of_work: NDArray[np.int64],
    orders: NDArray[np.int64],
    order_of: Iterable[int],
) -> NDArray[np.intp]:
    """The rows of work in front by ``behind``: ``streams`` are the numbers of streams in ``of_work``, ``orders`` those
    in which the work was submitted, ``order_of`` those of the scopes."""
    found = np.zeros(len(of_work), np.bool_)
    for (context, stream, _), order in zip(behind.scopes, order_of, strict=True):
        number = streams.get((context, stream))
        if number is not None:
            found |= (of_work == number) & (int64s(orders) < order)
    return np.flatnonzero(found)
