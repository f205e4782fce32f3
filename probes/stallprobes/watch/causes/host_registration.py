"""Host memory that another thread registers, or ends the registration of."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry
from stallprobes.watch.causes.other_thread import named_calls

CAUSE = Cause(
    WaitCause.HOST_REGISTRATION,
    "host registration",
    "registering host memory",
    of_entry("host-register"),
    evidence=named_calls,
    columns=lambda call: ("host-register",),
)
