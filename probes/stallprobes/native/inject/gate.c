/* The gate: no call that submits work is in flight while kinds of records are switched.
 *
 * CUPTI loses all later records of a thread if a kind is switched during such a call of it (CUPTI 13.0 and 13.5; 13.0
 * also crashed). So calls that begin while the gate is closed are held in their first callback, and kinds are switched
 * once those before them have returned. Calls that wait pass.
 *
 * Nobody waits for long. A gate behind which a call does not return soon is opened again without a switch, also by a
 * call that was held for HOLD_MS, as where the thread that closed it has no CPU. During the switch itself a call is held
 * for SWITCH_MS at most: CUPTI may have a lock for it that the switch needs. Later calls are not held then, since such a
 * switch may take long, as where a call hangs.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gate.h"
#include "state.h"

enum {
    /* HOLD_MS: longest time (ms) for which a closed gate holds a call. After this time, the call opens the gate.
     * SWITCH_MS: longest time (ms) for which a call is held in all, also during a switch of kinds. After this time, the
     * call continues. */
    HOLD_MS = 5,
    SWITCH_MS = 50,
    /* DRAIN_US: longest wait (us) for calls in flight before a quick switch (SS_QUICKLY). LONG_US: age (us) of a call
     * in flight from which on a quick switch is given up at once. */
    DRAIN_US = 200,
    LONG_US = 100,
    /* PATIENT_US: longest wait (us) for calls in flight before a patient switch (SS_PATIENTLY). Reason for a long wait:
     * many threads may be in calls while other threads have the CPUs. PAUSE_NS: pause (ns) between two checks in this
     * wait. */
    PATIENT_US = 4000,
    PAUSE_NS = 50000,
    /* Number of readings of the gate before a held thread sleeps. */
    SPINS = 200,
    /* LONG_STEP_NS: shortest duration (ns) of a step at CUPTI after which the library rests. The rest is as long as the
     * step. Reason: calls of the program that waited for CUPTI can pass. MOST_REST_NS: longest rest (ns). */
    LONG_STEP_NS = 500000,
    MOST_REST_NS = 50000000,
};
/* US: nanoseconds in a microsecond. MS: nanoseconds in a millisecond. */
#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
/* State of the gate. OPEN: calls pass. CLOSED: new calls are held while calls in flight return. SWITCHING: new calls
 * are held during a switch of kinds. */
enum { OPEN, CLOSED, SWITCHING };

static uint32_t gate;
/* Held threads that sleep. */
static uint32_t asleep;
/* The longest time for which a call was held, by the gate alone and in all (ns). */
static uint64_t longest_wait, longest_hold;
/* Calls in flight of threads without a slot. */
static uint32_t without_slot;
/* Whether the owner of each slot is in a call that submits, and when that began, or the one before; in lines of their
 * own, since each is written in every call. */
static struct {
    uint64_t began_ns;
    uint32_t in_call;
} __attribute__((aligned(64))) flights[SS_SLOTS];

/* Whether there is a gate at all. It is decided before the first callback, so that every call is counted. */
void ss_use_gate(int on)
{
    for (uint32_t number = 0; number < SS_SLOTS; number++)
        if (ss_load(flights[number].in_call))
            ss_store(flights[number].in_call, 0);
    ss_store(without_slot, 0);
    ss_store(longest_wait, 0);
    ss_store(gate, OPEN);
    ss_store(ss_private->gated, (uint32_t)on);
}

int ss_gate_is_used(void)
{
    return (int)ss_load(ss_private->gated);
}

/* A slot has a new owner, who is in no call. */
void ss_forget_flight(uint32_t number)
{
    ss_store_release(flights[number].in_call, 0);
}

static void futex(int operation, uint32_t value, const struct timespec *limit)
{
    int error = errno;
    syscall(SYS_futex, &gate, operation, value, limit, NULL, 0);
    errno = error;
}

