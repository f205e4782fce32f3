"""Causes that overhead records of CUPTI show: loading, compilation, a full launch queue, and CUPTI itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.units import duration_ns
from stallprobes.watch.attribution.findings import ExplainedCall, WaitEvidence
from stallprobes.watch.attribution.wait_cause import CAUSE_RANKS, Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, CallCause, Rule, named_work, of_entry
from stallprobes.watch.causes.facts import Facts, Flags, flags
from stallprobes.watch.intervals import int64s
from stallprobes.watch.reading.kernel_names import short_name


def _overhead_or_work(call: ExplainedCall) -> Iterator[str]:
    """The time of the overhead records of the call, else its work, in words."""
    if call.evidence.overhead_ns:
        yield duration_ns(call.evidence.overhead_ns)
    else:
        yield from named_work(call)


def _first_launch(call: ExplainedCall) -> Iterator[str]:
    """The kernel that was launched for the first time, else the overhead, in words."""
    if call.evidence.work:
        name = call.evidence.work[0].name
        yield f"the first launch of {short_name(name) if name else 'a kernel without a name'}"
    else:
        yield from _overhead_or_work(call)


# Causes of slow calls that overhead records show.
CAUSES = (
    CallCause(
        WaitCause.MODULE_LOADING,
        "module loading",
        of_entry("module-load"),
        evidence=_overhead_or_work,
    ),
    CallCause(
        WaitCause.LAZY_LOADING,
        "lazy loading",
        of_entry("module-first-launch"),
        evidence=_first_launch,
    ),
    CallCause(
        WaitCause.COMPILATION,
        "compilation",
        "Build the program for this GPU's architecture, or keep the driver's compilation cache (CUDA_CACHE_PATH).",
        evidence=_overhead_or_work,
    ),
    CallCause(
        WaitCause.QUEUE_FULL,
        "full launch queue",
        of_entry("launch-queue-full"),
        evidence=_overhead_or_work,
    ),
    CallCause(
        WaitCause.TRACING,
        "tracing",
        "Watch with --calls-only, which records no work.",
        evidence=_overhead_or_work,
    ),
)


def overhead(cause: WaitCause) -> Rule:
    """Overhead records of a call cover most of its excess, and those of ``cause`` most of all."""
    return Rule(lambda facts, asked: flags(facts.overhead == CAUSE_RANKS[cause]), partial(_overhead, cause))


def _overhead(cause: WaitCause, facts: Facts, at: int) -> Answer:
    ns = int(facts.overheads[at, CAUSE_RANKS[cause]])
    return Answer(cause, Certainty.PROVEN, ns, WaitEvidence(ns, overhead_ns=ns))


def _launches_first(facts: Facts, asked: Flags) -> Flags:
    """A call launched a kernel for the first time in its context."""
    calls, work, first = facts.calls, facts.work, facts.recorded.first_launches
    asked = asked & (calls.ends < facts.recorded.windows.first_off_ns)
    launches = facts.nothing
    rows = np.flatnonzero((work.owners >= 0) & (work.rows["kind"] == int(RecordKind.KERNEL)))
    rows = rows[asked[work.owners[rows]]]
    # One of each name: a graph has many kernels of a name.
    codes = int64s(work.owners[rows]) << 32 | int64s(work.rows["name"][rows])
    for row in rows[np.unique(codes, return_index=True)[1]].tolist():
        at, record = int(work.owners[row]), work.rows[row]
        key = int(record["context"]), int(record["name"])
        if first.get(key) == int(record["correlation"]) and calls.calls[at].family is CallFamily.LAUNCH:
            launches[at] = True
    return launches


def _launched_first(facts: Facts, at: int) -> Answer:
    return Answer(WaitCause.LAZY_LOADING, Certainty.KNOWN, facts.excess[at], facts.evidence.own(at))


# Rule: the call is the first launch of its kernel in the context. The driver then loaded the kernel's code (lazy
# loading).
FIRST_LAUNCH = Rule(_launches_first, _launched_first)
