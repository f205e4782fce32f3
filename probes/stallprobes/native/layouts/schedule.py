"""Schedule of a probe's iterations: its timing in ns, and its state between two iterations."""

import ctypes
from enum import IntEnum
from typing import Annotated

from stallprobes.native.layouts.structure import Int64, Pointer, structure

# Default time (ns) before an iteration's due time at which a probe stops sleeping and polls the clock. Reason: the
# measured call must not include the wake-up of the CPU. On an H200 machine (eight windows of 0.6 s), the p50 of a
# launch every millisecond varied from 2.9 to 9.5 us with 60 us, and from 3.0 to 3.4 us with this value.
LEAD_DEFAULT_NS = 150_000
# Period (ns) at which the loop of a parked (switched-off) probe polls its RUN word, which switches it on.
PARKED_STEP_NS = 1_000_000
# Period (ns) at which a probe polls the GPU's progress while the probe is as far ahead of the GPU as allowed. The next
# iteration begins only when the GPU has caught up.
GUARD_STEP_NS = 100_000
# Period (ns) at which a victim's loop polls whether its slot (the share of time of its group) has opened. The period
# applies if the slot opens in less than 2 * PARKED_STEP_NS. Earlier, the loop polls every PARKED_STEP_NS.
SLOT_STEP_NS = 100_000
# Period (ns) at which a loop that is held (may begin no iteration) polls whether the hold has ended.
HOLD_STEP_NS = 100_000
# Longest time (ns) between the due times of a victim's first and second iteration in a slot (the share of time of its
# group), if the first iteration takes no longer. Reason for a limit: the first iteration is usually not measured, so
# that a victim whose period is longer than its slot would have no samples.
RESTART_NS = 1_000_000
# Shortest time (ns) between two consecutive readings of the clock that the loop counts as a pause without a CPU.
# Usually a reading takes tens of nanoseconds.
PAUSE_NS = 20_000
# Time (ns) before an iteration's due time in which a loop only polls the clock, so that the iteration begins
# punctually.
LAST_POLLS_NS = 1_000
# Largest number of consecutive readings of the clock shortly before an iteration is due. After these readings, the loop
# makes its other checks (such as for a stop), and then reads the clock again.
LAST_READINGS = 100
# Longest single sleep (ns) of a loop, so that a probe with a long period soon notices a stop.
WAIT_SLICE_NS = 50_000_000
# Period (ns) of a probe below which its loop polls the clock and never sleeps: a sleep ends some 50 us late.
SPIN_BELOW_NS = 100_000


class NextStep(IntEnum):
    """Next step of a loop.

    PARKED: sleep, since the probe is switched off. SLOT_CLOSED: sleep, since the probe's slot is closed. GUARDED:
    sleep, since the probe is as far ahead of the GPU as allowed. SLEEP: sleep, since the iteration is not due yet. Each
    sleep lasts until ``awake_ns``. POLL: read the clock again. ITERATE: begin the iteration.
    """

    PARKED = 0
    SLOT_CLOSED = 1
    GUARDED = 2
    SLEEP = 3
    POLL = 4
    ITERATE = 5


@structure
class Schedule(ctypes.Structure):
    """Due time of a probe's next iteration, and its loop's state of the slot.

    Whoever runs the loop sets ``now_ns`` and ``guarded`` (the guard holds the next iteration back) before each step,
    and after an iteration when its last call ended, and its last measured one. ``last_ns`` is when the iteration before
    was due. ``fresh``: the next iteration is the first of its slot, or after a hold. Without slots it is always slot 1,
    which began at 0. In the last iteration, ``late_ns`` is the time from its due time to the end of its last measured
    call, and ``allowed_ns`` the time to the end of its last call without the time in which the slot was closed.
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
