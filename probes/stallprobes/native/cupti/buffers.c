/* Buffers that CUPTI fills: a fixed pool without locks.
 *
 * CUPTI calls from its own threads and from those that make the driver's calls; its callbacks carry no user data, so the
 * pool is the library's.
 */
#include "cupti.h"
#include "words.h"

/* LARGE: number of large buffers, the first ones. IS_LARGE: whether a buffer is large. A launch waits while CUPTI gives
 * its thread another buffer, which is rare with large buffers. The core library has none, as its batch has room for the
 * records of a small buffer only. */
#ifdef SS_CORE
enum { LARGE = 0 };
#define IS_LARGE(number) 0
#else
#include <sys/mman.h>

enum { LARGE = SS_LARGE_BUFFERS };
#define IS_LARGE(number) ((number) < LARGE)
#endif
/* Size (bytes) of all large buffers. */
#define LARGE_BYTES ((size_t)LARGE * SS_LARGE_BUFFER_BYTES)

#ifdef SS_CORE
/* No page of it is in memory before CUPTI writes to it. */
static uint8_t memory[SS_MOST_BUFFERS * SS_BUFFER_BYTES] __attribute__((aligned(64)));
/* FIRST: number of the first buffer that CUPTI may get. HAS_MEMORY: whether the buffers have memory. */
#define FIRST 0
#define HAS_MEMORY 1
#else
static uint8_t *memory;
/* The first buffer that CUPTI may get; ss_pool has the end of them. */
static uint64_t first_buffer;
#define FIRST ss_load(first_buffer)
#define HAS_MEMORY (memory != NULL)
#endif

SS_EXPORTED struct ss_buffer_pool ss_pool __attribute__((aligned(64))) = {
#ifdef SS_CORE
    .memory = memory,
    .buffers = SS_MOST_BUFFERS,
#else
    .buffers = 0,
#endif
};
void (*ss_on_completed)(void);

uint8_t *ss_buffer_memory(int number)
{
    return IS_LARGE(number) ? memory + (size_t)number * SS_LARGE_BUFFER_BYTES
                            : memory + LARGE_BYTES + (size_t)(number - LARGE) * SS_BUFFER_BYTES;
}

/* The number of the buffer at this address, beyond the last for one of somebody else. */
static uintptr_t number_of(const uint8_t *buffer)
{
    uintptr_t place = (uintptr_t)buffer - (uintptr_t)memory, large = place / SS_LARGE_BUFFER_BYTES;
    return IS_LARGE(large) ? large : LARGE + (place - LARGE_BYTES) / SS_BUFFER_BYTES;
}

/* Takes the first free buffer of those with the numbers from ``first`` up to ``end``; -1 if there is none. */
static int64_t take(int64_t first, int64_t end)
{
    for (int64_t number = first; number < end; number++) {
        uint64_t expected = SS_BUFFER_FREE;
        if (ss_load(ss_pool.states[number].state) == SS_BUFFER_FREE &&
            __atomic_compare_exchange_n(&ss_pool.states[number].state, &expected, SS_BUFFER_WITH_CUPTI, 0,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return number;
    }
    return -1;
}

/* A buffer for CUPTI: a small one only if no large one is free, or the other way round. */
void ss_give_buffer(uint8_t **buffer, size_t *size, size_t *most, int small)
{
    int64_t first = (int64_t)FIRST, end = (int64_t)ss_load(ss_pool.buffers), middle = end < LARGE ? end : LARGE;
    int64_t number = small ? take(middle, end) : take(first, middle);
    if (number < 0)
        number = small ? take(first, middle) : take(middle, end);
    *most = 0;
    if (number >= 0) {
        ss_add(ss_pool.taken, 1);
        *buffer = ss_buffer_memory((int)number);
        *size = IS_LARGE(number) ? SS_LARGE_BUFFER_BYTES : SS_BUFFER_BYTES;
        return;
    }
    /* CUPTI drops what has no buffer, and counts it. */
    ss_add(ss_pool.exhausted, 1);
    *buffer = NULL;
    *size = 0;
}

SS_EXPORTED void ss_requested(uint8_t **buffer, size_t *size, size_t *most)
{
    ss_give_buffer(buffer, size, most, 0);
}

#ifndef SS_CORE
/* Whether the buffers have memory. */
int ss_have_memory(void)
{
    return HAS_MEMORY;
}

/* The memory of all buffers, SS_BUFFER_MEMORY bytes, for good: CUPTI may hold one from recording to recording. */
void ss_place_buffers(void *place)
{
    memory = place;
    ss_pool.memory = place;
}

/* From now on CUPTI gets so many buffers of both sizes. */
void ss_use_buffers(uint32_t large, uint32_t small)
{
    ss_store(first_buffer, LARGE - large);
    ss_store(ss_pool.buffers, LARGE + small);
}

/* Releases the pages of all free buffers. Before the buffers have memory, their addresses begin at 0, where pages of the
 * program may be. */
void ss_return_pages(void)
{
    if (!HAS_MEMORY)
        return;
    for (int number = 0; number < SS_MOST_BUFFERS; number++) {
        uint64_t expected = SS_BUFFER_FREE;
        if (!__atomic_compare_exchange_n(&ss_pool.states[number].state, &expected, SS_BUFFER_WITH_CUPTI, 0,
                                         __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        madvise(ss_buffer_memory(number), IS_LARGE(number) ? SS_LARGE_BUFFER_BYTES : SS_BUFFER_BYTES, MADV_DONTNEED);
        ss_store_release(ss_pool.states[number].state, SS_BUFFER_FREE);
    }
}
#endif

SS_EXPORTED void ss_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    uintptr_t place = number_of(buffer);
    if (place >= SS_MOST_BUFFERS || !HAS_MEMORY)
        return;
    struct ss_buffer *completed = &ss_pool.states[place];
    ss_store(completed->valid, valid);
    ss_store(completed->ticket, ss_add(ss_pool.tickets, 1));
    ss_store_release(completed->state, SS_BUFFER_COMPLETED);
    ss_add(ss_pool.returned, 1);
    if (ss_on_completed)
        ss_on_completed();
}

SS_EXPORTED int ss_oldest_completed(void)
{
    int found = -1;
    uint64_t first = 0;
    for (uint64_t number = 0; number < SS_MOST_BUFFERS; number++) {
        if (ss_load_acquire(ss_pool.states[number].state) != SS_BUFFER_COMPLETED)
            continue;
        uint64_t ticket = ss_load(ss_pool.states[number].ticket);
        if (found < 0 || ticket < first) {
            found = (int)number;
            first = ticket;
        }
    }
    return found;
}

SS_EXPORTED void ss_release_buffer(int number)
{
    ss_store_release(ss_pool.states[number].state, SS_BUFFER_FREE);
}

SS_EXPORTED int64_t ss_discard_buffers(int64_t with_cupti)
{
    for (uint64_t number = 0; number < SS_MOST_BUFFERS; number++) {
        uint64_t state = ss_load_acquire(ss_pool.states[number].state);
        if (state == SS_BUFFER_COMPLETED || (with_cupti && state == SS_BUFFER_WITH_CUPTI))
            ss_store_release(ss_pool.states[number].state, SS_BUFFER_FREE);
    }
    return 0;
}
