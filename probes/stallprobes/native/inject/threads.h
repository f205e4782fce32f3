/* Threads of the library (threads.c). */
#ifndef STALLSCOPE_THREADS_H
#define STALLSCOPE_THREADS_H

#include <stddef.h>
#include <stdint.h>

/* Sizes (bytes) of the stacks of the library's threads. SS_CUPTI_STACK: of threads that call CUPTI, as large as in
 * Java, whose threads call CUPTI too. SS_SMALL_STACK: of threads that do not call CUPTI. */
enum { SS_CUPTI_STACK = 1 << 20, SS_SMALL_STACK = 256 << 10 };
int ss_begin_loading(void);
void ss_end_loading(void);
void ss_wait_to_load(void);
int ss_follow_forks(void);
int ss_start_thread(void *(*body)(void *), size_t stack_bytes);
void ss_wait_for_change(uint32_t *word, uint32_t value, long ns);
void ss_wake(uint32_t *word);
uint64_t ss_thread_cpu(void);
int ss_find_awaited_word(uint32_t thread, uint64_t *word);

#endif
