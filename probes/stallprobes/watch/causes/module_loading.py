"""Module loading: a record of its overhead, or a function that does nothing else."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, MadeRule, known_by_function, of_entry, overhead_or_work
from stallprobes.watch.causes.facts import Facts, Flags
from stallprobes.watch.causes.itself import did_not_wait
from stallprobes.watch.causes.overhead import Overhead

CAUSE = Cause(
    WaitCause.MODULE_LOADING,
    "module loading",
    "loading a module",
    of_entry("module-load"),
    evidence=overhead_or_work,
)


def _loads(facts: Facts, asked: Flags) -> Flags:
    found = did_not_wait(facts) & asked
    for at in found.nonzero()[0].tolist():
        found[at] = facts.own_blame(at) is WaitCause.MODULE
    return found


OVERHEAD = Overhead(CAUSE.name)
FUNCTION = MadeRule(_loads, known_by_function(CAUSE.name))
