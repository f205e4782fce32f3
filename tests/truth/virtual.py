"""Programs of schedules in virtual time: what they do, what ``watch`` reads of them, and the report that it makes.

Threads, driver and GPU follow the rules of program.c and model_cuda.c, on a machine that does nothing else: the same
schedule gives the same readings everywhere. All work is recorded. CPU time is known exactly, sleep by samples.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import numpy as np

from factories.watch_calls import BASE_NS
from factories.watch_calls import call as in_flight
from factories.watch_calls import process as process_of
from factories.watch_calls import thread as thread_of
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import CopyKind, MemoryKind, OverheadKind, RecordKind
from stallprobes.native.layouts.watch_file import CallFlag, WatchRecord
from stallprobes.records.rows import DRIVER_CALL
from stallprobes.watch.analysis import ProcessAnalysis, watch_findings
from stallprobes.watch.division.cpu_time import CHILDREN, OTHERS
from stallprobes.watch.reading.process import NOTHING_READ, CallBatch, RecordBatch
from stallprobes.watch.report import document
from truth import reading
from truth.replay import PIPE, QUEUE
from truth.schedules import Actor, Operation, Schedule
from truth.truth import CALIBRATION, ENTRY, Trace

# Times (ns) of model_cuda.c; a launch takes as long as one that is watched.
LAUNCH, SHORT_CALL, GRAPH_LAUNCH, LATENCY, GAP, WAKE_UP = 3_500, 900, 7_000, 2_500, 1_000, 5_000
MALLOC, FREE_HOST, LOAD, MALLOC_PER_MIB, PIN_PER_MIB = 60_000, 60_000, 3_000_000, 2_000, 150_000
COPY_LATENCY, PAGEABLE_RATE, PINNED_RATE = 8_000, 10, 50
# Times (ns) that the system takes to wake a thread, to end a sleep, and to start a process.
WOKEN, OVERSLEPT, STARTED = 20_000, 55_000, 600_000
# Time (ns) between two queries of a thread that polls, from one reading to the next, and between samples of sleep.
POLLS, READS, SAMPLES = 20_000, 250_000_000, 20_000_000
# Number of calls from which on a program ends early, and the shortest time (s) that it runs.
MOST_CALLS, LEAST_S = 120_000, 3.5
# What a thread does between two times: on a CPU, asleep inside a call, or asleep for a reason by its column of samples.
CPU, INSIDE = -1, -2
OWN, CHILD, OUTSIDE, THREAD = 3, 4, 5, 6
# Fields of a row of ``VirtualProgram.records``.
_FIELDS = (
    "kind", "start", "end", "correlation", "context", "stream", "device", "name", "bytes", "subkind", "source",
    "target",
)  # fmt: skip
# Until when an actor does something, and what; a time of None: until it is woken.
Step = Generator[tuple[int | None, int], int, None]


@dataclass
class _Stream:
    number: int
    tail: int = 0
    awaited: int = 0
    ends: deque[int] = field(default_factory=lambda: deque([0] * QUEUE, QUEUE))


@dataclass
class _Queue:
    items: int = 0
    getting: deque[int] = field(default_factory=deque)
    putting: deque[int] = field(default_factory=deque)


@dataclass
class _Running:
    """An actor: its entries (trace), what it did until when (ns), and its last launch's end."""

    actor: Actor
    thread: int
    chance: Random
    now: int = 0
    entries: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    did: list[tuple[int, int]] = field(default_factory=list)
    last_end: int = 0


class VirtualRun(NamedTuple):
    """A program that has run: its own trace, and the report about it."""

    trace: Trace
    report: reading.Report


