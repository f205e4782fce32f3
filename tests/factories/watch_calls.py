"""Slow calls, activity records and processes of a watched program, made by hand. Times are in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from stallprobes.latency.histogram import Histogram
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import CopyKind, MemoryKind, OverheadKind, RecordKind, SwitchOperation
from stallprobes.native.layouts.watch_file import CallFlag, LossKind
from stallprobes.records.rows import DRIVER_CALL
from stallprobes.watch.attribution.stream_numbers import StreamNumbers
from stallprobes.watch.reading.process import (
    CallBatch,
    CallFigures,
    ClockPair,
    DriverCall,
    FinishedCall,
    RecordBatch,
    SlowDriverCall,
    WatchedProcess,
    WatchedThread,
)
from stallprobes.watch.reading.words import MEMORY, ProcessState

US = 1_000
# All times begin here, so that none is 0.
BASE_NS = 1_000_000_000
NAMES = {1: "_Z3addPf", 2: "_Z3mulPf", 3: "gemm"}
MAIN, OTHER, THIRD = 100, 101, 102
LAUNCH, SYNC, EVENT_SYNC, QUERY = "cuLaunchKernel", "cuStreamSynchronize", "cuEventSynchronize", "cuEventQuery"
D2H, D2H_SYNC, H2D = "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoH_v2", "cuMemcpyHtoDAsync_v2"
ALLOC, FREE, REGISTER = "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostRegister_v2"
# Functions by the numbers that they have in each file; others follow.
FUNCTIONS = {1: LAUNCH, 2: SYNC, 3: D2H, 4: "cuModuleLoadData", 5: FREE, 6: H2D, 7: QUERY}
SLOW_NS = 1_000_000


def at_ns(us: float) -> int:
    """A time of a test on CLOCK_MONOTONIC."""
    return BASE_NS + round(us * US)


def call(
    function: str,
    begin: float,
    *,
    correlation: int = 0,
    context: int = 1,
    stream: int | None = None,
    size: int | None = None,
    source: MemoryKind = MemoryKind.UNKNOWN,
    target: MemoryKind = MemoryKind.UNKNOWN,
    thread: int = MAIN,
) -> DriverCall:
    """A call in flight since ``begin``."""
    return DriverCall(
        function=function, thread=thread, begin_ns=at_ns(begin), stream=stream, bytes=size,
        source=MEMORY.get(source), target=MEMORY.get(target), context=context, correlation=correlation,
    )  # fmt: skip


def slow(function: str, begin: float, end: float, *, result: int = 0, **of: Any) -> SlowDriverCall:
    """A finished call from ``begin`` to ``end``; ``of`` is as in ``call``."""
    begun = call(function, begin, **of)
    return SlowDriverCall(**asdict(begun), duration_ns=at_ns(end) - begun.begin_ns, result=result)


def pageable_copy(begin: float, end: float, *, thread: int = OTHER, **of: Any) -> SlowDriverCall:
    """A D2H copy to pageable memory."""
    of = {"size": 256 << 20, "source": MemoryKind.DEVICE, "target": MemoryKind.PAGEABLE} | of
    return slow(D2H, begin, end, thread=thread, **of)


def _record(kind: int, **fields: Any) -> Mapping[str, Any]:
    return {"kind": kind, **fields}


def kernel(
    begin: float, end: float, *, name: int = 1, correlation: int = 0, context: int = 1, stream: int = 7, device: int = 0
) -> Mapping[str, Any]:
    """A kernel from ``begin`` to ``end``; ``name`` is one of NAMES."""
    return _record(
        RecordKind.KERNEL, start=at_ns(begin), end=at_ns(end), name=name, correlation=correlation, context=context,
        stream=stream, device=device,
    )  # fmt: skip


def copy(
    begin: float,
    end: float,
    *,
    correlation: int = 0,
    context: int = 1,
    stream: int = 7,
    direction: CopyKind = CopyKind.DEVICE_TO_HOST,
    source: MemoryKind = MemoryKind.DEVICE,
    target: MemoryKind = MemoryKind.PAGEABLE,
    size: int = 4,
) -> Mapping[str, Any]:
    """A copy from ``begin`` to ``end``."""
    return _record(
        RecordKind.COPY, start=at_ns(begin), end=at_ns(end), correlation=correlation, context=context, stream=stream,
        subkind=direction, source=source, target=target, bytes=size,
    )  # fmt: skip


def known_streams(numbers: Mapping[int, int], *contexts: int) -> StreamNumbers:
    """Streams with CUPTI's numbers by their handles, in context 1 or in ``contexts``: each has had a kernel."""
    known = StreamNumbers()
    every = [(context, *pair) for context in contexts or (1,) for pair in numbers.items()]
    kernels = [
        kernel(-5000, -4990, correlation=at, context=context, stream=number)
        for at, (context, _, number) in enumerate(every, 1)
    ]
    known.add(
        call_batch(
            slow(LAUNCH, -6000, -5995, correlation=at, context=context, stream=handle)
            for at, (context, handle, _) in enumerate(every, 1)
        ),
        rows_of(kernels),
    )
    return known


def overhead(
    reason: OverheadKind, begin: float, end: float, *, correlation: int = 0, thread: int = 0
) -> Mapping[str, Any]:
    """An overhead record of a call, or of a thread."""
    return _record(
        RecordKind.OVERHEAD, start=at_ns(begin), end=at_ns(end), correlation=correlation, thread=thread, subkind=reason
    )


