"""A full launch queue: the launch waits until the GPU has taken some of the work before it."""

from __future__ import annotations

import numpy as np

from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.watch.attribution.findings import WaitEvidence
from stallprobes.watch.attribution.gpu_waits import OVERLAP_SHARE, SAME_END_NS, WAKE_UP_NS
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, Cause, of_entry, overhead_or_work
from stallprobes.watch.causes.facts import Facts, Flags
from stallprobes.watch.causes.overhead import Overhead
from stallprobes.watch.intervals import Int64s, int64s

CAUSE = Cause(
    WaitCause.QUEUE_FULL,
    "full launch queue",
    "a full launch queue",
    of_entry("launch-queue-full"),
    evidence=overhead_or_work,
)
# Some 1020 launches can be pending (H200, driver 580); other calls have numbers too.
LEAST_PENDING = 900
# Pieces of work that are looked at, the last ones before the end of the call.
_LAST = 4


class ManyInFront:
    """So many calls were made since the work that ended with the call, that the queue was full.

    CUPTI 13.5 has overhead records of the first seven hundred such waits alone (H100, 2026-11-26).
    """

    def mask(self, facts: Facts, asked: Flags) -> Flags:
        calls, found = facts.calls, np.zeros(len(facts.calls), dtype=np.bool_)
        of_launch = calls.by_function(lambda each: int(each.family is CallFamily.LAUNCH)) != 0
        places = np.flatnonzero(asked & of_launch)
        places = places[(_ended_with(facts, places) >= 0)]
        found[places] = _covered(facts, places) >= OVERLAP_SHARE * calls.excess[places]
        return found

    def answer(self, facts: Facts, at: int) -> Answer:
        place = int64s([at])
        ns = int(_covered(facts, place)[0])
        work = facts.evidence.behind(at, _ended_with(facts, place), ns).work
        return Answer(CAUSE.name, Certainty.KNOWN, ns, WaitEvidence(ns, work))


def _ended_with(facts: Facts, places: Int64s) -> Int64s:
    """For each call the row of work of its context that ended with it and has many calls behind it; -1 without any."""
    calls, work, by_end = facts.calls, facts.work, facts.by_end
    found = np.full(len(places), -1, dtype=np.int64)
    if not len(by_end):
        return found
    ends, contexts = work.ends[by_end], int64s(work.rows["context"])[by_end]
    orders = work.orders[by_end]
    last = np.searchsorted(ends, calls.ends[places] + SAME_END_NS, "right")
    limits = calls.order_of(calls.correlations[places]) - LEAST_PENDING
    for back in range(1, _LAST + 1):
        at = np.maximum(last - back, 0)
        fits = (last >= back) & (ends[at] >= calls.ends[places] - WAKE_UP_NS) & (orders[at] <= limits)
        fits &= (contexts[at] == calls.contexts[places]) & (found < 0)
        found[fits] = by_end[at[fits]]
    return found


def _covered(facts: Facts, places: Int64s) -> Int64s:
    """For how long (ns) the context of each call worked during it."""
    calls, work = facts.calls, facts.work
    numbers = int64s([work.context_numbers.get(context, -1) for context in calls.contexts[places].tolist()])
    return work.by_context.covered(numbers, calls.begins[places], calls.ends[places])


OVERHEAD, MANY_IN_FRONT = Overhead(CAUSE.name), ManyInFront()
