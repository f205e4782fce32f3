/* Windows in which records of the GPU's work are on or off: by them the cost of watching is measured, and kept within
 * the budget.
 *
 * A program that makes few records has no windows: its records are always on. Else they are on for a share of the time.
 * Only the thread that asks CUPTI for its buffers switches them, never one of the program, and never after the process
 * began to exit: switching then ended programs with a segmentation fault. The callbacks stay as they are from the start:
 * once those of a function were off, CUPTI no longer numbers the calls (CUPTI 13.5), and no record finds its call.
 */
#include "inject.h"

#define MS UINT64_C(1000000)

enum {
    /* At most five switches a second. */
    LEAST_MS = 200,
    CYCLE_MS = 2000,
    /* The first cycles, by which the cost is first known. */
    FIRST_CYCLES = 4,
    FIRST_MS = 800,
    /* Of so many the cost is known: of the last minute or so. */
    CYCLES = 16,
    /* How often a program without windows is looked at. */
    LOOK_MS = 1000,
    /* The most that a record costs the thread that submits its work: 3 to 4 us for the nodes of a graph, 0.5 to 3 for a
     * launch (H100, CUPTI 13.5). */
    RECORD_NS = 4000,
    /* What CUPTI takes for the two callbacks of a call, beside what the library takes. */
    DISPATCH_NS = 100,
    /* Launches below which windows show nothing. */
    LEAST_LAUNCHES = 50,
    /* How long a profiler of the program waits for a switch to end. */
    STOP_MS = 1000,
};
/* Below this, records are always on: the program would not notice. */
#define LEAST_COST 0.01
#define LEAST_SHARE 0.05
#define MOST_SHARE 0.95
#define MOST_COST 0.9
/* Who may switch: the thread that does, when it is free. */
enum { FREE, SWITCHING, STOPPED };

uint64_t ss_unsettled_since = UINT64_MAX;

/* Calls that returned, those of the thread that made most, launches and their time, records that came, and the time (ns)
 * in which they did. */
struct amount {
    double calls, busiest, launches, launch_ns, records, ns;
};

static uint32_t control;
/* The last window; NULL before the first. */
static struct ss_window *window;
/* Only the thread that switches uses the rest. */
static struct {
    const struct ss_cupti *cupti;
    /* When the records are switched next, or, without a window, when the program is looked at. */
    uint64_t due;
    uint64_t from_ns, from_records;
    struct ss_returned from;
    double share;
    uint64_t cycles;
    struct amount on[CYCLES], off[CYCLES];
    uint32_t random;
} self;

void ss_begin_windows(const struct ss_cupti *cupti)
{
    static const uint8_t switched[] = SS_SWITCHED_KINDS;
    uint64_t kinds = 0;
    for (size_t at = 0; at < sizeof switched; at++)
        kinds |= UINT64_C(1) << switched[at];
    if (!(ss_header->kinds & kinds) || ss_settings.cost_ppm >= SS_EVERYTHING_PPM)
        return;
    self.cupti = cupti;
    self.from_ns = ss_clock();
    self.due = self.from_ns + LOOK_MS * MS;
    self.random = (uint32_t)self.from_ns | 1;
}

/* What was counted since the last time that this was asked, until ``now``. */
static struct amount take_amount(uint64_t now)
{
    uint64_t busiest, records = ss_load(ss_header->records);
    struct ss_returned returned = ss_count_returned(&busiest);
    struct amount taken = {
        .calls = (double)(returned.calls - self.from.calls),
        .busiest = (double)busiest,
        .launches = (double)(returned.launches - self.from.launches),
        .launch_ns = (double)(returned.launch_ns - self.from.launch_ns),
        .records = (double)(records - self.from_records),
        .ns = (double)(now - self.from_ns),
    };
    self.from_ns = now;
    self.from = returned;
    self.from_records = records;
    return taken;
}

