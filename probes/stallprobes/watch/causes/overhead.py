"""The rule of the causes that overhead records of CUPTI prove: the call's own time for loading, compiling and such."""

from __future__ import annotations

from dataclasses import dataclass

from stallprobes.watch.attribution.findings import WaitEvidence
from stallprobes.watch.attribution.wait_cause import CAUSE_RANKS, Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer
from stallprobes.watch.causes.facts import Facts, Flags, flags


@dataclass(frozen=True)
class Overhead:
    """Overhead records of a call cover most of its excess, and those of ``cause`` most of all."""

    cause: WaitCause

    def mask(self, facts: Facts, asked: Flags) -> Flags:
        return flags(facts.overhead == CAUSE_RANKS[self.cause])

    def answer(self, facts: Facts, at: int) -> Answer:
        ns = int(facts.overheads[at, CAUSE_RANKS[self.cause]])
        return Answer(self.cause, Certainty.PROVEN, ns, WaitEvidence(ns, overhead_ns=ns))
