/* What the files of the library share. */
#ifndef STALLSCOPE_INJECT_H
#define STALLSCOPE_INJECT_H

#include <stdint.h>

#include "cupti.h"
#include "layout.h"

/* The library's code runs inside callbacks of the program's own calls: it makes no CUDA call, takes no lock, and
 * reads and writes words that other threads or processes see with these. */
#define sw_load(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define sw_load_acquire(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define sw_store(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)
#define sw_store_release(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELEASE)
#define sw_add(word, value) __atomic_fetch_add(&(word), (value), __ATOMIC_RELAXED)
/* For a word with a single writer. */
#define sw_increase(word, value) sw_store(word, sw_load(word) + (value))

/* Between an odd sequence number and what it guards. ThreadSanitizer has no fences, nor does it need this one: the
 * reader is another process. */
#if defined(__SANITIZE_THREAD__)
#define sw_fence() ((void)0)
#else
#define sw_fence() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

/* Whether this process records. A forked process begins with SW_FORKED. */
enum { SW_FORKED = 0, SW_OPENING, SW_OPEN, SW_OFF };

struct sw_private {
    uint32_t recording;
    uint32_t helpers;
};

struct sw_settings {
    char folder[3072];
    char cupti[1024];
    uint64_t slow_ns;
    int calls_only;
    int yield;
    int no_stacks;
};

extern struct sw_settings sw_settings;
extern struct sw_private *sw_private;
extern struct sw_header *sw_header;
/* The number of the file, from 1: a forked process has one of its own. */
extern uint32_t sw_file;

/* map.c */
int sw_open_file(uint32_t flags);
int sw_give_space(uint64_t offset, uint64_t size);
uint64_t sw_clock(void);
uint64_t sw_real_clock(void);
void sw_stamp_clocks(void);
void sw_count_lost(int kind, uint64_t count);
void *sw_at(uint64_t offset);
struct sw_slot *sw_claim_slot(uint32_t *number);
void sw_release_slot(struct sw_slot *slot);
struct sw_histogram *sw_histogram_of(struct sw_slot *slot, uint32_t number, uint32_t api);

/* calls.c */
void sw_callback(void *user, int domain, uint32_t number, const struct cupti_callback_data *data);
int sw_choose_calls(const struct cupti *cupti, void *subscriber);
void sw_write_apis(void);
int sw_prepare_calls(void);

/* stack.c */
/* What a thread may still spend on frames of Python and on native ones (ns), and when that was last counted. */
struct sw_credit {
    int64_t python_ns;
    int64_t native_ns;
    uint64_t at;
};
void sw_prepare_stacks(void);
void sw_begin_stacks(void);
uint32_t sw_stack_of_call(struct sw_credit *credit, uint32_t api, uint64_t start, uint64_t now);

/* nvtx.c */
void sw_copy_range(char *text, size_t size, uint64_t since);

/* host_memory.c */
void sw_add_host_memory(uint64_t address, uint64_t size, uint8_t kind);
void sw_remove_host_memory(uint64_t address);
uint8_t sw_host_memory_kind(uint64_t address, uint8_t otherwise);

/* activity.c */
int sw_start_activity(const struct cupti *cupti);
void sw_stop_activity(const struct cupti *cupti);
void sw_finish_activity(void);

#endif
