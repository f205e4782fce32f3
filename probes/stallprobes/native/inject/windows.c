/* Windows in which records of the GPU's work are on or off: by them the cost of watching is measured, and kept within
 * the budget.
 *
 * A program that makes few records has no windows: its records are always on. Else they are on for a share of the time.
 * Only the thread that asks CUPTI for its buffers switches them, never one of the program, behind a gate (gate.c), and
 * never after the process began to exit: switching then ended programs with a segmentation fault. The callbacks stay as
 * they are from the start: once those of a function were off, CUPTI no longer numbers the calls (CUPTI 13.5), and no
 * record finds its call.
 */
#include <string.h>

#include "gate.h"
#include "slots.h"
#include "space.h"
#include "state.h"
#include "windows.h"

#define MS UINT64_C(1000000)

/* At most five switches a second; a benchmark has more. */
#ifndef SS_LEAST_WINDOW_MS
#define SS_LEAST_WINDOW_MS 200
#endif

enum {
    /* How often a program without windows is looked at, and when first: records come a flush after their work. A program
     * that is attached for seconds would have all of its records on for the first of them otherwise. */
    LOOK_MS = 1000,
    FIRST_LOOK_MS = 250,
    /* The slowdowns that are known: of the last minute or two. Below LEAST_KNOWN they show nothing. */
    KNOWN = 64,
    LEAST_KNOWN = 6,
    /* What CUPTI takes for the two callbacks of a call, beside what the library takes (H200s: 0.1 to 0.33 us). */
    DISPATCH_NS = 200,
    /* Calls in a window, below which it shows nothing. */
    LEAST_CALLS = 50,
    /* How long a profiler of the program waits for a switch to end. */
    STOP_MS = 1000,
    /* When a switch is tried again that a call prevented: a thread that copies into pageable memory, copy after copy, is
     * outside calls for a millisecond now and then. */
    AGAIN_MS = 2,
};
/* Below this, records are always on: the program would not notice. */
#define LEAST_COST 0.01
/* For less of the time they would show nothing, for more their cost would not be measured. */
#define LEAST_SHARE 0.05
#define MOST_SHARE 0.9
#define MOST_COST 0.9
/* Of sums over windows, what is kept when one is added. */
#define KEPT 0.8
/* Who may switch: the thread that does, when it is free. */
enum { FREE, SWITCHING, STOPPED };

uint64_t ss_unsettled_since = UINT64_MAX;

/* Calls that returned, those of the thread that made most, records that came, and the time (ns) in which they did. */
struct amount {
    double calls, busiest, records, ns;
};

static uint32_t control;
/* The last window; NULL before the first. */
static struct ss_window *window;
/* Only the thread that switches uses the rest. */
static struct {
    const struct ss_cupti *cupti;
    /* When the records are switched next, or, without a window, when the program is looked at. */
    uint64_t due;
    uint64_t from_ns, from_calls, from_records;
    double share;
    /* The last windows without records and with them, and the sum of those with them. */
    struct amount off, on, on_sum;
    uint64_t since_ns;
    uint64_t slowdowns;
    double slowdown[KNOWN];
    uint32_t random;
    /* The graphs that had been instantiated when that was last asked, and when it was. */
    uint64_t graphs, graphs_ns;
} self;

/* What was counted since the last time that this was asked, until ``now``. */
static struct amount take_amount(uint64_t now)
{
    uint64_t busiest, calls = ss_count_finished(&busiest), records = ss_load(ss_header->records);
    struct amount taken = {
        .calls = (double)(calls - self.from_calls),
        .busiest = (double)busiest,
        .records = (double)(records - self.from_records),
        .ns = (double)(now - self.from_ns),
    };
    self.from_ns = now;
    self.from_calls = calls;
    self.from_records = records;
    return taken;
}

