/* Host memory that the driver knows: pinned allocations, registrations, and managed memory.
 *
 * A table of ranges without a lock, since asking the driver for the kind of an address would be a CUDA call. A filter
 * by blocks of addresses keeps the search short: most programs have few large ranges or many small ones.
 */
#include "host_memory.h"
#include "state.h"

enum {
    /* Largest number of ranges in the table. */
    RANGES = 1024,
    /* Number of bits of ``size_and_kind`` that have the kind. */
    KIND_BITS = 8,
    /* BLOCK_BITS: binary logarithm of the size (bytes) of a block of addresses in the filter. BUCKETS: number of the
     * filter's buckets. */
    BLOCK_BITS = 16,
    BUCKETS = 1 << 16,
    /* Largest number of blocks (128 GiB) of a range in the filter; larger ranges count in ``outside_filter``. */
    MOST_BLOCKS = 1 << 21,
    /* Largest number of ranges that a callback searches. If the table has more, an address that the search does not
     * find is of an unknown kind. */
    MOST_SEARCHED = 32,
};

/* Value in place of the address in an entry that is being written: no range begins there. */
static const uint64_t RESERVED = 1;

static struct {
    uint64_t address;
    uint64_t size_and_kind;
} ranges[RANGES];
static uint32_t used;
/* Set once a range found no place: from then on, what is not in the table may be of any kind. */
static uint32_t incomplete;
/* For the blocks of each bucket: how many ranges touch them, and the last of these. */
static struct {
    uint32_t ranges;
    uint32_t last;
} buckets[BUCKETS];
static uint32_t outside_filter;

static uint32_t bucket_of(uint64_t block)
{
    return (uint32_t)(block ^ block >> 16) % BUCKETS;
}

static void change_filter(uint32_t number, uint64_t address, uint64_t size, uint32_t change)
{
    uint64_t first = address >> BLOCK_BITS;
    uint64_t last = (address + (size ? size - 1 : 0)) >> BLOCK_BITS;
    if (last - first >= MOST_BLOCKS) {
        __atomic_fetch_add(&outside_filter, change, __ATOMIC_ACQ_REL);
        return;
    }
    for (uint64_t block = first; block <= last; block++) {
        uint32_t bucket = bucket_of(block);
        ss_store(buckets[bucket].last, number);
        __atomic_fetch_add(&buckets[bucket].ranges, change, __ATOMIC_RELEASE);
    }
}

void ss_add_host_memory(uint64_t address, uint64_t size, uint8_t kind)
{
    for (uint32_t number = 0; number < RANGES; number++) {
        uint64_t expected = 0;
        if (ss_load(ranges[number].address) ||
            !__atomic_compare_exchange_n(&ranges[number].address, &expected, RESERVED, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        ss_store(ranges[number].size_and_kind, size << KIND_BITS | kind);
        ss_store_release(ranges[number].address, address);
        uint32_t highest = ss_load(used);
        while (highest <= number && !__atomic_compare_exchange_n(&used, &highest, number + 1, 0, __ATOMIC_RELEASE,
                                                                 __ATOMIC_RELAXED))
            ;
        change_filter(number, address, size, 1);
        return;
    }
    ss_store(incomplete, 1);
}

/* Whether a range may contain the address. */
static int may_be_known(uint64_t address)
{
    return __atomic_load_n(&buckets[bucket_of(address >> BLOCK_BITS)].ranges, __ATOMIC_ACQUIRE) ||
           ss_load(outside_filter);
}

void ss_remove_host_memory(uint64_t address)
{
    uint32_t highest = ss_load_acquire(used);
    if (address <= RESERVED || !may_be_known(address))
        return;
    for (uint32_t number = 0; number < highest; number++) {
        uint64_t expected = address;
        if (ss_load(ranges[number].address) != address)
            continue;
        uint64_t size = ss_load(ranges[number].size_and_kind) >> KIND_BITS;
        if (__atomic_compare_exchange_n(&ranges[number].address, &expected, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
            change_filter(number, address, size, -1u);
            return;
        }
    }
}

static uint8_t kind_in(uint32_t number, uint64_t address)
{
    uint64_t start = ss_load_acquire(ranges[number].address);
    uint64_t size_and_kind = __atomic_load_n(&ranges[number].size_and_kind, __ATOMIC_ACQUIRE);
    if (start <= RESERVED || address < start || address - start >= size_and_kind >> KIND_BITS ||
        ss_load(ranges[number].address) != start)
        return SS_MEMORY_UNKNOWN;
    return (uint8_t)size_and_kind;
}

/* For a recording that begins late: what was allocated, registered or freed before is not known. */
void ss_forget_host_memory(void)
{
    ss_store(incomplete, 1);
    for (uint32_t number = 0; number < RANGES; number++)
        ss_store(ranges[number].address, 0);
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket++)
        ss_store(buckets[bucket].ranges, 0);
    ss_store(used, 0);
    ss_store(outside_filter, 0);
}

/* The kind of the memory at an address, ``otherwise`` if it is in no range. */
uint8_t ss_host_memory_kind(uint64_t address, uint8_t otherwise)
{
    uint8_t kind = SS_MEMORY_UNKNOWN;
    uint32_t highest = 0;
    if (may_be_known(address)) {
        kind = kind_in(ss_load(buckets[bucket_of(address >> BLOCK_BITS)].last), address);
        highest = ss_load_acquire(used);
        for (uint32_t number = 0; !kind && number < highest && number < MOST_SEARCHED; number++)
            kind = kind_in(number, address);
    }
    if (kind)
        return kind;
    return highest > MOST_SEARCHED || ss_load(incomplete) ? SS_MEMORY_UNKNOWN : otherwise;
}
