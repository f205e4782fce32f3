"""A stream that waits for an event or a host function, which are no work of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from stallprobes.units import duration_ns
from stallprobes.watch.attribution.findings import ExplainedCall, WaitEvidence
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, Cause, MadeRule, of_pattern
from stallprobes.watch.causes.facts import Facts

_PATTERN = "default-stream-gate"


def _evidence(call: ExplainedCall) -> Iterator[str]:
    yield f"no work of its context ran for {duration_ns(call.evidence.overlap_ns)}"


CAUSE = Cause(
    WaitCause.HELD_STREAM,
    "held stream",
    "an event or a host function that held its stream",
    of_pattern(_PATTERN),
    pattern=_PATTERN,
    evidence=_evidence,
)


def _answer(facts: Facts, at: int) -> Answer:
    ns = int(facts.held(facts.nothing)[at])
    return Answer(CAUSE.name, Certainty.BESIDE, ns, WaitEvidence(ns))


RULE = MadeRule(lambda facts, asked: facts.held(asked) != 0, _answer)
