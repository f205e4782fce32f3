"""When windows with records have settled, where no call of the program says so: by the work submitted in them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import Waits, function_of
from stallprobes.native.layouts.watch_file import SWITCHED
from stallprobes.records.rows import Rows, of_kinds, rows_where
from stallprobes.watch.reading.process import CallBatch, RecordBatch, WatchedProcess
from stallprobes.watch.reading.record_windows import NEVER, Int64s, RecordWindows

# Number of a process's last windows (times with or without records) in which stallscope still searches for the time
# from which on all GPU work was recorded. Reason for the limit: all records of older windows have been read.
LOOKED_AT = 16
# In this time (ns) before records are switched on, the log certainly has all calls. Earlier, frequent calls may be
# missing in the log. Reason: the library logs frequent calls again 50 ms before the switch (RESUME_MS in windows.c).
_FOLLOWED_NS = 40_000_000
# Correlation number that stands for "no call", above that of any call.
_NO_CALL = 2**32 - 1
# Largest number of streams of a process at which times without GPU work are searched for in the process's calls. With
# more streams, no time counts as a time without work.
_MOST_STREAMS = 64
# Number of the last readings whose calls are kept individually, to find the state of the queues at a past time. Two
# readings are needed: a window that begins during a reading is seen only by the next reading. The third reading is a
# reserve.
_KEPT_READINGS = 3

Stream = tuple[int, int]
# Calls of a reading that submit work, or wait for that of a stream or a context, with flags of the two sorts of waits.
_QueueCalls = tuple[Rows, NDArray[np.bool_], NDArray[np.bool_]]


class EmptyQueues:
    """Times at which a process has no work on the GPU, by its calls: each stream that it used was waited for since.

    It has the last submission to each stream, and the last wait for it, of all readings so far.
    """

    def __init__(self) -> None:
        self._recent: deque[_QueueCalls] = deque()
        # By context and handle, until the readings that are kept: the end of the last submission, and the begin of the
        # last wait; waits for a whole context by its number alone.
        self._submitted: dict[Stream, int] = defaultdict(int)
        self._waited: dict[Stream, int] = defaultdict(int)
        self._of_contexts: dict[int, int] = defaultdict(int)
        # More streams are used than the limit.
        self._gave_up = False

    def add(self, calls: CallBatch) -> None:
        """Add the calls of a reading."""
        if self._gave_up:
            return
        size = max(calls.functions, default=0) + 1
        submits, waits, contexts, copies = np.zeros((4, size), dtype=np.bool_)
        for number, name in calls.functions.items():
            function = function_of(name)
            submits[number] = function.submits
            waits[number], contexts[number] = (function.waits is each for each in (Waits.STREAM, Waits.CONTEXT))
            copies[number] = function.waits is Waits.COPY and "DtoH" in name
        functions = calls.rows["function"]
        # It returns once it is done.
        copied = copies[functions] & (calls.rows["target"] == int(MemoryKind.PAGEABLE))
        chosen = submits[functions] | waits[functions] | contexts[functions]
        rows = rows_where(calls.rows, chosen)
        if len(self._submitted.keys() | set(_handles(rows))) > _MOST_STREAMS:
            self._gave_up = True
            self._recent.clear()
            return
        self._recent.append((rows, (waits[functions] | copied)[chosen], contexts[functions][chosen]))
        if len(self._recent) > _KEPT_READINGS:
            self._submitted, self._waited, self._of_contexts = self._until(None)
            self._recent.popleft()

    def are_empty(self, at_ns: int, followed_ns: int, every: bool) -> bool:
        """Whether no work runs at ``at_ns``, which is within the last readings.

        Submissions are known from ``followed_ns`` on, or ``every`` one is; streams of which none is known are empty.
        """
        if self._gave_up:
            return False
        submitted, waited, of_contexts = self._until(at_ns)
        return bool(submitted) and all(
            max(ns, 0 if every else followed_ns) <= max(waited.get(stream, 0), of_contexts.get(stream[0], 0))
            for stream, ns in submitted.items()
        )

    def _until(self, at_ns: int | None) -> tuple[dict[Stream, int], dict[Stream, int], dict[int, int]]:
        """The last submissions and waits until a time, or those of the oldest reading that is kept and before."""
        submitted, waited = (defaultdict(int, each) for each in (self._submitted, self._waited))
        of_contexts = defaultdict(int, self._of_contexts)
        for rows, waits, contexts in [self._recent[0]] if at_ns is None else self._recent:
            begun = np.ones(len(rows), dtype=np.bool_) if at_ns is None else rows["began_ns"] < at_ns
            done = begun if at_ns is None else rows["returned_ns"] <= at_ns
            for stream, ns in _latest(rows_where(rows, begun & ~waits & ~contexts), "returned_ns"):
                submitted[stream] = max(submitted[stream], ns)
            for stream, ns in _latest(rows_where(rows, done & waits), "began_ns"):
                waited[stream] = max(waited[stream], ns)
            for (context, _), ns in _latest(rows_where(rows, done & contexts), "began_ns"):
                of_contexts[context] = max(of_contexts[context], ns)
        return submitted, waited, of_contexts


def _handles(rows: Rows) -> list[Stream]:
    """The streams of calls."""
    contexts, handles = rows["context"], rows["stream"]
    # Most calls name the stream of the one before.
    other = np.append(True, (handles[1:] != handles[:-1]) | (contexts[1:] != contexts[:-1]))[: len(rows)]
    return list(dict.fromkeys(zip(contexts[other].tolist(), handles[other].tolist(), strict=True)))


def _latest(rows: Rows, name: str) -> Iterator[tuple[Stream, int]]:
    """The latest time of the calls of each stream."""
    for context, handle in _handles(rows):
        yield (context, handle), int(rows[name][(rows["context"] == context) & (rows["stream"] == handle)].max())


@dataclass
class _Window:
    """A window that has not settled: the number of the first call that began in it, and when its own work first started
    in each stream; ``before`` are the streams of the window with records before it."""

    correlation: int = _NO_CALL
    begin_ns: int = NEVER
    starts: dict[int, int] = field(default_factory=dict)
    before: frozenset[int] = frozenset()

    @property
    def start_ns(self) -> int:
        """When it has settled, by what is known: what was submitted before may still run in each stream."""
        if self.begin_ns < NEVER or not self.starts or self.before - self.starts.keys():
            return self.begin_ns
        return max(self.starts.values())


class WindowSettler:
    """Finds when windows with records settled in programs that never wait inside a call, as JAX does by host functions.

    The library takes the return of a call that waits for the GPU as the end of all work that was submitted without
    records. Work that was submitted in the window shows as much, once each stream has some: what is before it in its
    stream has ended when it starts. Calls are numbered in the order of their begins. A window that begins while no work
    runs, by the calls before it, is settled at once.
    """

    def __init__(self) -> None:
        # Windows by begin; then those that are no longer searched, as int64[n] of begins and starts.
        self._windows: dict[int, _Window] = {}
        self._older = np.zeros((2, 0), dtype=np.int64)
        self._queues = EmptyQueues()
        self._last: _Window | None = None

    def feed(self, process: WatchedProcess, records: RecordBatch, calls: CallBatch) -> WatchedProcess:
        """The process with what is known of its windows, after a reading with new records and calls."""
        windows = process.windows
        self._queues.add(calls)
        first = max(len(windows) - LOOKED_AT, 0)
        unsettled = np.flatnonzero(windows.on[first:] & (windows.settled[first:] == NEVER)) + first
        if not len(unsettled) and not self._windows and not self._older.size:
            return process
        began = calls.rows["began_ns"].astype(np.int64)
        work = rows_where(records.rows, of_kinds(records.rows, *SWITCHED))
        starts = work["start"].astype(np.int64)
        for at in unsettled.tolist():
            begin_ns, end_ns = int(windows.begins[at]), int(windows.ends[at])
            if begin_ns not in self._windows:
                before = frozenset(self._last.starts) if self._last is not None else frozenset()
                self._windows[begin_ns] = _Window(begin_ns=self._begins_empty(process, at), before=before)
                self._last = self._windows[begin_ns]
            window = self._windows[begin_ns]
            inside = calls.rows["correlation"][(began >= begin_ns) & (began < end_ns)]
            window.correlation = min(window.correlation, int(inside.min(initial=_NO_CALL)))
            own = (work["correlation"] >= window.correlation) & (starts >= begin_ns) & (starts < end_ns)
            for stream, start_ns in _first(work[own], starts[own]):
                window.starts[stream] = min(window.starts.get(stream, NEVER), start_ns)
        self._put_away(windows.begins, first)
        return process.changed(windows=self._settled(windows))

    def _begins_empty(self, process: WatchedProcess, at: int) -> int:
        """When window number ``at`` begins, if no work runs then; else NEVER, as where that is not known."""
        windows = process.windows
        begin_ns = int(windows.begins[at])
        followed_ns = begin_ns - _FOLLOWED_NS if at and windows.quiet[at - 1] else process.started.monotonic_ns
        every = not process.late and not (at and windows.quiet[at - 1])
        return begin_ns if self._queues.are_empty(begin_ns, followed_ns, every) else NEVER

    def _put_away(self, begins: Int64s, first: int) -> None:
        """Keep of the windows before number ``first`` what was found, as long as they are known."""
        done = [begin for begin in self._windows if begin < begins[first]]
        times = np.array([(begin, self._windows.pop(begin).start_ns) for begin in done], dtype=np.int64).reshape(-1, 2)
        older = np.concatenate((self._older, times.T), axis=1)
        self._older = older[:, (older[0] >= begins[0]) & (older[1] < NEVER)]

    def _settled(self, windows: RecordWindows) -> RecordWindows:
        present = np.array([(begin, window.start_ns) for begin, window in self._windows.items()], dtype=np.int64)
        begins, starts = np.concatenate((self._older, present.reshape(-1, 2).T), axis=1)
        at = np.minimum(np.searchsorted(windows.begins, begins), len(windows) - 1)
        kept = windows.begins[at] == begins
        settled = windows.settled.copy()
        settled[at[kept]] = np.minimum(settled[at[kept]], starts[kept])
        return replace(windows, settled=settled)


def _first(work: Rows, starts: Int64s) -> Iterator[tuple[int, int]]:
    """The first start in each stream."""
    streams = work["context"].astype(np.int64) << 32 | work["stream"]
    for stream in np.unique(streams).tolist():
        yield stream, int(starts[streams == stream].min())
