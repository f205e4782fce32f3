"""The rule of the causes that are calls of other threads: one of them overlaps the slow call and ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stallprobes.native.layouts.driver_calls import HostTask
from stallprobes.watch.attribution.evidence_text import MOST_NAMED, alongside_text
from stallprobes.watch.attribution.findings import ExplainedCall
from stallprobes.watch.attribution.wait_cause import Certainty
from stallprobes.watch.causes.cause import Answer, Cause
from stallprobes.watch.causes.facts import Facts, Flags


def named_calls(call: ExplainedCall) -> Iterator[str]:
    """The calls of the evidence, in words."""
    for each in call.evidence.calls[:MOST_NAMED]:
        yield alongside_text(each)


@dataclass(frozen=True)
class OtherThread:
    """A call of another thread that is ``cause``: proof of nothing, unless the pair is known to stall."""

    cause: Cause

    def mask(self, facts: Facts, asked: Flags) -> Flags:
        groups, _ = facts.culprits(asked)
        found = groups >= 0
        found[found] = facts.culprit_calls.holds[groups[found]] == int(HostTask[self.cause.name.name])
        return found

    def answer(self, facts: Facts, at: int) -> Answer:
        evidence = facts.alongside[at]
        ns, culprit = evidence.overlap_ns, evidence.calls[0]
        known = facts.known
        if known is not None and known.contains(facts.slow[at], self.cause.columns(culprit), culprit):
            return Answer(self.cause.name, Certainty.KNOWN, ns, evidence.changed(known_by=known.source))
        return Answer(self.cause.name, Certainty.BESIDE, ns, evidence)
