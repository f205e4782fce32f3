"""A staged peer copy of another stream in front of the call's own one, and what that copy waited for."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_pattern
from stallprobes.watch.causes.gpu_wait import GpuWait

_PATTERN = "peer-copy-behind-kernel"
CAUSE = Cause(
    WaitCause.STAGED_COPY,
    "staged peer copy",
    "a staged peer copy in front of its own, and what that waited for",
    of_pattern(_PATTERN),
    pattern=_PATTERN,
)
IN_FRONT = GpuWait(CAUSE.name)
