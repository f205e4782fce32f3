"""Calls of other threads that may hold what a slow call waits for: those that overlap it and end with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallprobes.watch.attribution.gpu_waits import OVERLAP_SHARE, SAME_END_NS, WAKE_UP_NS
from stallprobes.watch.attribution.slow_calls import CallTable
from stallprobes.watch.division.call_columns import may_hold_up
from stallprobes.watch.intervals import GroupMembers, Int64s, IntervalGroups, distinct_pairs, expanded

# Ratio of a slow call's duration to the longest delay from the end of a holding call to the end of the slow call. A
# holding call is a call of another thread that holds the slow call up. The longest delay is at least WAKE_UP_NS and at
# most _MOST_WAKE_UP_NS.
_WAKE_UP_DIVISOR = 20
# Largest delay (ns) from the end of a holding call to the end of the slow call (see _WAKE_UP_DIVISOR). After pageable
# copies that held a launch up for 60 ms, the delay was up to 2.7 ms (600 launches, H100, 2026-11-27). In this delay,
# the other thread gave the copy's memory back to the system.
_MOST_WAKE_UP_NS = 5_000_000


@dataclass(frozen=True, eq=False)
class CulpritCalls:
    """Calls for which other threads may wait, in groups by what they hold, thread and context.

    ``places`` are their places among the slow calls, ``groups`` the group of each, ``members`` the calls of each group.
    ``holds`` (HostTask), ``thread`` and ``context`` have one value for each group.
    """

    places: Int64s
    groups: Int64s
    members: GroupMembers
    holds: Int64s
    thread: Int64s
    context: Int64s
    intervals: IntervalGroups

    @classmethod
    def of(cls, calls: CallTable, holds: Int64s) -> CulpritCalls:
        """The groups of ``calls`` by what each ``holds``, as HostTask."""
        places = np.flatnonzero(holds > 0)
        keys = np.stack((holds[places], calls.threads[places], calls.contexts[places]))
        order = np.lexsort(keys[::-1])
        new = np.append(True, (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0))[: len(places)]
        groups = np.empty(len(places), dtype=np.int64)
        groups[order] = np.cumsum(new) - 1
        group, begins, ends = keys[:, order[new]], calls.begins[places], calls.ends[places]
        return cls(
            places=places,
            groups=groups,
            members=GroupMembers(groups, begins, ends),
            holds=group[0],
            thread=group[1],
            context=group[2],
            intervals=IntervalGroups(groups, begins, ends),
        )

    def during_each(self, groups: Int64s, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
        """Pairs (number of the span, place): each span with the calls of its group that overlap it, in the order of
        their begins."""
        owners, members = self.members.during_each(groups, begins, ends)
        return owners, self.places[members]


def culprits_of(
    calls: CallTable, culprit_calls: CulpritCalls, holds: Int64s, asked: NDArray[np.bool_]
) -> tuple[Int64s, Int64s]:
    """The culprits of the ``asked`` calls: calls of one other thread that end with the slow call.

    Returns for each slow call the group of these calls, -1 without one, and the time (ns) that they cover.
    They are of the same context (of any, if they create contexts) and cover at least 80 % of the excess; one of them
    ends at most 0.5 ms before the slow call, or a twentieth of a long one and 5 ms at most, or 50 µs after it.
    """
    group_of, covered_of = np.full(len(calls), -1, dtype=np.int64), np.zeros(len(calls), dtype=np.int64)
    victims = np.flatnonzero(asked)
    ends = calls.ends[culprit_calls.places]
    order = np.argsort(ends, kind="stable")
    ends = ends[order]
    late = np.clip((calls.ends - calls.begins)[victims] // _WAKE_UP_DIVISOR, WAKE_UP_NS, _MOST_WAKE_UP_NS)
    first = np.searchsorted(ends, calls.ends[victims] - late, "left")
    last = np.searchsorted(ends, calls.ends[victims] + SAME_END_NS, "right")
    owners, places = expanded(first, last)
    at, groups = victims[owners], culprit_calls.groups[order[places]]
    at, groups = distinct_pairs(at, groups)
    kept = may_hold_up(culprit_calls.holds[groups], culprit_calls.context[groups], calls.contexts[at])
    kept &= culprit_calls.thread[groups] != calls.threads[at]
    at, groups = at[kept], groups[kept]
    covered = culprit_calls.intervals.covered(groups, calls.begins[at], calls.ends[at])
    # The first of two calls that may wait for each other did not wait.
    began_before = culprit_calls.intervals.covered(groups, calls.begins[at] - 1, calls.begins[at]) > 0
    kept = (covered >= OVERLAP_SHARE * calls.excess[at]) & (began_before | (holds[at] == 0))
    at, groups, covered = at[kept], groups[kept], covered[kept]
    # The last one that is written stays: the strongest evidence, then the longest time.
    best = np.lexsort((covered, -culprit_calls.holds[groups]))
    group_of[at[best]], covered_of[at[best]] = groups[best], covered[best]
    return group_of, covered_of
