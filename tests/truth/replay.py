"""Replay of a trace: the recorded operations again, in the order that they depend on, with some causes removed.

Each operation has its own time, without what it waited for: that is found again. Work of a GPU begins when it is
submitted, what is before it on its stream has ended, and the events for which it waits have happened; kernels of
different streams run beside each other, copies of one direction do not. Times are nanoseconds.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from truth.schedules import CLIENT, FEEDS, MAIN, MAX_OPERATIONS, STEPS_AHEAD, Operation

# Times (ns) of a GPU that the replay assumes. LATENCY_NS: from the submission of work to its start. GAP_NS: between two
# operations of a stream, and for a host function. Gaps between kernels of one launch are recorded, not assumed.
LATENCY_NS, GAP_NS = 3_000, 1_000
# Largest number of kernels pending on a stream; a further launch waits for room.
QUEUE = 1024
# Capacity (items) of a pipe, as set in program.c.
PIPE = 4
# Cause of the time that an operation takes on the host, by kind of operation and role of its actor.
_HOST_CAUSES = {
    ("host", MAIN): "host", ("host", FEEDS): "input", ("sleep", MAIN): "own sleep", ("pause", CLIENT): "idle",
    ("compile", MAIN): "compiling", ("pin", MAIN): "allocation", ("allocate", MAIN): "allocation",
    ("free", MAIN): "allocation", ("unpin", MAIN): "allocation", ("load", MAIN): "loading",
    ("launch", MAIN): "submission", ("graph", MAIN): "submission",
}  # fmt: skip
# Kinds of operations that hold the driver's lock. Launches and operations of these kinds wait for the lock.
_HOLDS_DRIVER = frozenset({"allocate", "pin", "unpin", "load"})
# Shortest duration (ns) of an operation. With 0, an actor that repeats instant operations would stop the clock.
_INSTANT = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One recorded operation of an actor. ``gap_ns`` passed before it, ``delay_ns`` of it without a CPU. ``gpu_ns`` is
    the own time of its work on the GPU, ``kernel_ns`` without the gaps between its kernels."""

    operation: Operation
    own_ns: int
    gap_ns: int = 0
    delay_ns: int = 0
    gpu_ns: int = 0
    kernel_ns: int = 0


@dataclass
class ReplayActor:
    """The rows of an actor, which it begins again if it needs more."""

    rows: Sequence[Row]
    role: str = MAIN
    at: int = 0
    gpus: set[int] = field(default_factory=set)

    def next(self) -> Row:
        """Its next row."""
        row = self.rows[self.at % len(self.rows)]
        self.at += 1
        return row


@dataclass
class _Stream:
    tail: float = 0.0
    awaited: float = 0.0
    used: bool = False
    # Of each launch: how many kernels were submitted until then, when it began and ended, how many it has.
    counts: list[int] = field(default_factory=list)
    spans: list[tuple[float, float, int]] = field(default_factory=list)


@dataclass
class _Queue:
    items: int = 0
    getting: deque[tuple[int, Row]] = field(default_factory=deque)
    putting: deque[tuple[int, Row]] = field(default_factory=deque)


