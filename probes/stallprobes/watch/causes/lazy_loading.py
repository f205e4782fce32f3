"""Lazy loading: the driver loads a kernel at its first launch in a context."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.watch.attribution.findings import ExplainedCall
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, Cause, MadeRule, of_entry, overhead_or_work
from stallprobes.watch.causes.facts import Facts, Flags
from stallprobes.watch.causes.overhead import Overhead
from stallprobes.watch.reading.kernel_names import short_name


def _evidence(call: ExplainedCall) -> Iterator[str]:
    if call.evidence.work:
        name = call.evidence.work[0].name
        yield f"the first launch of {short_name(name) if name else 'a kernel without a name'}"
    else:
        yield from overhead_or_work(call)


CAUSE = Cause(
    WaitCause.LAZY_LOADING,
    "lazy loading",
    "loading the kernel at its first launch",
    of_entry("module-first-launch"),
    evidence=_evidence,
)


def _first_launches(facts: Facts, asked: Flags) -> Flags:
    """Which calls launched a kernel for the first time in its context."""
    calls, work, first = facts.calls, facts.work, facts.recorded.first_launches
    asked = asked & (calls.ends < facts.recorded.windows.first_off_ns)
    found = np.zeros(len(calls), dtype=np.bool_)
    rows = np.flatnonzero((work.owners >= 0) & (work.rows["kind"] == int(RecordKind.KERNEL)))
    for row in rows[asked[work.owners[rows]]].tolist():
        at, record = int(work.owners[row]), work.rows[row]
        if calls.calls[at].family is CallFamily.LAUNCH:
            key = int(record["context"]), int(record["name"])
            found[at] |= first.get(key) == int(record["correlation"])
    return found


def _answer(facts: Facts, at: int) -> Answer:
    return Answer(CAUSE.name, Certainty.KNOWN, facts.excess[at], facts.evidence.own(at))


OVERHEAD = Overhead(CAUSE.name)
FIRST_LAUNCH = MadeRule(_first_launches, _answer)
