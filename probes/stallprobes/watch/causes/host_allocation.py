"""Pinned memory that another thread allocates or frees."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls

CAUSE = Cause(
    WaitCause.HOST_ALLOCATION,
    "pinned allocation",
    "allocating or freeing pinned memory",
    of_entry("host-alloc-free"),
    evidence=named_calls,
    columns=lambda call: ("host-alloc-free",),
)
