"""What a call itself does that takes long, such as creating a context."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stallprobes.native.layouts.driver_calls import Waits, function_of
from stallprobes.units import duration_ns
from stallprobes.watch.attribution.findings import ExplainedCall
from stallprobes.watch.attribution.wait_cause import WaitCause, cause_of_task
from stallprobes.watch.causes.blame import cause_for_others
from stallprobes.watch.causes.cause import Cause, MadeRule, known_by_function, text
from stallprobes.watch.causes.facts import Facts, Flags, flags
from stallprobes.watch.causes.own_durations import is_usual, longest_ns


def did_not_wait(facts: Facts) -> Flags:
    """Which calls waited for no work of the GPU, either by what they do or since all work is known."""
    return flags((facts.calls.waits == Waits.NOTHING) | facts.all_work_known)


def _evidence(call: ExplainedCall) -> Iterator[str]:
    blame = cause_of_task(function_of(call.function).task)
    longest = longest_ns(call.function, call.bytes)
    measured = "" if longest is None else f", which takes up to {duration_ns(longest)} on an idle GPU"
    if blame is not None:
        yield f"{cause_for_others(blame).clause}{measured}"


# Calls of the program that show how long one takes.
LEAST_ALIKE = 5
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
        found[at] = _takes_as_long(facts, at)
    return found


def _takes_as_long(facts: Facts, at: int) -> bool:
    """Whether a call takes as long by itself: as was measured, or as others of the program do while the GPU is idle.

    How large a graph is, nobody knows.
    """
    blame, call = facts.own_blame(at), facts.slow[at]
    if blame is None or blame is WaitCause.GRAPH:
        return blame is not None
    return is_usual(call.function, call.bytes, call.duration_ns) or _is_usual_here(facts, at)


def _is_usual_here(facts: Facts, at: int) -> bool:
    """Whether calls of the same function and size took half as long, during which the GPU did nothing."""
    calls = facts.calls
    alike = (calls.numbers == calls.numbers[at]) & (facts.sizes == facts.sizes[at]) & (facts.busy == 0)
    took = (calls.ends - calls.begins)[alike & did_not_wait(facts)]
    return len(took) >= LEAST_ALIKE and int(calls.ends[at] - calls.begins[at]) <= 2 * float(np.median(took))


RULE = MadeRule(_mask, known_by_function(CAUSE.name))
