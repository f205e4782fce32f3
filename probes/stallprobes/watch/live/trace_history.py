"""Traces of watched processes: their calls, GPU work and context tenures on one time axis."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.model import Phase
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import GPU_WORK, RecordKind
from stallprobes.native.layouts.driver_calls import Waits, function_of
from stallprobes.native.layouts.watch_file import WatchRecord
from stallprobes.records.rows import CALL, DRIVER_CALL, OVERHEAD, OWNER, TENURE, WORK, Rows, of_kinds
from stallprobes.records.timeline import TimelineLosses
from stallprobes.traces.trace import (
    OpenCall,
    Trace,
    TracedProbe,
    TraceNames,
    TraceTrigger,
    overlapping,
)
from stallprobes.watch.attribution.findings import ExplainedCall
from stallprobes.watch.attribution.record_store import RecordStore
from stallprobes.watch.division.divider import LAG_NS
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.reading.kernel_names import demangle_all, short_name
from stallprobes.watch.reading.process import CallBatch, RecordBatch, WatchedProcess

# Largest age (ns) of calls and records that are kept for traces, unless --trace writes all of them.
KEEP_NS = 12_000_000_000
# Largest number of GPU records of each process that are kept for traces: the last records.
MOST_RECORDS = 500_000
# Largest number of driver calls of each process that are kept for traces: the last calls.
MOST_CALLS = 500_000
# Largest number of threads in a trace. Calls of further threads are left out.
MOST_THREADS = 64
# Largest number of functions of each thread in a trace. Calls of further functions are left out.
MOST_FUNCTIONS = 64
# Distance between the ranges of context numbers of two processes in a trace. Reason: each process numbers its contexts
# from 1, and the numbers would collide without the ranges.
_CONTEXT_DISTANCE = 1_000_000
# Largest number of bytes of a copy or fill in a trace. A larger number is replaced by this limit.
_MOST_BYTES = 1 << 53
# A process: its id, and how many programs it has executed before.
_ProcessKey = tuple[int, int]


@dataclass(frozen=True)
class TriggeringCall:
    """The call of a thread that a trace is made for; ``end_ns`` is the present for a call in flight."""

    thread: int
    begin_ns: int
    end_ns: int

    @classmethod
    def of(cls, call: ExplainedCall) -> TriggeringCall:
        """A slow call."""
        return cls(call.thread, call.begin_ns, call.end_ns)

    @property
    def duration_ns(self) -> int:
        """Time inside the call."""
        return self.end_ns - self.begin_ns


@dataclass
class _Chunks:
    """Arrays of rows with the times of their readings, oldest first; at most ``most`` rows."""

    most: int
    chunks: deque[tuple[int, NDArray[Any]]] = field(default_factory=deque)

    def add(self, now_ns: int, rows: NDArray[Any]) -> None:
        """Add the rows of a reading at ``now_ns``."""
        if len(rows):
            self.chunks.append((now_ns, rows))

    def drop(self, before_ns: int) -> int:
        """Drop rows read before ``before_ns``, and rows beyond the limit. Returns the last time of those, 0 for
        none."""
        count, left_out_ns = sum(len(rows) for _, rows in self.chunks), 0
        while self.chunks and (self.chunks[0][0] < before_ns or count > self.most):
            at_ns, rows = self.chunks.popleft()
            count -= len(rows)
            left_out_ns = at_ns if at_ns >= before_ns else left_out_ns
        return left_out_ns

    def rows(self, form: np.dtype[Any]) -> NDArray[Any]:
        """All rows."""
        return np.concatenate([np.zeros(0, form), *(rows for _, rows in self.chunks)])


@dataclass
class _Kept:
    """Kept data of a process: records, calls, and the names of kernels and functions."""

    process: WatchedProcess
    records: _Chunks = field(default_factory=lambda: _Chunks(MOST_RECORDS))
    calls: _Chunks = field(default_factory=lambda: _Chunks(MOST_CALLS))
    names: dict[int, str] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    missed: int = 0


class WatchTraceHistory:
    """The last ``keep_ns`` of all processes, from which traces are cut; None keeps everything, within limits.

    ``last_ns`` is the time of the last reading. ``left_out_ns`` is the time up to which rows were too many and dropped,
    0 for none.
    """

    def __init__(self, keep_ns: int | None = KEEP_NS) -> None:
        self._keep_ns = keep_ns
        self._kept: dict[_ProcessKey, _Kept] = {}
        self.last_ns = 0
        self.left_out_ns = 0

    def feed(self, process: WatchedProcess, records: RecordBatch, calls: CallBatch, now_ns: int) -> None:
        """Add a reading of a process at ``now_ns``, with its new records and calls."""
        kept = self._kept.setdefault((process.pid, process.image), _Kept(process))
        kept.process, kept.missed = process, kept.missed + records.missed + calls.missed
        self.last_ns = max(self.last_ns, now_ns)
        kept.names.update(records.names)
        kept.functions.update(calls.functions)
        kept.records.add(now_ns, records.rows)
        kept.calls.add(now_ns, calls.rows)
        before_ns = 0 if self._keep_ns is None else now_ns - self._keep_ns
        self.left_out_ns = max(self.left_out_ns, kept.records.drop(before_ns), kept.calls.drop(before_ns))

    def trace(
        self, begin_ns: int | None = None, end_ns: int | None = None, trigger: TriggeringCall | None = None
    ) -> Trace:
        """The trace of a span, by default of all that is kept."""
        book, several = _ThreadBook(), len(self._kept) > 1
        parts = [
            _ProcessPart(kept, number, several, book) for number, (_, kept) in enumerate(sorted(self._kept.items()))
        ]
        last_ns = self.last_ns if end_ns is None else end_ns
        first_ns = min((part.first_ns for part in parts), default=0) if begin_ns is None else begin_ns
        calls = _sorted(np.concatenate([np.empty(0, CALL), *(part.calls for part in parts)]), "began_ns")
        open_calls = tuple(call for part in parts for call in part.open_calls())
        work = np.concatenate([np.empty(0, WORK), *(part.work() for part in parts)])
        order = np.argsort(work["start_ns"], kind="stable")
        names = [name for part in parts for name in part.kernels()]
        kernels = {number: names[row] for number, row in enumerate(order.tolist()) if names[row]}
        work = work[order]
        work["sequence"] = np.arange(len(work))
        tenures = _sorted(np.array([row for part in parts for row in part.tenures()], TENURE), "start_ns")
        overheads = np.concatenate([np.empty(0, OVERHEAD), *(part.overheads() for part in parts)])
        overheads = _sorted(overheads, "start_ns")
        overheads["sequence"] = np.arange(len(overheads))
        contexts = {number: name for part in parts for number, name in part.contexts().items()}
        offset_ns = parts[0].wall_offset_ns if parts else 0
        whole = Trace(
            begin_ns=first_ns,
            end_ns=max(last_ns, first_ns),
            collected_ns=max(min([last_ns, *(part.collected_ns(self.last_ns) for part in parts)]), first_ns),
            probes=book.probes(),
            names=TraceNames(contexts),
            calls=overlapping(calls, "began_ns", "returned_ns", first_ns, last_ns),
            work=overlapping(work, "start_ns", "end_ns", first_ns, last_ns),
            tenures=overlapping(tenures, "start_ns", "end_ns", first_ns, last_ns),
            overheads=overlapping(overheads, "start_ns", "end_ns", first_ns, last_ns),
            context_switches=len(tenures) > 0,
            losses=TimelineLosses(
                dropped=sum(part.process.lost_records for part in parts), overwritten=sum(part.missed for part in parts)
            ),
            wall_offset_s=offset_ns / 1e9,
            open_calls=tuple(call for call in open_calls if call.since_ns <= last_ns),
            engine_since_ns=int(tenures["start_ns"][0]) if len(tenures) else last_ns,
            kernels=kernels,
            unrecorded=tuple(span for part in parts for span in part.process.windows.off_between(first_ns, last_ns)),
        )
        return whole if trigger is None else whole.changed(trigger=_trigger(whole, book, trigger))


class _ThreadBook:
    """Numbers of the threads that have calls in a trace, and of their functions."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[_ProcessKey, int], int] = {}
        self._labels: list[str] = []
        self._ops: list[dict[str, Phase]] = []
        self._processes: dict[_ProcessKey, int] = {}

    def thread(self, process: WatchedProcess, label: str, thread: int) -> int:
        """The number of a thread, named ``label``; -1 beyond the limit."""
        key = (process.pid, process.image), thread
        if key not in self._numbers and len(self._numbers) < MOST_THREADS:
            self._numbers[key] = len(self._numbers)
            self._processes.setdefault(key[0], len(self._processes) + 1)
            self._labels.append(label)
            self._ops.append({})
        return self._numbers.get(key, -1)

    def op(self, number: int, function: str) -> int:
        """The number of a function of the thread ``number``; -1 beyond the limit."""
        ops = self._ops[number]
        if function not in ops:
            if len(ops) == MOST_FUNCTIONS:
                return -1
            waits = function_of(function).waits in (Waits.STREAM, Waits.CONTEXT, Waits.EVENT)
            ops[function] = Phase.WAIT if waits else Phase.CALL
        return list(ops).index(function)

    def number(self, thread: int) -> int | None:
        """The number of a thread by its id."""
        return next((number for (_, owner), number in self._numbers.items() if owner == thread), None)

    def probes(self) -> tuple[TracedProbe, ...]:
        """The threads as a trace names them."""
        return tuple(
            TracedProbe(label, tuple(ops), phases=tuple(ops.values()), process=self._processes[process])
            for label, ops, (process, _) in zip(self._labels, self._ops, self._numbers, strict=True)
        )


