/* Clock and sleep in ns, with the functions of the C library or of a test. */
#ifndef STALLSCOPE_CLOCK_H
#define STALLSCOPE_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "functions.h"

/* Nanoseconds in a second. */
enum { SS_SECOND_NS = 1000000000 };

/* CLOCK_MONOTONIC. */
static inline int64_t ss_read_clock(ss_clock_gettime read)
{
    struct timespec time;
    read(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * SS_SECOND_NS + time.tv_nsec;
}

/* Sleeps until CLOCK_MONOTONIC is ``time_ns``; a signal may end it. */
static inline void ss_sleep_with(ss_clock_nanosleep sleep, int64_t time_ns)
{
    struct timespec time = {time_ns / SS_SECOND_NS, time_ns % SS_SECOND_NS};
    sleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static inline int64_t ss_monotonic(void)
{
    return ss_read_clock(clock_gettime);
}

static inline void ss_sleep_until(int64_t time_ns)
{
    ss_sleep_with(clock_nanosleep, time_ns);
}

static inline int64_t ss_least(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

static inline int64_t ss_most(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

#endif