class Replay:
    """Runs actors until the first has made its rows; ``steps`` are the times at which the work of each was done."""

    def __init__(self, actors: Sequence[tuple[Sequence[Row], str]], removed: Collection[str] = ()) -> None:
        self.steps: list[float] = []
        self._removed = frozenset(removed)
        self._actors = [ReplayActor(rows, role) for rows, role in actors if rows or role == MAIN]
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._engines: dict[int, float] = {}
        self._events: dict[int, tuple[float, int]] = {}
        self._queues: dict[str, _Queue] = {}
        # Of actors that were woken for a lock: their rows.
        self._retries: dict[int, Row] = {}
        self._last_launch: dict[int, float] = {}
        named = (row.operation for rows, _ in actors for row in rows[:MAX_OPERATIONS])
        self._from_gpu = {operation[0] for operation in named if operation.kind == "callback"}
        self._driver_free = 0.0
        self._work_end = 0.0
        self._tails: list[float] = []
        self._heap: list[tuple[float, int]] = []
        kinds = {row.operation.kind for rows, _ in actors for row in rows}
        self._methods = {kind: getattr(self, f"_do_{kind}", self._compute) for kind in kinds}
        for number, actor in enumerate(self._actors):
            if actor.rows:
                self._push(number, 0.0)
        first = self._actors[0]
        while self._heap and first.at <= len(first.rows):
            time, number = heapq.heappop(self._heap)
            if number < 0:
                self._arrive(self._queue(f"queue {-1 - number}"), time)
            else:
                self._perform(number, time)

    def _push(self, number: int, end: float) -> None:
        """Have an actor go on with its next row."""
        actor = self._actors[number]
        row = actor.rows[actor.at % len(actor.rows)]
        gap = 0 if actor.role == MAIN and "host" in self._removed else row.gap_ns
        heapq.heappush(self._heap, (max(end + gap, end + _INSTANT), number))

    def _perform(self, number: int, now: float) -> None:
        actor = self._actors[number]
        if number == 0 and actor.at >= len(actor.rows):
            actor.at += 1
            return
        row = self._retries.pop(number, None) or actor.next()
        end = self._methods[row.operation.kind](number, row, now)
        if end is not None:
            self._push(number, end)

    def _own(self, number: int, row: Row) -> float:
        """Time of an operation on the host; 0 if its cause is removed."""
        role = self._actors[number].role
        cause = _HOST_CAUSES.get((row.operation.kind, role))
        if cause in self._removed or (cause == "submission" and "host" in self._removed):
            return 0.0
        return row.own_ns + (0 if "CPUs" in self._removed and role == MAIN else row.delay_ns)

    def _compute(self, number: int, row: Row, now: float) -> float:
        holds = row.operation.kind in _HOLDS_DRIVER and "allocation" not in self._removed
        if holds and "locks" not in self._removed:
            now = max(now, self._driver_free)
        end = now + self._own(number, row)
        if holds:
            self._driver_free = end
        return end

    # Work of the GPU ------------------------------------------------------------------------------------------------
    def _stream(self, stream: int, gpu: int) -> _Stream:
        return self._streams.setdefault((gpu, stream), _Stream())

    def _place(
        self, number: int, stream: _Stream, submitted: float, duration: float, least_end: float = 0.0
    ) -> tuple[float, float]:
        gap = GAP_NS if stream.used and "gaps" not in self._removed else 0.0
        begin = max(submitted + LATENCY_NS, stream.tail + gap, stream.awaited)
        end = max(begin + duration, least_end)
        stream.tail, stream.used = end, True
        if self._actors[number].role == MAIN:
            self._work_end = max(self._work_end, end)
        return begin, end

    def _room(self, stream: _Stream, count: int) -> float:
        """When there is room in the queue of a stream for the last of ``count`` launches."""
        last = (stream.counts[-1] if stream.counts else 0) + count - QUEUE
        if last <= 0:
            return 0.0
        at = min(bisect_right(stream.counts, last - 1), len(stream.counts) - 1)
        begin, end, kernels = stream.spans[at]
        return end - (end - begin) * max(stream.counts[at] - last, 0) / kernels

    def _do_launch(self, number: int, row: Row, now: float) -> float:
        _, count, at, gpu = row.operation.numbers
        self._actors[number].gpus.add(gpu)
        stream = self._stream(at, gpu)
        begin = max(now, 0.0 if "locks" in self._removed else self._driver_free)
        end = max(begin + self._own(number, row), self._room(stream, count))
        whole = row.kernel_ns if "gaps" in self._removed else row.gpu_ns
        whole = 0 if "kernels" in self._removed else whole
        # The first kernel starts once it is submitted, the last one after its own submission.
        submitted = begin + (end - begin) / count
        span = self._place(number, stream, submitted, whole, end + LATENCY_NS + whole / count)
        stream.counts.append((stream.counts[-1] if stream.counts else 0) + count)
        stream.spans.append((*span, count))
        self._last_launch[number] = stream.tail
        return end

    def _do_graph(self, number: int, row: Row, now: float) -> float:
        gpu = row.operation[3]
        self._actors[number].gpus.add(gpu)
        stream = self._stream(row.operation[2], gpu)
        end = now + self._own(number, row)
        whole = row.kernel_ns if "gaps" in self._removed else row.gpu_ns
        self._place(number, stream, end, 0 if "kernels" in self._removed else whole)
        return end

    def _do_copy(self, number: int, row: Row, now: float) -> float:
        direction, pageable = row.operation[1], row.operation[2]
        stream = self._stream(row.operation[3], 0)
        duration = 0.0 if "copies" in self._removed else float(row.gpu_ns)
        stream.awaited = max(stream.awaited, self._engines.get(direction, 0.0))
        if pageable and "waits" in self._removed:
            self._place(number, stream, now - LATENCY_NS, duration)
            return now + min(row.own_ns, duration)
        _, end = self._place(number, stream, now + (0 if pageable else row.own_ns) - LATENCY_NS, duration)
        self._engines[direction] = end
        return end + (0 if "CPUs" in self._removed else row.delay_ns) if pageable else now + row.own_ns

    def _do_callback(self, number: int, row: Row, now: float) -> float:
        _, end = self._place(number, self._stream(row.operation[1], row.operation[2]), now + row.own_ns, GAP_NS)
        # The number stands for the queue.
        heapq.heappush(self._heap, (end, -1 - row.operation[0]))
        return now + row.own_ns

    def _do_record(self, number: int, row: Row, now: float) -> float:
        event, at, gpu = row.operation[0], row.operation[1], row.operation[2]
        stream = self._stream(at, gpu)
        self._events[event] = (max(stream.tail, stream.awaited), gpu)
        return now + row.own_ns

    def _do_await(self, number: int, row: Row, now: float) -> float:
        time, other = self._events.get(row.operation[0], (0.0, 0))
        gpu = row.operation[2]
        if ("turns" if other != gpu else "queued") not in self._removed:
            stream = self._stream(row.operation[1], gpu)
            stream.awaited = max(stream.awaited, time)
        return now + row.own_ns

    # Waits ----------------------------------------------------------------------------------------------------------
    def _wait(self, number: int, row: Row, now: float, end: float) -> float:
        actor = self._actors[number]
        # Those of another program part remain: without them, its work would take the program's place in a stream.
        removed = "waits" in self._removed and actor.role == MAIN
        removed |= "turns" in self._removed and len(actor.gpus) > 1
        return now + _INSTANT if removed else self._end(row, max(now, end))

    def _do_sync(self, number: int, row: Row, now: float) -> float:
        return self._wait(number, row, now, self._stream(row.operation[0], row.operation[1]).tail)

    def _do_poll(self, number: int, row: Row, now: float) -> float:
        # One that sleeps between its queries sleeps on for a part of that.
        slept = 0 if "own sleep" in self._removed else row.own_ns
        end = self._do_sync(number, row, now)
        return end - row.own_ns + slept if row.operation[2] and "waits" not in self._removed else end

    def _do_sync_event(self, number: int, row: Row, now: float) -> float:
        return self._wait(number, row, now, self._events.get(row.operation[0], (0.0, 0))[0])

    def _do_sync_device(self, number: int, row: Row, now: float) -> float:
        return self._wait(number, row, now, self._end_of_gpu(row.operation[0]))

    def _do_spin(self, number: int, row: Row, now: float) -> float:
        return self._wait(number, row, now, self._last_launch.get(number, 0.0))

    def _do_free(self, number: int, row: Row, now: float) -> float:
        waits = 0.0 if "allocation" in self._removed else self._end_of_gpu(0)
        return max(now, waits) + self._own(number, row)

    def _do_unpin(self, number: int, row: Row, now: float) -> float:
        return self._compute(number, row, max(now, 0.0 if "allocation" in self._removed else self._end_of_gpu(0)))

    def _do_load(self, number: int, row: Row, now: float) -> float:
        return self._compute(number, row, max(now, 0.0 if "loading" in self._removed else self._end_of_gpu(0)))

    def _end_of_gpu(self, gpu: int) -> float:
        return max((stream.tail for (of, _), stream in self._streams.items() if of == gpu), default=0.0)

    def _do_step(self, number: int, row: Row, now: float) -> float:
        if number:
            return now
        self.steps.append(max(now, self._work_end))
        self._tails.append(self._work_end)
        ahead = "waits" in self._removed and len(self._tails) > STEPS_AHEAD
        return max(now, self._tails[-1 - STEPS_AHEAD]) if ahead else now

    # Queues, pipes and locks ----------------------------------------------------------------------------------------
    def _queue(self, name: str) -> _Queue:
        return self._queues.setdefault(name, _Queue(int(name.startswith("lock"))))

    def _arrive(self, queue: _Queue, now: float) -> None:
        if queue.getting:
            number, row = queue.getting.popleft()
            self._push(number, self._end(row, now))
        else:
            queue.items += 1

    def _end(self, row: Row, now: float) -> float:
        """When a row ends that waits no more."""
        return now + row.own_ns + (0 if "CPUs" in self._removed else row.delay_ns)

    def _give(self, number: int, row: Row, name: str, limit: int, now: float) -> float | None:
        queue = self._queue(name)
        if limit and queue.items >= limit:
            queue.putting.append((number, row))
            return None
        self._arrive(queue, now)
        return self._end(row, now)

    def _take(self, number: int, row: Row, name: str, now: float) -> float | None:
        queue = self._queue(name)
        if not queue.items:
            queue.getting.append((number, row))
            return None
        queue.items -= 1
        if queue.putting:
            other, waiting = queue.putting.popleft()
            queue.items += 1
            self._push(other, self._end(waiting, now))
        return self._end(row, now)

    def _do_put(self, number: int, row: Row, now: float) -> float | None:
        return self._give(number, row, f"queue {row.operation[0]}", row.operation[1], now)

    def _do_get(self, number: int, row: Row, now: float) -> float | None:
        # What a host function puts is a wait for the GPU.
        if "waits" in self._removed and row.operation[0] in self._from_gpu:
            return now + _INSTANT
        return self._take(number, row, f"queue {row.operation[0]}", now)

    def _do_send(self, number: int, row: Row, now: float) -> float | None:
        return self._give(number, row, f"pipe {row.operation[0]}", PIPE, now)

    def _do_receive(self, number: int, row: Row, now: float) -> float | None:
        return self._take(number, row, f"pipe {row.operation[0]}", now)

    def _do_lock(self, number: int, row: Row, now: float) -> float | None:
        """A lock goes to who asks first once it is free: also before a thread that sleeps for it has been woken."""
        if "locks" in self._removed:
            return now
        queue = self._queue(f"lock {row.operation[0]}")
        if queue.items:
            queue.items = 0
            return now
        self._retries[number] = row
        queue.getting.append((number, row))
        return None

    def _do_unlock(self, number: int, row: Row, now: float) -> float:
        queue = self._queue(f"lock {row.operation[0]}")
        queue.items = 1
        if queue.getting:
            other, waiting = queue.getting.popleft()
            heapq.heappush(self._heap, (self._end(waiting, now) + _INSTANT, other))
        return self._end(row, now)