/* Records are on, ``since`` a time. */
void ss_begin_windows(const struct ss_cupti *cupti, uint64_t since)
{
    static const uint8_t switched[] = SS_SWITCHED_KINDS;
    uint64_t kinds = 0;
    /* There may have been a recording before. */
    memset(&self, 0, sizeof self);
    ss_store_release(control, FREE);
    for (size_t at = 0; at < sizeof switched; at++)
        kinds |= UINT64_C(1) << switched[at];
    if (!(ss_header->kinds & kinds) || ss_settings.cost_ppm >= SS_EVERYTHING_PPM)
        return;
    self.cupti = cupti;
    self.since_ns = since;
    /* One that is in use has counted calls. */
    if (!ss_gate_is_used())
        ss_use_gate(1);
    take_amount(ss_clock());
    self.graphs = ss_load(ss_header->graphs);
    self.graphs_ns = self.from_ns;
    self.due = self.from_ns + FIRST_LOOK_MS * MS;
    self.random = (uint32_t)self.from_ns | 1;
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
    ss_store(next->took_ns, 0);
    ss_store(next->settled_ns, 0);
    ss_store(next->counted, 0);
    ss_store(next->records, (uint32_t)records);
    ss_store_release(next->sequence, 2 * number + 2);
    ss_store_release(ss_header->windows, number + 1);
    ss_store_release(window, next);
}

