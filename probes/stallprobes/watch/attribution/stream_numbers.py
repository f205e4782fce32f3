"""Streams of a process by the handles with which its calls name them.

Records of GPU work have CUPTI's number of its stream, calls have the driver's handle. The record of a call that submits
work shows which number its handle has. A call that waits for a stream then needs no record of its own: with CUPTI's
synchronization records, each launch takes 0.2 to 0.4 us longer (H100, CUPTI 13.5, 2026-11-26).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import GPU_WORK
from stallprobes.native.layouts.driver_calls import plain_name
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import Rows, joined, of_kinds, rows_at, rows_where
from stallprobes.watch.division.call_columns import by_number
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.reading.process import CallBatch

# Handles of the legacy default stream, which all threads share: 0 and CU_STREAM_LEGACY.
LEGACY = (0, 1)
# Handle of a thread's own default stream: CU_STREAM_PER_THREAD.
_PER_THREAD = 2
# Property of a function: it submits work.
_submits = attrgetter("submits")
# Number of calls of each stream that are matched with GPU records in each reading of a process's file. The calls are
# spread evenly from the first to the last call of the stream. Each match gives the number that the stream has in
# CUPTI's records.
_CALLS_OF_STREAM = 4
# Age (ns) after which a call that submitted work is no longer matched with GPU records. Reason: the record of the work
# arrives within two seconds.
_LOOKED_FOR_NS = 3_000_000_000
# Largest number of calls of each reading that are candidates for the match with GPU records (see _CALLS_OF_STREAM): the
# last candidates. A candidate is a call that submits work to another stream than the previous submitting call.
_MOST_CHANGES = 1 << 14
# Number of calls at the end of a reading that are searched first for candidates (see _MOST_CHANGES). If the search
# finds fewer than _MOST_CHANGES candidates, all calls of the reading are searched. Reason: the first search saves time.
_SEARCHED_FIRST = 1 << 15
# Largest number of submitting calls that are kept until their GPU records come; the oldest are dropped.
_MOST_LOOKED_FOR = 1 << 15
# Largest number of stream handles whose numbers in CUPTI's records are kept.
_MOST_STREAMS = 1 << 16
# Largest number of CUPTI's stream numbers that are kept for one handle: the last numbers. Reason: the driver gives the
# handle of a destroyed stream to a new stream.
_NUMBERS_OF_HANDLE = 8

# Layout of the calls that submitted work. ``context`` and ``handle`` identify the stream. ``thread`` is the thread of
# the call if the stream is a thread's own default stream, and 0 for other streams.
_SUBMITTED = np.dtype(
    [
        ("began_ns", np.int64), ("context", np.int64), ("handle", np.uint64), ("thread", np.int64),
        ("correlation", np.int64),
    ]
)  # fmt: skip


class _Key(NamedTuple):
    """A stream's handle, 0 for the legacy default stream. ``thread`` is 0 but for the default stream of a thread."""

    context: int
    handle: int
    thread: int = 0


class StreamNumbers:
    """CUPTI's numbers of a process's streams. Feed it each reading."""

    def __init__(self) -> None:
        # The times (ns) since when each handle had a number, and the number, ascending.
        self._numbers: dict[_Key, list[tuple[int, int]]] = {}
        self._looked_for: Rows = np.zeros(0, _SUBMITTED)
        self._functions: dict[int, str] = {}

    def add(self, calls: CallBatch, records: NDArray[Any]) -> None:
        """Add the calls and records (in the layout of the file) since the reading before."""
        self._functions.update(calls.functions)
        new = _chosen(_submitted(calls.rows, self._functions))
        rows = joined(_SUBMITTED, (self._looked_for, new))[-_MOST_LOOKED_FOR:]
        if len(rows):
            rows = rows_where(rows, rows["began_ns"] >= int(rows["began_ns"].max()) - _LOOKED_FOR_NS)
        if not len(rows) or not len(records):
            self._looked_for = rows
            return
        places, numbers = _found(rows, records)
        for row, number in zip(rows_at(rows, places).tolist(), numbers.tolist(), strict=True):
            began_ns, context, handle, thread, _ = row
            self._note(_Key(context, handle, thread), began_ns, number)
        rest = np.ones(len(rows), np.bool_)
        rest[places] = False
        self._looked_for = rows_where(rows, rest)

    def _note(self, key: _Key, since_ns: int, number: int) -> None:
        entries = self._numbers.setdefault(key, [])
        if entries and (since_ns < entries[-1][0] or entries[-1][1] == number):
            return
        entries.append((since_ns, number))
        del entries[:-_NUMBERS_OF_HANDLE]
        while len(self._numbers) > _MOST_STREAMS:
            del self._numbers[next(iter(self._numbers))]

    def handles(self) -> Mapping[tuple[int, int], int]:
        """The handles of streams by context and CUPTI's number, without the default streams of threads."""
        known = self._numbers.items()
        return {(key.context, entries[-1][1]): key.handle for key, entries in known if not key.thread}

    def number_of(self, context: int, handle: int, at_ns: int, thread: int = 0, function: str = "") -> int | None:
        """CUPTI's number of the stream that a call of ``function`` names at a time (ns on CLOCK_MONOTONIC).

        None if it is not known.
        """
        entries = self._numbers.get(_key(context, handle, thread, function))
        if not entries:
            return None
        return next((number for since_ns, number in reversed(entries) if since_ns <= at_ns), entries[0][1])


