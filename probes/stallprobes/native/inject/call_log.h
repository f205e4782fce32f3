/* The log of calls (call_log.c). */
#ifndef STALLSCOPE_CALL_LOG_H
#define STALLSCOPE_CALL_LOG_H

#include <stdint.h>

#include "layout.h"
#include "words.h"

/* The block of a thread, its next entry, and how many are left. */
struct ss_call_log {
    struct ss_call_block *block;
    struct ss_logged_call *next;
    uint32_t left;
};
void ss_begin_log(uint32_t count, uint32_t threads);
void ss_prepare_blocks(void);
int ss_take_block(struct ss_call_log *log, struct ss_slot *slot, uint32_t slot_number);
void ss_end_block(struct ss_call_log *log, struct ss_slot *slot);

/* A call as words, as plain calls are written: to read more at once than was written at once, the CPU has to wait until it
 * is in the cache, behind all that the driver wrote meanwhile. */
typedef uint64_t __attribute__((may_alias)) ss_word;
_Static_assert(sizeof(struct ss_call) == 5 * sizeof(ss_word), "a call has five words");

SS_INLINE void ss_copy_call(struct ss_call *to, const struct ss_call *from)
{
    ss_word *target = (ss_word *)to;
    const ss_word *source = (const ss_word *)from;
    ss_store(target[0], ss_load(source[0]));
    ss_store(target[1], ss_load(source[1]));
    ss_store(target[2], ss_load(source[2]));
    ss_store(target[3], ss_load(source[3]));
    ss_store(target[4], ss_load(source[4]));
}

/* Adds a finished call to a block that has room. */
SS_INLINE void ss_log_call(struct ss_call_log *log, const struct ss_call *call, uint64_t end_ns)
{
    struct ss_logged_call *entry = log->next++;
    ss_copy_call(&entry->call, call);
    ss_store(entry->end_ns, end_ns);
    ss_store_release(log->block->calls, SS_BLOCK_CALLS - --log->left);
    /* The log is larger than the CPU's caches: by the next call, its entry is there. */
    __builtin_prefetch((const char *)(entry + 2) - 1, 1);
}

#endif
