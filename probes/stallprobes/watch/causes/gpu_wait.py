"""The rule of the causes that records of the GPU's work prove: the call waited for one of them."""

from __future__ import annotations

from dataclasses import dataclass

from stallprobes.watch.attribution.findings import PartOfWait
from stallprobes.watch.attribution.wait_cause import CAUSE_RANKS, Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer
from stallprobes.watch.causes.facts import Facts, Flags, flags


@dataclass(frozen=True)
class GpuWait:
    """Waits for the GPU cover at least half of a call's excess, and those of ``cause`` most of it."""

    cause: WaitCause

    def mask(self, facts: Facts, asked: Flags) -> Flags:
        return flags(facts.gpu_cause == CAUSE_RANKS[self.cause])

    def answer(self, facts: Facts, at: int) -> Answer:
        first, *others = _parts(facts, at)
        return Answer(first.cause, Certainty.PROVEN, first.ns, facts.evidence.gpu(at), tuple(others))


def _parts(facts: Facts, at: int) -> list[PartOfWait]:
    """The parts of a wait, the longest first; together at most the excess."""
    waits = facts.waits
    front = WaitCause.STAGED_COPY if at in waits.by_staging else WaitCause.GPU_WORK
    times = [
        (front, int(waits.front[at])),
        (WaitCause.OWN_WORK, int(waits.own[at])),
        (WaitCause.OTHER_CONTEXT, int(waits.context[at])),
        (WaitCause.OTHER_PROCESS, int(waits.process[at])),
    ]
    left, found = facts.excess[at], []
    # Of equal times, the first cause.
    for cause, ns in sorted(times, key=lambda one: -one[1]):
        ns = min(ns, left)
        left -= ns
        if ns:
            found.append(PartOfWait(cause, ns))
    return found
