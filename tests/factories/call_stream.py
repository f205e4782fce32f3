"""Streams of calls and activity records, made of what an injected library wrote, for the stand-ins to replay.

A watched process's file has each slow call with its times, every activity record, and a histogram of the other calls.
Calls that are only in a histogram get times between the others of their thread, and the lower bound of their bucket as
their duration; those among them that submit work, in turn, the correlation and the stream of work of their kind that no
other call submitted. A stream has the handle by which a call waits for it, as CUPTI's record of the call says. A file
that was recorded with a limit of 0 ns (``WatchOptions(slow_ns=0)``) has every call with its times, up to 1023 of each
thread. Such a file of a program on a GPU: start it with what ``stallscope watch --print-env --no-stacks`` prints and
STALLSCOPE_WATCH_SLOW_NS=0. ``replay.c`` reads the stream.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import LOWER, index
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.driver_calls import (
    ANY,
    HOST,
    CallFamily,
    CallShape,
    CallUse,
    family_of,
    plain_name,
    shapes,
)
from stallprobes.watch.reading.map_reader import MapFile, watch_files
from stallprobes.watch.reading.process import DriverCall, RecordBatch, WatchedProcess, WatchedThread
from stallprobes.watch.reading.words import Memory

HEADER = np.dtype(
    [
        ("started_ns", "<u8"), ("ended_ns", "<u8"), ("realtime_offset_ns", "<u8"), ("count_at", "<u8"),
        ("collects", "<u4"), ("functions", "<u4"), ("threads", "<u4"), ("events", "<u4"), ("records", "<u4"),
        ("name_bytes", "<u4"),
    ]
)  # fmt: skip
THREAD = np.dtype([("id", "<u4"), ("unused", "<u4"), ("name", "S16")])
EVENT = np.dtype(
    [
        ("at_ns", "<u8"), ("kind", "<u4"), ("thread", "<u4"), ("number", "<u4"), ("correlation", "<u4"),
        ("context", "<u4"), ("result", "<i4"), ("pointer", "<i4"), ("unused", "<u4"), ("parameters", "<u8", 12),
        ("block", "<u8", 25),
    ]
)  # fmt: skip
RECORD = np.dtype(
    [
        ("start_ns", "<u8"), ("end_ns", "<u8"), ("bytes", "<u8"), ("kind", "<u4"), ("subkind", "<u4"),
        ("source", "<u4"), ("target", "<u4"), ("correlation", "<u4"), ("device", "<u4"), ("context", "<u4"),
        ("stream", "<u4"), ("peer", "<u4"), ("thread", "<u4"), ("name", "<u4"), ("before", "<u4"),
    ]
)  # fmt: skip
BEGIN, END, THREAD_ENDS = 0, 1, 2
CUDA_ERROR = 1
# Correlation ids of calls that have none in the file.
FIRST_OWN_CORRELATION = 1 << 30
# Host memory of the stream: the n-th allocation lies at a multiple of PITCH; nothing was allocated at PAGEABLE.
PITCH = 1 << 32
PINNED, MANAGED, PAGEABLE = 1 << 40, 1 << 41, 1 << 42
ALLOCATED_BYTES = 4096
_KINDS_OF = {
    CallFamily.LAUNCH: (RecordKind.KERNEL,), CallFamily.FILL: (RecordKind.MEMSET,),
    CallFamily.COPY: (RecordKind.COPY, RecordKind.PEER_COPY),
}  # fmt: skip
# Where a CUlaunchConfig has the stream, in words.
_STREAM_OF_CONFIG = 4
# Handles of streams for which no slow call waits.
_UNKNOWN_HANDLES = 0x5000
_SHAPES = {shape.name: shape for shape in shapes()}
_ALLOCATES = {
    CallUse.ALLOCATES_PINNED: PINNED, CallUse.REGISTERS: PINNED, CallUse.ALLOCATES_MANAGED: MANAGED,
}  # fmt: skip
# CUDA_MEMCPY2D and CUDA_MEMCPY3D: words of the type and the address of each end, and of the sizes.
_BLOCKS = {2: ((2, 3), (9, 10), (14, 15)), 3: ((4, 5), (15, 16), (22, 23, 24))}
_TYPES = {
    Memory.PAGEABLE: 1, Memory.PINNED: 1, Memory.DEVICE: 2, Memory.ARRAY: 3, Memory.MANAGED: 1,
}  # fmt: skip
_ADDRESSES = {Memory.PAGEABLE: PAGEABLE, Memory.PINNED: PINNED, Memory.MANAGED: MANAGED}


@dataclass(frozen=True)
class StreamCall:
    """A call of a stream; ``end_ns`` is None for one that never returned."""

    call: DriverCall
    end_ns: int | None
    result: int = 0


@dataclass(frozen=True)
class StreamEvent:
    """The begin or the end of a call, or the end of a thread (``call`` is None)."""

    at_ns: int
    kind: int
    thread: int
    call: StreamCall | None = None


class CallStream:
    """The stream of one process: the events of its calls in the order of their times, and its records."""

    def __init__(self, path: Path) -> None:
        """The stream of the process that wrote the file at ``path``.

        Raises ValueError if the file has not each slow call and each record of the process.
        """
        with MapFile(path) as file:
            self.process, self.batch = file.read(), file.records()
        rows = np.fromfile(path, dtype_of(layout.Api), layout.APIS, offset=layout.APIS_AT)
        self._functions = rows[rows["number"] > 0]
        self._numbers = {row["name"].decode(): int(row["number"]) for row in self._functions}
        _require_complete(self.process, self.batch)
        self._last_ns = self.process.ended_ns or self.process.clocks.monotonic_ns
        self._own = itertools.count(FIRST_OWN_CORRELATION)
        self._submitted = {family: self._submitted_work(kinds) for family, kinds in _KINDS_OF.items()}
        threads = self.process.threads
        # The first one is the replaying process's main thread, also where that of the process made no call.
        others = [one for one in threads if one.id != self.process.pid]
        self._threads = [next((one for one in threads if one.id == self.process.pid), None), *others]
        found = (self._events(number, one) for number, one in enumerate(self._threads) if one is not None)
        self.events = tuple(merge(*found, key=lambda event: event.at_ns))

    def save(self, path: Path) -> Path:
        """Write the stream to ``path``."""
        names = b"".join(name.encode() + b"\0" for name in self.batch.names.values())
        starts = itertools.accumulate((len(name.encode()) + 1 for name in self.batch.names.values()), initial=1)
        rows = self._record_rows(dict(zip(self.batch.names, starts, strict=False)))
        fields = dtype_of(layout.FileHeader).fields
        assert fields is not None
        header = np.zeros(1, HEADER)
        started = self.process.started
        header[0] = (
            started.monotonic_ns, self.process.ended_ns or 0, started.realtime_ns - started.monotonic_ns,
            fields["records"][1], bool(self.process.kinds), len(self._functions), len(self._threads), len(self.events),
            len(rows), len(names),
        )  # fmt: skip
        main = self.process.pid, self.process.name
        names_of = [main if one is None else (one.id, one.name) for one in self._threads]
        threads = np.array([(number, 0, name.encode()[:15]) for number, name in names_of], THREAD)
        parts = (header, self._functions, threads, self._event_rows(), rows)
        path.write_bytes(b"".join(part.tobytes() for part in parts) + names)
        return path

    def _events(self, number: int, thread: WatchedThread) -> Iterator[StreamEvent]:
        """The events of a thread, with calls inside calls."""
        exact = [StreamCall(slow, slow.end_ns, slow.result) for slow in thread.slow_calls]
        exact += [StreamCall(call, None) for call in thread.in_flight]
        calls = [*exact, *self._counted_calls(thread, exact)]
        last_ns = self._last_ns
        opened: list[StreamCall] = []
        for call in sorted(calls, key=lambda one: (one.call.begin_ns, -(one.end_ns or last_ns + 1))):
            while opened and opened[-1].end_ns is not None and opened[-1].end_ns <= call.call.begin_ns:
                yield self._end(number, opened.pop())
            opened.append(call)
            yield StreamEvent(call.call.begin_ns, BEGIN, number, call)
        while opened:
            if opened[-1].end_ns is None:
                return
            yield self._end(number, opened.pop())
        if thread.ended_ns is not None and number:
            yield StreamEvent(thread.ended_ns, THREAD_ENDS, number)

    @staticmethod
    def _end(number: int, call: StreamCall) -> StreamEvent:
        assert call.end_ns is not None
        return StreamEvent(call.end_ns, END, number, call)

    def _counted_calls(self, thread: WatchedThread, exact: Sequence[StreamCall]) -> Iterator[StreamCall]:
        """The calls that are only in histograms, one after another in the time that the thread has left."""
        free = _free_time(thread, exact, thread.ended_ns or self._last_ns)
        begin_ns, end_ns = 0, 0
        for function, duration_ns, result in _counted(thread, exact):
            while begin_ns + 1 + duration_ns >= end_ns:
                begin_ns, end_ns = next(free, (0, 0))
                if not end_ns:
                    raise ValueError(f"thread {thread.id} has no time left for its other calls")
            family = family_of(function)
            submitted = self._submitted.get(family, iter(())) if family is not None else iter(())
            context, stream, correlation = next(submitted, (1, None, next(self._own)))
            call = DriverCall(
                function=function, thread=thread.id, begin_ns=begin_ns + 1, stream=stream,
                bytes=None, source=None, target=None, context=context,
                correlation=correlation,
            )  # fmt: skip
            begin_ns += 1 + duration_ns
            yield StreamCall(call, begin_ns, result)

    def _submitted_work(self, kinds: Sequence[RecordKind]) -> Iterator[tuple[int, int | None, int]]:
        """Context, handle of the stream, and correlation number of work whose call is only in a histogram."""
        slow = {call.correlation: call for thread in self.process.threads for call in thread.slow_calls}
        rows = self.batch.rows
        handles: dict[tuple[int, int], int] = {}
        for row in rows[rows["kind"] == RecordKind.SYNCHRONIZATION]:
            waited = slow.get(int(row["correlation"]))
            if waited is not None and waited.stream is not None:
                handles[int(row["context"]), int(row["stream"])] = waited.stream
        work = rows[np.isin(rows["kind"], kinds)]
        seen = set(slow)
        for row in work[np.argsort(work["start"], kind="stable")]:
            context, stream, correlation = int(row["context"]), int(row["stream"]), int(row["correlation"])
            if correlation not in seen:
                seen.add(correlation)
                yield context, handles.get((context, stream), _UNKNOWN_HANDLES + stream), correlation

    def _event_rows(self) -> NDArray[np.void]:
        rows = np.zeros(len(self.events), EVENT)
        memory = _HostMemory()
        for row, event in zip(rows, self.events, strict=True):
            row["at_ns"], row["kind"], row["thread"], row["pointer"] = event.at_ns, event.kind, event.thread, -1
            if event.call is not None:
                call = event.call.call
                row["number"], row["correlation"] = self._numbers[call.function], call.correlation
                row["context"], row["result"] = call.context, event.call.result
                shape = _SHAPES.get(plain_name(call.function))
                if shape is not None:
                    memory.write_parameters(row, shape, event)
        return rows

    def _record_rows(self, names: dict[int, int]) -> NDArray[np.void]:
        found = self.batch.rows[np.isin(self.batch.rows["kind"], layout.COLLECTED)]
        rows = np.zeros(len(found), RECORD)
        for field in ("bytes", "kind", "subkind", "source", "target", "correlation", "device", "context", "stream"):
            rows[field] = found[field]
        rows["start_ns"], rows["end_ns"] = found["start"], found["end"]
        peer = found["kind"] == RecordKind.PEER_COPY
        rows["peer"][peer] = found["thread"][peer]
        # A kernel has the shape of its blocks there.
        of_thread = ~peer & (found["kind"] != RecordKind.KERNEL)
        rows["thread"][of_thread] = found["thread"][of_thread]
        rows["name"] = [names.get(place, 0) for place in found["name"].tolist()]
        # In the order in which they were delivered, once the last one has ended. A switch has a clock of its own.
        ends = np.where(found["kind"] == RecordKind.CONTEXT_SWITCH, 0, found["end"])
        times = [event.at_ns for event in self.events]
        rows["before"] = np.searchsorted(times, np.maximum.accumulate(ends)) if len(ends) else 0
        return rows


class _HostMemory:
    """Host memory that the calls of a stream have allocated so far."""

    def __init__(self) -> None:
        self._allocated = Counter[int]()

    def write_parameters(self, row: np.void, shape: CallShape, event: StreamEvent) -> None:
        """Write the parameters of the call of an event, from which the library finds what the file says of it."""
        assert event.call is not None
        call, words = event.call.call, row["parameters"]
        raw = words.view(np.uint8)
        if shape.stream >= 0:
            _put(raw, shape.stream, call.stream or 0)
        if shape.config >= 0:
            row["pointer"], row["block"][_STREAM_OF_CONFIG] = shape.config, call.stream or 0
        if shape.bytes >= 0:
            _put(raw, shape.bytes, (call.bytes or 0) // shape.units)
            if shape.rows >= 0:
                _put(raw, shape.rows, 1)
        for offset, form, kind in (
            (shape.source, shape.source_kind, call.source), (shape.target, shape.target_kind, call.target),
        ):  # fmt: skip
            if form in (HOST, ANY):
                _put(raw, offset, self._address(form, kind))
        if shape.dimensions:
            self._write_block(row, shape, call)
        if shape.use in _ALLOCATES:
            self._allocate(row, shape, event)

    def _address(self, form: int, kind: Memory | None) -> int:
        region = _ADDRESSES.get(kind or Memory.PAGEABLE, PAGEABLE)
        if region != PAGEABLE and not self._allocated[region]:
            raise ValueError(f"a copy uses {kind} memory before any is allocated")
        return region

    def _write_block(self, row: np.void, shape: CallShape, call: DriverCall) -> None:
        source, target, sizes = _BLOCKS[shape.dimensions]
        row["pointer"] = shape.description
        for (kind_at, address_at), kind in ((source, call.source), (target, call.target)):
            row["block"][kind_at] = 0 if kind is None else _TYPES.get(kind, 0)
            row["block"][address_at] = self._address(HOST, kind)
        row["block"][list(sizes)] = 1
        row["block"][sizes[0]] = call.bytes or 0

    def _allocate(self, row: np.void, shape: CallShape, event: StreamEvent) -> None:
        assert event.call is not None
        region = _ALLOCATES[shape.use]
        address = region + self._allocated[region] * PITCH
        if event.kind == END and not event.call.result:
            self._allocated[region] += 1
        if not event.call.call.bytes:
            _put(row["parameters"].view(np.uint8), shape.bytes, ALLOCATED_BYTES)
        if shape.use is CallUse.REGISTERS:
            row["parameters"][0] = address
        else:
            row["pointer"], row["block"][0] = 0, address


def _put(raw: NDArray[np.uint8], offset: int, value: int) -> None:
    raw[offset : offset + 8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)


def _free_time(thread: WatchedThread, exact: Iterable[StreamCall], last_ns: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each time of a thread between its slow calls."""
    begin_ns = thread.started_ns
    for call in sorted(exact, key=lambda one: one.call.begin_ns):
        yield begin_ns, call.call.begin_ns
        if call.end_ns is None:
            return
        begin_ns = max(begin_ns, call.end_ns)
    yield begin_ns, last_ns


