/* The slots of threads in the file, with their histograms, slow calls and ranges: each has space before it is used. */
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gate.h"
#include "slots.h"
#include "space.h"
#include "state.h"

/* The slots that have space: to read from a hole may need space too, and end the program for the lack of it. */
static uint8_t slot_ready[SS_SLOTS];
static uint8_t range_ready[SS_RANGES];
/* How many slots and histograms have space that was given ahead. */
static uint32_t slots_ahead, histograms_ahead;
/* Bits for the steps of a slot's slow calls that have space; only its owner uses them. */
static uint8_t slow_ready[SS_SLOTS];
_Static_assert(SS_SLOW_CALLS / SS_SLOW_STEP <= 8 && SS_SLOW_CALLS % SS_SLOW_STEP == 0, "a bit for each step");
/* The calls of each slot when they were last counted. */
static uint64_t counted[SS_SLOTS];

/* In a new file no slot, slow call or range has space. */
void ss_forget_slots(void)
{
    memset(slot_ready, 0, sizeof slot_ready);
    memset(slow_ready, 0, sizeof slow_ready);
    memset(range_ready, 0, sizeof range_ready);
    memset(counted, 0, sizeof counted);
}

/* Gives space to the slots and the first histograms of so many threads, which begin to be recorded at about the same time,
 * and would wait for each other in the kernel. */
void ss_prepare_slots(uint32_t threads)
{
    /* Number of histograms of each thread that get space ahead. */
    enum { HISTOGRAMS_EACH = 2 };
    uint32_t number = 0, most = threads < SS_SLOTS ? threads : SS_SLOTS;
    while (number < most && !ss_give_space(SS_SLOTS_AT + number * (uint64_t)SS_SLOT_PITCH, offsetof(struct ss_slot, slow)))
        number++;
    uint32_t histograms = HISTOGRAMS_EACH * number;
    ss_store(slots_ahead, number);
    ss_store(histograms_ahead,
             histograms && !ss_give_space(SS_HISTOGRAMS_AT, histograms * (uint64_t)SS_HISTOGRAM_PITCH) ? histograms : 0);
}

static struct ss_slot *slot_at(uint32_t number)
{
    return ss_at(SS_SLOTS_AT + (uint64_t)number * SS_SLOT_PITCH);
}

static struct ss_call_histogram *histogram_at(uint32_t number)
{
    return ss_at(SS_HISTOGRAMS_AT + (uint64_t)number * SS_HISTOGRAM_PITCH);
}

/* The next of a number of places, all of one size, with space for its first ``bytes``; -1 if there are no more. Space was
 * given ``ahead`` for the first ones. */
