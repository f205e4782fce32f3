"""The causes that are calls of other threads, and which of them a call is."""

from __future__ import annotations

from functools import cache

from stallprobes.native.layouts.driver_calls import CallFamily
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


@cache
def blame_of(function: str, family: CallFamily | None, pageable: bool) -> WaitCause | None:
    """What a call of ``function`` is as a cause for other threads of its context; None if it is none.

    ``pageable``: one end of a copy is pageable memory.
    """
    for cause in OTHER_THREADS:
        if cause.blames is not None and cause.blames(function, family, pageable):
            return cause.name
    return None


def cause_for_others(name: WaitCause) -> Cause:
    """The cause with a name, of those that are calls of other threads."""
    return _BY_NAME[name]
