/* Samples of the time of threads (samples.c). */
#ifndef STALLSCOPE_SAMPLES_H
#define STALLSCOPE_SAMPLES_H

#include <stdint.h>

#include "layout.h"
#include "stack.h"

/* The time of a thread inside its outermost calls and, less that, the clock's: two clocks, of which the second moves
 * between calls alone. By enum SS_SAMPLED: when the next sample is due by either, UINT64_MAX for never, and up to when the
 * last one has all time. ``left_ns`` is when the last outermost call returned. ``credit`` is what may be spent on stacks
 * of these samples, ``wait_credit`` that on those of waits. ``waits`` were made since the last one with a sample, and
 * ``passed`` since ``chosen_ns``, when the ``distance`` to the next one was chosen, which is 0 until then. */
struct ss_sampling {
    uint64_t inside_ns;
    uint64_t due_ns[2];
    uint64_t left_ns;
    uint64_t waits;
    uint64_t passed;
    uint64_t distance;
    uint64_t chosen_ns;
    uint64_t taken_ns[2];
    uint64_t random;
    struct ss_credit credit;
    struct ss_credit wait_credit;
};
void ss_begin_samples(void);
struct ss_sampling ss_begin_sampling(uint32_t thread);
void ss_take_sample(struct ss_sampling *sampling, struct ss_time_sample *sample, const uint32_t *stacks,
                    const uint32_t *holders, uint32_t count);
int ss_count_wait(struct ss_sampling *sampling, uint64_t now);
void ss_take_wait(struct ss_sampling *sampling, struct ss_time_sample *sample);
void ss_leave_out(struct ss_sampling *sampling, uint64_t ns);

#endif
