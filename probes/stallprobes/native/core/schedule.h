/* When the iterations of a probe are due: the one definition, for the loop and, through schedule.c, for the simulated
 * GPU. It reads and writes the words of the probe's section; its caller sleeps, polls the clock and iterates. */
#ifndef STALLSCOPE_SCHEDULE_H
#define STALLSCOPE_SCHEDULE_H

#include "clock.h"
#include "core.h"

/* ``board.counter_ns``. */
SS_INLINE int64_t ss_counted_ns(const struct ss_time_counter *counter, int64_t now)
{
    for (;;) {
        int64_t changes = ss_load_acquire(counter->changes);
        int64_t counted = changes & 1 ? now - ss_load_acquire(counter->offset_ns) : ss_load_acquire(counter->total_ns);
        if (ss_load_acquire(counter->changes) == changes)
            return counted;
    }
}

/* Something else than a call has delayed the iteration: it is due now, and the change-over of the GPU is not measured. */
SS_INLINE void ss_restart(struct ss_schedule *at)
{
    at->due_ns = at->now_ns;
    at->fresh = 1;
}

SS_INLINE int ss_rest_until(struct ss_schedule *at, int64_t awake, int reason)
{
    at->awake_ns = awake;
    return reason;
}

/* What the loop does now: a NextStep. */
SS_INLINE int ss_next(struct ss_schedule *at)
{
    struct ss_probe_words *words = at->words;
    int64_t now = at->now_ns;
    if (!ss_load_acquire(words->run)) {
        at->on = 0;
        ss_store_release(words->state, SS_PROBE_PARKED);
        return ss_rest_until(at, now + SS_PARKED_STEP_NS, SS_NEXT_PARKED);
    }
    int64_t period = ss_load_acquire(words->period_ns);
    if (!at->on) {
        at->on = 1;
        at->period_ns = period;
        at->due_ns = now;
        ss_store(words->on_since_ns, now);
        ss_store_release(words->state, SS_PROBE_RUNNING);
    } else if (period != at->period_ns) {
        at->period_ns = period;
        at->due_ns = ss_most(at->last_ns + period, now);
    }
    int64_t slot = ss_load_acquire(words->slot.changes);
    if (!(slot & 1)) {
        int near = ss_load_acquire(words->opens_ns) - now < 2 * SS_PARKED_STEP_NS;
        return ss_rest_until(at, now + (near ? SS_SLOT_STEP_NS : SS_PARKED_STEP_NS), SS_NEXT_SLOT_CLOSED);
    }
    if (slot != at->slot) {
        at->slot = slot;
        at->slot_offset_ns = ss_load_acquire(words->slot.offset_ns);
        ss_restart(at);
    }
    if (at->guarded) {
        /* The guard, not a call, delays the iteration: the schedule is shifted. */
        at->due_ns = ss_most(at->due_ns, now);
        return ss_rest_until(at, now + SS_GUARD_STEP_NS, SS_NEXT_GUARDED);
    }
    if (words->aligned && period > 0 && !at->fresh && at->due_ns % period)
        at->due_ns += period - at->due_ns % period;
    if (period > 0 && now < at->due_ns) {
        int64_t awake = at->due_ns - words->lead_ns;
        if (period >= SS_SPIN_BELOW_NS && now < awake)
            return ss_rest_until(at, ss_least(awake, now + SS_WAIT_SLICE_NS), SS_NEXT_SLEEP);
        return SS_NEXT_POLL;
    }
    return SS_NEXT_ITERATE;
}

SS_INLINE void ss_begin_iteration(struct ss_schedule *at)
{
    if (!at->period_ns)
        at->due_ns = at->now_ns;
    ss_store(at->words->due_ns, at->due_ns);
    ss_store(at->words->due_allowed_ns, at->due_ns - at->slot_offset_ns);
}

SS_INLINE void ss_end_iteration(struct ss_schedule *at)
{
    struct ss_probe_words *words = at->words;
    int64_t period = at->period_ns, allowed = at->end_ns - at->due_ns;
    int slot_ended = ss_load_acquire(words->slot.changes) != at->slot;
    if (slot_ended)
        /* Calls that would have been due while the slot was closed were neither delayed nor missed. */
        allowed = ss_most(ss_counted_ns(&words->slot, at->end_ns) - (at->due_ns - at->slot_offset_ns), 0);
    at->late_ns = at->measured_end_ns - at->due_ns;
    at->allowed_ns = allowed;
    if (at->fresh && !slot_ended) {
        at->last_ns = at->due_ns;
        at->due_ns = ss_most(at->end_ns, at->due_ns + ss_least(period, SS_RESTART_NS));
    } else {
        int64_t passed = period > 0 && allowed > 0 ? (allowed - 1) / period : 0;
        ss_increase(words->missed, passed);
        at->last_ns = at->due_ns + passed * period;
        at->due_ns = at->last_ns + period;
    }
    at->fresh = 0;
}

#endif
