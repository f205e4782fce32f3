"""A stream that waits for an event or a host function, which are no work of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from stallprobes.units import duration_ns
from stallprobes.watch.attribution.evidence_text import alongside_text
from stallprobes.watch.attribution.findings import CallAlongside, ExplainedCall, WaitEvidence
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, Cause, MadeRule, text
from stallprobes.watch.causes.facts import Facts

_PATTERN = "default-stream-gate"


def _evidence(call: ExplainedCall) -> Iterator[str]:
    for each in call.evidence.calls[:1]:
        yield f"{alongside_text(each)}, {duration_ns(max(call.begin_ns - each.begin_ns, 0))} before"
    yield f"no work of its context ran for {duration_ns(call.evidence.overlap_ns)}"


CAUSE = Cause(
    WaitCause.HELD_STREAM,
    "held stream",
    "an event or a host function that held its stream",
    text(
        "Let what holds the stream end sooner, or wait for it later. A copy in pinned memory on a stream of its own "
        "does not block meanwhile."
    ),
    pattern=_PATTERN,
    evidence=_evidence,
)


def _answer(facts: Facts, at: int) -> Answer:
    ns, behind = int(facts.held(facts.nothing)[at]), facts.behind(at)
    if not behind.holders:
        return Answer(CAUSE.name, Certainty.BESIDE, ns, WaitEvidence(ns))
    row, function = behind.holders[0], behind.functions[0]
    holder = CallAlongside(
        function=function,
        thread=int(row["thread"]),
        thread_name=facts.recorded.thread_names.get(int(row["thread"]), ""),
        begin_ns=int(row["began_ns"]),
        stream=int(row["stream"]),
        bytes=None,
        source=None,
        target=None,
        context=int(row["context"]),
        correlation=int(row["correlation"]),
        calls=1,
        duration_ns=int(row["returned_ns"] - row["began_ns"]),
        overlap_ns=0,
    )
    return Answer(CAUSE.name, Certainty.KNOWN, ns, WaitEvidence(ns, calls=(holder,)))


RULE = MadeRule(lambda facts, asked: facts.held(asked) != 0, _answer)
