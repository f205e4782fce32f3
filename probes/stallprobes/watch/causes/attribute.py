"""Attribution: the cause of each slow call, by the first rule that holds, for many calls and records at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stallprobes.watch.attribution.findings import ExplainedCall
from stallprobes.watch.attribution.slow_calls import with_recorded_kinds
from stallprobes.watch.causes.cause import UNKNOWN, Answer
from stallprobes.watch.causes.facts import Facts, Recorded
from stallprobes.watch.causes.known_stalls import KnownStalls
from stallprobes.watch.causes.order import BESIDE, OVERHEADS, RECORDED, UNRECORDED
from stallprobes.watch.reading.process import SlowDriverCall


def attribute(
    slow: Sequence[SlowDriverCall],
    excess: Sequence[int],
    recorded: Recorded,
    known: KnownStalls | None = None,
) -> tuple[ExplainedCall, ...]:
    """Causes of the ``slow`` calls, in their order.

    ``excess`` is each call's duration less the median of its row (ns). Calls of other threads are a proven cause of
    nothing: they are named "beside", unless ``known`` has the pair.
    """
    slow = with_recorded_kinds(slow, recorded.records)
    facts = Facts(slow, excess, recorded, known)
    calls = facts.calls
    open_ = np.ones(len(calls), dtype=np.bool_)
    answers = [UNKNOWN] * len(calls)
    every, unrecorded = np.ones_like(open_), facts.not_recorded
    for rules, among in ((OVERHEADS, every), (RECORDED, every), (BESIDE, ~unrecorded), (UNRECORDED, unrecorded)):
        if rules is UNRECORDED and (open_ & unrecorded).any():
            _note_alike(facts, answers)
        for rule in rules:
            chosen = rule.mask(facts, open_) & open_ & among
            open_ &= ~chosen
            for at in np.flatnonzero(chosen).tolist():
                answers[at] = rule.answer(facts, at)
        # A call that is no slower than usual waited for nothing.
        open_ &= calls.excess > 0
    names, stacks = recorded.thread_names, recorded.stacks
    return tuple(
        ExplainedCall.made(
            call,
            thread_name=names.get(call.thread, ""),
            excess_ns=ns,
            cause=answer.cause,
            certainty=answer.certainty,
            explained_ns=min(answer.explained_ns, ns),
            evidence=answer.evidence,
            nested=nested,
            also=answer.also,
            stack=stacks.get(call.stack),
        )
        for call, ns, answer, nested in zip(slow, excess, answers, calls.nested().tolist(), strict=True)
    )


def _note_alike(facts: Facts, answers: Sequence[Answer]) -> None:
    """Note the causes that slow calls have by records, each call once."""
    noted = facts.recorded.noted or [False] * len(answers)
    unknown = (facts.not_recorded & [answer is UNKNOWN for answer in answers]).tolist()
    for call, answer, ns, skipped in zip(facts.slow, answers, facts.excess, map(max, noted, unknown), strict=True):
        if not skipped:
            facts.alike.note(call, answer.cause, answer.certainty, ns, answer.explained_ns)
