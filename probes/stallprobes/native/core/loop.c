/* The loop that makes the calls of a probe and measures them.
 *
 * Between the two clock readings of a call there is nothing but the call: no lock and no allocation. The words of the
 * probe's section have this thread as their only writer, unless the layout says otherwise.
 */
#include <math.h>
#include <string.h>

#include "core.h"
#include "histogram.h"
#include "schedule.h"

/* The arguments of an op; in ``loaded`` if some are to be loaded through their addresses. */
static inline const int64_t *arguments_of(const struct ss_op_row *op, int64_t *loaded)
{
    if (ss_likely(!op->load_mask))
        return op->arguments;
    for (int number = 0; number < SS_ARGUMENTS; number++) {
        int64_t value = op->arguments[number];
        loaded[number] = op->load_mask >> number & 1 ? ss_load_acquire(*(int64_t *)(uintptr_t)value) : value;
    }
    return loaded;
}

/* Stores the return value if the op asks for it. The status (the low 32 bits, signed), 0 if it is accepted. */
static SS_APART int64_t wrong(const struct ss_op_row *op, int64_t result)
{
    if (op->into) {
        ss_store_release(*op->into, result);
        return 0;
    }
    if (op->flags & SS_OP_RETURN_IS_VALUE)
        return 0;
    int64_t status = (int32_t)(uint32_t)(uint64_t)result;
    for (int number = 0; number < SS_ACCEPTED; number++)
        if (op->accepted[number] != SS_NONE && op->accepted[number] == status)
            return 0;
    return status;
}

/* The float of ms at an address in whole ns; 0 for one that is no time. */
static SS_APART int64_t float_ms_as_ns(const uint32_t *address)
{
    uint32_t bits = ss_load_acquire(*address);
    float ms;
    memcpy(&ms, &bits, sizeof ms);
    double ns = (double)ms * 1e6;
    if (!(fabs(ns) < 9e18))
        return 0;
    return (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5);
}

static SS_APART void keep_host_call(const struct ss_loop *loop, int64_t began, int64_t returned, int64_t op)
{
    struct ss_probe_words *words = loop->words;
    uint64_t number = (uint64_t)ss_load(words->host_calls);
    struct ss_host_call *call = &loop->host_calls[number % SS_HOST_CALLS];
    ss_store(call->began_ns, began);
    ss_store(call->returned_ns, returned);
    ss_store(call->op, op);
    ss_store(call->iteration, ss_load(words->iterations));
    ss_store_release(words->host_calls, (int64_t)number + 1);
}

static void keep_sample(const struct ss_loop *loop, int64_t end, int64_t channel, int64_t value)
{
    uint64_t number = (uint64_t)ss_load(loop->words->samples);
    struct ss_sample *sample = &loop->samples[number % SS_SAMPLES];
    ss_store(sample->end_ns, end);
    ss_store(sample->channel, channel);
    ss_store(sample->value_ns, value);
    ss_store_release(loop->words->samples, (int64_t)number + 1);
}

SS_INLINE void count(const struct ss_loop *loop, int64_t channel, int64_t value)
{
    ss_count(loop->hist + SS_BUCKETS * channel, &loop->stats[channel], value);
}

static SS_APART void keep_first(const struct ss_loop *loop, int64_t channel, int64_t label, int64_t value)
{
    ss_keep_first(&loop->stats[channel], value);
    if (label >= 0)
        ss_keep_first(&loop->stats[label], value);
}

static SS_APART void fail(struct ss_probe_words *words, int64_t op, int64_t status, int64_t now)
{
    ss_store(words->error_code, status);
    ss_store(words->error_ns, now);
    ss_store_release(words->error_op, op);
    ss_store_release(words->state, SS_PROBE_ERROR);
}

static void count_poll(struct ss_probe_words *words, int64_t *polled, int64_t now)
{
    if (*polled) {
        ss_increase(words->polled_ns, now - *polled);
        if (now - *polled >= SS_PAUSE_NS)
            ss_increase(words->paused_ns, now - *polled);
    }
    *polled = now;
}

/* Polls the clock alone once an iteration is nearly due, so that its first call begins as punctually as in a plain loop:
 * calls of several threads that begin together wait for each other. Returns the last reading. */
