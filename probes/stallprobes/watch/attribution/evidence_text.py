"""Sizes, threads, and the evidence of a slow call in words."""

from __future__ import annotations

from stallprobes.units import duration_ns, size_text
from stallprobes.watch.attribution.findings import CallAlongside, WorkInFront
from stallprobes.watch.reading.kernel_names import short_name
from stallprobes.watch.reading.words import Direction, Memory

# Largest number of pieces of evidence that a sentence names.
MOST_NAMED = 3
# Name of a copy by its direction.
_DIRECTIONS = {
    Direction.HOST_TO_DEVICE: "H2D copy",
    Direction.DEVICE_TO_HOST: "D2H copy",
    Direction.DEVICE_TO_DEVICE: "D2D copy",
    Direction.PEER: "peer copy",
}


def work_text(work: WorkInFront) -> str:
    """Work in front of a call: ``reduce_kernel (3 times, 15.1 ms)``."""
    name = short_name(work.name) if work.name else work.kind
    if work.direction is not None:
        name = _DIRECTIONS.get(work.direction, "copy")
        name += f" of {size_text(work.bytes)}" if work.count == 1 else f" of {size_text(work.bytes)} in all"
    times = f"{work.count} times, " if work.count > 1 else ""
    rank = f", of that {duration_ns(work.rank_ns)} waiting for {work.rank}" if work.rank else ""
    return f"{'its own ' if work.own else ''}{name} ({times}{duration_ns(work.overlap_ns)}{rank})"


def thread_text(thread: int, name: str) -> str:
    """A thread as a sentence names it: ``loader (thread 101)``."""
    return f"{name} (thread {thread})" if name else f"thread {thread}"


def alongside_text(call: CallAlongside) -> str:
    """Calls of another thread: ``cuMemcpyDtoHAsync_v2 of 256 MiB to pageable memory in loader (thread 101)``."""
    size = f" of {size_text(call.bytes)}" if call.bytes is not None else ""
    kinds = " from pageable memory" if call.source is Memory.PAGEABLE else ""
    kinds += " to pageable memory" if call.target is Memory.PAGEABLE else ""
    times = f"{call.calls} calls of " if call.calls > 1 else ""
    return f"{times}{call.function}{size}{kinds} in {thread_text(call.thread, call.thread_name)}"
