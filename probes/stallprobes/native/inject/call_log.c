/* The log of all calls: blocks of entries, of which each is filled by one thread.
 *
 * A thread that needs a block takes the oldest that no thread owns, whichever thread filled it. So the log has the last
 * calls of all threads however many there are, and no entry is written by two of them.
 */
#include "call_log.h"
#include "space.h"
#include "state.h"

/* State of the space for SS_BLOCKS_STEP blocks. NONE: the file has no space for the blocks. ASKED: a thread requests
 * the space. READY: the file has the space. */
enum { NONE, ASKED, READY };

static uint8_t space[SS_CALL_BLOCKS / SS_BLOCKS_STEP];
/* Blocks of the file, a multiple of SS_BLOCKS_STEP. */
static uint32_t blocks = SS_CALL_BLOCKS;
/* The blocks that were taken when space was last given ahead. */
static uint64_t prepared;

static struct ss_call_block *block_at(uint64_t place)
{
    return (struct ss_call_block *)ss_at(SS_BLOCKS_AT) + place;
}

/* Gives space to the blocks of a step, unless another thread does. */
static void give_blocks(uint64_t step)
{
    uint8_t expected = NONE;
    if (ss_lacks_space() ||
        !__atomic_compare_exchange_n(&space[step], &expected, ASKED, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    uint64_t size = SS_BLOCKS_STEP * SS_BLOCK_PITCH;
    ss_store_release(space[step], ss_give_ring(SS_CALLS_AT + step * size, size) ? NONE : READY);
}

/* For a new file, with a number of blocks, of which each of so many threads takes one at about the same time. */
void ss_begin_log(uint32_t count, uint32_t threads)
{
    ss_store(blocks, count);
    for (size_t at = 0; at < sizeof space; at++)
        ss_store(space[at], NONE);
    prepared = 0;
    for (uint32_t step = 0; step * SS_BLOCKS_STEP < threads && step < count / SS_BLOCKS_STEP; step++)
        give_blocks(step);
}

/* Gives space ahead, as much as twice what was needed since the call before: to get new pages takes 40 ns for each call
 * that is logged, which the program's threads need not spend. Called by one thread. */
void ss_prepare_blocks(void)
{
    uint64_t taken = ss_load(ss_header->blocks), steps = ss_load(blocks) / SS_BLOCKS_STEP;
    uint64_t end = taken + 2 * (taken - prepared) + SS_BLOCKS_STEP;
    prepared = taken;
    for (uint64_t step = taken / SS_BLOCKS_STEP; step <= end / SS_BLOCKS_STEP; step++)
        if (ss_load(space[step % steps]) == NONE)
            give_blocks(step % steps);
}

static int has_space(uint64_t place)
{
    uint64_t step = place / SS_BLOCKS_STEP, next = (step + 1) % (ss_load(blocks) / SS_BLOCKS_STEP);
    if (ss_load_acquire(space[step]) != READY)
        give_blocks(step);
    /* Before others come to it: who finds a block without space leaves it out. */
    if (place % SS_BLOCKS_STEP == 0 && ss_load(space[next]) == NONE)
        give_blocks(next);
    return ss_load_acquire(space[step]) == READY;
}

/* Takes a block for a thread, after the one it has; 0 if there is none. */
int ss_take_block(struct ss_call_log *log, struct ss_slot *slot, uint32_t slot_number)
{
    uint32_t count = ss_load(blocks);
    ss_end_block(log, slot);
    for (uint32_t tried = 0; tried < count; tried++) {
        uint64_t number = ss_add(ss_header->blocks, 1);
        struct ss_call_block *block = block_at(number % count);
        uint32_t expected = SS_BLOCK_FREE;
        if (!has_space(number % count)) {
            if (ss_lacks_space())
                return 0;
            continue;
        }
        if (!__atomic_compare_exchange_n(&block->state, &expected, SS_BLOCK_OWNED, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        /* A reader drops what it reads from a block whose number changes. */
        ss_store(block->number, 0);
        ss_fence();
        ss_store(block->first, ss_load(slot->logged));
        ss_store(block->slot, slot_number);
        ss_store(block->thread, ss_load(slot->thread));
        ss_store(block->calls, 0);
        ss_store_release(block->number, number + 1);
        log->block = block;
        log->next = ss_at(SS_CALLS_AT + number % count * SS_BLOCK_PITCH);
        log->left = SS_BLOCK_CALLS;
        return 1;
    }
    return 0;
}

/* Gives the block of a thread back, whose calls stay until another thread takes it. */
void ss_end_block(struct ss_call_log *log, struct ss_slot *slot)
{
    if (!log->block)
        return;
    ss_store(slot->logged, ss_load(slot->logged) + SS_BLOCK_CALLS - log->left);
    ss_store_release(log->block->state, SS_BLOCK_FREE);
    *log = (struct ss_call_log){0};
}
