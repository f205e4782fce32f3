"""An allocation of GPU memory in another thread."""

from __future__ import annotations

from stallprobes.native.layouts.driver_calls import CallFamily, plain_name
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls


def _blames(function: str, family: CallFamily | None, pageable: bool) -> bool:
    name = plain_name(function)
    return family is CallFamily.ALLOCATION and not ("Async" in name or "Pool" in name or name.startswith("cuMemFree"))


CAUSE = Cause(
    WaitCause.ALLOCATION,
    "allocation",
    "an allocation of GPU memory",
    of_entry("alloc-free"),
    evidence=named_calls,
    blames=_blames,
    columns=lambda call: ("alloc-free",),
)