static void open_window(uint64_t now, int records)
{
    uint64_t number = ss_load(ss_header->windows);
    struct ss_window *next = (struct ss_window *)ss_at(SS_WINDOWS_AT) + number % SS_WINDOWS;
    ss_store(next->sequence, 2 * number + 1);
    ss_fence();
    ss_store(next->began_ns, now);
    ss_store(next->ended_ns, 0);
    ss_store(next->calls, 0);
    ss_store(next->busiest, 0);
    ss_store(next->launches, 0);
    ss_store(next->launch_ns, 0);
    ss_store(next->took_ns, 0);
    ss_store(next->settled_ns, 0);
    ss_store(next->records, (uint32_t)records);
    ss_store_release(next->sequence, 2 * number + 2);
    ss_store_release(ss_header->windows, number + 1);
    ss_store_release(window, next);
}

static void close_window(uint64_t now, struct amount taken)
{
    ss_store(window->calls, (uint64_t)taken.calls);
    ss_store(window->busiest, (uint64_t)taken.busiest);
    ss_store(window->launches, (uint64_t)taken.launches);
    ss_store(window->launch_ns, (uint64_t)taken.launch_ns);
    ss_store(window->took_ns, (uint64_t)taken.ns);
    ss_store_release(window->ended_ns, now);
}

/* A call that began in the window and waited for the GPU has returned. Called in any thread; a window that ends
 * meanwhile may get a time beyond its end, which the reader drops. */
void ss_settle_window(uint64_t now)
{
    uint64_t since = ss_load(ss_unsettled_since);
    if (since != UINT64_MAX && __atomic_compare_exchange_n(&ss_unsettled_since, &since, UINT64_MAX, 0, __ATOMIC_ACQUIRE,
                                                           __ATOMIC_RELAXED))
        ss_store(ss_load_acquire(window)->settled_ns, now);
}

static void switch_kinds(int on)
{
    static const uint8_t switched[] = SS_SWITCHED_KINDS;
    for (size_t at = 0; at < sizeof switched; at++)
        if (ss_header->kinds >> switched[at] & 1) {
            if (on)
                self.cupti->enable(switched[at]);
            else
                self.cupti->disable(switched[at]);
        }
}

/* The part of what happened that is the busiest thread's. */
static double busiest_part(struct amount all)
{
    return all.calls > 0 ? all.busiest / all.calls : 1;
}

/* The most that the records cost, as a share of the time of the busiest thread. */
static double possible_cost(struct amount on)
{
    double cost = on.ns > 0 ? on.records * RECORD_NS / on.ns * busiest_part(on) : 0;
    return cost < MOST_COST ? cost : MOST_COST;
}

static double calls_cost(struct amount on)
{
    uint64_t timed = ss_load(ss_header->timed);
    double callback_ns = timed ? (double)ss_load(ss_header->timed_ns) / (double)timed : 0;
    return on.ns > 0 ? on.busiest * (2 * callback_ns + DISPATCH_NS) / on.ns : 0;
}

/* What the records cost by the time that launches take with them and without. A program that waits for the GPU may lose
 * less, as it then waits less. */
static double cost_of_launches(struct amount on, struct amount off)
{
    return (on.launch_ns / on.launches - off.launch_ns / off.launches) * on.launches / on.ns * busiest_part(on);
}

static void add(struct amount *sum, struct amount one)
{
    sum->calls += one.calls;
    sum->busiest += one.busiest;
    sum->launches += one.launches;
    sum->launch_ns += one.launch_ns;
    sum->records += one.records;
    sum->ns += one.ns;
}

/* The share of time for which records may be on. */
static double allowed_share(void)
{
    struct amount on = {0}, off = {0};
    uint64_t known = self.cycles < CYCLES ? self.cycles : CYCLES;
    for (uint64_t at = 0; at < known; at++) {
        add(&on, self.on[at]);
        add(&off, self.off[at]);
    }
    double cost = possible_cost(on);
    if (self.cycles >= FIRST_CYCLES && on.launches >= LEAST_LAUNCHES && off.launches >= LEAST_LAUNCHES) {
        double measured = cost_of_launches(on, off);
        if (measured < cost)
            cost = measured;
    }
    double budget = (double)ss_settings.cost_ppm / 1e6;
    /* What callbacks cost is spent already; they stay on. */
    double rest = budget - calls_cost(on);
    if (rest < budget / 5)
        rest = budget / 5;
    double share = cost > 0 ? rest / cost : MOST_SHARE;
    return share < LEAST_SHARE ? LEAST_SHARE : share > MOST_SHARE ? MOST_SHARE : share;
}

