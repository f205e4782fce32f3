/* Threads of the library (threads.c). */
#ifndef STALLSCOPE_THREADS_H
#define STALLSCOPE_THREADS_H

#include <stddef.h>
#include <stdint.h>

/* Stacks (bytes) of the library's threads: of those that call CUPTI, as large as Java's, whose threads do so too, and of the
 * others. */
enum { SS_CUPTI_STACK = 1 << 20, SS_SMALL_STACK = 256 << 10 };
int ss_start_thread(void *(*body)(void *), size_t stack_bytes);
void ss_wait_for_change(uint32_t *word, uint32_t value, long ns);
void ss_wake(uint32_t *word);
uint64_t ss_thread_cpu(void);

#endif
