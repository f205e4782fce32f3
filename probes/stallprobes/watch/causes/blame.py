"""The causes that are calls of other threads."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes import (
    allocation,
    async_allocation,
    context,
    free,
    graph,
    host_allocation,
    host_registration,
    module,
    pageable_copy,
    stream,
)
from stallprobes.watch.causes.cause import Cause

OTHER_THREADS: tuple[Cause, ...] = tuple(
    each.CAUSE
    for each in (
        pageable_copy, allocation, free, async_allocation, host_allocation, host_registration, graph, module, context,
        stream,
    )
)  # fmt: skip
_BY_NAME = {cause.name: cause for cause in OTHER_THREADS}


def cause_for_others(name: WaitCause) -> Cause:
    """The cause with a name, of those that are calls of other threads."""
    return _BY_NAME[name]