static int64_t poll_clock(const struct ss_loop *loop, int64_t due, int64_t *polled, int64_t now)
{
    for (int reading = 0; reading < SS_LAST_READINGS && now < due && due - now < SS_LAST_POLLS_NS; reading++) {
        now = ss_read_clock(loop->clock_gettime);
        count_poll(loop->words, polled, now);
    }
    return now;
}

static int is_guarded(const struct ss_probe_words *words)
{
    const int64_t *guard = (const int64_t *)(uintptr_t)words->guard_address;
    return guard && ss_load(words->iterations) - ss_load_acquire(*guard) >= words->guard_ahead;
}

/* Whether an iteration is due. If not, it has slept, or the clock is to be polled. ``polled`` is the last reading of the
 * clock while polling, 0 after a sleep or an iteration. */
static int is_due(const struct ss_loop *loop, struct ss_schedule *at, int64_t *polled)
{
    struct ss_probe_words *words = loop->words;
    int64_t hold = ss_load_acquire(loop->header->hold);
    if (hold) {
        ss_store_release(words->held, hold);
        if (at->on)
            ss_restart(at);
        *polled = 0;
        ss_sleep_with(loop->clock_nanosleep, at->now_ns + SS_HOLD_STEP_NS);
        return 0;
    }
    at->guarded = is_guarded(words);
    int next = ss_next(at);
    if (next == SS_NEXT_ITERATE || next == SS_NEXT_POLL || next == SS_NEXT_SLEEP)
        count_poll(words, polled, at->now_ns);
    if (next == SS_NEXT_POLL && poll_clock(loop, at->due_ns, polled, at->now_ns) >= at->due_ns)
        next = SS_NEXT_ITERATE;
    if (next != SS_NEXT_POLL)
        *polled = 0;
    if (next < SS_NEXT_POLL)
        ss_sleep_with(loop->clock_nanosleep, at->awake_ns);
    return next == SS_NEXT_ITERATE;
}

/* What an iteration has measured: when its last measured call ended, and its last call at all. */
struct iteration {
    int64_t end, measured_end;
    int measured;
};

/* Makes the calls of an iteration; -1 after a code that is not accepted. */
SS_INLINE int make_calls(const struct ss_loop *loop, const struct ss_schedule *at, int first, struct iteration *made)
{
    struct ss_probe_words *words = loop->words;
    ss_clock_gettime clock = loop->clock_gettime;
    for (uint64_t number = 0; number < loop->op_count; number++) {
        const struct ss_op_row *op = &loop->ops[number];
        ss_function function = op->function;
        int64_t channel = op->channel, label = op->label_channel;
        for (int64_t repeated = 0; repeated < op->repeat; repeated++) {
            int64_t loaded[SS_ARGUMENTS];
            const int64_t *a = arguments_of(op, loaded);
            int closed = ss_load_acquire(words->slot.changes) != at->slot;
            /* The clock reading before this one, so that there is no store between the two readings. */
            ss_store(words->inflight_since_ns, made->end);
            ss_store_release(words->inflight_op, (int64_t)number + 1);
            int64_t began = ss_read_clock(clock);
            int64_t result = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
            int64_t end = ss_read_clock(clock);
            ss_store_release(words->inflight_op, 0);
            made->end = end;
            if (ss_unlikely(op->into || (uint32_t)(uint64_t)result)) {
                int64_t status = wrong(op, result);
                if (status) {
                    fail(words, (int64_t)number + 1, status, end);
                    return -1;
                }
            }
            int unmeasured = closed || (at->fresh && ss_load_acquire(words->slot.changes) == at->slot);
            int counts = channel >= 0 && (first || !unmeasured);
            if (ss_load_acquire(loop->timeline->on))
                keep_host_call(loop, began, end,
                               (int64_t)number | (first ? SS_CALL_FIRST : 0) | (counts ? SS_CALL_MEASURED : 0));
            if (!counts)
                continue;
            made->measured = 1;
            made->measured_end = end;
            int64_t value = end - began;
            if (op->flags & SS_OP_SAMPLE_IS_FLOAT_MS) {
                /* An accepted code other than 0 (not ready) has stored no sample. */
                if ((uint32_t)(uint64_t)result)
                    continue;
                value = float_ms_as_ns(op->value);
            }
            if (ss_unlikely(first)) {
                keep_first(loop, channel, label, value);
            } else {
                count(loop, channel, value);
                if (ss_unlikely(label >= 0))
                    count(loop, label, value);
            }
            keep_sample(loop, end, channel, value);
        }
    }
    return 0;
}

