"""The time-slices of another process on the same GPU."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, text
from stallprobes.watch.causes.gpu_wait import GpuWait
from stallprobes.watch.causes.time_slice import named_users

CAUSE = Cause(
    WaitCause.OTHER_PROCESS,
    "another process's time-slice",
    "the time-slices of another process",
    text("Run one process on each GPU, or share it through MPS."),
    evidence=named_users,
)
TIME_SLICE = GpuWait(CAUSE.name)