static int64_t next_place(uint32_t *used, uint32_t places, uint32_t ahead, uint64_t at, uint64_t pitch, uint64_t bytes)
{
    uint32_t number = ss_load(*used);
    do
        if (number >= places || (number >= ahead && ss_lacks_room(bytes)))
            return -1;
    while (!__atomic_compare_exchange_n(used, &number, number + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (number < ahead || !ss_give_space(at + number * pitch, bytes))
        return number;
    /* A later try has it, unless the next one is in use: then it stays a hole, which reads as zeros. */
    uint32_t next = number + 1;
    __atomic_compare_exchange_n(used, &next, number, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return -1;
}

struct ss_call_histogram *ss_histogram_of(struct ss_slot *slot, uint32_t number, uint32_t api)
{
    uint32_t known = ss_load(slot->histograms[api]);
    if (__builtin_expect(known != 0, 1))
        return histogram_at(known - 1);
    int64_t place = next_place(&ss_header->histograms, SS_HISTOGRAMS, ss_load(histograms_ahead), SS_HISTOGRAMS_AT,
                               SS_HISTOGRAM_PITCH, SS_HISTOGRAM_PITCH);
    if (place < 0)
        return NULL;
    struct ss_call_histogram *histogram = histogram_at((uint32_t)place);
    histogram->api = api;
    histogram->slot = number;
    ss_store_release(slot->histograms[api], (uint32_t)place + 1);
    return histogram;
}

/* The slot of a thread that has ended, with its figures, to which those of its next owner are added; -1 without one. */
static int64_t take_over(void)
{
    static uint32_t first;
    struct ss_file_header *header = ss_header;
    uint32_t slots = ss_load(header->slots);
    uint32_t start = ss_load(first);
    if (slots > SS_SLOTS || !ss_load_acquire(header->ended_slots))
        return -1;
    for (uint32_t tried = 0; tried < slots; tried++) {
        uint32_t number = (start + tried) % slots;
        uint32_t expected = SS_SLOT_ENDED;
        if (!ss_load_acquire(slot_ready[number]) ||
            !__atomic_compare_exchange_n(&slot_at(number)->use, &expected, SS_SLOT_CLAIMED, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        ss_add(header->ended_slots, -1u);
        ss_store(first, number + 1);
        return number;
    }
    return -1;
}

/* A slot for the calling thread; NULL if all belong to live threads. */
struct ss_slot *ss_claim_slot(uint32_t *number)
{
    struct ss_file_header *header = ss_header;
    int64_t found = -1;
    /* Threads that come and go must not use up what is left. */
    if (ss_load(header->histograms) > SS_HISTOGRAMS / 4 * 3)
        found = take_over();
    if (found < 0) {
        found = next_place(&header->slots, SS_SLOTS, ss_load(slots_ahead), SS_SLOTS_AT, SS_SLOT_PITCH,
                           offsetof(struct ss_slot, slow));
        if (found >= 0)
            ss_store_release(slot_ready[found], 1);
        else
            found = take_over();
    }
    if (found < 0)
        return NULL;
    struct ss_slot *slot = slot_at((uint32_t)found);
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    memcpy(slot->name, name, sizeof slot->name);
    ss_store(slot->stack, 0);
    ss_store(slot->thread, (uint32_t)syscall(SYS_gettid));
    ss_store(slot->started_ns, ss_clock());
    ss_store(slot->ended_ns, 0);
    ss_store(slot->depth, 0);
    ss_forget_flight((uint32_t)found);
    ss_store(slot->owners, ss_load(slot->owners) + 1);
    ss_store_release(slot->use, SS_SLOT_LIVE);
    *number = (uint32_t)found;
    return slot;
}

/* The place of a slow call by its number, in the slot with a number; NULL if there is no space for it. */
struct ss_slow_call *ss_slow_call_at(uint32_t slot, uint64_t number)
{
    uint64_t step = number % SS_SLOW_CALLS / SS_SLOW_STEP;
    struct ss_slow_call *first = &slot_at(slot)->slow[step * SS_SLOW_STEP];
    uint8_t bit = (uint8_t)(1u << step);
    if (!(slow_ready[slot] & bit)) {
        if (ss_give_space((uint64_t)((char *)first - (char *)ss_header), SS_SLOW_STEP * sizeof *first))
            return NULL;
        slow_ready[slot] |= bit;
    }
    return &slot_at(slot)->slow[number % SS_SLOW_CALLS];
}

/* The slot with a number, if a live thread has it; NULL otherwise. */
struct ss_slot *ss_live_slot(uint32_t number)
{
    if (number >= ss_load(ss_header->slots) || !ss_load_acquire(slot_ready[number]))
        return NULL;
    return ss_load_acquire(slot_at(number)->use) == SS_SLOT_LIVE ? slot_at(number) : NULL;
}

/* Whether a thread with a slot is in a call of a function. */
int ss_is_in_call(uint32_t api)
{
    uint32_t slots = ss_load(ss_header->slots);
    for (uint32_t number = 0; number < slots && number < SS_SLOTS; number++) {
        const struct ss_slot *slot = ss_live_slot(number);
        uint32_t depth = slot ? ss_load_acquire(slot->depth) : 0;
        while (depth--)
            if (depth < SS_DEPTH && __atomic_load_n(&slot->calls[depth].api, __ATOMIC_RELAXED) == api)
                return 1;
    }
    return 0;
}

void ss_release_slot(struct ss_slot *slot)
{
    ss_store(slot->depth, 0);
    ss_store(slot->ended_ns, ss_clock());
    ss_store_release(slot->use, SS_SLOT_ENDED);
    __atomic_fetch_add(&ss_header->ended_slots, 1, __ATOMIC_RELEASE);
}

/* The calls of all slots that have returned so far, and those since this was asked before. Called by one thread. */
struct ss_counted ss_count_calls(void)
{
    uint32_t slots = ss_load(ss_header->slots);
    struct ss_counted sums = {0};
    for (uint32_t number = 0; number < slots && number < SS_SLOTS; number++) {
        if (!ss_load_acquire(slot_ready[number]))
            continue;
        const struct ss_slot *slot = slot_at(number);
        uint64_t finished = ss_load(slot->finished), every = finished + ss_load(slot->asked);
        sums.every += every - counted[number];
        if (every - counted[number] > sums.busiest)
            sums.busiest = every - counted[number];
        counted[number] = every;
        sums.finished += finished;
        sums.kept += ss_load(slot->kept);
    }
    return sums;
}

static struct ss_named_range *range_at(uint32_t number)
{
    return ss_at(SS_RANGES_AT + (uint64_t)number * SS_RANGE_PITCH);
}

/* The ranges of a thread that has ended, with this name, to which those of another one are added; -1 without any. */
static int64_t take_over_range(const char *name)
{
    uint32_t ranges = ss_load(ss_header->ranges);
    for (uint32_t number = 0; number < ranges && number < SS_RANGES; number++) {
        uint32_t expected = SS_SLOT_ENDED;
        if (ss_load_acquire(range_ready[number]) && ss_load_acquire(range_at(number)->use) == SS_SLOT_ENDED &&
            !memcmp(range_at(number)->name, name, SS_RANGE) &&
            __atomic_compare_exchange_n(&range_at(number)->use, &expected, SS_SLOT_CLAIMED, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return number;
    }
    return -1;
}

/* A place for the ranges with this name, of SS_RANGE bytes, that a thread begins; NULL if there are no more. */
struct ss_named_range *ss_claim_range(const char *name, uint32_t thread)
{
    int64_t found = take_over_range(name);
    if (found < 0) {
        found = next_place(&ss_header->ranges, SS_RANGES, 0, SS_RANGES_AT, SS_RANGE_PITCH, SS_RANGE_PITCH);
        if (found < 0)
            return NULL;
        memcpy(range_at((uint32_t)found)->name, name, SS_RANGE);
        ss_store_release(range_ready[found], 1);
    }
    struct ss_named_range *range = range_at((uint32_t)found);
    ss_store(range->thread, thread);
    ss_store_release(range->use, SS_SLOT_LIVE);
    return range;
}

void ss_release_range(struct ss_named_range *range)
{
    ss_store_release(range->use, SS_SLOT_ENDED);
}