def _counted(thread: WatchedThread, exact: Iterable[StreamCall]) -> Iterator[tuple[str, int, int]]:
    """Function, duration and result of the calls that are only in histograms; those that allocate memory first."""
    known = Counter(
        (call.call.function, index(call.end_ns - call.call.begin_ns)) for call in exact if call.end_ns is not None
    )
    failed = Counter(call.call.function for call in exact if call.end_ns is not None and call.result)
    for function in sorted(thread.figures, key=lambda name: ("Host" not in name, name)):
        figures = thread.figures[function]
        failures = max(figures.failed - failed[function], 0)
        for bucket in np.flatnonzero(figures.total.counts).tolist():
            count = int(figures.total.counts[bucket]) - known[function, bucket]
            for _ in range(count):
                yield function, max(int(LOWER[bucket]), 1), CUDA_ERROR if failures > 0 else 0
                failures -= 1


def _require_complete(process: WatchedProcess, batch: RecordBatch) -> None:
    if batch.missed or process.lost_calls or process.lost_records:
        raise ValueError("the file has not each call and record of its process")
    for thread in process.threads:
        if thread.owners != 1:
            raise ValueError(f"several threads shared the place of thread {thread.id}")
        if len(thread.slow_calls) != thread.slow_count:
            raise ValueError(f"slow calls of thread {thread.id} were overwritten")


def save_stream(folder: Path, path: Path) -> CallStream:
    """Write the stream of the one process of a recorded folder to ``path``."""
    (file,) = watch_files(folder)
    stream = CallStream(file)
    stream.save(path)
    return stream
