"""A full launch queue: the launch waits until the GPU has taken some of the work before it."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_entry, overhead_or_work
from stallprobes.watch.causes.overhead import Overhead

CAUSE = Cause(
    WaitCause.QUEUE_FULL,
    "full launch queue",
    "a full launch queue",
    of_entry("launch-queue-full"),
    evidence=overhead_or_work,
)
OVERHEAD = Overhead(CAUSE.name)
