"""What a call itself does that takes long, such as creating a context."""

from __future__ import annotations

from collections.abc import Iterator

from stallprobes.watch.attribution.findings import ExplainedCall, WaitEvidence
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.blame import blame_of, cause_for_others
from stallprobes.watch.causes.cause import Answer, Cause, MadeRule, text
from stallprobes.watch.causes.facts import Facts, Flags, flags
from stallprobes.watch.division.call_kinds import Waits


def did_not_wait(facts: Facts) -> Flags:
    """Which calls waited for no work of the GPU, either by what they do or since all work is known."""
    return flags((facts.calls.waits == Waits.NOTHING) | facts.all_work_known)


def _evidence(call: ExplainedCall) -> Iterator[str]:
    blame = blame_of(call.function, call.family, False)
    if blame is not None:
        yield cause_for_others(blame).clause


CAUSE = Cause(
    WaitCause.ITSELF,
    "the call itself",
    "the call itself",
    text("Create contexts, allocate and instantiate before the critical part, and keep the result."),
    evidence=_evidence,
)


def _mask(facts: Facts, asked: Flags) -> Flags:
    found = did_not_wait(facts) & asked
    for at in found.nonzero()[0].tolist():
        found[at] = facts.own_blame(at) is not None
    return found


def _answer(facts: Facts, at: int) -> Answer:
    ns = facts.excess[at]
    return Answer(CAUSE.name, Certainty.KNOWN, ns, WaitEvidence(ns))


RULE = MadeRule(_mask, _answer)
