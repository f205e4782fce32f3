"""No cause that was recorded."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause

CAUSE = Cause(
    WaitCause.UNATTRIBUTED, "unattributed", "no cause that was recorded", sentence="with no cause that was recorded"
)
