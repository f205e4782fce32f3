"""An allocation from a pool, or a free to it, in another thread."""

from __future__ import annotations

from stallprobes.native.layouts.driver_calls import CallFamily, plain_name
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls


def _blames(function: str, family: CallFamily | None, pageable: bool) -> bool:
    name = plain_name(function)
    return family is CallFamily.ALLOCATION and ("Async" in name or "Pool" in name)


CAUSE = Cause(
    WaitCause.ASYNC_ALLOCATION,
    "pool allocation",
    "an allocation from a pool",
    of_entry("alloc-async"),
    evidence=named_calls,
    blames=_blames,
    columns=lambda call: ("alloc-async",),
)
