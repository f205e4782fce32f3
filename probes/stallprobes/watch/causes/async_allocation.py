"""A pool of GPU memory that another thread makes, changes or ends."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls

CAUSE = Cause(
    WaitCause.ASYNC_ALLOCATION,
    "pool allocation",
    "an allocation from a pool",
    of_entry("alloc-async"),
    evidence=named_calls,
)
