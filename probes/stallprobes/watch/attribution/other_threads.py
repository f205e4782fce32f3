"""Calls of other threads that may hold what a slow call waits for: those that overlap it and end with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.watch.attribution.causes import WaitCause
from stallprobes.watch.attribution.findings import CallAlongside, CallInFlight
from stallprobes.watch.attribution.gpu_waits import OVERLAP_SHARE, SAME_END_NS, WAKE_UP_NS
from stallprobes.watch.attribution.slow_calls import CallTable, blame_of
from stallprobes.watch.intervals import GroupMembers, Int64s, IntervalGroups, distinct_pairs, expanded
from stallprobes.watch.reading.process import DriverCall, OutsideReading, WatchedProcess, WatchedThread

# Rank of each cause: that of the enum, so that stronger evidence comes first.
RANKS = {cause: rank for rank, cause in enumerate(WaitCause)}
CAUSES_BY_RANK = tuple(WaitCause)
_LOADING = (WaitCause.MODULE_LOADING, WaitCause.LAZY_LOADING, WaitCause.COMPILATION)
_CONTEXT = RANKS[WaitCause.CONTEXT]


@dataclass(frozen=True, eq=False)
class CulpritCalls:
    """Calls that other threads may wait for, in groups of one cause, thread and context.

    ``places`` are theirs among the slow calls, ``groups`` the group of each, and ``members`` the same by group.
    ``cause``, ``thread`` and ``context`` have one value for each group.
    """

    places: Int64s
    groups: Int64s
    members: GroupMembers
    cause: Int64s
    thread: Int64s
    context: Int64s
    intervals: IntervalGroups

    @classmethod
    def of(cls, calls: CallTable, causes: Int64s) -> CulpritCalls:
        """The groups of ``calls`` by ``causes``, the rank of each call's cause for others, or -1."""
        places = np.flatnonzero(causes >= 0)
        keys = np.stack((causes[places], calls.threads[places], calls.contexts[places]))
        order = np.lexsort(keys[::-1])
        new = np.append(True, (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0))[: len(places)]
        groups = np.empty(len(places), dtype=np.int64)
        groups[order] = np.cumsum(new) - 1
        known, begins, ends = keys[:, order[new]], calls.begins[places], calls.ends[places]
        return cls(
            places=places,
            groups=groups,
            members=GroupMembers(groups, begins, ends),
            cause=known[0],
            thread=known[1],
            context=known[2],
            intervals=IntervalGroups(groups, begins, ends),
        )

    def during_each(self, groups: Int64s, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
        """The pairs (number of the span, place) of many spans with the calls of its group that overlap it, in the order
        of their begins."""
        owners, members = self.members.during_each(groups, begins, ends)
        return owners, self.places[members]


def causes_for_others(calls: CallTable, pageable: NDArray[np.bool_], own: Int64s) -> Int64s:
    """The rank of what each call is as a cause for other threads, or -1.

    ``own`` is the rank of each call's own cause: one that loads a module holds what module loading holds.
    """
    plain = calls.by_function(lambda name, family: _rank(blame_of(name, family, False)))
    of_pageable = calls.by_function(lambda name, family: _rank(blame_of(name, family, True)))
    found = np.where(pageable, of_pageable, plain)
    loading = np.isin(own, [RANKS[cause] for cause in _LOADING])
    return np.where((found < 0) & loading, RANKS[WaitCause.MODULE], found)


def _rank(cause: WaitCause | None) -> int:
    return -1 if cause is None else RANKS[cause]


def culprits_of(
    calls: CallTable, culprit_calls: CulpritCalls, causes: Int64s, asked: NDArray[np.bool_]
) -> tuple[Int64s, Int64s]:
    """The culprits of the ``asked`` calls: calls of one other thread that end with the slow call.

    Returns for each slow call the group of these calls, -1 without one, and the time (ns) that they cover.
    They are of the same context (of any, if they create contexts) and cover at least 80 % of the excess; one of them
    ends at most 0.5 ms before the slow call or 50 µs after it.
    """
    group_of, covered_of = np.full(len(calls), -1, dtype=np.int64), np.zeros(len(calls), dtype=np.int64)
    victims = np.flatnonzero(asked)
    ends = calls.ends[culprit_calls.places]
    order = np.argsort(ends, kind="stable")
    ends = ends[order]
    first = np.searchsorted(ends, calls.ends[victims] - WAKE_UP_NS, "left")
    last = np.searchsorted(ends, calls.ends[victims] + SAME_END_NS, "right")
    owners, places = expanded(first, last)
    at, groups = victims[owners], culprit_calls.groups[order[places]]
    at, groups = distinct_pairs(at, groups)
    same = (culprit_calls.context[groups] == calls.contexts[at]) & (calls.contexts[at] != 0)
    kept = (culprit_calls.thread[groups] != calls.threads[at]) & (same | (culprit_calls.cause[groups] == _CONTEXT))
    at, groups = at[kept], groups[kept]
    covered = culprit_calls.intervals.covered(groups, calls.begins[at], calls.ends[at])
    # Of two calls that may wait for each other, the one that began first did not wait.
    began_before = culprit_calls.intervals.covered(groups, calls.begins[at] - 1, calls.begins[at]) > 0
    kept = (covered >= OVERLAP_SHARE * calls.excess[at]) & (began_before | (causes[at] < 0))
    at, groups, covered = at[kept], groups[kept], covered[kept]
    # The last one that is written stays: the strongest evidence, then the longest time.
    best = np.lexsort((covered, -culprit_calls.cause[groups]))
    group_of[at[best]], covered_of[at[best]] = groups[best], covered[best]
    return group_of, covered_of


def calls_in_flight(
    process: WatchedProcess, thread: WatchedThread, now_ns: int, outside: OutsideReading
) -> Iterator[CallInFlight]:
    """The calls in flight of ``thread`` at ``now_ns`` (CLOCK_MONOTONIC), the outermost first."""
    for depth, call in enumerate(thread.in_flight):
        age_ns = max(now_ns - call.begin_ns, 0)
        beside = sorted(_beside(process, thread, call, age_ns, now_ns), key=lambda each: -each[1].duration_ns)
        yield CallInFlight(
            **(vars(call) | {"thread_name": thread.name}),
            age_ns=age_ns,
            depth=depth,
            cause=beside[0][0] if beside else WaitCause.UNATTRIBUTED,
            beside=tuple(each for _, each in beside),
            stack=outside.stacks.get(call.key),
            kernel_wait=outside.kernel_waits.get(call.key, ""),
        )


def _beside(
    process: WatchedProcess, thread: WatchedThread, call: DriverCall, age_ns: int, now_ns: int
) -> Iterator[tuple[WaitCause, CallAlongside]]:
    """Calls in flight of other threads for which ``call`` may wait, once it is slow."""
    if age_ns < process.slow_limit_ns:
        return
    for other in process.threads:
        for each in other.in_flight[:1]:
            pageable = MemoryKind.PAGEABLE in (each.source, each.target)
            cause = blame_of(each.function, each.family, pageable)
            overlap_ns = min(now_ns - each.begin_ns, age_ns)
            same = each.context == call.context != 0 or cause is WaitCause.CONTEXT
            if other is thread or cause is None or not same or overlap_ns < OVERLAP_SHARE * age_ns:
                continue
            if blame_of(call.function, call.family, True) is not None and each.begin_ns > call.begin_ns:
                continue
            yield (
                cause,
                CallAlongside(
                    **(vars(each) | {"thread_name": other.name}),
                    calls=1,
                    duration_ns=max(now_ns - each.begin_ns, 0),
                    overlap_ns=overlap_ns,
                ),
            )
