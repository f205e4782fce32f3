/* The buckets of ``latency.histogram``, and the statistics of a channel. */
#ifndef STALLSCOPE_HISTOGRAM_H
#define STALLSCOPE_HISTOGRAM_H

#include "clock.h"
#include "layout.h"
#include "words.h"

/* The least value of a bucket. */
SS_INLINE int64_t ss_least_of(int64_t bucket)
{
    int64_t exponent = ss_most(bucket / SS_SUB - 1, 0);
    return (bucket - exponent * SS_SUB) << exponent;
}

/* The bucket of a value in ns; negative values belong to the first one, too large ones to the last. The clock reading
 * that follows waits for it, so it is few operations in a row. */
SS_INLINE uint64_t ss_bucket(int64_t value)
{
    if (value < SS_SUB)
        return value < 0 ? 0 : (uint64_t)value;
    if (ss_unlikely(value >= ss_least_of(SS_BUCKETS)))
        return SS_BUCKETS - 1;
    unsigned exponent = (unsigned)(__builtin_clzll((uint64_t)value) ^ 63) - SS_SUB_BITS;
    return (uint64_t)exponent * SS_SUB + ((uint64_t)value >> exponent);
}

/* The sum of years of delay may wrap. */
SS_INLINE void ss_add_to_sum(struct ss_channel_stats *stats, uint64_t value)
{
    uint64_t *sum = (uint64_t *)&stats->sum_ns;
    ss_increase(*sum, value);
}

/* Adds a value in ns to a channel with a single writer. ``counts`` are the channel's. */
SS_INLINE void ss_count(uint64_t *counts, struct ss_channel_stats *stats, int64_t value)
{
    /* The maximum first: a reader that gets the count must also get the maximum. */
    if (value > ss_load(stats->max_ns))
        ss_store(stats->max_ns, value);
    ss_increase(stats->count, 1);
    ss_add_to_sum(stats, (uint64_t)value);
    ss_increase_release(counts[ss_bucket(value)], 1);
}

/* Keeps a value of the first iteration, which no histogram counts, if it is the channel's first. */
static inline void ss_keep_first(struct ss_channel_stats *stats, int64_t value)
{
    if (ss_load(stats->first_ns) < 0)
        ss_store(stats->first_ns, ss_most(value, 0));
}

#endif
