"""Times at which a process has no work on the GPU, by its calls: each stream that it used was waited for since."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import Waits, function_of
from stallprobes.records.rows import Rows, rows_where
from stallprobes.watch.reading.process import CallBatch

# Largest number of streams of a process at which times without GPU work are searched for in the process's calls. With
# more streams, no time counts as a time without work.
_MOST_STREAMS = 64
# Number of the last readings whose calls are kept individually, to find the state of the queues at a past time. Two
# readings are needed: a window that begins during a reading is seen only by the next reading. The third reading is a
# reserve.
_KEPT_READINGS = 3

Stream = tuple[int, int]


class _QueueCalls(NamedTuple):
    """Calls of a reading that submit work, or wait for that of a stream (``waits``) or a context (``contexts``)."""

    rows: Rows
    waits: NDArray[np.bool_]
    contexts: NDArray[np.bool_]


class EmptyQueues:
    """The last submission to each stream, and the last wait for it, of all readings so far."""

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
        self._recent.append(_QueueCalls(rows, (waits[functions] | copied)[chosen], contexts[functions][chosen]))
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
