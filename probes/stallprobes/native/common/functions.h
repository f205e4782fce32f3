/* The types of the functions whose addresses stand in the layouts. */
#ifndef STALLSCOPE_FUNCTIONS_H
#define STALLSCOPE_FUNCTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Any function of a program. By the calling conventions of Linux on x86-64 and AArch64 a function of fewer integers or
 * pointers ignores the rest, and one that returns 32 bits leaves the upper half undefined. */
typedef int64_t (*ss_function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                               int64_t, int64_t);
typedef int (*ss_clock_gettime)(clockid_t clock, struct timespec *time);
typedef int (*ss_clock_nanosleep)(clockid_t clock, int flags, const struct timespec *time, struct timespec *rest);
/* Of CUPTI; each returns its code, 0 for success. */
typedef int (*ss_flush)(uint32_t flag);
typedef int (*ss_next_record)(uint8_t *buffer, size_t valid, uint8_t **record);
typedef int (*ss_count_dropped)(void *context, uint32_t stream, size_t *dropped);

#endif
