"""Work of the GPU in front of a call: of its stream or context, or of another stream that ends with the call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallprobes.native.layouts.driver_calls import CallFamily, Waits, plain_name
from stallprobes.watch.attribution.gpu_waits import DIRECT_SHARE, OVERLAP_SHARE
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, Cause, text
from stallprobes.watch.causes.facts import MOST_FOLLOWED, Facts, Flags, flags
from stallprobes.watch.causes.gpu_wait import GpuWait
from stallprobes.watch.causes.own_durations import is_usual
from stallprobes.watch.intervals import Int64s, IntervalGroups, int64s

CAUSE = Cause(
    WaitCause.GPU_WORK,
    "GPU work",
    "GPU work in front of it",
    text(
        "Wait later: submit the next work first, free with cuMemFreeAsync, and keep a value that only the next kernel "
        "needs on the GPU. Nothing but less work makes the wait itself shorter."
    ),
    pattern="scalar-readback",
    by_family={
        CallFamily.WAIT: "Submit the next work before this wait, or wait for several steps at once: the GPU then works "
        "while the host does. Nothing but less work makes the wait itself shorter.",
        CallFamily.ALLOCATION: "Free with cuMemFreeAsync, which waits for nothing, or keep and reuse the memory.",
        CallFamily.HOST_MEMORY: "Keep the host memory and use it again, or free it where the GPU has no work.",
        CallFamily.CONTEXT: "Destroy the context where the GPU has no work.",
        CallFamily.MODULE: "Unload the module where the GPU has no work.",
    },
)


class Followed:
    """Work of other streams covers most of the call; by the calls that order streams it waits for that."""

    def mask(self, facts: Facts, asked: Flags) -> Flags:
        waits = facts.calls.waits
        found = asked & np.isin(waits, (Waits.EVENT, Waits.STREAM, Waits.COPY)) & (facts.recorded.order is not None)
        places = np.flatnonzero(found)
        found[places[MOST_FOLLOWED:]] = False
        for at in places[:MOST_FOLLOWED].tolist():
            _, covered = facts.work_behind(at) if facts.behind(at).scopes else ((), 0)
            found[at] = covered >= DIRECT_SHARE * facts.excess[at]
        return found

    def answer(self, facts: Facts, at: int) -> Answer:
        rows, covered = facts.work_behind(at)
        return Answer(CAUSE.name, Certainty.PROVEN, covered, facts.evidence.behind(at, rows, covered))


@dataclass(frozen=True)
class Neighbour:
    """Work of a stream ends with the call and covers most of it.

    A call that waits for an event waited for it if there is only one such stream (``by_event``).
    """

    by_event: bool

    def mask(self, facts: Facts, asked: Flags) -> Flags:
        near = facts.near(asked)
        if not self.by_event:
            return near.count > 0
        return flags((facts.calls.waits == Waits.EVENT) & (near.count == 1))

    def answer(self, facts: Facts, at: int) -> Answer:
        near = facts.near(facts.nothing)
        certainty = Certainty.PROVEN if self.by_event else Certainty.BESIDE
        return Answer(CAUSE.name, certainty, int(near.covered[at]), facts.evidence.neighbour(at, near))


class Destruction:
    """A context is destroyed while work of another one runs nearly all the time: it waits for that.

    Seen on H200s and H100s: ``cuCtxDestroy`` took 50 ms, and 2.5 s beside a kernel of so long in another context.
    """

    def mask(self, facts: Facts, asked: Flags) -> Flags:
        found = flags(asked & (facts.calls.waits == Waits.MAYBE))
        for at in np.flatnonzero(found).tolist():
            call = facts.slow[at]
            destroys = plain_name(call.function).startswith("cuCtxDestroy")
            usual = destroys and is_usual(call.function, call.bytes, call.duration_ns)
            found[at] = destroys and not usual and _of_others(facts, at)[1] >= OVERLAP_SHARE * facts.excess[at]
        return found

    def answer(self, facts: Facts, at: int) -> Answer:
        rows, ns = _of_others(facts, at)
        return Answer(CAUSE.name, Certainty.KNOWN, ns, facts.evidence.behind(at, rows, ns))


def _of_others(facts: Facts, at: int) -> tuple[Int64s, int]:
    """The rows of work of other contexts during a call, and the time (ns) of the call that it covers."""
    calls, work = facts.calls, facts.work
    begin, end = calls.begins[at : at + 1], calls.ends[at : at + 1]
    others = int64s(work.rows["context"]) != calls.contexts[at]
    rows = np.flatnonzero(others & (work.starts < end) & (work.ends > begin))
    groups = np.zeros(len(rows), dtype=np.int64)
    covered = IntervalGroups(groups, work.starts[rows], work.ends[rows]).covered(int64s([0]), begin, end)
    return rows, int(covered[0])


IN_FRONT, FOLLOWED, DESTRUCTION = GpuWait(CAUSE.name), Followed(), Destruction()
EVENT, BESIDE = Neighbour(by_event=True), Neighbour(by_event=False)
