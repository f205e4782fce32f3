"""Context switches on the host's clock, compiled: CUPTI reports them on the GPU's own clock.

CUPTI converts the times of all records but these to the clock of the timestamp callback. Seen on an H200 (driver
580.159.04, CUPTI 13.1): their times are the GPU's %globaltimer, which drifted by 0.7 to 11 us a second against
CLOCK_MONOTONIC on three machines. The offset is read when the timeline is switched on, and followed from then on: work
that waited for its context starts a constant time after the switch to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.native import compiled
from stallprobes.engine.timeline.records import CopyKind, RecordKind, SwitchOperation
from stallprobes.engine.timeline.ring import CONTEXT, KIND, START_NS, SUBKIND

Int64s = NDArray[np.int64]

# Words of a clock, one for each GPU: the GPU's clock minus CLOCK_MONOTONIC in ns; when that was read or confirmed; the
# context whose work started last; the number of samples; the samples of the offset.
OFFSET_NS, CONFIRMED_NS, LAST_CONTEXT, SAMPLED, FIRST_SAMPLE = range(5)
SAMPLES = 16
CLOCK_WORDS = FIRST_SAMPLE + SAMPLES

# Words of a context: its number in records, its clock, when it was switched to last, on the GPU's clock, and when its
# work started last, on the host's; 0 where a sample has used the time up.
NUMBER, CLOCK, SWITCHED_GPU_NS, WORKED_NS = range(4)
CONTEXT_WORDS = 4

# From the switch to a context until its waiting kernel starts, on an H200.
SWITCH_TO_WORK_NS = 3_840
# How far a sample may be from the offset: the error of reading it, and the drift since.
ERROR_NS = 30_000
DRIFT_PER_MILLION = 50
# Half a time-slice: from here on, the switch of another turn is nearer.
MOST_ERROR_NS = 1_000_000
# Samples of one offset differ by the microsecond that CUPTI's own conversion is off.
MOST_SPREAD_NS = 8_000
# Without a confirmation for this long, the offset is read again.
STALE_NS = 20_000_000_000

_SWITCH = int(RecordKind.CONTEXT_SWITCH)
_KERNEL = int(RecordKind.KERNEL)
_COPY = int(RecordKind.COPY)
_ON_DEVICE = int(CopyKind.DEVICE_TO_DEVICE)
_TO = int(SwitchOperation.START)


@compiled()
def context_row(number: int, contexts: Int64s) -> int:
    """The row of a context by its number; -1 if the engine did not create it and there are several clocks."""
    several = False
    for row in range(contexts.shape[0]):
        if contexts[row, NUMBER] == number:
            return row
        several = several or contexts[row, CLOCK] != contexts[0, CLOCK]
    return -1 if several or contexts.shape[0] == 0 else 0


@compiled("boolean(int64[::1], int64[:,::1], int64[:,::1])")
def to_host_time(row: Int64s, contexts: Int64s, clocks: Int64s) -> bool:
    """Converts the time of a context switch to the host's clock; False if the GPU is not known."""
    place = context_row(row[CONTEXT], contexts)
    if place < 0 or clocks.shape[0] == 0:
        return False
    row[START_NS] -= clocks[contexts[place, CLOCK], OFFSET_NS]
    return True


@compiled()
def add_sample(clock: Int64s, offset_ns: int, now_ns: int) -> None:
    """Adds a sample of the offset; the last ones together set it if they agree."""
    allowed = min(ERROR_NS + (now_ns - clock[CONFIRMED_NS]) * DRIFT_PER_MILLION // 1_000_000, MOST_ERROR_NS)
    if abs(offset_ns - clock[OFFSET_NS]) > allowed:
        return
    clock[FIRST_SAMPLE + clock[SAMPLED]] = offset_ns
    clock[SAMPLED] += 1
    if clock[SAMPLED] == SAMPLES:
        clock[SAMPLED] = 0
        samples = np.sort(clock[FIRST_SAMPLE:])
        if samples[3 * SAMPLES // 4] - samples[SAMPLES // 4] <= MOST_SPREAD_NS:
            clock[OFFSET_NS] = samples[SAMPLES // 2]
            clock[CONFIRMED_NS] = now_ns


@compiled("void(int64[::1], int64, int64[:,::1], int64[:,::1])")
def follow(row: Int64s, now_ns: int, contexts: Int64s, clocks: Int64s) -> None:
    """Takes a sample where a switch to a context and a start of its work are next to each other.

    Rows come in order of their time on the host's clock, switches converted. As long as the offset is off, a switch
    may come behind the work that waited for it.
    """
    kind = row[KIND]
    switch = kind == _SWITCH
    if switch:
        if row[SUBKIND] != _TO:
            return
    elif kind != _KERNEL and (kind != _COPY or row[SUBKIND] != _ON_DEVICE):
        return
    place = context_row(row[CONTEXT], contexts)
    if place < 0 or contexts[place, NUMBER] != row[CONTEXT] or clocks.shape[0] == 0:
        return
    context = contexts[place]
    clock = clocks[context[CLOCK]]
    if switch:
        gpu_ns = row[START_NS] + clock[OFFSET_NS]
        if context[WORKED_NS] != 0:
            add_sample(clock, gpu_ns + SWITCH_TO_WORK_NS - context[WORKED_NS], now_ns)
        context[SWITCHED_GPU_NS] = gpu_ns
        context[WORKED_NS] = 0
    else:
        clock[LAST_CONTEXT] = row[CONTEXT]
        if context[SWITCHED_GPU_NS] != 0:
            add_sample(clock, context[SWITCHED_GPU_NS] + SWITCH_TO_WORK_NS - row[START_NS], now_ns)
            context[SWITCHED_GPU_NS] = 0
        context[WORKED_NS] = row[START_NS]


@compiled()
def stale(clocks: Int64s, now_ns: int) -> bool:
    """Whether the offset of a clock must be read again."""
    return bool(np.any(now_ns - clocks[:, CONFIRMED_NS] > STALE_NS))
