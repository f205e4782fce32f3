"""What is known of the functions of the driver, as columns of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import CallKind, DriverFunction, HostTask, function_of
from stallprobes.records.rows import Rows
from stallprobes.watch.intervals import NONE, Int64s, expanded, int64s

# Kinds and tasks of calls of a function, without and with pageable memory.
_KINDS, _HOLDS = (
    [partial(value, pageable=pageable) for pageable in (False, True)]
    for value in (DriverFunction.kind_of, DriverFunction.holds)
)
# Kind of a call of a function with pageable memory.
kind_if_pageable = _KINDS[1]


def flags_by_kind(*kinds: CallKind) -> NDArray[np.bool_]:
    """Flags by number of CallKind. The last flag is for the time without a call, whose number is -1."""
    return np.array([*(kind in kinds for kind in CallKind), False])


# Calls that end when work of the GPU has ended; these, and frees.
AWAITS_WORK = flags_by_kind(CallKind.WAITS, CallKind.COPIES)
AWAITS_OR_FREES = flags_by_kind(CallKind.WAITS, CallKind.COPIES, CallKind.FREES)
# Calls that allocate or free.
ALLOCATES_BY_KIND = flags_by_kind(CallKind.ALLOCATES, CallKind.FREES, CallKind.HOST_MEMORY)
# Functions by which a thread asks whether work has ended.
QUERIES = ("cuStreamQuery", "cuEventQuery")
# Smallest number of consecutive queries of a handle that count as a wait for the handle. Reason: the result of each
# query is not known.
_LEAST_POLLS = 3
# Time (ns) between consecutive queries of a handle below which the queries count as one wait.
_POLL_NS = 50_000
# Time (ns) between two runs of queries of the same handle below which the runs count as one wait. Reason: a thread that
# loses its CPU makes no queries in this time.
_INTERRUPTED_NS = 10_000_000


def columns_of(rows: Rows, functions: Mapping[int, str]) -> tuple[Int64s, Int64s]:
    """The kind of each of ``rows``, which are DRIVER_CALL (CallKind), and the task for whose end calls of other threads
    may wait (HostTask)."""
    kinds, holds = (np.concatenate([by_number(functions, value) for value in values]) for values in (_KINDS, _HOLDS))
    pageable = (rows["source"] == int(MemoryKind.PAGEABLE)) | (rows["target"] == int(MemoryKind.PAGEABLE))
    places = rows["function"] + pageable * (len(kinds) // 2)
    # Without a look at the bounds of each of two numbers.
    return kinds.take(places), holds.take(places)


def by_number(functions: Mapping[int, str], value: Callable[[DriverFunction], int]) -> Int64s:
    """The value of each of ``functions`` by its number, 0 for the numbers between. What ``value`` returns is kept."""
    return _by_number(tuple(functions.items()), value)


# Functions of several processes, and of the last readings of each.
@lru_cache(maxsize=256)
def _by_number(functions: tuple[tuple[int, str], ...], value: Callable[[DriverFunction], int]) -> Int64s:
    values = np.zeros(max((number for number, _ in functions), default=0) + 1, dtype=np.int64)
    for number, name in functions:
        values[number] = value(function_of(name))
    values.flags.writeable = False
    return values


def may_hold_up(holds: Any, contexts: Any, context: Any) -> NDArray[np.bool_]:
    """Which calls may hold up a call of ``context``, by what they hold and their contexts.

    The driver's locks are those of one context, but whoever makes or ends a context holds up all.
    """
    same = (holds != HostTask.NOTHING) & (contexts == context) & (contexts != 0)
    return np.asarray(same | (holds == HostTask.CONTEXT), dtype=np.bool_)


def polls_of(rows: Rows, functions: Mapping[int, str]) -> tuple[Int64s, Int64s, NDArray[np.bool_]]:
    """Runs of queries by which a thread waits for a stream or an event, among the outermost calls of a log (those of
    a thread in order).

    Returns the places of the first and the last query of each run, and flags of all calls but the other queries.
    """
    kept = np.ones(len(rows), dtype=np.bool_)
    queries = [number for number, name in functions.items() if name.startswith(QUERIES)]
    asks = np.isin(rows["function"], queries) if queries else ~kept
    if np.count_nonzero(asks) < _LEAST_POLLS:
        return NONE, NONE, kept
    order = np.argsort(rows["thread"], kind="stable")
    own = [np.ascontiguousarray(rows[name][order]) for name in ("thread", "function", "stream", "bytes")]
    same = asks[order][1:] & np.logical_and.reduce([column[1:] == column[:-1] for column in own])
    gaps = int64s(rows["began_ns"][order][1:]) - int64s(rows["returned_ns"][order][:-1])
    first = np.flatnonzero(np.append(True, ~same | (gaps >= _POLL_NS)))
    polls = np.diff(np.append(first, len(rows))) >= _LEAST_POLLS
    # Of two runs for one handle, the first may have been interrupted.
    interrupted = polls[1:] & polls[:-1] & same[first[1:] - 1] & (gaps[first[1:] - 1] < _INTERRUPTED_NS)
    first, polls = first[np.append(True, ~interrupted)], polls[np.append(True, ~interrupted)]
    last = np.append(first[1:], len(rows)) - 1
    first, last = first[polls], last[polls]
    kept[order[expanded(first, last)[1]]] = False
    return order[first], order[last], kept
