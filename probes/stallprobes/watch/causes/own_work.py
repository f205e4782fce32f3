"""The call's own work on the GPU, such as that of a blocking copy."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, text
from stallprobes.watch.causes.gpu_wait import GpuWait

CAUSE = Cause(
    WaitCause.OWN_WORK,
    "its own GPU work",
    "its own work on the GPU",
    text("Copy into pinned memory with an asynchronous call, and wait once, where the result is needed."),
    pattern="scalar-readback",
)
OWN = GpuWait(CAUSE.name)
