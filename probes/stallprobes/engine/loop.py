"""The compiled loop that makes the calls of a probe and measures them.

Between the two clock readings of a call there is nothing but the call: no Python, no lock, no allocation. Its overhead
equals that of a C program; clock readings in Python would add stalls of milliseconds while another thread is busy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.board import ProbeSection
from stallprobes.engine.layout import (
    ALIGNED,
    CHANGES,
    COUNT,
    DUE_ALLOWED_NS,
    DUE_CHANNEL,
    DUE_NS,
    ERROR_CODE,
    ERROR_NS,
    ERROR_OP,
    FIRST_NS,
    GUARD_ADDRESS,
    GUARD_AHEAD,
    HEARTBEAT_NS,
    HELD,
    HOLD,
    INFLIGHT_OP,
    INFLIGHT_SINCE_NS,
    ITERATIONS,
    LEAD_NS,
    MAX_NS,
    MISSED,
    OFFSET_NS,
    ON_SINCE_NS,
    OPENS_NS,
    PAUSES,
    PERIOD_NS,
    POLLED_NS,
    QUIT,
    RING,
    RING_HEAD,
    RUN,
    SLOT,
    STATE,
    SUM_NS,
    TOTAL_NS,
    TRACE_HEAD,
    ProbeState,
)
from stallprobes.engine.loop_timing import (
    GUARD_STEP_NS,
    HOLD_STEP_NS,
    PARKED_STEP_NS,
    PAUSE_NS,
    RESTART_NS,
    SLOT_STEP_NS,
    SPIN_BELOW_NS,
    WAIT_SLICE_NS,
)
from stallprobes.engine.native import (
    bit_length,
    clock_ns,
    compiled,
    invoke,
    libc_address,
    load,
    load_ms_as_ns,
    sleep_until,
    store,
)
from stallprobes.engine.timeline.ring import (
    CALL_BEGAN_NS,
    CALL_END_NS,
    CALL_ITERATION,
    CALL_OP,
    CALLS,
    FIRST,
    MEASURED,
    ON,
)
from stallprobes.latency.histogram import BUCKETS, SUB, SUB_BITS

Int64s = NDArray[np.int64]
Uint64s = NDArray[np.uint64]

# A row of an op table, int64[COLUMNS].
COLUMNS = 24
COL_FN = 0
COL_A0 = 1
ARGUMENTS = 11
COL_CHANNEL = 12
COL_LABEL_CHANNEL = 13
COL_LOAD_MASK = 14
COL_FLAGS = 15
COL_INTO = 16
COL_VALUE = 17
COL_OK0 = 18
COL_OK1 = 19
COL_OK2 = 20
COL_REPEAT = 21

RETURN_IS_VALUE = 1
SAMPLE_IS_FLOAT_MS = 2

_LAST = BUCKETS - 1
_PARKED = int(ProbeState.PARKED)
_RUNNING = int(ProbeState.RUNNING)
_ENDED = int(ProbeState.ENDED)
_ERROR = int(ProbeState.ERROR)


@compiled()
def bucket_of(value: int) -> int:
    """``histogram.index``, compiled."""
    if value < SUB:
        return max(value, 0)
    exponent = bit_length(value) - (SUB_BITS + 1)
    return min(exponent * SUB + (value >> exponent), _LAST)


@compiled()
def count_value(hist: Uint64s, stats: Int64s, channel: int, value: int) -> None:
    """Adds ``value`` ns to a channel."""
    # The maximum first: a reader that gets the count must also get the maximum.
    if value > stats[channel, MAX_NS]:
        stats[channel, MAX_NS] = value
    stats[channel, COUNT] += 1
    stats[channel, SUM_NS] += value
    hist[channel, bucket_of(value)] += np.uint64(1)


@compiled()
def count_passed(hist: Uint64s, stats: Int64s, channel: int, value: int, period: int) -> None:
    """Adds value - period, value - 2 period and so on while above 0; at most one step for each bucket."""
    rest = value - period
    while rest > 0:
        bucket = bucket_of(rest)
        exponent = max(bucket // SUB - 1, 0)
        least = (bucket - exponent * SUB) << exponent
        number = (rest - least) // period + 1
        stats[channel, COUNT] += number
        stats[channel, SUM_NS] += number * rest - period * (number * (number - 1) // 2)
        hist[channel, bucket] += np.uint64(number)
        rest -= number * period


@compiled()
def argument(table: Int64s, op: int, mask: int, number: int) -> int:
    """An argument of an op, loaded through its pointer if its bit is set in ``mask``."""
    value = table[op, COL_A0 + number]
    return load(value) if mask & (1 << number) else value


@compiled()
def call_op(table: Int64s, op: int) -> int:
    """Calls an op without timing; returns its 64-bit result."""
    mask = table[op, COL_LOAD_MASK]
    return invoke(
        table[op, COL_FN],
        argument(table, op, mask, 0),
        argument(table, op, mask, 1),
        argument(table, op, mask, 2),
        argument(table, op, mask, 3),
        argument(table, op, mask, 4),
        argument(table, op, mask, 5),
        argument(table, op, mask, 6),
        argument(table, op, mask, 7),
        argument(table, op, mask, 8),
        argument(table, op, mask, 9),
        argument(table, op, mask, 10),
    )


@compiled()
def wrong(table: Int64s, op: int, result: int) -> int:
    """Stores the return value if the op asks for it. Returns the status (low 32 bits, signed), 0 if it is accepted."""
    if table[op, COL_INTO] != 0:
        store(table[op, COL_INTO], result)
        return 0
    if table[op, COL_FLAGS] & RETURN_IS_VALUE:
        return 0
    status = ((result & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    for fine in range(COL_OK0, COL_OK2 + 1):
        if table[op, fine] != -1 and table[op, fine] == status:
            return 0
    return status


@compiled()
def allowed_ns(slot_at: int, now: int) -> int:
    """``board.counter_ns`` of the slot whose words begin at the address ``slot_at``, compiled."""
    while True:
        changes = load(slot_at + 8 * CHANGES)
        counted = now - load(slot_at + 8 * OFFSET_NS) if changes & 1 else load(slot_at + 8 * TOTAL_NS)
        if load(slot_at + 8 * CHANGES) == changes:
            return counted


@compiled()
def record_call(words: Int64s, trace: Int64s, began: int, end: int, op: int) -> None:
    """Appends a host call to the probe's ring for the timeline; ``op`` includes the bits of the call."""
    head = words[TRACE_HEAD]
    place = head % CALLS
    trace[place, CALL_BEGAN_NS] = began
    trace[place, CALL_END_NS] = end
    trace[place, CALL_OP] = op
    trace[place, CALL_ITERATION] = words[ITERATIONS]
    store(words.ctypes.data + 8 * TRACE_HEAD, head + 1)


