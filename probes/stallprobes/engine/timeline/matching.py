"""Matching of GPU records with the calls that submitted them, compiled.

A track is one probe's use of one stream. Work on a stream starts in the order of its calls, so on a stream that one
probe uses alone the next record belongs to the next call, with two conditions: a call begins before its work starts,
and the work has started before the call begins that comes ``depth`` later, or, where the iteration waits for it, before
the first call of the next iteration. The second one finds the place again after records were lost. On a stream that
several probes use, and for calls that use two GPUs, the record's correlation id leads to the driver call, its time and
its thread, and so to the probe's call.

The driver runs some calls' work on a stream of its own, which no track has: a copy from the host to another GPU, and
the second half of a staged copy to it. All records of one call have its correlation id, so such a record belongs to the
call of the earlier record with the same id, or to the driver call with it. The time on the GPU of a staged copy is that
of both halves; what is between them is a delay. Their records are copies from device to host and from host to device,
although both memories are GPUs'.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.layout import COUNT, FIRST_NS, MAX_NS, SUM_NS, TRACE_HEAD
from stallprobes.engine.loop import bucket_of
from stallprobes.engine.native import compiled, load, store
from stallprobes.engine.timeline.records import RecordKind
from stallprobes.engine.timeline.ring import (
    BEGAN_NS,
    CALL_BEGAN_NS,
    CALL_END_NS,
    CALL_ITERATION,
    CALL_OP,
    CALL_WORDS,
    CALLS,
    CONTEXT,
    CORRELATION,
    END_NS,
    FIRST,
    ITERATION,
    KIND,
    MEASURED,
    MEMORY,
    OP,
    OP_MASK,
    PROBE,
    RETURNED_NS,
    START_NS,
    STREAM,
    SUBKIND,
    UNANSWERED,
)
from stallprobes.engine.timeline.tables import (
    AT_HIST,
    AT_STATS,
    AT_TRACE,
    AT_WORDS,
    GROUP_CORRELATION,
    GROUP_PLACE,
    GROUP_START_NS,
    HAS_GROUP,
    ID,
    ID_END_NS,
    ID_START_NS,
    ID_THREAD,
    IDS,
    LABEL_EARLY,
    LABEL_GPU,
    LABEL_START,
    LEFT,
    LOADED,
    NEWEST,
    NO_PROBE,
    OLDEST,
    OP_AWAITED,
    OP_RECORDS,
    OWNED_ID,
    OWNER_BEGAN_NS,
    OWNER_CALL,
    OWNER_ITERATION,
    OWNER_PROBE,
    OWNER_RETURNED_NS,
    QUEUE,
    ROW_EARLY,
    ROW_GPU,
    ROW_START,
    STAGED_NS,
    STAGED_TRACK,
    STATS,
    TRACK_CONTEXT,
    TRACK_DEPTH,
    TRACK_PROBE,
    TRACK_STREAM,
    TRACK_THREAD,
)
from stallprobes.latency.histogram import BUCKETS

Int64s = NDArray[np.int64]

# Times of the GPU are converted to the host's clock with an error of less than this.
TOLERANCE_NS = 1_000

MATCHED, NO_CALL, LATER = range(3)

KERNEL = int(RecordKind.KERNEL)
_COPY = int(RecordKind.COPY)
_DEVICE_TO_HOST, _HOST_TO_DEVICE = 2, 1
# Source and target are memory of GPUs.
_BETWEEN_GPUS = 3 | 3 << 8


@compiled("void(int64[::1], int64[:,::1], int64[:,::1], int64[::1])")
def load_calls(track: Int64s, ops: Int64s, queue: Int64s, timeline: Int64s) -> None:
    """Appends the probe's new submissions to the track's queue, and drops the oldest ones if it is full."""
    head = load(track[AT_WORDS] + 8 * TRACE_HEAD)
    first = max(track[LOADED], head - CALLS + 1)
    for number in range(first, head):
        at = track[AT_TRACE] + 8 * CALL_WORDS * (number % CALLS)
        op = load(at + 8 * CALL_OP) & OP_MASK
        if ops[op, OP_RECORDS] == 0:
            continue
        if track[NEWEST] - track[OLDEST] >= QUEUE:
            track[OLDEST] += 1
            timeline[UNANSWERED] += 1
        to = track[NEWEST] % QUEUE
        for word in range(CALL_WORDS):
            queue[to, word] = load(at + 8 * word)
        track[NEWEST] += 1
    track[LOADED] = head


@compiled()
def count_phase(track: Int64s, row: int, value: int, call: int) -> None:
    """Adds ``value`` ns to a row of the probe if the call was measured; the first iteration is kept apart."""
    if row < 0 or call & MEASURED == 0:
        return
    stats = track[AT_STATS] + 8 * STATS * row
    if call & FIRST:
        if load(stats + 8 * FIRST_NS) < 0:
            store(stats + 8 * FIRST_NS, value)
        return
    # The maximum first, as the probe's loop does.
    if value > load(stats + 8 * MAX_NS):
        store(stats + 8 * MAX_NS, value)
    store(stats + 8 * COUNT, load(stats + 8 * COUNT) + 1)
    store(stats + 8 * SUM_NS, load(stats + 8 * SUM_NS) + value)
    bucket = track[AT_HIST] + 8 * (BUCKETS * row + bucket_of(value))
    store(bucket, load(bucket) + 1)


@compiled()
def attach(row: Int64s, track: Int64s, call: Int64s) -> None:
    """Writes the call to the record."""
    row[PROBE] = track[TRACK_PROBE]
    row[OP] = call[CALL_OP] & OP_MASK
    row[ITERATION] = call[CALL_ITERATION]
    row[BEGAN_NS] = call[CALL_BEGAN_NS]
    row[RETURNED_NS] = call[CALL_END_NS]


@compiled("void(int64[::1], int64[::1], int64[:,::1], int64)")
def count_gpu(row: Int64s, track: Int64s, ops: Int64s, call: int) -> None:
    """Counts the time on the GPU of a call, once its last record is there."""
    op = call & OP_MASK
    value = max(row[END_NS] - track[GROUP_START_NS], 0)
    count_phase(track, ops[op, ROW_GPU], value, call)
    count_phase(track, ops[op, LABEL_GPU], value, call)


@compiled()
def is_half(row: Int64s, copy_kind: int) -> bool:
    """Whether the record is the half with ``copy_kind`` of a staged copy to another GPU."""
    return bool(row[KIND] == _COPY and row[SUBKIND] == copy_kind and row[MEMORY] == _BETWEEN_GPUS)


@compiled()
def is_first_half(row: Int64s) -> bool:
    """Whether the record is the first half of a staged copy, whose second half has its id."""
    return is_half(row, _DEVICE_TO_HOST) and row[CORRELATION] != 0


@compiled("void(int64[::1], int64[::1], int64[:,::1], int64[:,::1], int64, int64[::1])")
def take_call(row: Int64s, track: Int64s, ops: Int64s, queue: Int64s, number: int, timeline: Int64s) -> None:
    """Gives the record to the call ``number`` of the queue; the calls before it have no record."""
    timeline[UNANSWERED] += number - track[OLDEST]
    track[OLDEST] = number + 1
    place = number % QUEUE
    call = queue[place, CALL_OP]
    op = call & OP_MASK
    attach(row, track, queue[place])
    delay = row[START_NS] - queue[place, CALL_END_NS]
    if delay >= 0:
        count_phase(track, ops[op, ROW_START], delay, call)
        count_phase(track, ops[op, LABEL_START], delay, call)
    else:
        count_phase(track, ops[op, ROW_EARLY], -delay, call)
        count_phase(track, ops[op, LABEL_EARLY], -delay, call)
    track[LEFT] = ops[op, OP_RECORDS] - 1
    track[GROUP_START_NS] = row[START_NS]
    track[GROUP_CORRELATION] = row[CORRELATION]
    track[GROUP_PLACE] = place
    track[HAS_GROUP] = 1
    if track[LEFT] == 0 and not is_first_half(row):
        count_gpu(row, track, ops, call)


@compiled()
def continues(row: Int64s, track: Int64s) -> bool:
    """Whether the record belongs to the call that was matched last, which yields several."""
    if track[HAS_GROUP] == 0:
        return False
    correlation, known = row[CORRELATION], track[GROUP_CORRELATION]
    if correlation == 0 or known == 0:
        return bool(track[LEFT] > 0)
    return bool(correlation == known)


@compiled("boolean(int64, int64, int64[::1], int64[:,::1], int64[:,::1])")
def has_started(number: int, start: int, track: Int64s, ops: Int64s, queue: Int64s) -> bool:
    """Whether the work of the call ``number`` of the queue had certainly started at ``start``."""
    call, ahead = queue[number % QUEUE], track[TRACK_DEPTH]
    if ops[call[CALL_OP] & OP_MASK, OP_AWAITED] != 0:
        for nearer in range(1, track[TRACK_DEPTH]):
            if queue[(number + nearer) % QUEUE, CALL_ITERATION] != call[CALL_ITERATION]:
                ahead = nearer
                break
    if number + ahead >= track[NEWEST]:
        return False
    return bool(queue[(number + ahead) % QUEUE, CALL_BEGAN_NS] + TOLERANCE_NS <= start)


@compiled("int64(int64[::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1])")
def match_driver_call(
    row: Int64s, track: Int64s, ops: Int64s, queue: Int64s, driver_call: Int64s, timeline: Int64s
) -> int:
    """Finds the call of the track during which ``driver_call``, a row of the ids, was made. Returns as ``match``."""
    for number in range(track[OLDEST], track[NEWEST]):
        at = number % QUEUE
        if (
            queue[at, CALL_BEGAN_NS] <= driver_call[ID_START_NS] + TOLERANCE_NS
            and driver_call[ID_END_NS] <= queue[at, CALL_END_NS] + TOLERANCE_NS
        ):
            take_call(row, track, ops, queue, number, timeline)
            return MATCHED
    return LATER


@compiled("int64(int64[::1], int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1])")
def match(row: Int64s, track: Int64s, ops: Int64s, queue: Int64s, ids: Int64s, timeline: Int64s) -> int:
    """Finds the call of a record of the track's stream, and counts its phases.

    Returns MATCHED, NO_CALL if the record belongs to none, or LATER if its call may not have returned yet. With a
    thread in the track, only a call of that thread is its own: NO_CALL then also means that another track's is.
    """
    start, correlation = row[START_NS], row[CORRELATION]
    if continues(row, track):
        call = queue[track[GROUP_PLACE], CALL_OP]
        attach(row, track, queue[track[GROUP_PLACE]])
        if track[LEFT] > 0:
            track[LEFT] -= 1
            if track[LEFT] == 0:
                count_gpu(row, track, ops, call)
        return MATCHED
    if track[TRACK_THREAD] != 0:
        place = correlation % IDS
        if correlation == 0 or ids[place, ID] != correlation:
            return LATER
        if ids[place, ID_THREAD] != track[TRACK_THREAD]:
            return NO_CALL
        return match_driver_call(row, track, ops, queue, ids[place], timeline)
    number = track[OLDEST]
    while number < track[NEWEST] and has_started(number, start, track, ops, queue):
        number += 1
    if number >= track[NEWEST]:
        return LATER
    if queue[number % QUEUE, CALL_BEGAN_NS] > start + TOLERANCE_NS:
        return NO_CALL
    take_call(row, track, ops, queue, number, timeline)
    return MATCHED


@compiled()
def belongs(track: Int64s, row: Int64s) -> bool:
    """Whether the record is of the track's stream."""
    return bool(track[TRACK_CONTEXT] == row[CONTEXT] and track[TRACK_STREAM] == row[STREAM])


