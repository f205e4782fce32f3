"""Schedule of a probe's iterations: its timing in ns, and what it keeps from one iteration to the next."""

import ctypes
from enum import IntEnum
from typing import Annotated

from stallprobes.native.layouts.structure import Int64, Pointer, structure

# A probe sleeps until this long before the due time, then polls the clock: a call right after a wake-up also measures
# the wake-up (sleep state of the core, cold caches), by an amount that changes from minute to minute. On an H200
# machine the p50 of a launch every millisecond was 2.9 to 9.5 us with a lead of 60 us, and 3.0 to 3.4 us with this
# lead, over eight windows of 0.6 s each. Slow phases of the machine remain.
LEAD_DEFAULT_NS = 150_000
# How often a parked loop looks for its RUN word, and one that its guard holds back for its guard's word.
PARKED_STEP_NS = 1_000_000
GUARD_STEP_NS = 100_000
# How often a loop looks whether its slot has opened, once that may happen.
SLOT_STEP_NS = 100_000
# How often a held loop looks whether the hold has ended.
HOLD_STEP_NS = 100_000
# After the first iteration of a slot, which is not measured, the next one is due after this time or the period,
# whichever is shorter: otherwise a period longer than a slot would give no samples.
RESTART_NS = 1_000_000
# A loop that polls the clock and finds so much time gone had no CPU meanwhile; one reading takes tens of nanoseconds.
PAUSE_NS = 20_000
# For so long before an iteration is due, a loop only reads the clock, and so many times at most.
LAST_POLLS_NS = 1_000
LAST_READINGS = 100
# A longer wait is split into slices, so that a probe with a long period notices a stop.
WAIT_SLICE_NS = 50_000_000
# A sleep ends some 50 us late; with a shorter period the loop polls the clock instead.
SPIN_BELOW_NS = 100_000


class NextStep(IntEnum):
    """What a loop does next: sleep until ``awake_ns`` for one of four reasons, read the clock again, or iterate."""

    PARKED = 0
    SLOT_CLOSED = 1
    GUARDED = 2
    SLEEP = 3
    POLL = 4
    ITERATE = 5


@structure
class Schedule(ctypes.Structure):
    """When the next iteration of a probe is due, and what its loop knows of its slot.

    Whoever runs the loop sets ``now_ns`` and ``guarded`` (the guard holds the next iteration back) before each step,
    and after an iteration when its last call ended, and its last measured one. ``last_ns`` is when the iteration before
    was due. ``fresh``: the next iteration is the first of its slot, or after a hold. Without slots it is always slot 1,
    which began at 0. Of the last iteration, ``late_ns`` is how long after its due time its last measured call ended,
    and ``allowed_ns`` how long its last call, without the time in which its slot was closed.
    """

    words: Annotated[int, ctypes.c_uint64, Pointer("struct ss_probe_words")]
    now_ns: Int64
    guarded: Int64
    end_ns: Int64
    measured_end_ns: Int64
    period_ns: Int64
    due_ns: Int64
    last_ns: Int64
    awake_ns: Int64
    slot: Int64
    slot_offset_ns: Int64
    on: Int64
    fresh: Int64
    late_ns: Int64
    allowed_ns: Int64