@compiled(
    "void(int64[:,::1], int64[::1], uint64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1],"
    " int64[::1])"
)
def run(
    table: Int64s,
    words: Int64s,
    hist: Uint64s,
    stats: Int64s,
    ring: Int64s,
    trace: Int64s,
    header: Int64s,
    timeline: Int64s,
    libc: Int64s,
) -> None:
    """Repeats the ops of ``table`` until QUIT is set or a call returns an unexpected code.

    ``words``, ``hist``, ``stats``, ``ring`` and ``trace`` are the probe's section, ``header`` and ``timeline`` the
    board's. ``libc`` holds the addresses of clock_gettime and clock_nanosleep. While the timeline is on, every call is
    appended to ``trace``, measured or not.

    While the engine holds its probes, and while its slot is closed, the loop waits. Then its schedule restarts, and the
    first iteration, which pays for the change-over of the GPU, is not measured unless it lasts beyond the slot. Nor is
    a call that begins after the slot, at the end of an iteration that was stuck: it disturbs the next slot's group,
    which disturbs it.
    """
    clock, nap = libc[0], libc[1]
    at = words.ctypes.data
    traced_at = timeline.ctypes.data + 8 * ON
    run_at, period_at, quit_at = at + 8 * RUN, at + 8 * PERIOD_NS, header.ctypes.data + 8 * QUIT
    op_at, head_at = at + 8 * INFLIGHT_OP, at + 8 * RING_HEAD
    hold_at, held_at = header.ctypes.data + 8 * HOLD, at + 8 * HELD
    slot_at, opens_at = at + 8 * SLOT, at + 8 * OPENS_NS
    due_channel = words[DUE_CHANNEL]
    guard, ahead, lead = words[GUARD_ADDRESS], words[GUARD_AHEAD], words[LEAD_NS]
    aligned = words[ALIGNED]
    period = due = last = 0
    # The last reading of the clock while polling, 0 after a sleep or an iteration.
    polled = 0
    on = fresh = False
    # Without slots it is always the first one, which began at 0.
    slot, slot_offset = 1, 0
    while load(quit_at) == 0:
        now = clock_ns(clock)
        words[HEARTBEAT_NS] = now
        hold = load(hold_at)
        if hold != 0:
            store(held_at, hold)
            polled = 0
            if on:
                # The hold, not a call, delays the iteration.
                due, fresh = now, True
            sleep_until(nap, now + HOLD_STEP_NS)
            continue
        if load(run_at) == 0:
            on = False
            polled = 0
            words[STATE] = _PARKED
            sleep_until(nap, now + PARKED_STEP_NS)
            continue
        pace = load(period_at)
        if not on:
            on = True
            period, due = pace, now
            words[ON_SINCE_NS] = now
            words[STATE] = _RUNNING
        elif pace != period:
            period, due = pace, max(last + pace, now)
        current = load(slot_at + 8 * CHANGES)
        if current & 1 == 0:
            polled = 0
            near = load(opens_at) - now < 2 * PARKED_STEP_NS
            sleep_until(nap, now + (SLOT_STEP_NS if near else PARKED_STEP_NS))
            continue
        if current != slot:
            slot, slot_offset = current, load(slot_at + 8 * OFFSET_NS)
            due, fresh = now, True
        if guard != 0 and words[ITERATIONS] - load(guard) >= ahead:
            polled = 0
            sleep_until(nap, now + GUARD_STEP_NS)
            # The guard, not a call, delays the iteration: the schedule is shifted.
            due = max(due, now)
            continue
        if aligned != 0 and period > 0 and not fresh:
            due += -due % period
        if polled != 0:
            words[POLLED_NS] += now - polled
            if now - polled >= PAUSE_NS:
                words[PAUSES] += 1
        polled = now
        if period > 0 and now < due:
            if period >= SPIN_BELOW_NS and now < due - lead:
                polled = 0
                sleep_until(nap, min(due - lead, now + WAIT_SLICE_NS))
            continue
        polled = 0
        if period == 0:
            due = now
        words[DUE_NS] = due
        words[DUE_ALLOWED_NS] = due - slot_offset
        first = words[ITERATIONS] == 0
        end = now
        measured = False
        measured_end = now
        for op in range(table.shape[0]):
            function, mask = table[op, COL_FN], table[op, COL_LOAD_MASK]
            channel, label = table[op, COL_CHANNEL], table[op, COL_LABEL_CHANNEL]
            for _ in range(table[op, COL_REPEAT]):
                a0, a1 = argument(table, op, mask, 0), argument(table, op, mask, 1)
                a2, a3 = argument(table, op, mask, 2), argument(table, op, mask, 3)
                a4, a5 = argument(table, op, mask, 4), argument(table, op, mask, 5)
                a6, a7 = argument(table, op, mask, 6), argument(table, op, mask, 7)
                a8, a9 = argument(table, op, mask, 8), argument(table, op, mask, 9)
                a10 = argument(table, op, mask, 10)
                closed = load(slot_at + 8 * CHANGES) != slot
                # The clock reading before this one, so that there is no store between the two readings.
                words[INFLIGHT_SINCE_NS] = end
                store(op_at, op + 1)
                began = clock_ns(clock)
                result = invoke(function, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10)
                end = clock_ns(clock)
                store(op_at, 0)
                status = wrong(table, op, result)
                if status != 0:
                    words[ERROR_CODE] = status
                    words[ERROR_NS] = end
                    store(at + 8 * ERROR_OP, op + 1)
                    words[STATE] = _ERROR
                    return
                counts = channel >= 0 and (first or not (closed or (fresh and load(slot_at + 8 * CHANGES) == slot)))
                if load(traced_at) != 0:
                    record_call(words, trace, began, end, op | (FIRST if first else 0) | (MEASURED if counts else 0))
                if not counts:
                    continue
                measured = True
                measured_end = end
                value = end - began
                if table[op, COL_FLAGS] & SAMPLE_IS_FLOAT_MS:
                    # An accepted code other than 0 (not ready) has stored no sample.
                    if result & 0xFFFFFFFF:
                        continue
                    value = load_ms_as_ns(table[op, COL_VALUE])
                if first:
                    if stats[channel, FIRST_NS] < 0:
                        stats[channel, FIRST_NS] = max(value, 0)
                    if label >= 0 and stats[label, FIRST_NS] < 0:
                        stats[label, FIRST_NS] = max(value, 0)
                else:
                    count_value(hist, stats, channel, value)
                    if label >= 0:
                        count_value(hist, stats, label, value)
                head = words[RING_HEAD]
                place = head % RING
                ring[place, 0] = end
                ring[place, 1] = channel
                ring[place, 2] = value
                store(head_at, head + 1)
        late, allowed = measured_end - due, end - due
        slot_ended = load(slot_at + 8 * CHANGES) != slot
        if slot_ended:
            # Calls that would have been due while the slot was closed were neither delayed nor missed.
            allowed = max(allowed_ns(slot_at, end) - words[DUE_ALLOWED_NS], 0)
        if measured and first:
            stats[due_channel, FIRST_NS] = late
        elif measured:
            count_value(hist, stats, due_channel, late)
            if period > 0:
                count_passed(hist, stats, due_channel, min(late, allowed), period)
        if fresh and not slot_ended:
            last, due = due, max(end, due + min(period, RESTART_NS))
        else:
            passed = (allowed - 1) // period if period > 0 and allowed > 0 else 0
            words[MISSED] += passed
            last = due + passed * period
            due = last + period
        fresh = False
        store(at + 8 * ITERATIONS, words[ITERATIONS] + 1)
    words[STATE] = _ENDED