@compiled("void(int64[::1], int64[:,::1], int64[::1], int64, int64[:,::1])")
def note_owner(row: Int64s, ids: Int64s, track: Int64s, number: int, queue: Int64s) -> None:
    """Notes the call of a record by its correlation id, and the ``number`` of its track for a second half."""
    correlation = row[CORRELATION]
    if correlation == 0:
        return
    place = correlation % IDS
    ids[place, OWNED_ID] = correlation
    ids[place, OWNER_PROBE] = row[PROBE]
    ids[place, OWNER_ITERATION] = row[ITERATION]
    ids[place, OWNER_BEGAN_NS] = row[BEGAN_NS]
    ids[place, OWNER_RETURNED_NS] = row[RETURNED_NS]
    ids[place, OWNER_CALL] = queue[track[GROUP_PLACE], CALL_OP]
    ids[place, STAGED_TRACK] = number + 1 if is_first_half(row) else 0
    ids[place, STAGED_NS] = row[END_NS] - track[GROUP_START_NS]


@compiled()
def note_waiting(row: Int64s, ids: Int64s) -> None:
    """Notes that the record with this correlation id waits for its call."""
    correlation = row[CORRELATION]
    if correlation != 0:
        place = correlation % IDS
        ids[place, OWNED_ID] = correlation
        ids[place, OWNER_PROBE] = NO_PROBE


