"""The collector's loop, compiled: flush, decode, match, publish. It holds neither the GIL nor a lock."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.native import (
    clock_gettime,
    clock_nanosleep,
    clock_ns,
    compiled,
    invoke,
    load,
    load_u8,
    load_u32,
    load_u64,
    sleep_until,
    store,
)
from stallprobes.engine.timeline.buffers import (
    FREE,
    HEADER,
    POOL_BASE,
    POOL_BUFFER_BYTES,
    POOL_EXHAUSTED,
    SLOT,
    SLOT_VALID,
    oldest_completed,
)
from stallprobes.engine.timeline.gpu_clock import follow, stale, to_host_time
from stallprobes.engine.timeline.matching import (
    LATER,
    MATCHED,
    NO_CALL,
    belongs,
    load_calls,
    match,
    match_by_id,
    note_owner,
    note_waiting,
)
from stallprobes.engine.timeline.records import ABSENT, FIELD_NUMBERS, KINDS, Field, RecordKind
from stallprobes.engine.timeline.ring import (
    CODE,
    COLLECTED,
    COLLECTED_NS,
    CONTEXT,
    CORRELATION,
    DECODE_NS,
    DETAIL,
    DEVICE,
    DROPPED,
    END_NS,
    EXHAUSTED,
    FLUSH_NS,
    HEAD,
    KIND,
    MEMORY,
    PENDING,
    PROBE,
    RECORD_WORDS,
    RECORDS,
    ROUNDS,
    SEQUENCE,
    START_NS,
    STREAM,
    SUBKIND,
    UNKNOWN,
    UNMATCHED,
)
from stallprobes.engine.timeline.tables import (
    COUNT_DROPPED,
    DROPPED_NOW,
    EXHAUSTED_SEEN,
    FLUSH,
    ID,
    ID_END_NS,
    ID_START_NS,
    ID_THREAD,
    IDS,
    KEPT,
    MOST_BATCHES,
    MOST_KEPT,
    NEXT_RECORD,
    PATIENCE,
    PERIOD,
    RECORD,
    STOP,
    TRACKS,
)

Int64s = NDArray[np.int64]

_START = FIELD_NUMBERS[Field.START]
_END = FIELD_NUMBERS[Field.END]
_DEVICE = FIELD_NUMBERS[Field.DEVICE]
_CONTEXT = FIELD_NUMBERS[Field.CONTEXT]
_STREAM = FIELD_NUMBERS[Field.STREAM]
_CORRELATION = FIELD_NUMBERS[Field.CORRELATION]
_BYTES = FIELD_NUMBERS[Field.BYTES]
_SUBKIND = FIELD_NUMBERS[Field.SUBKIND]
_SOURCE = FIELD_NUMBERS[Field.SOURCE]
_TARGET = FIELD_NUMBERS[Field.TARGET]
_THREAD = FIELD_NUMBERS[Field.THREAD]
_DRIVER_CALL = int(RecordKind.DRIVER_CALL)
_OVERHEAD = int(RecordKind.OVERHEAD)
_SWITCH = int(RecordKind.CONTEXT_SWITCH)


@compiled()
def field(record: int, offsets: Int64s, kind: int, number: int) -> int:
    """A field of the record at this address; 0 if the kind does not have it."""
    at = offsets[kind, number, 0]
    if at == ABSENT:
        return 0
    size = offsets[kind, number, 1]
    if size == 8:
        return load_u64(record + at)
    return load_u32(record + at) if size == 4 else load_u8(record + at)


@compiled()
def decode_record(record: int, kind: int, offsets: Int64s, row: Int64s) -> None:
    """Writes the record at this address to ``row``, in the layout of the ring, without a call."""
    row[KIND] = kind
    row[START_NS] = field(record, offsets, kind, _START)
    row[END_NS] = field(record, offsets, kind, _END)
    row[DEVICE] = field(record, offsets, kind, _DEVICE)
    row[CONTEXT] = field(record, offsets, kind, _CONTEXT)
    row[STREAM] = field(record, offsets, kind, _STREAM)
    row[CORRELATION] = field(record, offsets, kind, _CORRELATION)
    row[PROBE:SUBKIND] = -1
    row[SUBKIND] = field(record, offsets, kind, _SUBKIND)
    row[MEMORY] = field(record, offsets, kind, _SOURCE) | field(record, offsets, kind, _TARGET) << 8
    row[DETAIL] = field(record, offsets, kind, _BYTES)
    row[RECORD_WORDS - 1] = -1


@compiled()
def publish(row: Int64s, words: Int64s, records: Int64s) -> None:
    """Appends the record to the ring on the board."""
    head = words[HEAD]
    place = head % RECORDS
    at = records.ctypes.data + 8 * RECORD_WORDS * place
    store(at + 8 * SEQUENCE, 0)
    for word in range(KIND, RECORD_WORDS):
        store(at + 8 * word, row[word])
    store(at + 8 * SEQUENCE, head + 1)
    store(words.ctypes.data + 8 * HEAD, head + 1)


@compiled(
    "int64(int64[::1], int64[::1], int64[:,:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1])"
)
def decode_buffers(
    control: Int64s,
    pool: Int64s,
    offsets: Int64s,
    contexts: Int64s,
    clocks: Int64s,
    batch: Int64s,
    ids: Int64s,
    words: Int64s,
) -> int:
    """Decodes completed buffers into ``batch``, behind the records that are kept there, and releases them.

    Times in the batch are of the host's clock. Returns the number of records in the batch; with room for none, some
    buffers may still wait.
    """
    filled = control[KEPT]
    pool_at, record_at = pool.ctypes.data, control.ctypes.data + 8 * RECORD
    bytes_each = load(pool_at + 8 * POOL_BUFFER_BYTES)
    # The smallest record has 24 bytes.
    most = bytes_each // 24
    while filled + most <= batch.shape[0]:
        number = oldest_completed(pool_at)
        if number < 0:
            break
        slot = pool_at + 8 * (HEADER + SLOT * number)
        buffer, valid = load(pool_at + 8 * POOL_BASE) + number * bytes_each, load(slot + 8 * SLOT_VALID)
        store(record_at, 0)
        while filled < batch.shape[0]:
            if invoke(control[NEXT_RECORD], buffer, valid, record_at, 0, 0, 0, 0, 0, 0, 0, 0) & 0xFFFFFFFF != 0:
                break
            record = load(record_at)
            kind = load_u32(record)
            if kind >= KINDS or (offsets[kind, _START, 0] == ABSENT):
                words[UNKNOWN] += 1
            elif kind == _DRIVER_CALL:
                place = field(record, offsets, kind, _CORRELATION) % IDS
                ids[place, ID] = field(record, offsets, kind, _CORRELATION)
                ids[place, ID_THREAD] = field(record, offsets, kind, _THREAD)
                ids[place, ID_START_NS] = field(record, offsets, kind, _START)
                ids[place, ID_END_NS] = field(record, offsets, kind, _END)
            else:
                row = batch[filled]
                decode_record(record, kind, offsets, row)
                row[SEQUENCE] = words[ROUNDS]
                words[COLLECTED] += 1
                # 0: CUPTI had no memory on the GPU for the times.
                if row[START_NS] == 0 or (kind == _SWITCH and not to_host_time(row, contexts, clocks)):
                    words[DROPPED] += 1
                else:
                    filled += 1
        store(slot, FREE)
    return int(filled)


@compiled()
def match_record(
    row: Int64s, count: int, tracks: Int64s, ops: Int64s, queues: Int64s, ids: Int64s, words: Int64s
) -> int:
    """``match`` with the first track of the record's stream that claims it, else ``match_by_id``."""
    answer = NO_CALL
    for number in range(count):
        if belongs(tracks[number], row):
            found = match(row, tracks[number], ops[number], queues[number], ids, words)
            if found == MATCHED:
                note_owner(row, ids, tracks[number], number, queues[number])
                return MATCHED
            if found == LATER:
                answer = LATER
    if answer == LATER:
        note_waiting(row, ids)
        return LATER
    return match_by_id(row, count, tracks, ops, queues, ids, words)


