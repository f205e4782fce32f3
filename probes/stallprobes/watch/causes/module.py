"""A module that another thread loads or unloads."""

from __future__ import annotations

from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls


def _blames(function: str, family: CallFamily | None, pageable: bool) -> bool:
    return family is CallFamily.MODULE


CAUSE = Cause(
    WaitCause.MODULE,
    "module loading in another thread",
    "loading a module",
    of_entry("module-load"),
    evidence=named_calls,
    blames=_blames,
    columns=lambda call: ("module-load", "module-first-launch"),
)