static void close_window(uint64_t now, struct amount taken)
{
    ss_store(window->calls, (uint64_t)taken.calls);
    ss_store(window->busiest, (uint64_t)taken.busiest);
    ss_store(window->took_ns, (uint64_t)taken.ns);
    ss_store(window->counted, (uint32_t)taken.records);
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

/* The most that the records cost, as a share of the program's time: as if its threads worked one after the other, as
 * those of a training step do. A call makes one record; more of them are those of nodes of graphs. */
static double possible_cost(struct amount on)
{
    double single = on.records < on.calls ? on.records : on.calls;
    double ns = single * SS_RECORD_NS + (on.records - single) * SS_NODE_RECORD_NS;
    double cost = on.ns > 0 ? ns / on.ns : 0;
    return cost < MOST_COST ? cost : MOST_COST;
}

/* Whether graphs are instantiated so often that their nodes are not recorded, so many in a time (ns). */
static int is_often(uint64_t graphs, uint64_t ns)
{
    return graphs > 1 && (double)graphs * 1e9 >= SS_GRAPHS_PER_S * (double)ns;
}

/* The same since it was last asked. */
static int makes_graphs(uint64_t now)
{
    uint64_t graphs = ss_load(ss_header->graphs);
    int often = is_often(graphs - self.graphs, now - self.graphs_ns);
    self.graphs = graphs;
    self.graphs_ns = now;
    return often;
}

static void note_graphs(void)
{
    ss_store_release(ss_header->flags, ss_load(ss_header->flags) | SS_FLAG_GRAPHS);
}

/* Whether work of the GPU is left unrecorded for the graphs that were instantiated since ``since``, in a recording that
 * began late and has calls alone so far. */
int ss_leaves_graphs(uint64_t since)
{
    if (ss_settings.cost_ppm >= SS_EVERYTHING_PPM || !is_often(ss_load(ss_header->graphs), ss_clock() - since))
        return 0;
    note_graphs();
    return 1;
}

static double calls_cost(struct amount on)
{
    uint64_t timed = ss_load(ss_header->timed);
    double callback_ns = timed ? (double)ss_load(ss_header->timed_ns) / (double)timed : 0;
    return on.ns > 0 ? on.busiest * (2 * callback_ns + (double)DISPATCH_NS) / on.ns : 0;
}

static void note_window_with_records(struct amount on)
{
    self.on = on;
    self.on_sum.calls = KEPT * self.on_sum.calls + on.calls;
    self.on_sum.busiest = KEPT * self.on_sum.busiest + on.busiest;
    self.on_sum.records = KEPT * self.on_sum.records + on.records;
    self.on_sum.ns = KEPT * self.on_sum.ns + on.ns;
}

/* The share of time that records take: the rate of calls with them, by the rates on both sides of it. */
static void note_window_without(struct amount off)
{
    struct amount before = self.off, on = self.on;
    const double least = LEAST_CALLS;
    if (before.calls >= least && on.calls >= least && off.calls >= least) {
        double beside = (before.calls / before.ns + off.calls / off.ns) / 2;
        self.slowdown[self.slowdowns++ % KNOWN] = 1 - on.calls / on.ns / beside;
    }
    self.off = off;
    /* CUPTI hands them over up to a flush later than their work. */
    self.on_sum.records += off.records;
}

/* The upper end of the 95 % interval of the median slowdown, by order statistics; ``unknown`` if too few are known. */
static double largest_slowdown(double unknown)
{
    double sorted[KNOWN];
    uint32_t known = self.slowdowns < KNOWN ? (uint32_t)self.slowdowns : KNOWN;
    if (known < LEAST_KNOWN)
        return unknown;
    for (uint32_t at = 0; at < known; at++) {
        uint32_t place = at;
        for (; place && sorted[place - 1] > self.slowdown[at]; place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = self.slowdown[at];
    }
    uint32_t root = 0;
    while ((root + 1) * (root + 1) <= known)
        root++;
    uint32_t place = known / 2 + root;
    return sorted[place < known ? place : known - 1];
}

/* The share of time for which records may be on: by the most that so many can cost, until their cost is measured. */
static double allowed_share(void)
{
    double cost = largest_slowdown(possible_cost(self.on_sum));
    double budget = (double)ss_settings.cost_ppm / 1e6;
    /* What callbacks cost is spent already; they stay on. */
    double rest = budget - calls_cost(self.on_sum);
    if (rest < budget / 5)
        rest = budget / 5;
    double share = cost > 0 ? rest / cost : MOST_SHARE;
    return share < LEAST_SHARE ? LEAST_SHARE : share > MOST_SHARE ? MOST_SHARE : share;
}

/* How long the next window lasts, by the share of time that is on. They differ by a quarter, so that none keeps step
 * with the program. */
static uint64_t window_ns(int on)
{
    self.random = self.random * 1664525 + 1013904223;
    double shorter = self.share < 0.5 ? self.share : 1 - self.share;
    double cycle_ms = SS_LEAST_WINDOW_MS / shorter * (1 + 0.25 * (self.random >> 8) / 0x1p24);
    return (uint64_t)(cycle_ms * (on ? self.share : 1 - self.share) * (double)MS);
}

/* The first windows of a program that makes many records, both with them: one for the time before, which shows no rate,
 * and one from now on. */
static void begin_windows(uint64_t now)
{
    if (ss_give_space(SS_WINDOWS_AT, SS_WINDOWS * sizeof(struct ss_window))) {
        self.due = now + LOOK_MS * MS;
        return;
    }
    struct amount none = {0};
    for (int at = 0; at < 2; at++) {
        uint64_t began = at ? now : self.since_ns;
        open_window(began, 1);
        ss_store(window->settled_ns, began);
        if (!at)
            close_window(now, none);
    }
    self.share = allowed_share();
    self.due = now + window_ns(1);
}

static void look(uint64_t now)
{
    note_window_with_records(take_amount(now));
    double cost = possible_cost(self.on);
    double budget = (double)ss_settings.cost_ppm / 1e6;
    int often = makes_graphs(now);
    if (often || cost > (budget < LEAST_COST ? budget : LEAST_COST))
        begin_windows(now);
    else
        self.due = now + LOOK_MS * MS;
    if (often)
        self.due = now;
}

/* A switch takes a while, and holds calls up: those of that time belong to no window. Where it has begun, records may be
 * missing, and where it has not ended, too. */
static void switch_records(uint64_t now)
{
    int on = !ss_load(window->records);
    if (on && ss_load(ss_header->not_held)) {
        /* Those of a thread may be missing from then on. */
        self.cupti = NULL;
        return;
    }
    if (on && makes_graphs(now)) {
        note_graphs();
        self.due = now + window_ns(0);
        return;
    }
    if (!ss_close_gate(0)) {
        self.due = now + AGAIN_MS * MS;
        return;
    }
    now = ss_clock();
    struct amount taken = take_amount(now);
    if (on) {
        note_window_without(taken);
        self.share = allowed_share();
    } else {
        note_window_with_records(taken);
        ss_store(ss_unsettled_since, UINT64_MAX);
    }
    switch_kinds(on);
    ss_open_gate();
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
    ss_use_gate(0);
    ss_store(window, NULL);
    ss_store(ss_unsettled_since, UINT64_MAX);
}
