"""Compilation of device code by the driver, of which its compiler makes a record."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, overhead_or_work, text
from stallprobes.watch.causes.overhead import Overhead

CAUSE = Cause(
    WaitCause.COMPILATION,
    "compilation",
    "compiling device code",
    text("Build the program for this GPU's architecture, or keep the driver's compilation cache (CUDA_CACHE_PATH)."),
    evidence=overhead_or_work,
)
OVERHEAD = Overhead(CAUSE.name)
