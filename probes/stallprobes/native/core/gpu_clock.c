/* Context switches on the host's clock: CUPTI reports them on the GPU's own clock.
 *
 * CUPTI converts the times of all records but these to the clock of the timestamp callback. Seen on an H200 (driver
 * 580.159.04, CUPTI 13.1): their times are the GPU's %globaltimer, which drifted by 0.7 to 11 us a second against
 * CLOCK_MONOTONIC on three machines. The offset is read when the timeline is switched on, and followed from then on:
 * work that waited for its context starts a constant time after the switch to it.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "core.h"

/* The context with a number; where all contexts have one clock, any of them for one that the engine did not create. */
static struct ss_traced_context *context_of(const struct ss_collector *collector, int64_t number)
{
    int several = 0;
    for (uint64_t place = 0; place < collector->context_count; place++) {
        struct ss_traced_context *context = &collector->contexts[place];
        if (context->number == number)
            return context;
        several |= context->clock != collector->contexts[0].clock;
    }
    return several || !collector->context_count ? NULL : &collector->contexts[0];
}

int ss_to_host_time(const struct ss_collector *collector, struct ss_gpu_record *record)
{
    const struct ss_traced_context *context = context_of(collector, record->context);
    if (!context || !collector->clock_count)
        return 0;
    record->start_ns -= collector->clocks[context->clock].offset_ns;
    return 1;
}

static int compare(const void *one, const void *other)
{
    int64_t left = *(const int64_t *)one, right = *(const int64_t *)other;
    return (left > right) - (left < right);
}

/* Adds a sample of the offset; the last ones together set it if they agree. */
static void add_sample(struct ss_gpu_clock *clock, int64_t offset, int64_t now)
{
    int64_t drift = (now - clock->confirmed_ns) * SS_CLOCK_DRIFT_PER_MILLION / 1000000;
    if (llabs(offset - clock->offset_ns) > ss_least(SS_CLOCK_ERROR_NS + drift, SS_MOST_CLOCK_ERROR_NS))
        return;
    clock->samples[clock->sampled++] = offset;
    if (clock->sampled < SS_CLOCK_SAMPLES)
        return;
    clock->sampled = 0;
    int64_t sorted[SS_CLOCK_SAMPLES];
    memcpy(sorted, clock->samples, sizeof sorted);
    qsort(sorted, SS_CLOCK_SAMPLES, sizeof *sorted, compare);
    if (sorted[3 * SS_CLOCK_SAMPLES / 4] - sorted[SS_CLOCK_SAMPLES / 4] <= SS_MOST_CLOCK_SPREAD_NS) {
        clock->offset_ns = sorted[SS_CLOCK_SAMPLES / 2];
        clock->confirmed_ns = now;
    }
}

/* Takes a sample where a switch to a context and a start of its work are next to each other.
 *
 * Records come in order of their time on the host's clock, switches converted. As long as the offset is off, a switch
 * may come behind the work that waited for it. */
void ss_follow_clock(struct ss_collector *collector, const struct ss_gpu_record *record, int64_t now)
{
    int is_switch = record->kind == SS_KIND_CONTEXT_SWITCH;
    int is_work = record->kind == SS_KIND_KERNEL ||
                  (record->kind == SS_KIND_COPY && record->subkind == SS_COPY_DEVICE_TO_DEVICE);
    if (is_switch ? record->subkind != SS_SWITCH_START : !is_work)
        return;
    struct ss_traced_context *context = context_of(collector, record->context);
    if (!context || context->number != record->context || !collector->clock_count)
        return;
    struct ss_gpu_clock *clock = &collector->clocks[context->clock];
    if (is_switch) {
        int64_t gpu_ns = record->start_ns + clock->offset_ns;
        if (context->worked_ns)
            add_sample(clock, gpu_ns + SS_SWITCH_TO_WORK_NS - context->worked_ns, now);
        context->switched_gpu_ns = gpu_ns;
        context->worked_ns = 0;
    } else {
        clock->last_context = record->context;
        if (context->switched_gpu_ns) {
            add_sample(clock, context->switched_gpu_ns + SS_SWITCH_TO_WORK_NS - record->start_ns, now);
            context->switched_gpu_ns = 0;
        }
        context->worked_ns = record->start_ns;
    }
}

int ss_is_stale(const struct ss_collector *collector, int64_t now)
{
    for (uint64_t number = 0; number < collector->clock_count; number++)
        if (now - collector->clocks[number].confirmed_ns > SS_CLOCK_STALE_NS)
            return 1;
    return 0;
}
