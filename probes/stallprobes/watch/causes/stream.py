"""A stream that another thread creates or destroys."""

from __future__ import annotations

from stallprobes.native.layouts.driver_calls import CallFamily, plain_name
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls


def _blames(function: str, family: CallFamily | None, pageable: bool) -> bool:
    name = plain_name(function)
    return family is CallFamily.STREAM and ("Create" in name or "Destroy" in name)


CAUSE = Cause(
    WaitCause.STREAM,
    "stream creation",
    "creating or destroying a stream",
    of_entry("stream-churn"),
    evidence=named_calls,
    blames=_blames,
    columns=lambda call: ("stream-churn",),
)