def _key(context: int, handle: int, thread: int, function: str) -> _Key:
    if handle == _PER_THREAD or (handle == 0 and plain_name(function) != function):
        return _Key(context, _PER_THREAD, thread)
    return _Key(context, 0 if handle in LEGACY else handle)


def _submitted(calls: Rows, functions: Mapping[int, str]) -> Rows:
    """Calls that submit work to another stream than the call before, and the first and last one, as _SUBMITTED."""
    submits = by_number(functions, _submits)[calls["function"]] != 0
    with_work = submits & ((calls["flags"] & int(CallFlag.STREAM)) > 0)
    places = np.flatnonzero(with_work & (calls["correlation"] > 0))
    if not len(places):
        return np.zeros(0, _SUBMITTED)
    some = places[-_SEARCHED_FIRST:]
    own_by_default = [number for number, name in functions.items() if plain_name(name) != name]
    handles, contexts, threads, changes = _streams_of(calls, some, own_by_default)
    if len(some) < len(places) and len(changes) < _MOST_CHANGES:
        some = places
        handles, contexts, threads, changes = _streams_of(calls, some, own_by_default)
    kept = changes[-_MOST_CHANGES:]
    submitted, places = np.zeros(len(kept), _SUBMITTED), some[kept]
    submitted["handle"], submitted["context"], submitted["thread"] = handles[kept], contexts[kept], threads[kept]
    submitted["began_ns"], submitted["correlation"] = calls["began_ns"][places], calls["correlation"][places]
    return submitted


def _streams_of(
    calls: Rows, places: NDArray[np.intp], own_by_default: Sequence[int]
) -> tuple[NDArray[np.uint64], NDArray[Any], NDArray[Any], NDArray[np.intp]]:
    """Handles, contexts and threads of the streams of some calls, and the places of those with another stream than the
    call before. ``own_by_default``: functions whose handle 0 is the default stream of the thread."""
    handles, contexts = calls["stream"][places], calls["context"][places]
    own = (handles == _PER_THREAD) | ((handles == 0) & np.isin(calls["function"][places], own_by_default))
    handles = np.where(own, _PER_THREAD, np.where(handles == LEGACY[1], 0, handles))
    threads = np.where(own, calls["thread"][places], 0)
    changes = np.zeros(len(places), np.bool_)
    changes[[0, -1]] = True
    for column in (handles, contexts, threads):
        changes[1:] |= column[1:] != column[:-1]
    return handles, contexts, threads, np.flatnonzero(changes)


def _chosen(calls: Rows) -> Rows:
    """Some calls of each stream, from its first to its last."""
    if not len(calls):
        return calls
    names = ("handle", "context", "thread")
    order = np.lexsort((calls["began_ns"], *(calls[name] for name in names)))
    new = np.zeros(len(order), np.bool_)
    new[0] = True
    for name in names:
        column = calls[name][order]
        new[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(new)
    last = np.diff(np.append(starts, len(order))) - 1
    steps = [starts + last * step // (_CALLS_OF_STREAM - 1) for step in range(_CALLS_OF_STREAM)]
    return rows_at(calls, order[np.unique(np.concatenate(steps))])


def _found(calls: Rows, records: NDArray[Any]) -> tuple[NDArray[np.intp], Int64s]:
    """The places of the calls whose work has a record, in the order of time, and the numbers of their streams.

    A graph's first work is in the stream in which it was launched.
    """
    order = np.argsort(calls["correlation"], kind="stable")
    numbers_of_calls = calls["correlation"][order]
    at = np.minimum(np.searchsorted(numbers_of_calls, records["correlation"]), len(order) - 1)
    hits = np.flatnonzero(numbers_of_calls[at] == records["correlation"])
    places, records = order[at[hits]], rows_at(records, hits)
    same = of_kinds(records, *GPU_WORK) & (records["context"] == calls["context"][places])
    places, records = places[same], rows_where(records, same)
    first = np.lexsort((records["start"], places))
    places, at_first = np.unique(places[first], return_index=True)
    numbers = int64s(records["stream"][first[at_first]])
    by_time = np.argsort(calls["began_ns"][places], kind="stable")
    return places[by_time], numbers[by_time]