class _ProcessPart:
    """One process of a trace, whose threads get their numbers from ``book``. ``calls`` are rows of the trace.

    ``several``: its threads and contexts are named with the process.
    """

    def __init__(self, kept: _Kept, number: int, several: bool, book: _ThreadBook) -> None:
        self.process, self.missed = kept.process, kept.missed
        self._kept = kept
        self._several = several
        self._offset = number * _CONTEXT_DISTANCE if several else 0
        self._store = RecordStore()
        self._store.add(RecordBatch(kept.records.rows(dtype_of(WatchRecord)), kept.names, 0, 0))
        rows = self._rows = self._store.rows
        self._work = rows[of_kinds(rows, *GPU_WORK) & (rows["end"] >= rows["start"])]
        self._names = {thread.id: thread.name for thread in kept.process.threads}
        self._named = Counter(self._names.values())
        self._book = book
        made = kept.calls.rows(DRIVER_CALL)
        calls = np.zeros(len(made), CALL)
        calls["began_ns"], calls["returned_ns"], calls["measured"] = made["began_ns"], made["returned_ns"], 1
        calls["iteration"] = np.arange(len(made))
        calls["probe"], calls["op"] = self._numbers_of(made["thread"], made["function"])
        numbered = calls["op"] >= 0
        self.calls, self._correlations = calls[numbered], made["correlation"][numbered]

    def _numbers_of(self, threads: NDArray[Any], functions: NDArray[Any]) -> tuple[Int64s, Int64s]:
        """The numbers of threads and of their functions in the trace, -1 beyond the limits."""
        pairs, places = np.unique(int64s(threads) << 16 | int64s(functions), return_inverse=True)
        order = [thread.id for thread in self.process.threads]
        ranks = {thread: rank for rank, thread in enumerate(order)}
        numbers = np.full((len(pairs), 2), -1, dtype=np.int64)
        for at in sorted(range(len(pairs)), key=lambda at: (ranks.get(int(pairs[at]) >> 16, len(order)), at)):
            numbers[at] = self._numbers(int(pairs[at]) >> 16, self._kept.functions[int(pairs[at]) & 0xFFFF])
        return numbers[places.reshape(-1), 0], numbers[places.reshape(-1), 1]

    @property
    def wall_offset_ns(self) -> int:
        """The time since 1970 at 0 ns."""
        started = self.process.started
        return max(started.realtime_ns - started.monotonic_ns, 0)

    @property
    def first_ns(self) -> int:
        """The time of the first event."""
        starts = self._rows["start"][self._rows["start"] > 0]
        times = np.concatenate((int64s(starts), self.calls["began_ns"]))
        return int(times.min()) if len(times) else 0

    def _numbers(self, thread: int, function: str) -> tuple[int, int]:
        name = self._names.get(thread, "")
        # If several threads have one name, the label contains the thread's number.
        if not name or self._named[name] > 1:
            name = f"{name or 'thread'} {thread}"
        label = f"{self.process.name} {self.process.pid} {name}".lstrip() if self._several else name
        number = self._book.thread(self.process, label, thread)
        return number, -1 if number < 0 else self._book.op(number, function)

    def collected_ns(self, read_ns: int) -> int:
        """Time (ns) up to which the GPU work of the process is known, if its file was read at ``read_ns``."""
        if self.process.ended_ns is not None:
            return read_ns
        return max(read_ns - LAG_NS, min(int(self._work["end"].max(initial=0)), read_ns))

    def open_calls(self) -> Iterator[OpenCall]:
        """The calls in flight."""
        if self.process.ended_ns is not None:
            return
        for thread in self.process.threads:
            for call in thread.in_flight[:1]:
                number, op = self._numbers(call.thread, call.function)
                if op >= 0:
                    yield OpenCall(number, op, call.begin_ns)

    def work(self) -> Rows:
        """The GPU work as rows of a trace, each with the call that submitted it."""
        rows = self._work
        work = np.zeros(len(rows), WORK)
        for column in ("kind", "device", "stream", "correlation"):
            work[column] = rows[column]
        kernels = rows["kind"] == int(RecordKind.KERNEL)
        work["subkind"] = np.where(kernels, 0, rows["subkind"])
        work["start_ns"], work["end_ns"] = rows["start"], rows["end"]
        work["context"] = int64s(rows["context"]) + self._offset
        work["memory"] = int64s(rows["source"]) | int64s(rows["target"]) << 8
        work["bytes"] = np.where(kernels, 0, np.minimum(rows["bytes"], _MOST_BYTES))
        for column in OWNER[:3]:
            work[column] = -1
        # The last of those with one number, which starts again after 2**32 calls.
        order = np.argsort(self._correlations, kind="stable")
        places = np.searchsorted(self._correlations[order], rows["correlation"], "right") - 1
        if len(order):
            callers = order[places]
            owned = (places >= 0) & (self._correlations[callers] == rows["correlation"]) & (rows["correlation"] != 0)
            for column in OWNER:
                work[column][owned] = self.calls[column][callers[owned]]
        return work

    def kernels(self) -> list[str]:
        """The kernel's name of each row of ``work``, "" for other work."""
        places = np.where(self._work["kind"] == int(RecordKind.KERNEL), self._work["name"], 0)
        names = self._kept.names
        mangled = {place: names[place] for place in np.unique(places).tolist() if place in names}
        functions = demangle_all(mangled.values())
        shown = {place: short_name(functions[name]) for place, name in mangled.items()}
        return [shown.get(place, "") for place in places.tolist()]

    def overheads(self) -> Rows:
        """The driver's overhead as rows of a trace."""
        chosen = self._rows["kind"] == int(RecordKind.OVERHEAD)
        rows = self._rows[chosen & (self._rows["end"] >= self._rows["start"])]
        overheads = np.zeros(len(rows), OVERHEAD)
        overheads["subkind"], overheads["start_ns"], overheads["end_ns"] = rows["subkind"], rows["start"], rows["end"]
        return overheads

    def tenures(self) -> Iterator[tuple[int, int, int]]:
        """The tenures as rows of a trace."""
        for tenures in self._store.tenures().values():
            contexts = (tenures.contexts + self._offset).tolist()
            yield from zip(contexts, tenures.starts.tolist(), tenures.ends.tolist(), strict=True)

    def contexts(self) -> dict[int, str]:
        """Names of the contexts, where several processes have the same numbers."""
        if not self._several:
            return {}
        numbers = np.unique(self._rows["context"]).tolist()
        who = f"{self.process.name} {self.process.pid}".lstrip()
        return {number + self._offset: f"context {number} of {who}" for number in numbers}


def _sorted(rows: Rows, by: str) -> Rows:
    return rows[np.argsort(rows[by], kind="stable")]


def _trigger(trace: Trace, book: _ThreadBook, call: TriggeringCall) -> TraceTrigger | None:
    """``call`` as the trigger; None if the trace does not have it."""
    number = book.number(call.thread)
    if number is None:
        return None
    matches = (trace.calls["probe"] == number) & (trace.calls["began_ns"] == call.begin_ns)
    flying = any(open_call.probe == number and open_call.since_ns == call.begin_ns for open_call in trace.open_calls)
    return TraceTrigger(number, call.begin_ns, call.end_ns) if flying or matches.any() else None