@compiled("int64(int64[::1], int64, int64[:,::1], int64[:,:,::1], int64[:,:,::1], int64[:,::1], int64[::1])")
def match_by_thread(
    row: Int64s, count: int, tracks: Int64s, ops: Int64s, queues: Int64s, ids: Int64s, timeline: Int64s
) -> int:
    """Finds the call of the first record with its id, whose stream no track has, by the driver call's thread and time.

    The second half of a staged copy is never the first record: it would start a call too late. Returns as ``match``.
    """
    if is_half(row, _HOST_TO_DEVICE):
        return NO_CALL
    place = row[CORRELATION] % IDS
    known = ids[place, ID] == row[CORRELATION]
    answer = NO_CALL
    for number in range(count):
        thread = tracks[number, TRACK_THREAD]
        if thread == 0 or (known and ids[place, ID_THREAD] != thread):
            continue
        answer = LATER
        if known:
            track, queue = tracks[number], queues[number]
            if match_driver_call(row, track, ops[number], queue, ids[place], timeline) == MATCHED:
                note_owner(row, ids, track, number, queue)
                return MATCHED
    return answer


@compiled("int64(int64[::1], int64, int64[:,::1], int64[:,:,::1], int64[:,:,::1], int64[:,::1], int64[::1])")
def match_by_id(
    row: Int64s, count: int, tracks: Int64s, ops: Int64s, queues: Int64s, ids: Int64s, timeline: Int64s
) -> int:
    """Finds the call of a record whose stream no track has, by its correlation id.

    After an earlier record of the call it counts the time on the GPU of a staged copy whose second half it is; the
    call's other phases are of that earlier record. Returns as ``match``.
    """
    correlation = row[CORRELATION]
    place = correlation % IDS
    if correlation == 0:
        return NO_CALL
    if ids[place, OWNED_ID] != correlation:
        return match_by_thread(row, count, tracks, ops, queues, ids, timeline)
    if ids[place, OWNER_PROBE] == NO_PROBE:
        return LATER
    if row[START_NS] + TOLERANCE_NS < ids[place, OWNER_BEGAN_NS]:
        return NO_CALL
    row[PROBE] = ids[place, OWNER_PROBE]
    row[OP] = ids[place, OWNER_CALL] & OP_MASK
    row[ITERATION] = ids[place, OWNER_ITERATION]
    row[BEGAN_NS] = ids[place, OWNER_BEGAN_NS]
    row[RETURNED_NS] = ids[place, OWNER_RETURNED_NS]
    if ids[place, STAGED_TRACK] != 0 and is_half(row, _HOST_TO_DEVICE):
        number, call = ids[place, STAGED_TRACK] - 1, ids[place, OWNER_CALL]
        op, value = call & OP_MASK, max(ids[place, STAGED_NS] + row[END_NS] - row[START_NS], 0)
        count_phase(tracks[number], ops[number, op, ROW_GPU], value, call)
        count_phase(tracks[number], ops[number, op, LABEL_GPU], value, call)
        ids[place, STAGED_TRACK] = 0
    return MATCHED
