"""Dependencies of streams beside their own work: events recorded in other streams, host functions, values, and the
legacy default stream. That stream waits for all streams of its context that were not created as non-blocking, and they
wait for it (CUDA's documentation, "Stream synchronization behavior")."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import RecordKind, StreamFlag
from stallprobes.native.layouts.driver_calls import CallFamily, StreamRole, function_of, plain_name
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import DRIVER_CALL, Rows, joined, rows_at, rows_where
from stallprobes.watch.attribution.stream_numbers import LEGACY, StreamNumbers
from stallprobes.watch.division.call_columns import by_number
from stallprobes.watch.intervals import int64s
from stallprobes.watch.reading.process import CallBatch, FinishedCall

# Largest age (ns) at which calls that order streams (records of events, waits for events, …) are kept. Reason: a slow
# call mostly waits for work that was submitted just before the call.
KEPT_NS = 10_000_000_000
# Largest number of kept calls that order streams (records of events, waits for events, …): the last calls.
MOST_KEPT = 1 << 17
# Largest number of a stream's event waits and holds (sum of both) in the search for the streams that a call waits for.
# The search follows only the last event waits and holds. A hold is a call that lets the stream wait for something else,
# such as a host function (StreamRole.HOLDS).
MOST_OF_STREAM = 4
# Largest number of steps in the search for the streams that a call waits for. A step goes from a stream to a second
# stream for which the first stream waits. The count begins again at a step to or from the legacy default stream.
DEEPEST = 8
# Largest number of blocking streams (streams that wait for the legacy default stream) that are kept. With more streams,
# the streams that were created first are dropped.
MOST_BLOCKING = 4096
# Largest number of a context's blocking streams that the search for the work in front of a call includes: the newest.
MOST_ORDERED = 64
# First StreamRole whose calls order streams or threads, by events or other waits. The calls of all roles after this
# role order streams or threads too.
_ORDERING = StreamRole.RECORDS
# Property of a function: its role in the order of streams.
_role = attrgetter("role")
# Roles of calls that can make a stream wait for something other than GPU work: the call lets the stream wait for an
# event, adds a host function to it, or launches a graph in it.
_HOLDERS = (StreamRole.WAITS, StreamRole.HOLDS, StreamRole.LAUNCHES)


@dataclass(frozen=True)
class Behind:
    """Work in front of a call in other streams than its own, and the calls that hold those streams and its own.

    ``scopes`` are streams, by context and CUPTI's number, each with the correlation number before which their work was
    submitted. ``through`` is the legacy default stream of a context, likewise, with the blocking streams for whose work
    its last one waits. ``holders`` are rows of calls (DRIVER_CALL), the last first, after which a stream waits for
    something other than GPU work; ``functions`` are their names.
    """

    scopes: tuple[tuple[int, int, int], ...] = ()
    through: tuple[tuple[int, int, int, tuple[int, ...]], ...] = ()
    holders: tuple[np.void, ...] = ()
    functions: tuple[str, ...] = ()


# Empty result of the search: the call waits for no other known stream, and no known call holds the call's own stream.
NOTHING_BEHIND = Behind()


@dataclass(frozen=True)
class _Found:
    """State of a search: what ``Behind`` has, and the places of the calls that were ``seen``."""

    scopes: dict[tuple[int, int], int] = field(default_factory=dict)
    through: dict[tuple[int, int], int] = field(default_factory=dict)
    holders: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)


class _Places:
    """The places of some calls by the value of a column, of each value in ascending order.

    In lists: the search asks for few of them ten thousand times, for which NumPy takes ten times as long.
    """

    def __init__(self, values: NDArray[Any], places: NDArray[np.intp]) -> None:
        order = np.argsort(values, kind="stable")
        found, firsts = np.unique(values[order], return_index=True)
        self._places: list[int] = places[order].tolist()
        self._spans = dict(zip(found.tolist(), pairwise([*firsts.tolist(), len(order)]), strict=True))

    def before(self, value: int, end: int) -> Iterator[int]:
        """The places with a value that are less than ``end``, the last first."""
        first, last = self._spans.get(value, (0, 0))
        return map(self._places.__getitem__, range(bisect_left(self._places, end, first, last) - 1, first - 1, -1))


class StreamOrder:
    """The calls of a process that order its streams, whose ``numbers`` are CUPTI's. Feed it each reading."""

    def __init__(self, numbers: StreamNumbers) -> None:
        self._rows: Rows = np.zeros(0, DRIVER_CALL)
        self._roles: NDArray[np.int64] = np.zeros(0, np.int64)
        # Begins of the rows. By event: those that record one. By stream: those after which one waits.
        self._begins: list[int] = []
        self._by_event: _Places | None = None
        self._by_stream: _Places | None = None
        self._functions: dict[int, str] = {}
        self._numbers = numbers
        # By context and handle.
        self._blocking: dict[tuple[int, int], None] = {}
        # Blocking streams from before the recording, by context and CUPTI's number, until their handles are known.
        self._unnamed: set[tuple[int, int]] = set()
        # Calls of the variants for it have the handle 0 too.
        self._has_thread_streams = False

    def add(self, calls: CallBatch, now_ns: int, records: NDArray[Any]) -> None:
        """Add the calls and records (in the layout of the file) since the reading before."""
        self._note_existing(records)
        for number, name in calls.functions.items():
            self._functions[number] = name
            self._has_thread_streams |= plain_name(name) != name
        roles = by_number(self._functions, _role)[calls.rows["function"]]
        self._note_streams(calls.rows)
        new = rows_where(calls.rows, roles >= _ORDERING)
        if not len(new) and not len(self._rows):
            return
        rows, roles = joined(DRIVER_CALL, (self._rows, new)), np.concatenate((self._roles, roles[roles >= _ORDERING]))
        kept = rows["began_ns"] >= now_ns - KEPT_NS
        kept[: max(len(rows) - MOST_KEPT, 0)] = False
        rows, roles = rows_where(rows, kept), roles[kept]
        order = np.argsort(rows["began_ns"], kind="stable")
        self._rows, self._roles = rows_at(rows, order), roles[order]
        self._begins, self._by_event, self._by_stream = self._rows["began_ns"].tolist(), None, None

    def _note_existing(self, records: NDArray[Any]) -> None:
        """Note streams that existed when the recording began, once their handles are known."""
        existing = (records["kind"] == RecordKind.STREAM) & (records["subkind"] == StreamFlag.DEFAULT)
        rows = records[existing][:MOST_BLOCKING]
        self._unnamed.update(zip(rows["context"].tolist(), rows["stream"].tolist(), strict=True))
        named = self._unnamed & self._numbers.handles().keys() if self._unnamed else set()
        for key in sorted(named):
            self._blocking.setdefault((key[0], self._numbers.handles()[key]))
        self._unnamed -= named

    def _note_streams(self, calls: Rows) -> None:
        """Note streams that were created, or destroyed, in the order of time."""
        destroys = [number for number, name in self._functions.items() if name.startswith("cuStreamDestroy")]
        created = (calls["flags"] & int(CallFlag.BLOCKING)) > 0
        rows = rows_where(calls, created | np.isin(calls["function"], destroys))
        for row in rows_at(rows, np.argsort(rows["began_ns"], kind="stable")):
            key = int(row["context"]), int(row["stream"])
            self._blocking.pop(key, None)
            if int(row["flags"]) & int(CallFlag.BLOCKING):
                self._blocking[key] = None
        while len(self._blocking) > MOST_BLOCKING:
            del self._blocking[next(iter(self._blocking))]

    def behind(self, call: FinishedCall) -> Behind:
        """What is in front of a call that waits for a stream, or for an event."""
        front = _Found()
        # A copy without a stream is one in the default stream.
        stream = LEGACY[0] if call.stream is None and call.family is CallFamily.COPY else call.stream
        if stream is not None:
            self._follow(front, call.context, stream, call.begin_ns, DEEPEST)
            self._follow_default(front, call.context, stream, call.begin_ns, call.correlation)
        else:
            first, end = (side(self._begins, call.begin_ns) for side in (bisect_left, bisect_right))
            synchronizes = self._roles[first:end] == StreamRole.SYNCHRONIZES
            own = first + np.flatnonzero(synchronizes & (self._rows["thread"][first:end] == call.thread))
            if len(own):
                self._follow_event(front, int(self._rows["event"][own[-1]]), call.begin_ns, DEEPEST)
        holders = sorted(front.holders, reverse=True)
        return Behind(
            scopes=tuple((context, stream, until) for (context, stream), until in front.scopes.items()),
            through=tuple(
                (context, stream, until, tuple(self._numbers_of(context, self._blocking_of(context), call.begin_ns)))
                for (context, stream), until in front.through.items()
            ),
            holders=tuple(self._rows[at] for at in holders),
            functions=tuple(self._functions.get(int(self._rows["function"][at]), "") for at in holders),
        )

    def _follow(self, front: _Found, context: int, stream: int, before_ns: int, depth: int) -> None:
        """Follow the calls before a time that say what a stream waits for."""
        rows = self._rows
        if self._by_stream is None:
            places = np.flatnonzero(np.isin(self._roles, (StreamRole.WAITS, StreamRole.HOLDS)))
            self._by_stream = _Places(rows["stream"][places], places)
        mine = self._by_stream.before(stream, bisect_left(self._begins, before_ns))
        last = islice((at for at in mine if rows["context"][at] == context), MOST_OF_STREAM)
        for at in reversed([*last]):
            if at in front.seen:
                continue
            front.seen.add(at)
            if self._roles[at] == StreamRole.HOLDS:
                front.holders.append(at)
            elif depth:
                self._follow_event(front, int(rows["event"][at]), int(rows["began_ns"][at]), depth - 1)

    def _follow_default(self, front: _Found, context: int, stream: int, before_ns: int, correlation: int) -> None:
        """Follow the streams for which one waits by the rules of the legacy default stream, until a call."""
        if self._has_thread_streams:
            return
        others: list[int] = []
        if stream in LEGACY:
            others = self._blocking_of(context)
        elif (context, stream) in self._blocking:
            others = [*LEGACY]
            for number in self._numbers_of(context, others, before_ns):
                front.through[context, number] = max(front.through.get((context, number), 0), correlation)
        for number in self._numbers_of(context, others, before_ns):
            front.scopes[context, number] = max(front.scopes.get((context, number), 0), correlation)
        for other in others:
            self._follow(front, context, other, before_ns, DEEPEST - 1)

    def _blocking_of(self, context: int) -> list[int]:
        return [handle for owner, handle in self._blocking if owner == context][-MOST_ORDERED:]

    def _numbers_of(self, context: int, streams: Iterable[int], at_ns: int) -> list[int]:
        """CUPTI's numbers of some streams, as far as they are known."""
        numbers = (self._numbers.number_of(context, stream, at_ns) for stream in streams)
        return list(dict.fromkeys(number for number in numbers if number is not None))

    def _follow_event(self, front: _Found, event: int, before_ns: int, depth: int) -> None:
        """Follow the dependencies of an event, as it was last recorded before a time."""
        if self._by_event is None:
            places = np.flatnonzero(self._roles == StreamRole.RECORDS)
            self._by_event = _Places(self._rows["event"][places], places)
        at = next(self._by_event.before(event, bisect_left(self._begins, before_ns)), None)
        if at is None or at in front.seen:
            return
        front.seen.add(at)
        row = self._rows[at]
        context, stream = int(row["context"]), int(row["stream"])
        began_ns, function = int(row["began_ns"]), self._functions.get(int(row["function"]), "")
        number = self._numbers.number_of(context, stream, began_ns, int(row["thread"]), function)
        if number is not None:
            key = context, number
            front.scopes[key] = max(front.scopes.get(key, 0), int(row["correlation"]))
        self._follow(front, context, stream, int(row["began_ns"]), depth)
        self._follow_default(front, context, stream, int(row["began_ns"]), int(row["correlation"]))


