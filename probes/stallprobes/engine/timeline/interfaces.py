"""What the collector needs of others: the calls of CUPTI, the GPU's clock, the end of all work, and streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from stallprobes.model import Context, Stream


class CuptiCalls(Protocol):
    """The calls of CUPTI that the collector makes, as ``library.Cupti`` has them."""

    path: str
    version: int

    def address(self, function: str) -> int: ...
    def text(self, code: int) -> str: ...
    def subscribe(self, callback: int) -> tuple[int, int]: ...
    def unsubscribe(self, handle: int) -> int: ...
    def detach(self, handle: int) -> int: ...
    def set_timestamps(self, callback: int) -> int: ...
    def set_system_thread_ids(self) -> int: ...
    def set_buffers(self, requested: int, completed: int) -> int: ...
    def enable(self, kind: int) -> int: ...
    def leave_out_driver_call(self, number: int) -> int: ...
    def disable(self, kind: int) -> int: ...
    def flush(self, flag: int) -> int: ...
    def context_number(self, context: int) -> int | None: ...
    def stream_number(self, context: int, stream: int) -> int | None: ...


class GpuClockReader(Protocol):
    """Reads the GPU's clock in a context of the engine: its time minus CLOCK_MONOTONIC, in ns; None if that failed."""

    def __call__(self, context: Context) -> int | None: ...


class IdleWaiter(Protocol):
    """Waits for the end of all work on the streams of the probes; False if that took longer than ``seconds``."""

    def __call__(self, seconds: float) -> bool: ...


class Loader(Protocol):
    """Finds and loads CUPTI. Raises TimelineUnavailable."""

    def __call__(self) -> CuptiCalls: ...


@dataclass(frozen=True)
class StreamUse:
    """A stream on which a probe submits work.

    ``context`` and ``handle`` are the stream's CUcontext and CUstream.
    """

    probe: str
    stream: Stream
    context: int
    handle: int
