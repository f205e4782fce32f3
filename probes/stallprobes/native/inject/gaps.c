/* Where threads of Python are between their calls, seen while they are there.
 *
 * The stack at the entry of a call has the line of that call. What took the time before it, such as a batch that is read or
 * prepared, is at another line. So a thread of the library looks at threads that have been between calls for a while,
 * when the next sample of that time is due, and keeps where they are; the sample, taken at the entry of the next call,
 * has the stacks of its gap. Shorter gaps are at the line of their call.
 *
 * It takes no lock, stops no thread and changes nothing of the interpreter. What it reads may change under it: a frame that
 * was left is mostly still there, and what cannot be read or is no frame ends the stack, which is then left out.
 */
#include <sys/prctl.h>

#include "gaps.h"
#include "slots.h"
#include "stack.h"
#include "state.h"
#include "threads.h"

enum {
    /* Smallest age (ns) of a gap between two calls at which the gap is looked at. */
    LEAST_NS = 200000,
    /* REST_NS: usual pause (ns) between two looks while threads make calls. LEAST_REST_NS: shortest pause (ns). Reason
     * for short pauses: the begin of a gap may be seen one pause late. After a longer pause, samples of the gap's begin
     * would have the line of the next call. */
    REST_NS = 1000000,
    LEAST_REST_NS = 200000,
    /* Pause (ns) between two looks while no thread of Python has made a call. */
    IDLE_NS = 50000000,
    /* Number of tries to read a stack, which may change meanwhile. */
    TRIES = 3,
    /* Longest wait (ns) for the end of the thread that looks. */
    EXIT_NS = 50000000,
};
/* Stage of the thread that looks. RUN: the thread runs. STOP: the thread has been asked to stop. STOPPED: the thread
 * has stopped. */
enum { RUN, STOP, STOPPED };

struct ss_gap ss_gaps[SS_SLOTS];
static uint32_t stage = STOPPED;

/* For a slot that has a new owner. */
void ss_begin_gaps(uint32_t number)
{
    struct ss_gap *gap = &ss_gaps[number];
    ss_store_release(gap->python, NULL);
    ss_store(gap->left_ns, 0);
    ss_store_release(gap->python, ss_own_python());
}

/* Whether Python had a state of the owner of a slot when that was last looked at. */
int ss_has_python(uint32_t number)
{
    return ss_load(ss_gaps[number].python) != NULL;
}

/* The stacks that were seen since the thread's last call returned at ``left_ns``, and those of who had Python's lock; how
 * many they are. Called by the thread itself. */
uint32_t ss_gap_stacks(uint32_t number, uint64_t left_ns, uint32_t *stacks, uint32_t *holders)
{
    struct ss_gap *gap = &ss_gaps[number];
    if (ss_load_acquire(gap->seen_ns) != left_ns)
        return 0;
    uint32_t count = ss_load_acquire(gap->count);
    count = count < SS_GAP_STACKS ? count : SS_GAP_STACKS;
    for (uint32_t at = 0; at < count; at++) {
        stacks[at] = ss_load(gap->stacks[at]);
        holders[at] = ss_load(gap->holders[at]);
    }
    return count;
}

/* Keeps a stack of the gap since ``left_ns``. Of those of a long gap every other one is kept, so that they have equal
 * distances. */
static void keep(struct ss_gap *gap, uint64_t left_ns, uint32_t stack, uint32_t holder, uint64_t now)
{
    uint32_t count = gap->count;
    if (gap->seen_ns != left_ns) {
        ss_store_release(gap->seen_ns, 0);
        count = 0;
        gap->distance = SS_SAMPLE_NS;
    } else if (count == SS_GAP_STACKS) {
        for (count = 0; count < SS_GAP_STACKS / 2; count++) {
            ss_store(gap->stacks[count], ss_load(gap->stacks[2 * count + 1]));
            ss_store(gap->holders[count], ss_load(gap->holders[2 * count + 1]));
        }
        gap->distance *= 2;
    }
    ss_store(gap->stacks[count], stack);
    ss_store(gap->holders[count], holder);
    ss_store_release(gap->count, count + 1);
    ss_store_release(gap->seen_ns, left_ns);
    gap->next_ns = now + gap->distance;
}

