"""The time-slices of another context of the program."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_pattern
from stallprobes.watch.causes.gpu_wait import GpuWait
from stallprobes.watch.causes.time_slice import named_users

_PATTERN = "secondary-context-d2d"
CAUSE = Cause(
    WaitCause.OTHER_CONTEXT,
    "another context's time-slice",
    "the time-slices of another context",
    of_pattern(_PATTERN),
    pattern=_PATTERN,
    evidence=named_users,
)


TIME_SLICE = GpuWait(CAUSE.name)
