/* Host memory that the driver knows: pinned allocations, registrations, and managed memory.
 *
 * A table of ranges without a lock. Asking the driver for the kind of an address would be a CUDA call.
 */
#include "inject.h"

enum { RANGES = 1024, KIND_BITS = 8 };

/* An address that is no range's, of an entry that is being written. */
static const uint64_t RESERVED = 1;

static struct {
    uint64_t address;
    uint64_t size_and_kind;
} ranges[RANGES];
static uint32_t used;
/* Set once a range found no place: from then on, what is not in the table may be of any kind. */
static uint32_t incomplete;
static __thread uint32_t last;

void sw_add_host_memory(uint64_t address, uint64_t size, uint8_t kind)
{
    for (uint32_t number = 0; number < RANGES; number++) {
        uint64_t expected = 0;
        if (sw_load(ranges[number].address) ||
            !__atomic_compare_exchange_n(&ranges[number].address, &expected, RESERVED, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        sw_store(ranges[number].size_and_kind, size << KIND_BITS | kind);
        sw_store_release(ranges[number].address, address);
        uint32_t highest = sw_load(used);
        while (highest <= number && !__atomic_compare_exchange_n(&used, &highest, number + 1, 0, __ATOMIC_RELEASE,
                                                                 __ATOMIC_RELAXED))
            ;
        return;
    }
    sw_store(incomplete, 1);
}

void sw_remove_host_memory(uint64_t address)
{
    uint32_t highest = sw_load_acquire(used);
    for (uint32_t number = 0; address > RESERVED && number < highest; number++) {
        uint64_t expected = address;
        if (sw_load(ranges[number].address) == address &&
            __atomic_compare_exchange_n(&ranges[number].address, &expected, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            return;
    }
}

static uint8_t kind_in(uint32_t number, uint64_t address)
{
    uint64_t start = sw_load_acquire(ranges[number].address);
    uint64_t size_and_kind = __atomic_load_n(&ranges[number].size_and_kind, __ATOMIC_ACQUIRE);
    if (start <= RESERVED || address < start || address - start >= size_and_kind >> KIND_BITS ||
        sw_load(ranges[number].address) != start)
        return SW_MEMORY_UNKNOWN;
    return (uint8_t)size_and_kind;
}

/* The kind of the memory at an address, ``otherwise`` if it is in no range. */
uint8_t sw_host_memory_kind(uint64_t address, uint8_t otherwise)
{
    uint8_t kind = kind_in(last, address);
    uint32_t highest = sw_load_acquire(used);
    for (uint32_t number = 0; !kind && number < highest; number++)
        if ((kind = kind_in(number, address)))
            last = number;
    return kind ? kind : sw_load(incomplete) ? SW_MEMORY_UNKNOWN : otherwise;
}