@compiled("int64(int64[:,::1], int64[::1], int64[::1])")
def run_once(table: Int64s, words: Int64s, libc: Int64s) -> int:
    """Calls each op of ``table`` (setup or teardown) ``repeat`` times, unmeasured.

    Returns 0, or after an unexpected code the op's number from 1; the error words then hold it as a negative number.
    """
    for op in range(table.shape[0]):
        for _ in range(table[op, COL_REPEAT]):
            status = wrong(table, op, call_op(table, op))
            if status != 0:
                words[ERROR_CODE] = status
                words[ERROR_NS] = clock_ns(libc[0])
                store(words.ctypes.data + 8 * ERROR_OP, -op - 1)
                words[STATE] = _ERROR
                return op + 1
    return 0


def empty_table(ops: int) -> Int64s:
    """A table of ``ops`` rows without functions: no channel, no accepted code but 0, one call."""
    table = np.zeros((ops, COLUMNS), dtype=np.int64)
    table[:, [COL_CHANNEL, COL_LABEL_CHANNEL, COL_OK0, COL_OK1, COL_OK2]] = -1
    table[:, COL_REPEAT] = 1
    return table


def clock_addresses() -> Int64s:
    """The ``libc`` argument of ``run`` and ``run_once``."""
    return np.array([libc_address("clock_gettime"), libc_address("clock_nanosleep")], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ProbeLoop:
    """The compiled program and the board section of one probe; calling it runs the probe."""

    ops: Int64s
    setup: Int64s
    teardown: Int64s
    part: ProbeSection
    header: Int64s
    timeline: Int64s

    def __call__(self) -> None:
        """Run setup, iterations until QUIT is set, and teardown in the calling thread without the GIL.

        After an unexpected return code it returns, and the section's error words name the op.
        """
        words, libc = self.part.words, clock_addresses()
        if run_once(self.setup, words, libc):
            return
        part = self.part
        run(self.ops, words, part.hist, part.stats, part.ring, part.trace, self.header, self.timeline, libc)
        if words[STATE] == ProbeState.ENDED:
            run_once(self.teardown, words, libc)
