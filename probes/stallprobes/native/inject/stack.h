/* Call stacks (stack.c). */
#ifndef STALLSCOPE_STACK_H
#define STALLSCOPE_STACK_H

#include <stdint.h>

/* Parts of the time that a thread may spend on stacks. SS_SLOW_PARTS: for slow calls and the thread's name.
 * SS_TIME_PARTS: for samples of the thread's time. SS_WAIT_PARTS: for samples of the thread's waits. SS_ALL_PARTS: sum
 * of all parts. Each purpose spends its own parts only. Reason: no purpose uses up the time of another. */
enum { SS_SLOW_PARTS = 16, SS_TIME_PARTS = 11, SS_WAIT_PARTS = 5, SS_ALL_PARTS = 32 };
/* What a thread may still spend on frames of Python and on native ones (ns) by its ``parts`` of SS_ALL_PARTS, and when
 * that was last counted. */
struct ss_credit {
    uint32_t parts;
    int64_t python_ns;
    int64_t native_ns;
    uint64_t at;
};
/* When a stack is taken next for the name of a thread, UINT64_MAX if never again, and how often that may still fail. */
struct ss_naming {
    uint64_t due;
    uint32_t tries;
};
void ss_prepare_stacks(void);
void ss_begin_stacks(int forked);
uint32_t ss_stack_of_call(struct ss_credit *credit, uint32_t api, uint64_t start, uint64_t now);
struct ss_naming ss_begin_naming(uint32_t thread);
uint32_t ss_stack_for_name(struct ss_naming *naming, struct ss_credit *credit, uint32_t api, uint64_t start,
                           uint64_t now);

int ss_has_stacks(void);
uint64_t ss_stack_divisor(void);
int ss_can_read_python(void);
const void *ss_own_python(void);
uint32_t ss_stack_of_python(const void *thread);
uint32_t ss_stack_of_lock_holder(const void *thread);
uint32_t ss_stack_of_lock_owner(const void *thread, uint32_t number, uint32_t stack);

#endif
