"""Another context of the program: its time-slices, and its work while a context is destroyed."""

from __future__ import annotations

import numpy as np

from stallprobes.native.layouts.driver_calls import plain_name
from stallprobes.watch.attribution.findings import EngineUse, WaitEvidence
from stallprobes.watch.attribution.gpu_waits import OVERLAP_SHARE
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, Cause, of_pattern
from stallprobes.watch.causes.facts import Facts, Flags, flags
from stallprobes.watch.causes.gpu_wait import GpuWait
from stallprobes.watch.causes.time_slice import named_users
from stallprobes.watch.division.call_kinds import Waits
from stallprobes.watch.intervals import IntervalGroups, int64s

_PATTERN = "secondary-context-d2d"
CAUSE = Cause(
    WaitCause.OTHER_CONTEXT,
    "another context's time-slice",
    "the time-slices of another context",
    of_pattern(_PATTERN),
    pattern=_PATTERN,
    evidence=named_users,
)


class Destruction:
    """A context is destroyed while work of another one runs nearly all the time.

    Seen on H200s and H100s: ``cuCtxDestroy`` took 50 ms, and 2.5 s beside a kernel of so long in another context.
    """

    def mask(self, facts: Facts, asked: Flags) -> Flags:
        found = flags(asked & (facts.calls.waits == Waits.MAYBE))
        for at in np.flatnonzero(found).tolist():
            destroys = plain_name(facts.slow[at].function).startswith("cuCtxDestroy")
            found[at] = destroys and _busiest(facts, at)[1] >= OVERLAP_SHARE * facts.excess[at]
        return found

    def answer(self, facts: Facts, at: int) -> Answer:
        context, ns = _busiest(facts, at)
        return Answer(CAUSE.name, Certainty.BESIDE, ns, WaitEvidence(ns, engine=(EngineUse(context, ns),)))


def _busiest(facts: Facts, at: int) -> tuple[int, int]:
    """The other context with most work during a call, and the time (ns) that the work covers; -1 and -1 without any."""
    calls, work = facts.calls, facts.work
    contexts = int64s(work.rows["context"])
    begin, end = calls.begins[at : at + 1], calls.ends[at : at + 1]
    others = np.flatnonzero((contexts != calls.contexts[at]) & (work.starts < end) & (work.ends > begin))
    times: dict[int, int] = {}
    for context in np.unique(contexts[others]).tolist():
        rows = others[contexts[others] == context]
        groups = np.zeros(len(rows), dtype=np.int64)
        covered = IntervalGroups(groups, work.starts[rows], work.ends[rows]).covered(int64s([0]), begin, end)
        times[context] = int(covered[0])
    return max(times.items(), key=lambda one: one[1], default=(-1, -1))


TIME_SLICE = GpuWait(CAUSE.name)
DESTRUCTION = Destruction()
