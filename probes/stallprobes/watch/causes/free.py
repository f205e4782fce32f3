"""A free of GPU memory in another thread."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls

CAUSE = Cause(
    WaitCause.FREE,
    "free",
    "a free of GPU memory",
    of_entry("free-beside-kernel"),
    evidence=named_calls,
    columns=lambda call: ("free-beside-kernel", "alloc-free"),
)
