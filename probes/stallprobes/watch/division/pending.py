"""Calls and operations of a process that are not divided yet, and the last calls, which submitted operations."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import GPU_WORK, CopyKind, MemoryKind, OverheadKind, RecordKind
from stallprobes.native.layouts.driver_calls import CallKind, HostTask, function_of
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import Rows, of_kinds, rows_where
from stallprobes.watch.division.call_columns import columns_of, polls_of
from stallprobes.watch.division.instants import COMMUNICATION, COPY, KERNEL, Calls, Flags, Limits, Operations
from stallprobes.watch.intervals import Int64s, coded, distinct, grouped_order, int64s, numbered
from stallprobes.watch.reading.process import WatchedProcess

# Largest number of calls that are kept to find the caller of GPU work by correlation number. Above this number, the
# oldest calls are dropped. Reason for the keeping: the records of the work are read later than the calls.
MOST_SUBMITTED = 1 << 20
# Mask of the thread id in a call's thread field: Linux has no larger ids.
_THREAD_MASK = 0x7FFFFFFF
# Largest number of overhead records without a correlation number that are assigned to calls by thread and time. Further
# records are ignored. Reason: each assignment needs a search.
_MOST_SEARCHED = 1000
# Longest time (ns) by which recorded GPU work may start before the call that submitted the work. Reason: CUPTI converts
# times from the GPU's clock with an error of microseconds. The limit is much larger, since only calls with equal
# correlation numbers, 2**32 calls apart, must be distinguished.
_CLOCK_ERROR_NS = 1_000_000
# Part of the name of a kernel that communicates with other GPUs: kernels of NCCL, NVSHMEM, MSCCL++, UCC and DeepEP, and
# collectives of frameworks, such as vLLM's cross_device_reduce and PyTorch's one_shot_all_reduce. A reduction within a
# block or a warp does not communicate with other GPUs.
_COMMUNICATION = re.compile(
    r"nccl|nvshmem|mscclpp|\bucc_|deep_?ep|cross_device|reduce_?scatter|all_?gather|all_?to_?all"
    r"|(?<!block)(?<!block_)(?<!warp)(?<!warp_)all_?reduce",
    re.IGNORECASE,
)
# Time (ns) that stands for "no work found".
_LATEST_NS = np.iinfo(np.int64).max
# Distance (ns) from a given time within which the nearest GPU work is searched first. Reason: most streams have work
# within this distance, and a search of all rows is slow.
_CLOSE_NS = 10_000_000
# Kinds of overhead records that are the loading or the compilation of device code.
LOADING = (OverheadKind.MODULE_LOADING, OverheadKind.LAZY_FUNCTION_LOADING, OverheadKind.DRIVER_COMPILER)
# If a call waits for the full launch queue for at least this share of its duration, the whole call counts as waiting.
# With a smaller share, only the time of the wait counts as waiting.
_LEAST_QUEUED = 0.9
# Smallest number of calls in a slice of time from which it is known how long calls take that find room in the queue.
# With fewer, a call whose record is missing could decide.
_LEAST_USUAL = 30
# Largest number of blocks of a kernel that counts as a kernel of few blocks. A kernel of few blocks leaves most of a
# GPU unused. Reason: each block runs on one multiprocessor, and GPUs of data centers have 40 to 148 multiprocessors.
FEW_BLOCKS = 16


def outermost_calls(rows: Rows, functions: Mapping[int, str]) -> tuple[Calls, Rows]:
    """The calls among ``rows`` (DRIVER_CALL) that no other call of their thread contains, and the row of each.

    ``functions`` are names by number. A run of queries by which a thread waits for a stream or an event is one wait,
    with the row of the last query.
    """
    rows = rows_where(rows, (rows["flags"] & int(CallFlag.NESTED)) == 0)
    kinds, holds = columns_of(rows, functions)
    first, last, kept = polls_of(rows, functions)
    calls = Calls(
        begins=np.array(rows["began_ns"], dtype=np.int64),
        ends=column(rows, "returned_ns"),
        threads=threads_of(rows),
        contexts=column(rows, "context"),
        correlations=column(rows, "correlation"),
        functions=column(rows, "function"),
        kinds=kinds,
        holds=holds,
    )
    calls.begins[last] = calls.begins[first]
    calls.kinds[last] = int(CallKind.WAITS)
    return calls.where(kept), rows_where(rows, kept)


def threads_of(rows: Rows) -> Int64s:
    """The ids of the threads of calls (DRIVER_CALL): those of Linux are smaller than what the field may have."""
    return column(rows, "thread") & _THREAD_MASK


def reaching(begins: Int64s, ends: Int64s, chosen: Sequence[tuple[int, int]]) -> Flags:
    """Which spans reach into one of the ``chosen`` times (begin and end, ns)."""
    reaches = np.zeros(len(begins), dtype=np.bool_)
    for begin_ns, end_ns in chosen:
        reaches |= (ends > begin_ns) & (begins < end_ns)
    return reaches


def neighbours_of(records: NDArray[Any], starts: Int64s, ends: Int64s, chosen: Iterable[tuple[int, int]]) -> Flags:
    """Flags of the records of work that surround ``chosen`` times: the last of each stream that ends until the begin,
    and the first that starts after the end. ``starts`` and ``ends`` are their columns."""
    nearby, work = np.zeros(len(records), dtype=np.bool_), of_kinds(records, *GPU_WORK)
    places = slice(None) if work.all() else np.flatnonzero(work)
    starts, ends = starts[places], ends[places]
    streams, contexts = (column(records, name)[places] for name in ("stream", "context"))
    keys, codes = coded(contexts * (int(streams.max(initial=0)) + 1) + streams)
    for times, beside in ((times, at) for begin, end in chosen for times, at in ((-ends, -begin), (starts, end))):
        nearest = np.full(len(keys), _LATEST_NS)
        there = times >= beside
        # Most streams have work close by: only the rest need a search of all rows.
        for near in (there & (times < beside + _CLOSE_NS), there):
            rows = np.flatnonzero(near & (nearest == _LATEST_NS)[codes])
            np.minimum.at(nearest, codes[rows], times[rows])
        nearby[places] |= times == nearest[codes]
    return nearby


def calls_in_flight(process: WatchedProcess, end_ns: int) -> Calls:
    """The calls in flight as if they returned at ``end_ns``, without the numbers of their functions."""
    flying = [call for thread in process.threads for call in thread.in_flight[:1] if call.begin_ns < end_ns]
    functions = [function_of(call.function) for call in flying]
    traits = list(zip(functions, [call.pageable for call in flying], strict=True))
    return Calls(
        begins=int64s([call.begin_ns for call in flying]),
        ends=np.full(len(flying), end_ns),
        threads=int64s([call.thread & _THREAD_MASK for call in flying]),
        contexts=int64s([call.context for call in flying]),
        correlations=int64s([call.correlation for call in flying]),
        functions=np.full(len(flying), -1),
        kinds=int64s([function.kind_of(pageable) for function, pageable in traits]),
        holds=int64s([function.holds(pageable) for function, pageable in traits]),
    )


def needs_engine(rows: NDArray[Any]) -> Flags:
    """Which records are of work that needs the graphics engine; the others are of copy engines, or of no work."""
    device_copy = (rows["kind"] == int(RecordKind.COPY)) & (rows["subkind"] == int(CopyKind.DEVICE_TO_DEVICE))
    computing = of_kinds(rows, RecordKind.KERNEL, RecordKind.MEMSET)
    return computing | np.asarray(device_copy, dtype=np.bool_)


def divided_records(records: NDArray[Any]) -> NDArray[Any]:
    """The records of work and of overheads: context switches are on a clock of their own."""
    return rows_where(records, of_kinds(records, *GPU_WORK, RecordKind.OVERHEAD))


def operations_of(records: NDArray[Any], communication: Iterable[int]) -> Operations:
    """The operations among ``records``; ``communication`` are the places of names of kernels that communicate."""
    rows = rows_where(records, of_kinds(records, *GPU_WORK) & (records["end"] >= records["start"]))
    kernel, contexts, unknown = rows["kind"] == int(RecordKind.KERNEL), column(rows, "context"), np.full(len(rows), -1)
    communicates = kernel & np.isin(rows["name"], list(communication))
    pageable = (rows["source"] == int(MemoryKind.PAGEABLE)) | (rows["target"] == int(MemoryKind.PAGEABLE))
    return Operations(
        starts=column(rows, "start"),
        ends=column(rows, "end"),
        returned=unknown,
        threads=unknown.copy(),
        correlations=column(rows, "correlation"),
        devices=column(rows, "device"),
        contexts=contexts,
        streams=(contexts << 32) + column(rows, "stream"),
        names=column(rows, "name"),
        # 0 is not known.
        blocks=int64s(np.where(kernel, rows["subkind"], 0)),
        kinds=int64s(np.where(communicates, COMMUNICATION, np.where(kernel, KERNEL, COPY))),
        engine=needs_engine(rows),
        few=kernel & (rows["subkind"] - np.uint32(1) < FEW_BLOCKS),
        pageable=~kernel & pageable,
        seen=np.zeros(len(rows), dtype=np.bool_),
    )


def communicate(names: Mapping[int, str]) -> set[int]:
    """The places of the names of kernels that communicate."""
    return {place for place, name in names.items() if _COMMUNICATION.search(name)}


class _Chunk(NamedTuple):
    """Calls in the order of their correlation numbers."""

    correlations: Int64s
    begins: Int64s
    ends: Int64s
    threads: Int64s


class SubmittedCalls:
    """The last calls by their correlation numbers, in the chunks in which they came."""

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._count = 0

    def add(self, correlations: Int64s, begins: Int64s, ends: Int64s, threads: Int64s) -> None:
        """Add calls: int64[n] each."""
        order = np.argsort(correlations, kind="stable")
        # 0 is no number.
        order = order[np.searchsorted(correlations[order], 1) :]
        if not len(order):
            return
        self._chunks.appendleft(_Chunk(*(values[order] for values in (correlations, begins, ends, threads))))
        self._count += len(order)
        while self._count > MOST_SUBMITTED and len(self._chunks) > 1:
            self._count -= len(self._chunks.pop().begins)

    def note_callers(self, operations: Operations) -> None:
        """Note the callers of the ``operations`` without one, where they are known."""
        missing = np.flatnonzero(operations.returned < 0)
        numbers, starts = operations.correlations[missing], operations.starts[missing]
        if not len(missing):
            return
        least, most = int(numbers.min()), int(numbers.max())
        for calls in self._chunks:
            if calls.correlations[0] > most or calls.correlations[-1] < least:
                continue
            here = np.flatnonzero((numbers >= calls.correlations[0]) & (numbers <= calls.correlations[-1]))
            places = np.searchsorted(calls.correlations, numbers[here])
            # Numbers start again after 2**32 calls: a call that began after this work is of another round.
            same = calls.correlations[places] == numbers[here]
            same &= calls.begins[places] <= starts[here] + _CLOCK_ERROR_NS
            matched, places = here[same], places[same]
            operations.returned[missing[matched]] = calls.ends[places]
            operations.threads[missing[matched]] = calls.threads[places]
            left = np.ones(len(missing), dtype=np.bool_)
            left[matched] = False
            missing, numbers, starts = (each.compress(left) for each in (missing, numbers, starts))


def with_overheads(calls: Calls, overheads: NDArray[Any], usual: dict[int, int]) -> Calls:
    """``calls``, of which those are of other kinds that load device code or find the queue full for most of their time.

    Of a call that finds it full for a shorter time, that time is a call of its own, at the end. ``overheads`` are
    records; before CUDA 12.3 they have a thread in place of a call. ``usual``: how long (ns) calls take that find room,
    by the numbers of their functions. It is noted here, and a call that takes longer waits for the rest.
    """
    if not len(calls) or not len(overheads):
        return calls
    order = np.argsort(calls.correlations, kind="stable")
    numbers = calls.correlations[order]
    correlations = int64s(overheads["correlation"])
    places = np.minimum(np.searchsorted(numbers, correlations), len(calls) - 1)
    owners = np.where((correlations != 0) & (numbers[places] == correlations), order[places], -1)
    of_threads = np.flatnonzero((owners < 0) & (correlations == 0))[:_MOST_SEARCHED]
    threads = overheads["thread"][of_threads]
    for thread in np.unique(threads).tolist():
        own = np.flatnonzero(calls.threads == thread)
        begins, ends = calls.begins[own], calls.ends[own]
        for at in of_threads[threads == thread].tolist():
            start = int(overheads["start"][at])
            mine = (begins <= start) & (ends > start)
            owners[at] = own[np.argmax(mine)] if mine.any() else -1
    lengths = int64s(overheads["end"]) - int64s(overheads["start"])

    took = np.maximum(calls.lengths, 1)

    def times_of(kinds: Iterable[OverheadKind]) -> Int64s:
        chosen = (owners >= 0) & np.isin(overheads["subkind"], [int(each) for each in kinds])
        return np.clip(np.bincount(owners[chosen], lengths[chosen], len(calls)), 0, took).astype(np.int64)

    loads = times_of(LOADING) * 2 >= took
    calls.kinds[loads] = int(CallKind.LOADS)
    calls.holds[loads & (calls.holds == 0)] = int(HostTask.MODULE)
    queued = times_of((OverheadKind.COMMAND_BUFFER_FULL,))
    known = _note_waits(calls, took, queued, usual)
    most = (queued >= _LEAST_QUEUED * took) & ~known
    calls.kinds[most] = int(CallKind.QUEUES)
    part = np.flatnonzero(~most & (queued > 0) & (calls.kinds == int(CallKind.SUBMITS)))
    if not len(part):
        return calls
    waits = calls.at(part)
    waits.begins[:] = waits.ends - queued[part]
    waits.kinds[:] = int(CallKind.QUEUES)
    calls.ends[part] = waits.begins
    return Calls.joined((calls, waits))


def _note_waits(calls: Calls, took: Int64s, queued: Int64s, usual: dict[int, int]) -> Flags:
    """Note in ``queued`` (ns, by records) that calls waited for room in the queue for all that they ``took`` longer
    than is ``usual`` for calls of their function that find room: the record ends before the thread has woken up.
    Returns flags of the calls of which that is known."""
    full, known = queued > 0, np.zeros(len(calls), dtype=np.bool_)
    for function in distinct(calls.functions[full]).tolist():
        own = calls.functions == function
        if (others := took[own & ~full]).size >= _LEAST_USUAL:
            usual[function] = int(np.median(others))
        if function in usual:
            known |= own
            queued[own & full] = np.maximum(queued, took - usual[function])[own & full]
    return known


def with_copies_that_block(calls: Calls, operations: Operations, limits: Limits) -> None:
    """Change the kinds of calls by whether they wait for their own copy, which the kind of memory alone does not say.

    A copy of pageable memory did not block that returned at once and before its work ended; one whose memory is not
    known did block that took long and returned after its work. ``operations`` are those that are known, which know
    their memory.
    """
    took = calls.lengths
    long, staged = took >= limits.blocked_ns, took >= limits.staged_ns
    submits, blocks = (calls.kinds == int(kind) for kind in (CallKind.SUBMITS, CallKind.COPIES))
    copies = np.flatnonzero((submits & staged) | (blocks & ~staged))
    if not len(copies):
        return
    own = (operations.kinds == COPY) & np.isin(operations.correlations, calls.correlations[copies])
    operations = operations.where(own)
    # The last operation of a call is the one that ends last.
    order = np.lexsort((operations.ends, operations.correlations))
    numbers, ends = operations.correlations[order], operations.ends[order]
    places = np.searchsorted(numbers, calls.correlations[copies], "right") - 1
    at = np.maximum(places, 0)
    has_work = (places >= 0) & (numbers[at] == calls.correlations[copies]) if len(numbers) else places >= 0
    waited = np.zeros(len(copies), dtype=np.bool_)
    waited[has_work] = ends[at[has_work]] <= calls.ends[copies[has_work]]
    waited &= long[copies] | blocks[copies]
    waited[has_work] |= operations.pageable[order[at[has_work]]] & staged[copies[has_work]]
    returned = copies[~waited & ~staged[copies]]
    calls.kinds[copies[waited]] = int(CallKind.COPIES)
    calls.kinds[returned], calls.holds[returned] = int(CallKind.SUBMITS), int(HostTask.NOTHING)


def by_thread(calls: Calls) -> dict[int, Calls]:
    """The calls of each thread in order, without overlap."""
    calls = calls.at(grouped_order(numbered(calls.threads)[1], calls.begins))
    threads: dict[int, Calls] = {}
    borders = (np.flatnonzero(calls.threads[1:] != calls.threads[:-1]) + 1).tolist()
    for first, last in zip([0, *borders], [*borders, len(calls)], strict=True) if len(calls) else ():
        own = calls.at(slice(first, last))
        # A nested call without the note that it is nested begins where the outer call ends.
        own.begins[1:] = np.maximum(own.begins[1:], np.maximum.accumulate(own.ends)[:-1])
        threads[int(own.threads[0])] = own.where(own.ends > own.begins)
    return threads


def column(rows: Rows, name: str) -> Int64s:
    """A column of ``rows`` as an array of its own, which is read faster."""
    return np.ascontiguousarray(rows[name], dtype=np.int64)
