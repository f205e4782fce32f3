"""The timeline of the simulated GPU: what the simulation knows, written where the collector writes it.

Every call leads to its work by reference, so nothing is matched, dropped or late. Nothing here makes an event of the
clock or a random number: a simulation with the timeline on gives the same samples as one with it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.board import Board, HostCalls
from stallprobes.engine.sim.device import GpuContext, SimGpu, SimStream
from stallprobes.engine.sim.histogram_writer import HistogramWriter
from stallprobes.engine.sim.jobs import ContextQueue, Job
from stallprobes.model import TIMELINE_PHASES, Channel, Probe, StreamKind
from stallprobes.native.layouts.board import CALL_FIRST, CALL_MEASURED, HOST_CALLS, GpuRecord
from stallprobes.native.layouts.cupti import CopyKind, MemoryKind, RecordKind, SwitchOperation
from stallprobes.native.layouts.program import NONE
from stallprobes.records.timeline import OFF, TimelineStatus

Int64s = NDArray[np.int64]

_PAGEABLE, _PINNED, _DEVICE = MemoryKind.PAGEABLE, MemoryKind.PINNED, MemoryKind.DEVICE


@dataclass(frozen=True)
class WorkKind:
    """A kind of work as CUPTI would record it: the kind of its record, its direction, source and target memory."""

    record: RecordKind
    copy: CopyKind = CopyKind.UNKNOWN
    source: MemoryKind = MemoryKind.UNKNOWN
    target: MemoryKind = MemoryKind.UNKNOWN


# Names (``Job.what``) of the two copies of a staged copy to another GPU: _FIRST_HALF into host memory, _SECOND_HALF out
# of host memory.
_FIRST_HALF, _SECOND_HALF = "staged peer out", "staged peer in"
# Name (``Job.what``) of a copy from the host to a GPU that is not the GPU of the copy's stream.
_FOREIGN = "foreign h2d"

# Kind of record, kind of copy and kinds of memory of each simulated work, by ``Job.what``. Other jobs (events, host
# functions, the driver's own work) have no record.
WORK_KINDS = {
    "kernel": WorkKind(RecordKind.KERNEL),
    "graph": WorkKind(RecordKind.KERNEL),
    "d2d": WorkKind(RecordKind.COPY, CopyKind.DEVICE_TO_DEVICE, _DEVICE, _DEVICE),
    "d2h": WorkKind(RecordKind.COPY, CopyKind.DEVICE_TO_HOST, _DEVICE, _PINNED),
    "h2d": WorkKind(RecordKind.COPY, CopyKind.HOST_TO_DEVICE, _PINNED, _DEVICE),
    _FOREIGN: WorkKind(RecordKind.PEER_COPY, CopyKind.PEER, _PINNED, _DEVICE),
    "inline": WorkKind(RecordKind.COPY, CopyKind.HOST_TO_DEVICE, _PAGEABLE, _DEVICE),
    "staged d2h": WorkKind(RecordKind.COPY, CopyKind.DEVICE_TO_HOST, _DEVICE, _PAGEABLE),
    "staged h2d": WorkKind(RecordKind.COPY, CopyKind.HOST_TO_DEVICE, _PAGEABLE, _DEVICE),
    "peer": WorkKind(RecordKind.PEER_COPY, CopyKind.PEER, _DEVICE, _DEVICE),
    _FIRST_HALF: WorkKind(RecordKind.COPY, CopyKind.DEVICE_TO_HOST, _DEVICE, _DEVICE),
    _SECOND_HALF: WorkKind(RecordKind.COPY, CopyKind.HOST_TO_DEVICE, _DEVICE, _DEVICE),
}
# Kinds of CUPTI records that the simulated timeline has.
KINDS = (*sorted({int(kind.record) for kind in WORK_KINDS.values()}), int(RecordKind.CONTEXT_SWITCH))


@dataclass(slots=True)
class TracedCall:
    """A call while the timeline is on.

    ``returned_ns`` is None until it has returned, ``bits`` are those of the ring. ``counted``: the phases of its first
    work are; later work of the call does not count, but for the second half of a staged copy to another GPU, whose
    first half took ``staged_ns``.
    """

    caller: TracedThread
    op: int
    iteration: int
    began_ns: int
    returned_ns: int | None = None
    bits: int = 0
    counted: bool = False
    staged_ns: int | None = None


@dataclass(slots=True)
class _Work:
    """A piece of work, with the call that submitted it."""

    job: Job
    stream: SimStream
    call: TracedCall


@dataclass
class TracedThread:
    """A probe's thread: its number on the board, its section, and its call in flight.

    ``rows`` are the histograms of each op's phases, in the order of TIMELINE_PHASES: of the phase, and of the op's
    label. ``on``: calls are recorded.
    """

    number: int
    writer: HistogramWriter
    host_calls: HostCalls
    rows: tuple[tuple[tuple[int, ...], ...], ...]
    call: TracedCall | None = None
    on: bool = False

    def begin(self, op: int, began_ns: int) -> None:
        """A call of the op with index ``op`` begins."""
        self.call = TracedCall(self, op, self.writer.words.iterations, began_ns)

    def end(self, returned_ns: int, measured: bool, first: bool) -> None:
        """The call has returned."""
        call, self.call = self.call, None
        if call is None:
            # The timeline was switched on in the middle of it.
            return
        call.returned_ns = returned_ns
        call.bits = (CALL_MEASURED if measured else 0) | (CALL_FIRST if first else 0)
        words = self.writer.words
        head = words.host_calls
        self.host_calls[head % HOST_CALLS] = call.began_ns, returned_ns, call.op | call.bits, call.iteration
        words.host_calls = head + 1

    def count(self, work: Job, call: TracedCall) -> None:
        """Count the phases of a call whose work has ended."""
        assert call.returned_ns is not None
        second = call.staged_ns is not None and work.what == _SECOND_HALF
        if not call.bits & CALL_MEASURED or (call.counted and not second):
            return
        start, early, gpu = self.rows[call.op]
        add = self.writer.first if call.bits & CALL_FIRST else self.writer.count
        if not call.counted:
            call.counted = True
            delay = work.start - call.returned_ns
            for row in start if delay >= 0 else early:
                add(row, abs(delay))
            if work.what == _FIRST_HALF:
                call.staged_ns = work.end - work.start
                return
        before_ns, call.staged_ns = call.staged_ns or 0, None
        for row in gpu:
            add(row, before_ns + work.end - work.start)


@dataclass
class SimTimeline:
    """The timeline of a simulated machine, in the state ``status``. ``on``: records are kept.

    ``refusal`` is its state once it is switched on where a probe excludes it, else None.
    """

    board: Board
    gpus: Sequence[SimGpu]
    refusal: TimelineStatus | None = None
    on: bool = False
    status: TimelineStatus = OFF
    _threads: dict[Any, TracedThread] = field(default_factory=dict)
    _pending: list[_Work] = field(default_factory=list)
    _switches: list[tuple[int, int, ContextQueue, int]] = field(default_factory=list)
    _named: Sequence[GpuContext] = ()
    _contexts: dict[ContextQueue, int] = field(default_factory=dict)
    _streams: dict[SimStream, int] = field(default_factory=dict)
    _clock: Any = None

    def add(self, process: Any, number: int, probe: Probe, writer: HistogramWriter) -> TracedThread:
        """Add the thread of a probe, which ``process`` of the clock runs."""
        part = self.board[probe.name]
        known = {channel: len(part.channels) + place for place, channel in enumerate(part.timeline_channels)}
        rows = tuple(
            tuple(
                tuple(
                    known[channel]
                    for channel in dict.fromkeys((Channel(phase), Channel(phase, op.label)))
                    if channel in known
                )
                for phase in TIMELINE_PHASES
            )
            for op in probe.program.ops
        )
        thread = TracedThread(number, writer, part.host_calls, rows)
        self._threads[process] = thread
        return thread

    def switch(self, on: bool, clock: Any, contexts: Sequence[GpuContext]) -> None:
        """Switch the record on or off; ``contexts`` are the contexts with names."""
        if self.refusal is not None:
            self.status = self.refusal if on else OFF
            return
        if on == self.on:
            return
        self._clock, self._named = clock, contexts
        words = self.board.timeline.words
        if on:
            for context in contexts:
                self._context(context.queue)
                for stream in context.streams:
                    self._stream(stream)
            words.started_ns = words.started_ns or clock.now
        else:
            words.stopped_ns = clock.now
            self.collect(clock.now)
            self._pending.clear()
            for thread in self._threads.values():
                thread.call = None
        for thread in self._threads.values():
            thread.on = on
        self.on = on
        words.on = int(on)
        for index, gpu in enumerate(self.gpus):
            gpu.on_submit = self._submitted if on else None
            gpu.graphics.on_switch = partial(self._switched, index) if on else None
        self.status = TimelineStatus(
            on=on,
            library="simulated",
            kinds=KINDS if on else (),
            contexts={self._context(context.queue): context.name for context in reversed(contexts)},
            streams={
                (self._context(stream.context.queue), number): _stream_name(stream)
                for stream, number in self._streams.items()
                # The driver's own have none.
                if _stream_name(stream)
            },
        )

    def collect(self, now: int) -> None:
        """Write what has ended until ``now``: work whose call has returned, in the order of its starts, and switches.

        Called while the clock stands still, at any interval: the interval changes only which reader sees it when.
        """
        if not self.on:
            return
        # An event of this moment may still pre-empt a job that would end now.
        ready = [work for work in self._pending if work.job.end < now and work.call.returned_ns is not None]
        if ready:
            self._pending = [work for work in self._pending if work.job.end >= now or work.call.returned_ns is None]
        due = [switch for switch in self._switches if switch[0] <= now]
        self._switches = [switch for switch in self._switches if switch[0] > now]
        rows = [self._row(work) for work in ready] + [self._switch_row(*switch) for switch in due]
        for row in sorted(rows, key=lambda row: row.start_ns):
            self.board.timeline.append(row)
        for work in sorted(ready, key=lambda work: work.job.start):
            work.call.caller.count(work.job, work.call)
        words = self.board.timeline.words
        words.collected += len(ready) + len(due)
        words.rounds += 1
        words.collected_ns = now

    def _submitted(self, stream: SimStream, job: Job) -> None:
        if job.what not in WORK_KINDS or not stream.context.queue.traced:
            return
        thread = self._threads.get(self._clock.active_process)
        if thread is not None and thread.call is not None:
            self._pending.append(_Work(job, stream, thread.call))

    def _switched(self, index: int, old: ContextQueue | None, left: int, new: ContextQueue, got: int) -> None:
        if old is new:
            return
        if old is not None and old.traced:
            self._switches.append((left, index, old, SwitchOperation.END))
        if new.traced:
            self._switches.append((got, index, new, SwitchOperation.START))

    def _row(self, work: _Work) -> GpuRecord:
        kind, call, stream = WORK_KINDS[work.job.what], work.call, self._recorded_stream(work)
        return GpuRecord(
            kind=kind.record,
            start_ns=work.job.start,
            end_ns=work.job.end,
            device=stream.context.gpu.index,
            context=self._context(stream.context.queue),
            stream=self._stream(stream),
            probe=call.caller.number,
            op=call.op,
            began_ns=call.began_ns,
            returned_ns=call.returned_ns or 0,
            subkind=kind.copy,
            memory=kind.source | kind.target << 8,
            bytes=work.job.nbytes,
            iteration=call.iteration,
        )

    def _recorded_stream(self, work: _Work) -> SimStream:
        """The stream in the record: as on an H200, that of a copy to another GPU is the driver's own there."""
        if work.job.what == _FOREIGN:
            for context in self._named:
                if context.gpu.to_gpu is work.job.engine:
                    return context.driver_stream
        return work.stream

    def _switch_row(self, at: int, device: int, queue: ContextQueue, operation: int) -> GpuRecord:
        return GpuRecord(
            kind=RecordKind.CONTEXT_SWITCH,
            start_ns=at,
            device=device,
            context=self._context(queue),
            subkind=operation,
            probe=NONE,
            op=NONE,
            began_ns=NONE,
            returned_ns=NONE,
            iteration=NONE,
        )

    def _context(self, queue: ContextQueue) -> int:
        return self._contexts.setdefault(queue, len(self._contexts) + 1)

    def _stream(self, stream: SimStream) -> int:
        return self._streams.setdefault(stream, len(self._streams) + 1)


def _stream_name(stream: SimStream) -> str:
    return "NULL" if stream.kind is StreamKind.NULL else stream.name
