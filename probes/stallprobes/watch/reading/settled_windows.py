"""When windows with records have settled, where no call of the program says so: by the work submitted in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from stallprobes.native.layouts.watch_file import SWITCHED
from stallprobes.records.rows import Rows, of_kinds, rows_where
from stallprobes.watch.reading.empty_queues import EmptyQueues
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
