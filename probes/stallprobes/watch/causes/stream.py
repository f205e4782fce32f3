"""A stream that another thread creates or destroys."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls

CAUSE = Cause(
    WaitCause.STREAM,
    "stream creation",
    "creating or destroying a stream",
    of_entry("stream-churn"),
    evidence=named_calls,
    columns=lambda call: ("stream-churn",),
)
