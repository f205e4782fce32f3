"""Timing of a probe's loop in ns, that of the compiled loop and of the simulated thread."""

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
