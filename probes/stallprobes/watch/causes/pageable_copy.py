"""A copy from or to pageable memory in another thread, which holds a lock of the context."""

from __future__ import annotations

from collections.abc import Iterator

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.cause import Cause, of_pattern
from stallprobes.watch.causes.known_stalls import NULL_STREAMS
from stallprobes.watch.causes.other_thread import named_calls
from stallprobes.watch.reading.process import DriverCall
from stallprobes.watch.reading.words import Memory

_PATTERN = "pageable-d2h-vs-launch"


def _columns(call: DriverCall) -> Iterator[str]:
    if call.source is Memory.PAGEABLE:
        yield "h2d-pageable-large"
        return
    yield "d2h-pageable-fresh"
    yield "d2h-pageable-warm"
    if call.stream in NULL_STREAMS or call.stream is None:
        yield "d2h-pageable-warm/null"


CAUSE = Cause(
    WaitCause.PAGEABLE_COPY,
    "pageable copy",
    "a pageable copy",
    of_pattern(_PATTERN),
    pattern=_PATTERN,
    evidence=named_calls,
    columns=_columns,
)
