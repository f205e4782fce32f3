"""A lack of CPU: the thread was ready to run, and had no CPU to run on."""

from __future__ import annotations

from collections.abc import Iterator

from stallprobes.units import duration_ns
from stallprobes.watch.attribution.findings import ExplainedCall, WaitEvidence
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, Cause, MadeRule, text
from stallprobes.watch.causes.facts import Facts


def _evidence(call: ExplainedCall) -> Iterator[str]:
    yield f"at least {duration_ns(call.evidence.run_delay_ns)} ready to run"


CAUSE = Cause(
    WaitCause.NO_CPU,
    "no CPU",
    "a lack of CPU for the thread",
    text("Give the program more CPUs, or let fewer threads run on them."),
    evidence=_evidence,
)


def _answer(facts: Facts, at: int) -> Answer:
    ns = int(facts.delays[at])
    return Answer(CAUSE.name, Certainty.PROVEN, ns, WaitEvidence(ns, run_delay_ns=ns))


RULE = MadeRule(lambda facts, asked: facts.without_cpu, _answer)
