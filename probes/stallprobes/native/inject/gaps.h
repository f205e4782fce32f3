/* Where threads of Python are between their calls (gaps.c). */
#ifndef STALLSCOPE_GAPS_H
#define STALLSCOPE_GAPS_H

#include <stdint.h>

#include "layout.h"

/* Largest number of stacks that are kept of one gap between two calls. */
enum { SS_GAP_STACKS = 8 };
/* Where a thread of Python is between its calls, by its slot. The thread itself writes when its last outermost call
 * returned, when the next sample of the time between calls is due, and Python's state of it, NULL if it has none. The
 * thread that looks writes the ``stacks`` that it found since ``seen_ns``, which is then ``left_ns``; those of the
 * ``holders`` of locks then, as in a sample; the time between them, and when the next one is due. */
struct ss_gap {
    uint64_t left_ns;
    uint64_t due_ns;
    const void *python;
    uint64_t seen_ns;
    uint64_t distance;
    uint64_t next_ns;
    uint32_t count;
    uint32_t stacks[SS_GAP_STACKS];
    uint32_t holders[SS_GAP_STACKS];
} __attribute__((aligned(64)));
extern struct ss_gap ss_gaps[SS_SLOTS];
void ss_begin_gaps(uint32_t number);
int ss_has_python(uint32_t number);
uint32_t ss_gap_stacks(uint32_t number, uint64_t left_ns, uint32_t *stacks, uint32_t *holders);
void ss_start_looking(void);
void ss_stop_looking(void);

#endif
