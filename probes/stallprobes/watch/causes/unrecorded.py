"""Causes of calls that were made while work of the GPU was not recorded, and the answer where nothing is known.

With a budget for its cost, ``watch`` records work in windows. What calls of one function and size at one place waited
for in the windows with records is what they wait for in the others too, unless several causes share their time.
"""

from __future__ import annotations

import numpy as np

from stallprobes.native.layouts.driver_calls import HostTask
from stallprobes.watch.attribution.findings import NO_EVIDENCE, WaitEvidence
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, CallCause, Rule
from stallprobes.watch.causes.facts import Facts, Flags

# Causes of slow calls that stay unexplained: GPU work was not recorded during the call, or no record shows a cause.
CAUSES = (
    CallCause(
        WaitCause.RECORDS_OFF,
        "not recorded",
        "Watch with --cost 100, which records all of it.",
        sentence="while work of the GPU was not recorded",
    ),
    CallCause(
        WaitCause.UNATTRIBUTED,
        "unattributed",
        sentence="with no cause that was recorded",
    ),
)


def _is_alike(facts: Facts, asked: Flags) -> Flags:
    """Calls of the same sort, made while work was recorded, nearly all have one cause."""
    alike = facts.nothing
    for at in np.flatnonzero(asked & facts.not_recorded).tolist():
        like = facts.like(at)
        alike[at] = like is not None and _is_possible(facts, at, like.cause)
    return alike


def _as_alike(facts: Facts, at: int) -> Answer:
    like = facts.like(at)
    assert like is not None
    assert like.cause is not None
    ns = round(facts.excess[at] * min(like.explained[like.cause] / like.excess_ns, 1.0))
    calls = facts.alongside[at].calls if like.cause.is_other_thread else ()
    return Answer(like.cause, Certainty.ALIKE, ns, WaitEvidence(ns, calls=calls, alike=like.calls))


# Rule: nearly all recorded slow calls of the same sort (function, size, and call stack or thread) have the same cause.
# The call gets this cause too.
ALIKE = Rule(_is_alike, _as_alike)


def _is_possible(facts: Facts, at: int, cause: WaitCause | None) -> bool:
    """True if a call can have a cause: that a call of another thread holds it up shows without records too."""
    if cause is None or not cause.is_other_thread:
        return cause is not None
    group = int(facts.culprits(facts.nothing)[0][at])
    return group >= 0 and int(facts.culprit_calls.holds[group]) == HostTask[cause.name]


def _has_no_records(facts: Facts, asked: Flags) -> Flags:
    """Work was not recorded when the call was made: what it waited for is not known."""
    return facts.not_recorded


def _without_records(facts: Facts, at: int) -> Answer:
    return Answer(WaitCause.RECORDS_OFF, None, facts.excess[at], NO_EVIDENCE)


# Rule: GPU work was not recorded during the call. The cause of the call is therefore not known.
RECORDS_OFF = Rule(_has_no_records, _without_records)