/* Whether the thread is still between the same calls. */
static int is_in_gap(const struct ss_gap *gap, const struct ss_slot *slot, uint64_t left_ns)
{
    return !ss_load_acquire(slot->depth) && ss_load_acquire(gap->left_ns) == left_ns;
}

/* Looks at one thread if that is due at ``now``. Returns when it is due next. */
static uint64_t look(struct ss_gap *gap, const struct ss_slot *slot, uint64_t now)
{
    const void *python = ss_load_acquire(gap->python);
    uint64_t left = ss_load_acquire(gap->left_ns);
    if (!python || !left || !is_in_gap(gap, slot, left))
        return now + REST_NS;
    uint64_t due = gap->seen_ns == left ? gap->next_ns : ss_load(gap->due_ns);
    due = due < left + LEAST_NS ? left + LEAST_NS : due;
    if (now < due)
        return due;
    uint32_t stack = 0;
    for (int tried = 0; tried < TRIES && !stack && is_in_gap(gap, slot, left); tried++)
        stack = ss_stack_of_python(python);
    if (!stack || !is_in_gap(gap, slot, left))
        return now + REST_NS;
    uint32_t holder = ss_stack_of_lock_owner(python, ss_load(slot->thread), stack);
    holder = holder ? holder + SS_STACKS : ss_stack_of_lock_holder(python);
    keep(gap, left, stack, is_in_gap(gap, slot, left) ? holder : 0, now);
    return gap->next_ns;
}

static void *looking_thread(void *unused)
{
    prctl(PR_SET_NAME, "stallscope-look");
    uint32_t first = 0;
    while (ss_load_acquire(stage) == RUN) {
        uint64_t before = ss_thread_cpu(), now = ss_clock(), next = now + REST_NS;
        uint32_t slots = ss_load(ss_header->slots), known = 0;
        slots = slots < SS_SLOTS ? slots : SS_SLOTS;
        for (uint32_t at = 0; at < slots; at++) {
            uint32_t number = (first + at) % slots;
            const struct ss_slot *slot = ss_live_slot(number);
            if (!slot || !ss_load(ss_gaps[number].python))
                continue;
            known++;
            uint64_t due = look(&ss_gaps[number], slot, ss_clock());
            next = due < next ? due : next;
        }
        first++;
        /* It may use a hundredth of a CPU at most, and loses its own where others need it. */
        uint64_t end = ss_clock(), spent = ss_thread_cpu() - before;
        uint64_t divisor = ss_stack_divisor();
        uint64_t least = spent > LEAST_REST_NS / divisor ? spent * divisor : LEAST_REST_NS;
        uint64_t rest = next > end + least ? next - end : least;
        ss_wait_for_change(&stage, RUN, known ? (long)rest : IDLE_NS);
    }
    ss_store_release(stage, STOPPED);
    ss_wake(&stage);
    return unused;
}

/* Without this thread, samples have the stacks of the calls alone. */
void ss_start_looking(void)
{
    if (!ss_can_read_python())
        return;
    ss_store_release(stage, RUN);
    ss_store_release(ss_private->looks, !ss_start_thread(looking_thread, SS_SMALL_STACK));
}

/* Waits for the thread to end, but not for long. */
void ss_stop_looking(void)
{
    uint32_t expected = RUN;
    /* A forked process has no such thread. */
    if (!ss_load_acquire(ss_private->looks) ||
        !__atomic_compare_exchange_n(&stage, &expected, STOP, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return;
    ss_wake(&stage);
    ss_wait_for_change(&stage, STOP, EXIT_NS);
}
