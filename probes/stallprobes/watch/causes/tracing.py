"""CUPTI itself: it empties or fetches a buffer inside the call."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, overhead_or_work, text
from stallprobes.watch.causes.overhead import Overhead

CAUSE = Cause(
    WaitCause.TRACING,
    "tracing",
    "the recording of GPU work by stallscope itself",
    text("Watch with --calls-only, which records no work."),
    evidence=overhead_or_work,
)
OVERHEAD = Overhead(CAUSE.name)
