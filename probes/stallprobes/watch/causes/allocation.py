"""An allocation of GPU memory in another thread."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls

CAUSE = Cause(
    WaitCause.ALLOCATION,
    "allocation",
    "an allocation of GPU memory",
    of_entry("alloc-free"),
    evidence=named_calls,
    columns=lambda call: ("alloc-free",),
)