/* How long the next window lasts, by the share of time that is on. Cycles differ by a quarter, so that none keeps step
 * with the program. */
static uint64_t window_ns(int on)
{
    self.random = self.random * 1664525 + 1013904223;
    double length = (self.cycles < FIRST_CYCLES ? FIRST_MS : CYCLE_MS) * (0.875 + 0.25 * (self.random >> 8) / 0x1p24);
    double share = self.cycles < FIRST_CYCLES ? 0.5 : self.share;
    double shorter = share < 0.5 ? share : 1 - share;
    if (length * shorter < LEAST_MS)
        length = LEAST_MS / shorter;
    return (uint64_t)(length * (on ? share : 1 - share) * (double)MS);
}

/* The first windows of a program that makes many records: one for the time before, which shows no rate, and the first of
 * the cycles, both with records. */
static void begin_cycles(uint64_t now)
{
    if (ss_give_space(SS_WINDOWS_AT, SS_WINDOWS * sizeof(struct ss_window))) {
        self.cupti = NULL;
        return;
    }
    struct amount none = {0};
    for (int at = 0; at < 2; at++) {
        uint64_t began = at ? now : ss_load(ss_header->started_ns);
        open_window(began, 1);
        ss_store(window->settled_ns, began);
        if (!at)
            close_window(now, none);
    }
    self.due = now + window_ns(1);
}

static void look(uint64_t now)
{
    double cost = possible_cost(take_amount(now));
    double budget = (double)ss_settings.cost_ppm / 1e6;
    if (cost > (budget < LEAST_COST ? budget : LEAST_COST))
        begin_cycles(now);
    else
        self.due = now + LOOK_MS * MS;
}

/* A switch takes a while: calls of that time belong to no window. Where it has begun, records may be missing, and where
 * it has not ended, too. */
static void switch_records(uint64_t now)
{
    int on = !ss_load(window->records);
    struct amount taken = take_amount(now);
    if (on) {
        self.off[self.cycles++ % CYCLES] = taken;
        self.share = allowed_share();
    } else {
        self.on[self.cycles % CYCLES] = taken;
        ss_store(ss_unsettled_since, UINT64_MAX);
    }
    switch_kinds(on);
    uint64_t after = ss_clock();
    uint64_t border = on ? after : now;
    close_window(border, taken);
    open_window(border, on);
    take_amount(after);
    if (on)
        ss_store_release(ss_unsettled_since, border);
    self.due = after + window_ns(on);
}

/* Switches the records if it is time for it; how long until the next time (ns). Called by one thread. */
uint64_t ss_change_window(void)
{
    uint32_t expected = FREE;
    uint64_t now = ss_clock();
    if (!self.cupti)
        return UINT64_MAX;
    if (now >= self.due) {
        if (!__atomic_compare_exchange_n(&control, &expected, SWITCHING, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return UINT64_MAX;
        if (window)
            switch_records(now);
        else
            look(now);
        ss_store_release(control, FREE);
        now = ss_clock();
    }
    return self.due > now ? self.due - now : 0;
}

/* Ends the last window, by the thread that switches. */
void ss_end_windows(void)
{
    if (window && !ss_load(window->ended_ns)) {
        uint64_t now = ss_clock();
        close_window(now, take_amount(now));
    }
}

/* Has nothing switched any more. Called in a thread of the program, which waits for a switch that has begun. */
void ss_stop_windows(void)
{
    uint64_t limit = ss_clock() + STOP_MS * MS;
    uint32_t expected = FREE;
    while (!__atomic_compare_exchange_n(&control, &expected, STOPPED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED) &&
           expected == SWITCHING && ss_clock() < limit)
        expected = FREE;
}

/* In a process that was forked, which has no such thread. */
void ss_forget_windows(void)
{
    self.cupti = NULL;
    ss_store(window, NULL);
    ss_store(ss_unsettled_since, UINT64_MAX);
}
