"""A call that was made while work of the GPU was not recorded: what it waited for is not known."""

from __future__ import annotations

from stallprobes.watch.attribution.findings import NO_EVIDENCE
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Answer, Cause, MadeRule, text
from stallprobes.watch.causes.facts import Facts

CAUSE = Cause(
    WaitCause.RECORDS_OFF,
    "not recorded",
    "work of the GPU, which was not recorded then",
    text("Watch with --cost 100, which records all of it."),
    sentence="while work of the GPU was not recorded",
)


def _answer(facts: Facts, at: int) -> Answer:
    return Answer(CAUSE.name, None, facts.excess[at], NO_EVIDENCE)


RULE = MadeRule(lambda facts, asked: facts.not_recorded, _answer)