@compiled(
    "void(int64[::1], int64[::1], int64[:,:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,:,::1],"
    " int64[:,:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64)"
)
def collect_once(
    control: Int64s,
    pool: Int64s,
    offsets: Int64s,
    contexts: Int64s,
    clocks: Int64s,
    tracks: Int64s,
    ops: Int64s,
    queues: Int64s,
    batch: Int64s,
    waiting: Int64s,
    ids: Int64s,
    words: Int64s,
    records: Int64s,
    flag: int,
) -> None:
    """One round: flush with ``flag``, decode, match with calls that have returned, and publish in order of start."""
    began = clock_ns(clock_gettime())
    code = invoke(control[FLUSH], flag, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) & 0xFFFFFFFF
    if code != 0:
        words[CODE] = code
    flushed = clock_ns(clock_gettime())
    words[FLUSH_NS] += flushed - began
    dropped_at = control.ctypes.data + 8 * DROPPED_NOW
    store(dropped_at, 0)
    if control[COUNT_DROPPED] != 0:
        invoke(control[COUNT_DROPPED], 0, 0, dropped_at, 0, 0, 0, 0, 0, 0, 0, 0)
        words[DROPPED] += load(dropped_at)
    words[EXHAUSTED] = pool[POOL_EXHAUSTED] - control[EXHAUSTED_SEEN]
    count = control[TRACKS]
    # Bounded, so that a round ends although buffers keep coming.
    for _ in range(MOST_BATCHES):
        filled = decode_buffers(control, pool, offsets, contexts, clocks, batch, ids, words)
        fresh = filled - control[KEPT]
        for number in range(count):
            load_calls(tracks[number], ops[number], queues[number], words)
        kept = 0
        for place in np.argsort(batch[:filled, START_NS]):
            row = batch[place]
            kind = row[KIND]
            if row[SEQUENCE] == words[ROUNDS]:
                follow(row, began, contexts, clocks)
            if kind != _SWITCH and kind != _OVERHEAD:
                answer = match_record(row, count, tracks, ops, queues, ids, words)
                if answer == LATER and words[ROUNDS] - row[SEQUENCE] < control[PATIENCE] and kept < MOST_KEPT:
                    waiting[kept] = row
                    kept += 1
                    continue
                if answer != MATCHED:
                    words[UNMATCHED] += 1
            publish(row, words, records)
        for place in range(kept):
            batch[place] = waiting[place]
        control[KEPT] = kept
        if fresh == 0:
            break
    words[PENDING] = control[KEPT]
    words[COLLECTED_NS] = began
    words[DECODE_NS] += clock_ns(clock_gettime()) - flushed
    words[ROUNDS] += 1


@compiled(
    "void(int64[::1], int64[::1], int64[:,:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,:,::1],"
    " int64[:,:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1])"
)
def collect(
    control: Int64s,
    pool: Int64s,
    offsets: Int64s,
    contexts: Int64s,
    clocks: Int64s,
    tracks: Int64s,
    ops: Int64s,
    queues: Int64s,
    batch: Int64s,
    waiting: Int64s,
    ids: Int64s,
    words: Int64s,
    records: Int64s,
) -> None:
    """Rounds of ``collect_once``, one each PERIOD, until STOP is set or a GPU's clock must be read again."""
    due = clock_ns(clock_gettime())
    stop_at = control.ctypes.data + 8 * STOP
    while load(stop_at) == 0 and not stale(clocks, due):
        collect_once(
            control, pool, offsets, contexts, clocks, tracks, ops, queues, batch, waiting, ids, words, records, 0
        )
        due = max(due + control[PERIOD], clock_ns(clock_gettime()))
        while load(stop_at) == 0 and clock_ns(clock_gettime()) < due:
            sleep_until(clock_nanosleep(), due)
