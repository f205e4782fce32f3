"""A free of GPU memory in another thread."""

from __future__ import annotations

from stallprobes.native.layouts.driver_calls import CallFamily, plain_name
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls


def _blames(function: str, family: CallFamily | None, pageable: bool) -> bool:
    name = plain_name(function)
    return family is CallFamily.ALLOCATION and name.startswith("cuMemFree") and "Async" not in name


CAUSE = Cause(
    WaitCause.FREE,
    "free",
    "a free of GPU memory",
    of_entry("free-beside-kernel"),
    evidence=named_calls,
    blames=_blames,
    columns=lambda call: ("free-beside-kernel", "alloc-free"),
)