def switch(gpu_ns: int, context: int, operation: SwitchOperation = SwitchOperation.START) -> Mapping[str, Any]:
    """A context switch at a time (ns) on the GPU's clock."""
    return _record(RecordKind.CONTEXT_SWITCH, start=gpu_ns, context=context, subkind=operation)


def rows_of(records: Iterable[Mapping[str, Any]]) -> NDArray[Any]:
    """Records in the layout of the file."""
    records = list(records)
    rows = np.zeros(len(records), dtype_of(layout.WatchRecord))
    for row, fields in zip(rows, records, strict=True):
        for name, value in fields.items():
            row[name] = value
    return rows


def batch(records: Iterable[Mapping[str, Any]], missed: int = 0) -> RecordBatch:
    """A batch with ``records``."""
    rows = rows_of(records)
    return RecordBatch(rows, NAMES, len(rows), missed)


def call_batch(calls: Iterable[FinishedCall] = (), missed: int = 0) -> CallBatch:
    """A batch with ``calls``."""
    calls = sorted(calls, key=lambda one: one.end_ns)
    numbers = {name: number for number, name in FUNCTIONS.items()}
    for name in sorted({one.function for one in calls}):
        numbers.setdefault(name, len(numbers) + 1)
    rows = np.zeros(len(calls), DRIVER_CALL)
    for row, one in zip(rows, calls, strict=True):
        row["began_ns"], row["returned_ns"], row["function"] = one.begin_ns, one.end_ns, numbers[one.function]
        row["stream"], row["bytes"] = one.stream or 0, one.bytes or 0
        row["flags"] = 0 if one.stream is None else int(CallFlag.STREAM)
        for name in ("thread", "context", "correlation"):
            row[name] = getattr(one, name)
        for name, memory in (("source", one.source), ("target", one.target)):
            row[name] = 0 if memory is None else MemoryKind[memory.name]
    made = {numbers[one.function]: one.function for one in calls}
    return CallBatch(rows, made, missed)


def launch_batch(*kernels: Mapping[str, Any], stream: int) -> CallBatch:
    """A batch with the launches of kernels, of 5 µs each, to the stream with a handle."""
    times = [((each["start"] - BASE_NS) / US - 10, each["correlation"]) for each in kernels]
    return call_batch(slow(LAUNCH, end - 5, end, correlation=number, stream=stream) for end, number in times)


def slow_batch(read: WatchedProcess) -> CallBatch:
    """A batch with the slow calls of a process."""
    return call_batch(one for each in read.threads for one in each.slow_calls)


def figures(durations_us: Sequence[float], failed: int = 0) -> CallFigures:
    """The figures of calls with these durations."""
    values = [round(one * US) for one in durations_us]
    count = sum(value >= SLOW_NS for value in values)
    return CallFigures(total=Histogram.of(values), total_ns=sum(values), slow=count, failed=failed)


def thread(
    number: int = MAIN,
    calls: Sequence[SlowDriverCall] = (),
    *,
    name: str = "",
    fast_us: Mapping[str, Sequence[float]] | None = None,
    unread: Mapping[str, Sequence[float]] | None = None,
    in_flight: Sequence[DriverCall] = (),
    started: float = 0,
    ended: float | None = None,
    stack: int = 0,
    slot: int | None = None,
    owners: int = 1,
) -> WatchedThread:
    """A thread with slow ``calls``, ``fast_us`` ones by function, and slow ones that are ``unread``."""
    durations = {function: list(values) for function, values in (fast_us or {}).items()}
    for one in calls:
        durations.setdefault(one.function, []).append(one.duration_ns / US)
    for function, values in (unread or {}).items():
        durations.setdefault(function, []).extend(values)
    return WatchedThread(
        id=number,
        name=name or f"thread-{number}",
        started_ns=at_ns(started),
        ended_ns=None if ended is None else at_ns(ended),
        in_flight=tuple(one.changed(thread=number) for one in in_flight),
        figures={function: figures(values) for function, values in durations.items()},
        slow_calls=tuple(calls),
        slow_count=len(calls),
        stack=stack,
        slot=number if slot is None else slot,
        owners=owners,
        lost=0,
    )


def process(
    *threads: WatchedThread,
    ended: float | None = None,
    calls_only: bool = False,
    kinds: Iterable[int] = layout.COLLECTED,
    losses: Mapping[LossKind, int] | None = None,
    now: float = 0,
) -> WatchedProcess:
    """A process with ``threads``, read at ``now``."""
    return WatchedProcess(
        pid=100, parent_pid=1, image=0, start_ticks=5, name="train", command="python train.py",
        state=ProcessState.RECORDING, code=0, failed_function="", cupti_path="/lib/libcupti.so.13",
        cupti_version=130_100, calls_only=calls_only, kinds=frozenset(kinds), slow_limit_ns=SLOW_NS,
        started=ClockPair(BASE_NS, 0),
        clocks=ClockPair(at_ns(now), 0), ended_ns=None if ended is None else at_ns(ended), threads=threads,
        losses=losses or dict.fromkeys(LossKind, 0), records=0,
    )  # fmt: skip