/* Opens the gate if it is in a state. */
static void break_gate(uint32_t expected)
{
    __atomic_compare_exchange_n(&gate, &expected, OPEN, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Waits until the gate is open; 0 if that takes too long. */
static SS_APART int is_opened(void)
{
    for (int spin = 0; spin < SPINS; spin++)
        if (ss_load_acquire(gate) == OPEN)
            return 1;
    const struct timespec step = {.tv_nsec = MS};
    uint64_t began = ss_clock(), held = 0;
    uint32_t state;
    ss_add(asleep, 1);
    for (; (state = ss_load_acquire(gate)) != OPEN && held < SWITCH_MS * MS; held = ss_clock() - began) {
        if (state == CLOSED && held >= HOLD_MS * MS)
            break_gate(CLOSED);
        else
            futex(FUTEX_WAIT_PRIVATE, state, &step);
    }
    __atomic_fetch_sub(&asleep, 1, __ATOMIC_RELAXED);
    held = ss_clock() - began;
    if (held > ss_load(longest_wait))
        ss_store(longest_wait, held);
    if (state == OPEN)
        return 1;
    break_gate(SWITCHING);
    return 0;
}

/* Where there is a gate, a call begins that submits work, in the slot with this number or in a thread without one. Returns
 * whether it counts: then ss_leave_gate follows. While it is held, it counts in ``held``. */
int ss_enter_gate(int64_t number, uint32_t *held)
{
    for (;;) {
        if (number >= 0)
            __atomic_exchange_n(&flights[number].in_call, 1, __ATOMIC_SEQ_CST);
        else
            __atomic_fetch_add(&without_slot, 1, __ATOMIC_SEQ_CST);
        if (ss_likely(__atomic_load_n(&gate, __ATOMIC_SEQ_CST) == OPEN))
            return 1;
        __atomic_fetch_add(held, 1, __ATOMIC_SEQ_CST);
        ss_leave_gate(number);
        int opened = is_opened();
        __atomic_fetch_sub(held, 1, __ATOMIC_SEQ_CST);
        if (!opened) {
            ss_add(ss_header->not_held, 1);
            return 0;
        }
    }
}

void ss_note_flight(int64_t number, uint64_t began_ns)
{
    if (number >= 0)
        ss_store(flights[number].began_ns, began_ns);
}

void ss_leave_gate(int64_t number)
{
    if (number >= 0)
        ss_store_release(flights[number].in_call, 0);
    else
        __atomic_fetch_sub(&without_slot, 1, __ATOMIC_RELEASE);
}

/* Whether a call is in flight that began before ``since``. */
static int is_in_flight(uint64_t since)
{
    uint32_t slots = ss_load(ss_header->slots);
    if (__atomic_load_n(&without_slot, __ATOMIC_SEQ_CST))
        return 1;
    for (uint32_t number = 0; number < slots && number < SS_SLOTS; number++)
        if (__atomic_load_n(&flights[number].in_call, __ATOMIC_SEQ_CST) &&
            ss_load(flights[number].began_ns) < since)
            return 1;
    return 0;
}

/* Closes the gate once no call is in flight, for a switch that takes a moment; 0 if there always is one. ``patient``: calls
 * are waited for longer, and those that begin meanwhile held as long. */
int ss_close_gate(int patient)
{
    uint64_t now = ss_clock(), limit = now + (patient ? PATIENT_US : DRAIN_US) * US;
    if (!patient && is_in_flight(now - LONG_US * US))
        return 0;
    __atomic_store_n(&gate, CLOSED, __ATOMIC_SEQ_CST);
    while (is_in_flight(UINT64_MAX)) {
        if (ss_clock() > limit) {
            ss_open_gate();
            return 0;
        }
        if (patient)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    /* A call may have opened it meanwhile. */
    uint32_t expected = CLOSED;
    return __atomic_compare_exchange_n(&gate, &expected, SWITCHING, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

void ss_open_gate(void)
{
    __atomic_store_n(&gate, OPEN, __ATOMIC_SEQ_CST);
    if (ss_load(asleep))
        futex(FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

/* Calls of the program may be held up from ``began`` to now. */
void ss_note_hold(uint64_t began)
{
    uint64_t held = ss_clock() - began;
    if (held > longest_hold)
        longest_hold = held;
}

/* As ss_note_hold for a switch of kinds. Behind a gate a call is held by that, unless one was let through: then it may have
 * waited for CUPTI as long as the switch took. */
void ss_note_switch(uint64_t began, int gated, uint64_t let_through)
{
    uint64_t waited = ss_load(longest_wait);
    if (!gated || ss_load(ss_header->not_held) != let_through)
        ss_note_hold(began);
    else if (waited > longest_hold)
        longest_hold = waited;
}

/* A step at CUPTI began at ``began`` and has ended, in a recording that began late. Where it took long, calls of the
 * program may have waited for a lock of CUPTI's as long: they have as long before the next step. Returns since when they
 * are held up by the next one; ``held_since`` is that of the steps before. */
uint64_t ss_rest_after(uint64_t began, uint64_t held_since)
{
    uint64_t took = ss_clock() - began;
    if (took < LONG_STEP_NS || !(ss_header->flags & SS_FLAG_LATE))
        return held_since;
    ss_note_hold(held_since);
    if (took > MOST_REST_NS)
        took = MOST_REST_NS;
    nanosleep(&(struct timespec){.tv_nsec = (long)took}, NULL);
    return ss_clock();
}

uint64_t ss_longest_hold(void)
{
    return longest_hold;
}

/* For a recording that begins. */
void ss_forget_holds(void)
{
    longest_hold = 0;
}