def rows_behind(
    behind: Behind,
    numbers: Mapping[tuple[int, int], int],
    streams: NDArray[np.int64],
    orders: NDArray[np.int64],
    order_of: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> NDArray[np.intp]:
    """The rows of the work that is in front by ``behind``.

    Of each piece of work, ``streams`` has its stream by the ``numbers`` of streams, and ``orders`` its place in the
    order in which all was submitted, as ``order_of`` has it for correlation numbers.
    """
    in_front = np.zeros(len(streams), np.bool_)
    for context, stream, until in behind.scopes:
        in_front |= _before(numbers.get((context, stream)), int(order_of(int64s([until]))[0]), streams, orders)
    for context, stream, until, others in behind.through:
        via = _before(numbers.get((context, stream)), int(order_of(int64s([until]))[0]), streams, orders)
        last = int(orders[via].max(initial=0))
        for other in others:
            in_front |= _before(numbers.get((context, other)), last, streams, orders)
    return np.flatnonzero(in_front)


def _before(stream: int | None, limit: int, streams: NDArray[np.int64], orders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Flags of the work of a stream that was submitted before a place in the order."""
    return (streams == stream) & (orders < limit) if stream is not None else np.zeros(len(streams), np.bool_)


def may_hold_streams(functions: Iterable[str]) -> bool:
    """True if a program that calls ``functions`` can make a stream wait for something other than GPU work."""
    return any(function_of(name).role in _HOLDERS for name in functions)