class VirtualProgram:
    """A run of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._actors = [
            _Running(actor, 100 + at + 400 * actor.child, Random(schedule.seed * 64 + at))
            for at, actor in enumerate(schedule.actors)
        ]
        self._several = sum(actor.submits for actor in schedule.actors) > 1
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._engines: dict[tuple[int, int], int] = {}
        self._events: dict[int, int] = {}
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._driver_free = 0
        self._heap: list[tuple[int, int, int]] = []
        self._functions: dict[str, int] = {}
        # Rows of calls and of records, in the order in which they were made.
        self.calls: list[tuple[int, ...]] = []
        self.records: list[tuple[int, ...]] = []
        self.begin_ns = BASE_NS + 60_000_000
        self.end_ns = self.begin_ns
        self._run()

    # Actors ---------------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        first = self._actors[0]
        first.now = BASE_NS + 1_000_000
        for function, took in (("cuDevicePrimaryCtxRetain", 30_000_000), ("cuModuleLoadData", LOAD)):
            self._call(first, function, first.now + took)
        for at, running in enumerate(self._actors):
            running.now = self.begin_ns
            heapq.heappush(self._heap, (self.begin_ns, at, at))
        programs = [self._program(at) for at in range(len(self._actors))]
        begun = set[int]()
        while self._heap:
            now, _, at = heapq.heappop(self._heap)
            if at < 0:
                self._put(("queue", -1 - at), now)
                continue
            running = self._actors[at]
            running.now = max(running.now, now)
            try:
                until, what = programs[at].send(running.now) if at in begun else next(programs[at])
            except StopIteration:
                break
            begun.add(at)
            running.did.append((running.now, CPU))
            if until is None:
                running.did.append((-1, what))
            else:
                running.did.append((until, what))
                heapq.heappush(self._heap, (until, len(self.calls), at))
        first.now += 20_000_000
        last = max((stream.tail for stream in self._streams.values()), default=0)
        self._call(first, "cuCtxSynchronize", max(first.now + SHORT_CALL, last + WAKE_UP))
        for running in self._actors:
            running.did.append((first.now, CPU if running is first else OWN))

    def _wake(self, at: int, now: int) -> None:
        running = self._actors[at]
        running.did[-1] = now + WOKEN, running.did[-1][1]
        heapq.heappush(self._heap, (now + WOKEN, len(self.calls), at))

    def _program(self, at: int) -> Step:
        running, operations = self._actors[at], self._actors[at].actor.operations
        left: dict[int, int] = {}
        opens, until = list[int](), self.begin_ns + round(self._schedule.seconds * 1e9)
        least, place = self.begin_ns + round(LEAST_S * 1e9), 0
        begins = {}
        for number, operation in enumerate(operations):
            if operation.kind == "loop":
                opens.append(number)
            elif operation.kind == "end":
                begins[number] = opens.pop()
        while True:
            operation = operations[place]
            if operation.kind == "loop":
                left[place] = operation[0]
            elif operation.kind == "end":
                left[begins[place]] -= 1
                if left[begins[place]] > 0:
                    place = begins[place]
            else:
                begin = running.now
                gpu = yield from getattr(self, f"_do_{operation.kind}")(at, running, operation)
                running.now += 100
                running.entries.append((place, 0, begin, running.now - 50, *(gpu or (0, 0))))
                ends = running.now >= until or (len(self.calls) > MOST_CALLS and running.now >= least)
                if ends and at == 0 and operation.kind == "step":
                    self.end_ns = running.now
                    return
            place = (place + 1) % len(operations)

    def _varied(self, running: _Running, us: int) -> int:
        return round(us * 1000 * (1 + running.chance.uniform(-1, 1) * self._schedule.noise / 100))

    def _pass(self, running: _Running, until: int, what: int) -> Step:
        running.now = yield until, what

    # What a call of the driver takes; other threads are served meanwhile, where there are any.
    def _call(
        self,
        running: _Running,
        function: str,
        end: int,
        stream: _Stream | None = None,
        size: int = 0,
        memory: tuple[int, int] = (0, 0),
        device: int = 0,
    ) -> int:
        number = self._functions.setdefault(function, len(self._functions) + 1)
        handle, flags = (0, 0) if stream is None else (stream.number, int(CallFlag.STREAM))
        self.calls.append(
            (running.now, end, handle, size, 0, running.thread, device + 1, len(self.calls) + 1, number, *memory, flags)
        )
        running.now = end
        return len(self.calls)

    def _record(self, kind: RecordKind, start: int, end: int, number: int, stream: _Stream, **of: int) -> None:
        device = 1 if stream.number > 100 else 0
        values = of.get("bytes", 0), of.get("subkind", 0), of.get("source", 0), of.get("target", 0)
        self.records.append((int(kind), start, end, number, device + 1, stream.number, device, 1, *values))

    def _stream(self, number: int, gpu: int) -> _Stream:
        return self._streams.setdefault((gpu, number), _Stream(13 + number + 100 * gpu))

    def _place(self, stream: _Stream, now: int, ns: int, engine: tuple[int, int] | None = None) -> int:
        begin = max(now + LATENCY, stream.awaited, stream.tail + GAP if stream.tail else 0)
        begin = max(begin, self._engines.get(engine, 0)) if engine else begin
        stream.tail = begin + ns
        if engine:
            self._engines[engine] = stream.tail
        return begin

    # Operations of the host -----------------------------------------------------------------------------------------
    def _do_step(self, at: int, running: _Running, operation: Operation) -> Step:
        return
        yield

    def _do_host(self, at: int, running: _Running, operation: Operation) -> Any:
        took = self._varied(running, operation[0])
        yield from self._pass(running, running.now + took, CPU)
        return took, 0

    def _do_sleep(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._pass(running, running.now + self._varied(running, operation[0]) + OVERSLEPT, OWN)

    def _do_pause(self, at: int, running: _Running, operation: Operation) -> Step:
        took = round(-math.log(1 - running.chance.random()) * operation[0] * 1000)
        yield from self._pass(running, running.now + took + OVERSLEPT, OWN)

    def _do_compile(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._pass(running, running.now + STARTED + self._varied(running, operation[0]), CHILD)

    # Operations of the GPU ------------------------------------------------------------------------------------------
    def _do_launch(self, at: int, running: _Running, operation: Operation) -> Any:
        ns, count, number, gpu = operation.numbers
        stream, first = self._stream(number, gpu), 0
        for place in range(count):
            begin, room = running.now, stream.ends[0]
            if room > begin:
                running.now = room + WAKE_UP
            end = max(running.now, self._driver_free) + LAUNCH
            start = self._place(stream, end, ns)
            first = start if not place else first
            stream.ends.append(stream.tail)
            running.now = begin
            correlation = self._call(running, "cuLaunchKernel", end, stream, device=gpu)
            self._record(RecordKind.KERNEL, start, stream.tail, correlation, stream, subkind=1)
            if room > begin:
                full = int(OverheadKind.COMMAND_BUFFER_FULL)
                self._record(RecordKind.OVERHEAD, begin, room, correlation, stream, subkind=full)
            if self._several or room > begin:
                self._driver_free = max(self._driver_free, end)
                running.last_end = stream.tail
                yield from self._pass(running, end, CPU if room <= begin else INSIDE)
        running.last_end = last = stream.tail
        if not self._several:
            yield from self._pass(running, running.now, CPU)
        return first, last

    def _do_graph(self, at: int, running: _Running, operation: Operation) -> Any:
        ns, count, number, gpu = operation.numbers
        stream = self._stream(number, gpu)
        begin, room = running.now, stream.ends[0]
        end = max(begin, room + WAKE_UP if room > begin else 0) + GRAPH_LAUNCH
        correlation, first = len(self.calls) + 1, 0
        for place in range(count):
            start = self._place(stream, end, ns)
            first = start if not place else first
            self._record(RecordKind.KERNEL, start, stream.tail, correlation, stream, subkind=1)
        stream.ends.append(stream.tail)
        last = stream.tail
        self._call(running, "cuGraphLaunch", end, stream, device=gpu)
        yield from self._pass(running, end, CPU)
        return first, last

    def _do_copy(self, at: int, running: _Running, operation: Operation) -> Any:
        kib, from_gpu, pageable, number = operation.numbers
        stream, size = self._stream(number, 0), kib * 1024
        ns = COPY_LATENCY + size // (PAGEABLE_RATE if pageable else PINNED_RATE)
        start = self._place(stream, running.now, ns, (0, from_gpu))
        end = stream.tail + WAKE_UP if pageable else running.now + LAUNCH
        host = MemoryKind.PAGEABLE if pageable else MemoryKind.PINNED
        memory = (int(MemoryKind.DEVICE), int(host)) if from_gpu else (int(host), int(MemoryKind.DEVICE))
        function = "cuMemcpyDtoHAsync_v2" if from_gpu else "cuMemcpyHtoDAsync_v2"
        correlation = self._call(running, function, end, stream, size, memory)
        direction = CopyKind.DEVICE_TO_HOST if from_gpu else CopyKind.HOST_TO_DEVICE
        self._record(
            RecordKind.COPY, start, stream.tail, correlation, stream,
            bytes=size, subkind=int(direction), source=memory[0], target=memory[1],
        )  # fmt: skip
        yield from self._pass(running, end, INSIDE if pageable else CPU)
        if not pageable:
            return 0, 0
        submitted = running.now
        yield from self._wait(running, "cuStreamSynchronize", stream.tail, stream)
        return submitted, 0

    def _do_record(self, at: int, running: _Running, operation: Operation) -> Step:
        stream = self._stream(operation[1], operation[2])
        self._events[operation[0]] = max(stream.tail, stream.awaited)
        self._call(running, "cuEventRecord", running.now + SHORT_CALL, stream, device=operation[2])
        yield from self._pass(running, running.now, CPU)

    def _do_await(self, at: int, running: _Running, operation: Operation) -> Step:
        stream = self._stream(operation[1], operation[2])
        stream.awaited = max(stream.awaited, self._events.get(operation[0], 0))
        self._call(running, "cuStreamWaitEvent", running.now + SHORT_CALL, stream, device=operation[2])
        yield from self._pass(running, running.now, CPU)

    def _do_callback(self, at: int, running: _Running, operation: Operation) -> Step:
        stream = self._stream(operation[1], operation[2])
        self._place(stream, running.now, GAP)
        heapq.heappush(self._heap, (stream.tail, len(self.calls), -1 - operation[0]))
        self._call(running, "cuLaunchHostFunc", running.now + LAUNCH, stream, device=operation[2])
        yield from self._pass(running, running.now, CPU)

    # Waits ----------------------------------------------------------------------------------------------------------
    def _wait(self, running: _Running, function: str, end: int, stream: _Stream | None = None, gpu: int = 0) -> Step:
        waits = end > running.now
        self._call(running, function, end + WAKE_UP if waits else running.now + SHORT_CALL, stream, device=gpu)
        yield from self._pass(running, running.now, INSIDE if waits else CPU)

    def _end_of(self, gpu: int) -> int:
        return max((stream.tail for (of, _), stream in self._streams.items() if of == gpu), default=0)

    def _do_sync(self, at: int, running: _Running, operation: Operation) -> Step:
        stream = self._stream(operation[0], operation[1])
        yield from self._wait(running, "cuStreamSynchronize", stream.tail, stream, operation[1])

    def _do_sync_event(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._wait(running, "cuEventSynchronize", self._events.get(operation[0], 0))

    def _do_sync_device(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._wait(running, "cuCtxSynchronize", self._end_of(operation[0]), gpu=operation[0])

    def _do_poll(self, at: int, running: _Running, operation: Operation) -> Step:
        stream = self._stream(operation[0], operation[1])
        while True:
            self._call(running, "cuStreamQuery", running.now + SHORT_CALL, stream, device=operation[1])
            yield from self._pass(running, running.now, CPU)
            if stream.tail <= running.now:
                return
            rests = self._varied(running, operation[2]) + OVERSLEPT if operation[2] else POLLS
            yield from self._pass(running, running.now + rests, OWN if operation[2] else CPU)

    def _do_spin(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._pass(running, max(running.last_end + 500, running.now), CPU)

    # Memory and code ------------------------------------------------------------------------------------------------
    def _hold(self, running: _Running, function: str, ns: int, awaited: int = 0, after: int = 0) -> Step:
        begin = running.now
        waited = max(awaited + WAKE_UP if awaited > begin else begin + SHORT_CALL * bool(awaited), begin)
        if after:
            end = waited + after
        else:
            self._driver_free = end = max(waited, self._driver_free) + ns
        self._call(running, function, end)
        if waited > begin:
            yield from self._pass(running, waited, INSIDE)
        yield from self._pass(running, end, CPU)

    def _do_allocate(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._hold(running, "cuMemAlloc_v2", MALLOC + (operation[0] >> 10) * MALLOC_PER_MIB)

    def _do_free(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._hold(running, "cuMemFree_v2", MALLOC, self._end_of(0))

    def _do_pin(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._hold(running, "cuMemHostAlloc", MALLOC + (operation[0] * PIN_PER_MIB >> 10))

    def _do_unpin(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._hold(running, "cuMemFreeHost", FREE_HOST, self._end_of(0))

    def _do_load(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._hold(running, "cuModuleLoadData", LOAD, self._end_of(0))
        yield from self._hold(running, "cuModuleUnload", MALLOC, self._end_of(0))

    # Queues, pipes and locks ----------------------------------------------------------------------------------------
    def _queue(self, name: tuple[str, int]) -> _Queue:
        return self._queues.setdefault(name, _Queue(int(name[0] == "lock")))

    def _put(self, name: tuple[str, int], now: int) -> None:
        queue = self._queue(name)
        queue.items += 1
        if queue.getting:
            self._wake(queue.getting.popleft(), now)

    def _give(self, at: int, running: _Running, name: tuple[str, int], limit: int, what: int) -> Step:
        queue = self._queue(name)
        while limit and queue.items >= limit:
            queue.putting.append(at)
            running.now = yield None, what
        self._put(name, running.now)
        yield from self._pass(running, running.now + 1_000, CPU)

    def _take(self, at: int, running: _Running, name: tuple[str, int], what: int) -> Step:
        queue = self._queue(name)
        while not queue.items:
            queue.getting.append(at)
            running.now = yield None, what
        queue.items -= 1
        if queue.putting:
            self._wake(queue.putting.popleft(), running.now)
        yield from self._pass(running, running.now + 1_000, CPU)

    def _do_put(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._give(at, running, ("queue", operation[0]), operation[1], THREAD)

    def _do_get(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._take(at, running, ("queue", operation[0]), THREAD)

    def _do_send(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._give(at, running, ("pipe", operation[0]), PIPE, OUTSIDE)

    def _do_receive(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._take(at, running, ("pipe", operation[0]), OUTSIDE)

    def _do_lock(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._take(at, running, ("lock", operation[0]), THREAD)

    def _do_unlock(self, at: int, running: _Running, operation: Operation) -> Step:
        yield from self._give(at, running, ("lock", operation[0]), 0, THREAD)

    # What is known of it --------------------------------------------------------------------------------------------
    @property
    def trace(self) -> Trace:
        """What the program wrote down."""
        entries = tuple(np.array([*_alone(running.actor), *running.entries], dtype=ENTRY) for running in self._actors)
        threads = tuple(running.thread for running in self._actors)
        return Trace(self.begin_ns, self.end_ns, entries, threads, (0,) * len(threads))

    def report(self) -> reading.Report:
        """What ``watch`` says of it, by readings while it ran."""
        analysis = ProcessAnalysis()
        for process, records, now, samples, calls, ended in self._readings():
            analysis.feed(process, records, now, samples, {}, NOTHING_READ, calls, ended)
        made = document(watch_findings([analysis.findings()], 0))
        return reading.report_of(made, self._actors[0].thread)

    def _readings(self) -> Iterator[tuple[Any, ...]]:
        calls = np.array(self.calls, dtype=DRIVER_CALL)
        order = np.argsort(calls["returned_ns"], kind="stable")
        records = np.zeros(len(self.records), dtype_of(WatchRecord))
        for name, values in zip(_FIELDS, np.array(self.records, dtype=np.int64).T, strict=True):
            records[name] = values
        records = records[np.argsort(records["end"], kind="stable")]
        functions = {number: name for name, number in self._functions.items()}
        end = self._actors[0].now
        samples, before = self._samples(end), BASE_NS
        threads = [running for running in self._actors if not running.actor.child]
        for now in [*range(BASE_NS + READS, end, READS), end]:
            returned, ended = calls["returned_ns"], records["end"]
            made = calls[order][(returned[order] > before) & (returned[order] <= now)]
            done = records[(ended > before) & (ended <= now)]
            flying = calls[(calls["began_ns"] <= now) & (returned > now)]
            known = [
                thread_of(
                    running.thread,
                    name=running.actor.name,
                    in_flight=[
                        in_flight(
                            functions[int(row["function"])], (int(row["began_ns"]) - BASE_NS) / 1000,
                            correlation=int(row["correlation"]), thread=running.thread, context=int(row["context"]),
                            stream=int(row["stream"]) if row["flags"] else None, size=int(row["bytes"]),
                            source=MemoryKind(int(row["source"])), target=MemoryKind(int(row["target"])),
                        )
                        for row in flying[flying["thread"] == running.thread][:1]
                    ],
                )
                for running in threads
            ]  # fmt: skip
            process = process_of(*known, now=(now - BASE_NS) / 1000)
            process = process.changed(ended_ns=now) if now == end else process
            seen = {key: rows[: int(rows[:, 0].searchsorted(now, "right"))] for key, rows in samples.items()}
            yield (
                process, RecordBatch(done, {1: "_Z4spinPf"}, len(done), 0), now, seen,
                CallBatch(made, functions, 0), now == end,
            )  # fmt: skip
            before = now

    def _samples(self, end: int) -> dict[int, np.ndarray[Any, Any]]:
        times = np.append(np.arange(BASE_NS, end, SAMPLES), end)
        found, children, others = {}, list[Any](), list[Any]()
        submitting = {row[5] for row in self.calls}
        for running in self._actors:
            until, what = (np.array(column) for column in zip(*running.did, strict=True))
            until = np.maximum.accumulate(np.where(until < 0, end, until))
            begins = np.append(BASE_NS, until[:-1])
            used = np.cumsum(np.where(what == CPU, until - begins, 0))
            rows = np.zeros((len(times), 8), dtype=np.int64)
            rows[:, 0] = times
            rows[:, 2] = np.interp(times, np.append(BASE_NS, until), np.append(0, used))
            states = what[np.minimum(until.searchsorted(times, "right"), len(what) - 1)]
            for reason in (OWN, CHILD, OUTSIDE, THREAD):
                rows[1:, reason] = np.cumsum(np.diff(times) * (states[1:] == reason))
            if running.actor.child:
                children.append(rows)
            elif running.thread in submitting:
                found[running.thread] = rows
            else:
                others.append(rows)
        for key, every in ((CHILDREN, children), (OTHERS, others)):
            if every:
                found[key] = max(every, key=lambda rows: int(rows[-1, 2]))
        return found


def _alone(actor: Actor) -> Iterator[tuple[int, int, int, int, int, int]]:
    """The operations of the GPU of an actor, each alone, as in the calibration of program.c."""
    for place, operation in enumerate(actor.operations):
        ns, count = operation[0], operation[1]
        if operation.kind in ("launch", "graph"):
            submits = LAUNCH * count if operation.kind == "launch" else GRAPH_LAUNCH
            yield place, CALIBRATION, 1, 1 + submits, 1, 1 + ns * count + GAP * (count - 1)
        elif operation.kind == "copy":
            took = COPY_LATENCY + ns * 1024 // (PAGEABLE_RATE if operation[2] else PINNED_RATE)
            yield place, CALIBRATION, 1, 1 + (LATENCY + took + WAKE_UP if operation[2] else LAUNCH), 1, 1 + took


def run(schedule: Schedule) -> VirtualRun:
    """Run a schedule in virtual time, watched."""
    program = VirtualProgram(schedule)
    return VirtualRun(program.trace, program.report())
