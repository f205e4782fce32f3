/* Functions that programs call as ``native:NAME``, and host functions for cuLaunchHostFunc.
 *
 * A loop calls each with eleven integers, of which it takes those that it has. Those that wait sleep between two looks:
 * a waiting thread must not occupy a core that a measured thread needs.
 */
#include "clock.h"
#include "core.h"

enum {
    /* Period (ns) at which a waiting helper polls its condition. */
    POLL_STEP_NS = 20000,
    /* CUDA_ERROR_NOT_READY. */
    NOT_READY = 600,
};

static int64_t *word_at(int64_t address)
{
    return (int64_t *)(uintptr_t)address;
}

/* Sleeps for a step, not beyond the limit; 0 if the limit is over. */
static int sleep_step(int64_t step, int64_t limit)
{
    int64_t now = ss_monotonic();
    if (now >= limit)
        return 0;
    ss_sleep_until(ss_least(now + step, limit));
    return 1;
}

static void spin_until(int64_t limit)
{
    while (ss_monotonic() < limit)
        ;
}

/* Changes the word from 0 to 1; 0 if it has, 1 after the timeout. */
static int64_t lock(int64_t *word, int64_t timeout_ns)
{
    int64_t limit = ss_monotonic() + timeout_ns;
    for (;;) {
        int64_t expected = 0;
        if (__atomic_compare_exchange_n(word, &expected, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return 0;
        if (!sleep_step(POLL_STEP_NS, limit))
            return 1;
    }
}

/* Each returns 0 unless it says otherwise. */

SS_EXPORTED int64_t ss_helper_store(int64_t address, int64_t value)
{
    ss_store_release(*word_at(address), value);
    return 0;
}

SS_EXPORTED int64_t ss_helper_add(int64_t address, int64_t value)
{
    __atomic_fetch_add(word_at(address), value, __ATOMIC_SEQ_CST);
    return 0;
}

/* Waits until the word is at least ``value``; 1 after the timeout. */
SS_EXPORTED int64_t ss_helper_wait(int64_t address, int64_t value, int64_t timeout_ns)
{
    int64_t limit = ss_monotonic() + timeout_ns;
    while (ss_load_acquire(*word_at(address)) < value)
        if (!sleep_step(POLL_STEP_NS, limit))
            return 1;
    return 0;
}

SS_EXPORTED int64_t ss_helper_sleep(int64_t ns)
{
    int64_t limit = ss_monotonic() + ns;
    while (ss_monotonic() < limit)
        ss_sleep_until(limit);
    return 0;
}

/* Arithmetic of a fixed length: steps of which each waits for the one before. */
SS_EXPORTED int64_t ss_helper_work(int64_t iterations)
{
    uint64_t value = UINT64_C(88172645463325252);
    for (int64_t each = 0; each < iterations; each++) {
        value = value * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        /* The compiler must not combine several steps. */
        __asm__ volatile("" : "+r"(value));
    }
    return 0;
}

SS_EXPORTED int64_t ss_helper_nothing(void)
{
    return 0;
}

/* Calls the driver function ``query`` with ``handle`` until it returns another code than NOT_READY, which it returns, or
 * until the timeout. It sleeps ``step_ns`` between two calls; with 0 it does not sleep. */
SS_EXPORTED int64_t ss_helper_poll(int64_t query, int64_t handle, int64_t step_ns, int64_t timeout_ns)
{
    ss_function function = (ss_function)(uintptr_t)query;
    int64_t limit = ss_monotonic() + timeout_ns;
    for (;;) {
        uint32_t status = (uint32_t)(uint64_t)function(handle, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        if (status != NOT_READY)
            return status;
        if (step_ns > 0 ? !sleep_step(step_ns, limit) : ss_monotonic() >= limit)
            return NOT_READY;
    }
}

/* Occupies its thread. */
SS_EXPORTED int64_t ss_helper_spin(int64_t ns)
{
    spin_until(ss_monotonic() + ns);
    return 0;
}

SS_EXPORTED int64_t ss_helper_lock(int64_t address, int64_t timeout_ns)
{
    return lock(word_at(address), timeout_ns);
}

/* Host functions take the address of three words: the address of a word, that of a counter, and a timeout in ns. */

/* Returns once the word is not 0; after the timeout it counts and sets the word itself. */
SS_EXPORTED int64_t ss_helper_gate(const int64_t *data)
{
    int64_t *word = word_at(data[0]);
    int64_t limit = ss_monotonic() + data[2];
    while (!ss_load_acquire(*word))
        if (!sleep_step(POLL_STEP_NS, limit)) {
            __atomic_fetch_add(word_at(data[1]), 1, __ATOMIC_SEQ_CST);
            ss_store_release(*word, 1);
            return 0;
        }
    return 0;
}

/* Changes the word from 0 to 1 and back; after the timeout it counts. */
SS_EXPORTED int64_t ss_helper_mutex(const int64_t *data)
{
    if (lock(word_at(data[0]), data[2]))
        __atomic_fetch_add(word_at(data[1]), 1, __ATOMIC_SEQ_CST);
    else
        ss_store_release(*word_at(data[0]), 0);
    return 0;
}

/* Occupies its thread for the timeout and adds 1 to the word. */
SS_EXPORTED int64_t ss_helper_busy(const int64_t *data)
{
    spin_until(ss_monotonic() + data[2]);
    __atomic_fetch_add(word_at(data[0]), 1, __ATOMIC_SEQ_CST);
    return 0;
}

/* Waits until the word at an address is not 0, without a sleep: when that was seen, in ns of CLOCK_MONOTONIC; 0 after
 * ``limit_ns`` on that clock. */
SS_EXPORTED int64_t ss_written_at(const int64_t *word, int64_t limit_ns)
{
    for (;;) {
        int64_t now = ss_monotonic();
        if (ss_load_acquire(*word))
            return now;
        if (now > limit_ns)
            return 0;
    }
}
