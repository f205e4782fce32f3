"""Causes that lie on the host, in the thread of the call: no CPU, or what the function itself does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from stallprobes.native.layouts.driver_calls import Waits, function_of
from stallprobes.units import duration_ns
from stallprobes.watch.attribution.findings import ExplainedCall, WaitEvidence
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause, cause_of_task
from stallprobes.watch.causes.cause import Answer, CallCause, Rule
from stallprobes.watch.causes.facts import Facts, Flags, flags
from stallprobes.watch.causes.own_durations import is_usual, longest_ns

# Smallest number of calls of a function and size at which the usual duration of these calls is known.
MIN_ALIKE = 5


def _ready(call: ExplainedCall) -> Iterator[str]:
    """How long the thread was ready to run, in words."""
    yield f"at least {duration_ns(call.evidence.run_delay_ns)} ready to run"


def _task(call: ExplainedCall) -> Iterator[str]:
    """What the function does, and how long that takes, in words."""
    name = cause_of_task(function_of(call.function).task)
    longest = longest_ns(call.function, call.bytes)
    measured = "" if longest is None else f", which takes up to {duration_ns(longest)} on an idle GPU"
    if name is not None:
        yield f"{name.clause}{measured}"


# Causes of slow calls that lie on the host.
CAUSES = (
    CallCause(
        WaitCause.NO_CPU,
        "no CPU",
        "Give the program more CPUs, or let fewer threads run on them.",
        evidence=_ready,
    ),
    CallCause(
        WaitCause.ITSELF,
        "the call itself",
        "Create contexts, allocate and instantiate before the critical part, and keep the result.",
        evidence=_task,
    ),
)


def _lacks_cpu(facts: Facts, asked: Flags) -> Flags:
    """The thread was ready to run for most of the excess, and had no CPU."""
    return facts.without_cpu


def _lacked_cpu(facts: Facts, at: int) -> Answer:
    ns = int(facts.delays[at])
    return Answer(WaitCause.NO_CPU, Certainty.PROVEN, ns, WaitEvidence(ns, run_delay_ns=ns))


# Rule: the thread was ready to run and had no CPU for most of the call's excess (time above the usual time).
NO_CPU = Rule(_lacks_cpu, _lacked_cpu)


def _loads(facts: Facts, asked: Flags) -> Flags:
    """The function loads a module, and the call waited for no work of the GPU."""
    loads = _did_not_wait(facts) & asked
    for at in loads.nonzero()[0].tolist():
        loads[at] = facts.own_blame(at) is WaitCause.MODULE and "Unload" not in facts.slow[at].function
    return loads


def _takes_as_long(facts: Facts, asked: Flags) -> Flags:
    """A call takes as long by itself: as was measured, or as others of the program do while the GPU is idle.

    How large a graph is, nobody knows.
    """
    usual = _did_not_wait(facts) & asked
    for at in usual.nonzero()[0].tolist():
        blame, call = facts.own_blame(at), facts.slow[at]
        usual[at] = blame is not None and (
            blame is WaitCause.GRAPH
            or is_usual(call.function, call.bytes, call.duration_ns)
            or _is_usual_here(facts, at)
        )
    return usual


def _did_not_wait(facts: Facts) -> Flags:
    """Which calls waited for no work of the GPU, either by what they do or since all work is known."""
    return flags((facts.calls.waits == Waits.NOTHING) | facts.all_work_known)


def _known_by_function(cause: WaitCause, facts: Facts, at: int) -> Answer:
    """The answer for a call whose function shows the cause of all of its excess."""
    ns = facts.excess[at]
    return Answer(cause, Certainty.KNOWN, ns, WaitEvidence(ns))


def _is_usual_here(facts: Facts, at: int) -> bool:
    """True if calls of the same function and size took half as long, during which the GPU did nothing."""
    calls = facts.calls
    alike = (calls.numbers == calls.numbers[at]) & (facts.sizes == facts.sizes[at]) & (facts.busy == 0)
    took = (calls.ends - calls.begins)[alike & _did_not_wait(facts)]
    return len(took) >= MIN_ALIKE and int(calls.ends[at] - calls.begins[at]) <= 2 * float(np.median(took))


# Rule: the call's function loads device code, and the call did not wait for GPU work.
LOADS = Rule(_loads, partial(_known_by_function, WaitCause.MODULE_LOADING))
# Rule: the call takes no longer than calls of its function usually take by themselves. The usual duration was measured
# on an idle GPU, or seen in the program. Graph instantiations always count as usual, since the size of the graph is not
# known.
ITSELF = Rule(_takes_as_long, partial(_known_by_function, WaitCause.ITSELF))
