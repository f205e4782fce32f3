/* The slots of threads in the file (slots.c). */
#ifndef STALLSCOPE_SLOTS_H
#define STALLSCOPE_SLOTS_H

#include <stdint.h>

#include "layout.h"

void ss_forget_slots(void);
void ss_prepare_slots(uint32_t threads);
struct ss_slot *ss_claim_slot(uint32_t *number);
void ss_release_slot(struct ss_slot *slot);
struct ss_slow_call *ss_slow_call_at(uint32_t slot, uint64_t number);
struct ss_slot *ss_live_slot(uint32_t number);
int ss_is_in_call(uint32_t api);
/* Calls that returned: without those that only ask, and without all that are frequent; and since this was asked before,
 * those of all slots and the most of one slot. */
struct ss_counted {
    uint64_t finished, kept, every, busiest;
};
struct ss_counted ss_count_calls(void);
struct ss_call_histogram *ss_histogram_of(struct ss_slot *slot, uint32_t number, uint32_t api);
struct ss_named_range *ss_claim_range(const char *name, uint32_t thread);
void ss_release_range(struct ss_named_range *range);

#endif
