"""A context that another thread creates or destroys."""

from __future__ import annotations

from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls


def _blames(function: str, family: CallFamily | None, pageable: bool) -> bool:
    return family is CallFamily.CONTEXT


CAUSE = Cause(
    WaitCause.CONTEXT,
    "context creation",
    "creating or destroying a context",
    of_entry("context-churn"),
    evidence=named_calls,
    blames=_blames,
    columns=lambda call: ("context-churn",),
)
