"""A module that another thread loads or unloads."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls

CAUSE = Cause(
    WaitCause.MODULE,
    "module loading in another thread",
    "loading a module",
    of_entry("module-load"),
    evidence=named_calls,
    columns=lambda call: ("module-load", "module-first-launch"),
)
