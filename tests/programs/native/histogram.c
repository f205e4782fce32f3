/* The core's counting, for Python's tests and benchmarks; linked with the core. */
#include "core.h"
#include "histogram.h"

#define SHOWN __attribute__((visibility("default")))

SHOWN int64_t bucket_of(int64_t value);
SHOWN void add_all(uint64_t *counts, struct ss_channel_stats *stats, const int64_t *values, int64_t number, int64_t adds);
SHOWN void count_passed(uint64_t *counts, struct ss_channel_stats *stats, int64_t value, int64_t period);

int64_t bucket_of(int64_t value)
{
    return ss_bucket(value);
}

SS_INLINE void add(uint64_t *counts, struct ss_channel_stats *stats, const int64_t *values, int64_t number, int64_t adds)
{
    for (int64_t each = 0; each < adds; each++)
        ss_count(counts, stats, values[each & (number - 1)]);
}

static SS_BMI2 void add_with_bmi2(uint64_t *counts, struct ss_channel_stats *stats, const int64_t *values,
                                  int64_t number, int64_t adds)
{
    add(counts, stats, values, number, adds);
}

/* Adds the values, of which there are a power of two, again and again, compiled as in the loop. */
void add_all(uint64_t *counts, struct ss_channel_stats *stats, const int64_t *values, int64_t number, int64_t adds)
{
    if (ss_has_bmi2())
        add_with_bmi2(counts, stats, values, number, adds);
    else
        add(counts, stats, values, number, adds);
}

void count_passed(uint64_t *counts, struct ss_channel_stats *stats, int64_t value, int64_t period)
{
    ss_count_passed(counts, stats, value, period);
}
