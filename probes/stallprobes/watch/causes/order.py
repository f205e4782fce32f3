"""All causes, and the order in which their rules hold: the first that does is the cause of a call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stallprobes.watch.attribution.findings import ExplainedCall
from stallprobes.watch.attribution.slow_calls import with_recorded_kinds
from stallprobes.watch.attribution.wait_cause import CAUSE_RANKS, WaitCause
from stallprobes.watch.causes import gpu, host, other_threads, overheads, unrecorded
from stallprobes.watch.causes.cause import UNKNOWN, Answer, CallCause, Rule
from stallprobes.watch.causes.facts import Facts, Recorded
from stallprobes.watch.causes.known_stalls import KnownStalls
from stallprobes.watch.reading.process import SlowDriverCall

# All causes of slow calls, the cause with the strongest evidence first.
CAUSES: tuple[CallCause, ...] = tuple(
    sorted(
        (*overheads.CAUSES, *gpu.CAUSES, *other_threads.CAUSES, *host.CAUSES, *unrecorded.CAUSES),
        key=lambda cause: CAUSE_RANKS[cause.name],
    )
)

# Rules by the overhead records of a call. Unlike all other rules, these rules also apply to calls that are no longer
# than the median of similar calls.
OVERHEADS: tuple[Rule, ...] = tuple(overheads.overhead(cause.name) for cause in overheads.CAUSES)
# Rules by records of GPU work and by calls that order streams (records of events, waits for events, …). The rules apply
# to slow calls that OVERHEADS leaves without a cause.
RECORDED: tuple[Rule, ...] = (
    # Records of the call itself.
    *map(gpu.gpu_wait, (
        WaitCause.GPU_WORK, WaitCause.STAGED_COPY, WaitCause.OWN_WORK, WaitCause.OTHER_CONTEXT, WaitCause.OTHER_PROCESS,
    )),
    # What the calls say of the order of streams.
    gpu.FOLLOWED, gpu.MANY_IN_FRONT,
)  # fmt: skip
# Rules for calls that RECORDED leaves without a cause, if all GPU work during the call was recorded. The first rule
# that holds gives the cause.
BESIDE: tuple[Rule, ...] = (
    # What happened at the same time, the strongest evidence first.
    gpu.EVENT_OF_NEIGHBOUR, *map(other_threads.other_thread, other_threads.CAUSES), gpu.NEIGHBOUR,
    host.NO_CPU, gpu.HELD_STREAM,
    # What the call does.
    overheads.FIRST_LAUNCH, gpu.DESTRUCTION, host.LOADS, host.ITSELF,
)  # fmt: skip
# Rules for calls during which GPU work was not recorded. These rules are applied last, since the rules use the causes
# of the other calls.
UNRECORDED: tuple[Rule, ...] = (host.NO_CPU, unrecorded.ALIKE, unrecorded.RECORDS_OFF)
# Causes by their names.
_BY_NAME = {cause.name: cause for cause in CAUSES}


def cause_of(name: WaitCause) -> CallCause:
    """The cause with a name."""
    return _BY_NAME[name]


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