/* Counts how late the iteration ended. */
SS_INLINE void count_late(const struct ss_loop *loop, const struct ss_schedule *at, int first)
{
    int64_t due_channel = loop->words->due_channel, late = at->late_ns;
    struct ss_channel_stats *stats = &loop->stats[due_channel];
    if (first) {
        ss_store(stats->first_ns, late);
        return;
    }
    count(loop, due_channel, late);
    if (at->period_ns > 0)
        ss_count_passed(loop->hist + SS_BUCKETS * due_channel, stats, ss_least(late, at->allowed_ns), at->period_ns);
}

/* Repeats the ops until the board says QUIT, or a call returns a code that is not accepted.
 *
 * While the timeline is on, every call is kept for it, measured or not. While the engine holds its probes, and while
 * its slot is closed, the loop waits. Then its schedule restarts, and the first iteration, which pays for the
 * change-over of the GPU, is not measured unless it lasts beyond the slot. Nor is a call that begins after the slot, at
 * the end of an iteration that was stuck: it disturbs the next slot's group, which disturbs it.
 */
SS_INLINE void run(const struct ss_loop *loop)
{
    struct ss_probe_words *words = loop->words;
    struct ss_schedule at = {.words = words, .slot = 1};
    int64_t polled = 0;
    while (!ss_load_acquire(loop->header->quit)) {
        at.now_ns = ss_read_clock(loop->clock_gettime);
        ss_store(words->heartbeat_ns, at.now_ns);
        if (!is_due(loop, &at, &polled))
            continue;
        ss_begin_iteration(&at);
        int first = ss_load(words->iterations) == 0;
        struct iteration made = {.end = at.now_ns, .measured_end = at.now_ns};
        if (make_calls(loop, &at, first, &made))
            return;
        at.end_ns = made.end;
        at.measured_end_ns = made.measured_end;
        ss_end_iteration(&at);
        if (made.measured)
            count_late(loop, &at, first);
        ss_store_release(words->iterations, ss_load(words->iterations) + 1);
    }
    ss_store_release(words->state, SS_PROBE_ENDED);
}

static SS_BMI2 void run_with_bmi2(const struct ss_loop *loop)
{
    run(loop);
}

SS_EXPORTED void ss_run(const struct ss_loop *loop)
{
    if (ss_has_bmi2())
        run_with_bmi2(loop);
    else
        run(loop);
}

/* Calls each op of a loop (setup or teardown) ``repeat`` times, unmeasured. 0, or after a code that is not accepted the
 * op's number from 1; the error words then hold it as a negative number. */
SS_EXPORTED int64_t ss_run_once(const struct ss_loop *loop)
{
    for (uint64_t number = 0; number < loop->op_count; number++) {
        const struct ss_op_row *op = &loop->ops[number];
        for (int64_t repeated = 0; repeated < op->repeat; repeated++) {
            int64_t loaded[SS_ARGUMENTS];
            const int64_t *a = arguments_of(op, loaded);
            int64_t result = op->function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
            int64_t status = wrong(op, result);
            if (status) {
                fail(loop->words, -(int64_t)number - 1, status, ss_read_clock(loop->clock_gettime));
                return (int64_t)number + 1;
            }
        }
    }
    return 0;
}

/* Adds value - period, value - 2 period and so on while above 0; at most one step for each bucket. */
void ss_count_passed(uint64_t *counts, struct ss_channel_stats *stats, int64_t value, int64_t period)
{
    for (int64_t rest = value - period; rest > 0;) {
        int64_t bucket = ss_bucket(rest);
        int64_t number = (rest - ss_least_of(bucket)) / period + 1;
        ss_increase(stats->count, number);
        uint64_t n = (uint64_t)number;
        ss_add_to_sum(stats, n * (uint64_t)rest - (uint64_t)period * (n * (n - 1) / 2));
        ss_increase(counts[bucket], n);
        rest -= number * period;
    }
}
