"""Pinned memory that another thread allocates or frees."""

from __future__ import annotations

from stallprobes.native.layouts.driver_calls import CallFamily, plain_name
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls


def _blames(function: str, family: CallFamily | None, pageable: bool) -> bool:
    return family is CallFamily.HOST_MEMORY and "egister" not in plain_name(function)


CAUSE = Cause(
    WaitCause.HOST_ALLOCATION,
    "pinned allocation",
    "allocating or freeing pinned memory",
    of_entry("host-alloc-free"),
    evidence=named_calls,
    blames=_blames,
    columns=lambda call: ("host-alloc-free",),
)
