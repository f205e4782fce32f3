/* Windows in which records of the GPU's work are on or off: by them the cost of watching is measured, and kept within
 * the budget.
 *
 * A program that makes few records and calls has no windows: its records are always on. Else they are on for a share of
 * the time. Only the thread that decodes records switches them, never one of the program, behind a gate (gate.c), and
 * never after the process began to exit: switching then ended programs with a segmentation fault.
 *
 * Where callbacks alone take much of the budget, those of frequent calls are off in windows without records, which are
 * quiet then. Records that come while a callback is off have no owner, or a wrong one (CUPTI 13.5); calls are numbered
 * again once it is on. So callbacks go on a while before the records: a call that began without them may be in flight,
 * during which kinds are not switched.
 *
 * In a recording of calls alone, callbacks of frequent calls that exceed the budget go off for good: where no kind of
 * records was on, those that were switched on again came for a fifth of the launches only (CUPTI 13.5).
 */
#include <string.h>
#include <time.h>

#include "driver_functions.h"
#include "gate.h"
#include "slots.h"
#include "space.h"
#include "state.h"
#include "windows.h"

/* Nanoseconds in a millisecond. */
#define MS UINT64_C(1000000)

/* Shortest window (ms); a benchmark sets less, to have more switches. */
#ifndef SS_LEAST_WINDOW_MS
#define SS_LEAST_WINDOW_MS 60
#endif

enum {
    /* LOOK_MS: period (ms) of the looks at a program without windows. FIRST_LOOK_MS: time (ms) until the first look.
     * Reason for the delay: records come a flush (100 ms) after their work. With a later first look, a program that is
     * attached for seconds would have all its records on in the first second. */
    LOOK_MS = 1000,
    FIRST_LOOK_MS = 250,
    /* A slowdown is the share of time that records cost in one window. KNOWN: number of slowdowns that are kept, those
     * of the last minute or two. LEAST_KNOWN: smallest number of slowdowns from which the cost of records is taken.
     * With fewer, the cost is computed from the number of records. */
    KNOWN = 64,
    LEAST_KNOWN = 6,
    /* Time (ns) that CUPTI takes for a call's two callbacks, beside the library's own time (H200s: 0.1 to 0.33 us). */
    DISPATCH_NS = 200,
    /* Smallest number of calls in a window from which the rate of calls is used. */
    LEAST_CALLS = 50,
    /* Longest wait (ms) of a profiler of the program for the end of a switch. */
    STOP_MS = 1000,
    /* Time (ms) between switching callbacks on and switching records on. Reason: calls that began without callbacks
     * return in this time. A switch of records during a longer call has crashed CUPTI 13.0, with which callbacks
     * therefore stay on (QUIET_VERSION). */
    RESUME_MS = 50,
    /* Limits for the length of the shorter one of two neighboring windows.
     * SETTLINGS: usual length, in multiples of the time until all work in a window is recorded. Reason: most of the
     * time in the window is then known. LEAST_QUIET_MS: smallest length (ms) if callbacks go off, which costs RESUME_MS
     * in each window. MOST_WINDOW_MS: largest length (ms). */
    SETTLINGS = 4,
    LEAST_QUIET_MS = 100,
    MOST_WINDOW_MS = 200,
    /* Length (ms) of the first window of a program that is attached. */
    FIRST_WINDOW_MS = 200,
    /* First version of CUPTI (13.1) with which callbacks go off in windows without records. */
    QUIET_VERSION = 130100,
    /* Number of failed tries to switch callbacks off after which callbacks stay on. A try fails if calls are always in
     * flight, as in a loop of queries. */
    MOST_FAILURES = 3,
    /* Pause (ms) before the next try of a switch that a call in flight prevented. A thread that copies into pageable
     * memory, copy after copy, is outside calls for a millisecond now and then. */
    AGAIN_MS = 2,
    /* Time (ms) in which all tries of a switch failed after which calls that begin are held until those in flight have
     * returned, for a few ms at most. Reason: a call may be in flight for seconds only because other threads take a lock
     * again and again (an H200: cuStreamCreate beside threads that launch). */
    REFUSED_MS = 1000,
    /* Number of tenths of a millisecond that a switch waits for the end of a flush, which takes 0.2 to 1.5 ms, rarely 10,
     * or seconds (an H200). Not by the clock, which stands still where a test replays a program. */
    FLUSH_PATIENCE = 50,
};
/* Largest cost (share of the time) with which records are always on: the program would not notice the cost. */
#define LEAST_COST 0.01
/* Smallest and largest share of the time with records on: with less they would show nothing, with more their cost could
 * not be measured. */
#define LEAST_SHARE 0.05
#define MOST_SHARE 0.9
/* Largest cost (share of the time) of records that is assumed. */
#define MOST_COST 0.9
/* Largest share of the budget that callbacks may cost before those of frequent calls go off in windows without
 * records. */
#define QUIET_FROM 0.5
/* Factor on the sums over earlier windows when a window is added, so that earlier windows count less. */
#define KEPT 0.8
/* State of the switching. FREE: the switching thread may begin a switch. SWITCHING: a switch is in progress. STOPPED:
 * no switch begins any more. */
enum { FREE, SWITCHING, STOPPED };

/* What is recorded in a window. NOTHING_MORE: all calls. RECORDS: all calls and GPU work. QUIET: only calls that are
 * not frequent. */
enum { NOTHING_MORE, RECORDS, QUIET };

uint64_t ss_unsettled_since = UINT64_MAX;
uint32_t ss_unfollowed;
uint64_t ss_quiet_since, ss_quiet_until;

/* Calls that returned, those of them that are not frequent, all of the thread that made most or of threads that call by
 * turns, records that came, what stacks and NVTX took, and the time in which they did (ns). */
struct amount {
    double calls, kept, busiest, records, beside_ns, ns;
};

static uint32_t control;
/* Whether CUPTI is asked for its buffers. */
static uint32_t flushes;
/* The last window; NULL before the first. */
static struct ss_window *window;
/* Only the thread that switches uses the rest. */
static struct {
    const struct ss_cupti *cupti;
    /* When the records are switched next, or, without a window, when the program is looked at. */
    uint64_t due;
    uint64_t from_ns, from_calls, from_kept, from_records, from_beside_ns, from_cpu_ns;
    /* When the recording began, and the time of the process on CPUs until then. */
    uint64_t began_ns, began_cpu_ns, noted_ns;
    double share;
    /* The last windows without records and with them, and the sum of those with them. */
    struct amount off, on, on_sum;
    uint64_t since_ns;
    /* How long it takes until a window is settled: a mean. */
    uint64_t settling_ns;
    uint64_t slowdowns;
    double slowdown[KNOWN];
    uint32_t random;
    /* The graphs that had been instantiated when that was last asked, when it was, and whether they were often. */
    uint64_t graphs, graphs_ns;
    int often;
    /* Whether windows without records are quiet, how often calls in flight prevented that, and whether no kind of records is
     * on at all. */
    int quiet, failures, alone;
    /* Since when tries of a switch fail, 0 if the last one did not, and whether it held calls for that. */
    uint64_t refused_ns;
    int patient;
} self;

/* What stacks and NVTX ranges have taken (ns). */
static uint64_t beside_calls(void)
{
    uint64_t begun = 0;
    uint32_t ranges = ss_load(ss_header->ranges);
    for (uint32_t number = 0; number < ranges && number < SS_RANGES; number++)
        begun += ss_load(((struct ss_named_range *)ss_at(SS_RANGES_AT + number * SS_RANGE_PITCH))->begun);
    return ss_load(ss_header->stacks_ns) + begun * SS_RANGE_NS;
}

/* The time of all threads of the process on CPUs (ns). */
static uint64_t cpu_clock(void)
{
    struct timespec time = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000 * MS + (uint64_t)time.tv_nsec;
}

/* How many CPUs the process used in the mean, of those it needs at least one. */
static double cpus_used(uint64_t cpu_ns, uint64_t ns)
{
    double cpus = ns ? (double)cpu_ns / (double)ns : 1;
    return cpus < 1 ? 1 : cpus;
}

/* The calls that slow the program: of the thread that makes most, where threads call at the same time, but of all where
 * they do so by turns, and use one CPU together. */
static double slowing_calls(struct ss_counted counted, double cpus)
{
    double by_turns = (double)counted.every / cpus;
    return by_turns > (double)counted.busiest ? by_turns : (double)counted.busiest;
}

/* What was counted since the last time that this was asked, until ``now``. */
static struct amount take_amount(uint64_t now)
{
    struct ss_counted counted = ss_count_calls();
    uint64_t cpu_ns = cpu_clock();
    uint64_t records = ss_load(ss_header->records), beside_ns = beside_calls();
    struct amount taken = {
        .calls = (double)(counted.finished - self.from_calls),
        .kept = (double)(counted.kept - self.from_kept),
        .busiest = slowing_calls(counted, cpus_used(cpu_ns - self.from_cpu_ns, now - self.from_ns)),
        .records = (double)(records - self.from_records),
        .beside_ns = (double)(beside_ns - self.from_beside_ns),
        .ns = (double)(now - self.from_ns),
    };
    self.from_ns = now;
    self.from_calls = counted.finished;
    self.from_kept = counted.kept;
    self.from_records = records;
    self.from_beside_ns = beside_ns;
    self.from_cpu_ns = cpu_ns;
    return taken;
}

static void open_window(uint64_t now, int level)
{
    uint64_t number = ss_load(ss_header->windows);
    struct ss_window *next = (struct ss_window *)ss_at(SS_WINDOWS_AT) + number % SS_WINDOWS;
    ss_store(next->sequence, 2 * number + 1);
    ss_fence();
    ss_store(next->began_ns, now);
    ss_store(next->ended_ns, 0);
    ss_store(next->calls, 0);
    ss_store(next->kept, 0);
    ss_store(next->busiest, 0);
    ss_store(next->took_ns, 0);
    ss_store(next->settled_ns, 0);
    ss_store(next->counted, 0);
    ss_store(next->records, level == RECORDS);
    ss_store(next->quiet, level == QUIET);
    ss_store_release(next->sequence, 2 * number + 2);
    ss_store_release(ss_header->windows, number + 1);
    ss_store_release(window, next);
}

static void close_window(uint64_t now, struct amount taken)
{
    ss_store(window->calls, (uint64_t)taken.calls);
    ss_store(window->kept, (uint32_t)taken.kept);
    ss_store(window->busiest, (uint32_t)taken.busiest);
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

/* The same since it was last asked, some time ago. */
static int makes_graphs(uint64_t now)
{
    uint64_t graphs = ss_load(ss_header->graphs);
    if (now - self.graphs_ns < RESUME_MS * MS)
        return self.often;
    self.often = is_often(graphs - self.graphs, now - self.graphs_ns);
    self.graphs = graphs;
    self.graphs_ns = now;
    return self.often;
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

/* What callbacks of so many calls cost, as a share of a time (ns). */
static double calls_cost(double calls, double ns)
{
    uint64_t timed = ss_load(ss_header->timed);
    double callback_ns = timed ? (double)ss_load(ss_header->timed_ns) / (double)timed : 0;
    return ns > 0 ? calls * (2 * callback_ns + (double)DISPATCH_NS) / ns : 0;
}

static double budget(void)
{
    return (double)ss_settings.cost_ppm / 1e6;
}

/* Whether callbacks take so much that those of frequent calls are off in windows without records, from then on. */
static int is_quiet(struct amount on)
{
    if (self.quiet || self.failures == MOST_FAILURES || ss_header->cupti_version < QUIET_VERSION ||
        calls_cost(on.busiest, on.ns) <= QUIET_FROM * budget())
        return self.quiet;
    /* What was measured until now left callbacks out. */
    self.slowdowns = 0;
    self.off = (struct amount){0};
    return self.quiet = 1;
}

/* Switches callbacks of frequent calls off, until they are on again; 0 if calls in flight prevent that. */
static int begin_quiet(void)
{
    ss_store_release(ss_quiet_until, UINT64_MAX);
    int off = ss_leave_frequent(self.alone);
    ss_store(ss_quiet_since, ss_clock());
    ss_store_release(ss_unfollowed, (uint32_t)off);
    if (!off)
        ss_store_release(ss_quiet_until, ss_clock());
    return off;
}

static void note_window_with_records(struct amount on)
{
    self.on = on;
    self.on_sum.calls = KEPT * self.on_sum.calls + on.calls;
    self.on_sum.kept = KEPT * self.on_sum.kept + on.kept;
    self.on_sum.busiest = KEPT * self.on_sum.busiest + on.busiest;
    self.on_sum.records = KEPT * self.on_sum.records + on.records;
    self.on_sum.beside_ns = KEPT * self.on_sum.beside_ns + on.beside_ns;
    self.on_sum.ns = KEPT * self.on_sum.ns + on.ns;
}

/* The share of time that records take, with callbacks where these were off: the rate of calls with them, by the rates on
 * both sides of it. */
static void note_window_without(struct amount off)
{
    const struct amount *each[] = {&self.off, &self.on, &off};
    double rate[3];
    int enough = 1;
    for (int at = 0; at < 3; at++) {
        double calls = self.quiet ? each[at]->kept : each[at]->calls;
        enough &= calls >= LEAST_CALLS;
        rate[at] = calls / each[at]->ns;
    }
    if (enough)
        self.slowdown[self.slowdowns++ % KNOWN] = 1 - rate[1] / ((rate[0] + rate[2]) / 2);
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
    struct amount on = self.on_sum;
    double every = calls_cost(on.busiest, on.ns);
    /* What callbacks that stay on cost is spent already, and stacks and NVTX. */
    double spent = self.quiet ? calls_cost(on.kept, on.ns) : every;
    double cost = largest_slowdown(possible_cost(on) + every - (spent < every ? spent : every));
    double rest = budget() - spent - (on.ns > 0 ? on.beside_ns / on.ns : 0);
    if (rest < budget() / 5)
        rest = budget() / 5;
    double share = cost > 0 ? rest / cost : MOST_SHARE;
    return share < LEAST_SHARE ? LEAST_SHARE : share > MOST_SHARE ? MOST_SHARE : share;
}

/* A window with records ends, which settled, or did not. */
static void note_settling(uint64_t now)
{
    uint64_t began = ss_load(window->began_ns), settled = ss_load(window->settled_ns);
    uint64_t took = settled >= began && settled <= now ? settled - began : 2 * (now - began);
    self.settling_ns = (3 * self.settling_ns + took) / 4;
}

static double least_window_ms(void)
{
    double ms = (double)(SETTLINGS * self.settling_ns) / (double)MS;
    double least = self.quiet && SS_LEAST_WINDOW_MS < LEAST_QUIET_MS ? LEAST_QUIET_MS : SS_LEAST_WINDOW_MS;
    return ms < least ? least : ms > MOST_WINDOW_MS ? MOST_WINDOW_MS : ms;
}

/* How long the next window lasts, by the share of time that is on: with callbacks, of which the time before records is a
 * part. They differ by a quarter, so that none keeps step with the program. */
static uint64_t window_ns(int on)
{
    self.random = self.random * 1664525 + 1013904223;
    double shorter = self.share < 0.5 ? self.share : 1 - self.share, before_ms = self.quiet ? RESUME_MS : 0;
    double cycle_ms = (least_window_ms() + before_ms) / shorter * (1 + 0.25 * (self.random >> 8) / 0x1p24);
    return (uint64_t)((on ? cycle_ms * self.share - before_ms : cycle_ms * (1 - self.share)) * (double)MS);
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
        open_window(began, RECORDS);
        ss_store(window->settled_ns, began);
        if (!at)
            close_window(now, none);
    }
    self.share = allowed_share();
    self.due = now + window_ns(1);
}

/* Whether the program would notice if records and callbacks were always on. */
static int needs_windows(void)
{
    return is_quiet(self.on) || possible_cost(self.on) > (budget() < LEAST_COST ? budget() : LEAST_COST);
}

/* Looks at a program without records: once frequent calls exceed the budget, they are followed no more. */
static void rate_calls(uint64_t now)
{
    self.due = now + LOOK_MS * MS;
    if (!self.quiet) {
        self.on = take_amount(now);
        self.quiet = calls_cost(self.on.busiest, self.on.ns) > budget();
    }
    if (!self.quiet || ss_give_space(SS_WINDOWS_AT, SS_WINDOWS * sizeof(struct ss_window)))
        return;
    if (!begin_quiet()) {
        self.quiet = 0;
        if (++self.failures == MOST_FAILURES)
            self.cupti = NULL;
        return;
    }
    now = ss_clock();
    /* Since the last look, of which the rate is. */
    open_window(self.from_ns - (uint64_t)self.on.ns, NOTHING_MORE);
    close_window(now, self.on);
    open_window(now, QUIET);
    take_amount(now);
    self.cupti = NULL;
}

static void look(uint64_t now)
{
    note_window_with_records(take_amount(now));
    int often = makes_graphs(now);
    if (often || needs_windows())
        begin_windows(now);
    else
        self.due = now + LOOK_MS * MS;
    if (often)
        self.due = now;
}

/* Records are on, or calls alone are followed, ``since`` a time. */
void ss_begin_windows(const struct ss_cupti *cupti, uint64_t since)
{
    static const uint8_t switched[] = SS_SWITCHED_KINDS;
    uint64_t kinds = 0;
    /* There may have been a recording before. */
    memset(&self, 0, sizeof self);
    self.began_ns = self.noted_ns = ss_clock();
    self.began_cpu_ns = self.from_cpu_ns = cpu_clock();
    ss_store(ss_unfollowed, 0);
    ss_store(ss_quiet_since, 0);
    ss_store(ss_quiet_until, 0);
    ss_end_flush();
    ss_store_release(control, FREE);
    for (size_t at = 0; at < sizeof switched; at++)
        kinds |= UINT64_C(1) << switched[at];
    self.alone = !ss_header->kinds;
    if ((!self.alone && !(ss_header->kinds & kinds)) || ss_settings.cost_ppm >= SS_EVERYTHING_PPM)
        return;
    self.cupti = cupti;
    self.since_ns = since;
    self.settling_ns = FIRST_WINDOW_MS * MS / SETTLINGS;
    /* One that is in use has counted calls. */
    if (!ss_gate_is_used())
        ss_use_gate(1);
    self.from_ns = ss_header->started_ns;
    struct amount before = take_amount(ss_clock());
    self.graphs = ss_load(ss_header->graphs);
    self.graphs_ns = self.from_ns;
    self.due = self.from_ns + FIRST_LOOK_MS * MS;
    self.random = (uint32_t)self.from_ns | 1;
    if (self.alone || !(ss_header->flags & SS_FLAG_LATE))
        return;
    /* A program that is attached for seconds would have its records on for too much of the first of them: so many calls
     * make as many records. */
    before.records = before.calls;
    note_window_with_records(before);
    if (!needs_windows())
        return;
    begin_windows(self.from_ns);
    /* A graph that is launched may make a hundred. */
    self.due = self.from_ns + FIRST_WINDOW_MS * MS;
}

static void follow_again(void)
{
    ss_store_release(ss_unfollowed, 0);
    ss_follow_frequent();
}

/* Begins a window in which all calls are followed, without a switch of records. */
static void end_quiet(uint64_t now)
{
    follow_again();
    ss_store_release(ss_quiet_until, now);
    close_window(now, take_amount(now));
    open_window(now, NOTHING_MORE);
}

/* Closes the gate for a switch; 0 if a call in flight prevents it. */
static int close_gate(uint64_t now)
{
    int patient = self.patient || (self.refused_ns && now - self.refused_ns >= REFUSED_MS * MS);
    int closed = ss_close_gate(patient);
    self.patient = patient && closed;
    if (closed)
        self.refused_ns = 0;
    else if (patient || !self.refused_ns)
        self.refused_ns = now;
    return closed;
}

/* Calls of that time belong to no window: a switch of records takes a while, and holds calls up. Where it has begun,
 * records may be missing, and where it has not ended, too. It is tried again where a call in flight prevents it. */
static void switch_to(int level, uint64_t now)
{
    int was_quiet = (int)ss_load(window->quiet), had_records = (int)ss_load(window->records);
    int switches = had_records || level == RECORDS;
    if (switches && !close_gate(now)) {
        self.due = now + AGAIN_MS * MS;
        return;
    }
    now = ss_clock();
    struct amount taken = take_amount(now);
    if (was_quiet || level == RECORDS)
        note_window_without(taken);
    else
        note_window_with_records(taken);
    if (had_records) {
        note_settling(now);
        ss_store(ss_unsettled_since, UINT64_MAX);
        switch_kinds(0);
    }
    if (was_quiet)
        ss_store_release(ss_quiet_until, ss_clock());
    if (level == RECORDS)
        switch_kinds(1);
    /* Calls have records as soon as the gate is open, even if this thread has no CPU. */
    uint64_t border = level == RECORDS ? ss_clock() : now;
    if (switches)
        ss_open_gate();
    uint64_t after = ss_clock();
    take_amount(after);
    if (level == QUIET && begin_quiet()) {
        after = ss_clock();
        take_amount(after);
    } else if (level == QUIET) {
        level = NOTHING_MORE;
        self.failures++;
        self.quiet = 0;
    }
    close_window(border, taken);
    open_window(border, level);
    if (level == RECORDS)
        ss_store_release(ss_unsettled_since, border);
    self.share = allowed_share();
    self.due = after + window_ns(level == RECORDS || (self.quiet && level == NOTHING_MORE));
}

/* The next window, if nothing prevents it. While graphs are instantiated again and again, calls are followed in turn where
 * records would be on. */
static void change(uint64_t now)
{
    int has_records = (int)ss_load(window->records), quiet = (int)ss_load(window->quiet);
    if (!has_records && ss_load(ss_header->not_held)) {
        /* Records of a thread may be missing from then on. */
        if (quiet)
            end_quiet(now);
        self.cupti = NULL;
        return;
    }
    if (ss_load(ss_unfollowed)) {
        follow_again();
        self.due = now + RESUME_MS * MS;
        return;
    }
    int graphs = makes_graphs(now);
    if (graphs && !has_records)
        note_graphs();
    if (!has_records && !graphs)
        switch_to(RECORDS, now);
    else if (quiet)
        switch_to(NOTHING_MORE, now);
    else if (is_quiet(self.on_sum))
        switch_to(QUIET, now);
    else if (has_records)
        switch_to(NOTHING_MORE, now);
    else
        self.due = now + window_ns(0);
}

/* Notes how many CPUs the process uses. */
static void note_cpus(uint64_t now)
{
    if (now - self.noted_ns < FIRST_LOOK_MS * MS)
        return;
    self.noted_ns = now;
    double cpus = cpus_used(cpu_clock() - self.began_cpu_ns, now - self.began_ns);
    ss_store(ss_header->cpus_ppm, (uint64_t)(cpus * 1e6));
}

/* Before CUPTI is asked for its buffers, which is not done during a switch: 0 if there is one. */
int ss_begin_flush(void)
{
    __atomic_store_n(&flushes, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&control, __ATOMIC_SEQ_CST) != SWITCHING)
        return 1;
    ss_end_flush();
    return 0;
}

void ss_end_flush(void)
{
    ss_store_release(flushes, 0);
}

/* Waits for a flush to end, unless that takes long. */
static void wait_for_flush(void)
{
    for (int waited = 0; waited < FLUSH_PATIENCE && __atomic_load_n(&flushes, __ATOMIC_SEQ_CST); waited++)
        nanosleep(&(struct timespec){.tv_nsec = MS / 10}, NULL);
}

/* Switches the records if it is time for it; how long until the next time (ns). Called by one thread. */
uint64_t ss_change_window(void)
{
    uint32_t expected = FREE;
    uint64_t now = ss_clock();
    note_cpus(now);
    if (!self.cupti)
        return UINT64_MAX;
    if (now >= self.due) {
        if (!__atomic_compare_exchange_n(&control, &expected, SWITCHING, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            return UINT64_MAX;
        wait_for_flush();
        now = ss_clock();
        if (self.alone)
            rate_calls(now);
        else if (window)
            change(now);
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

/* Has nothing switched any more, and where records are on, all calls followed. Called in a thread of the program, which waits for a switch that
 * has begun. */
void ss_stop_windows(void)
{
    uint64_t limit = ss_clock() + STOP_MS * MS;
    uint32_t expected = FREE;
    while (!__atomic_compare_exchange_n(&control, &expected, STOPPED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED) &&
           expected == SWITCHING && ss_clock() < limit)
        expected = FREE;
    if (expected == SWITCHING || self.alone || !ss_load(ss_unfollowed))
        return;
    follow_again();
    nanosleep(&(struct timespec){.tv_nsec = RESUME_MS * (long)MS}, NULL);
}

/* In a process that was forked, which has no such thread. */
void ss_forget_windows(void)
{
    self.cupti = NULL;
    ss_use_gate(0);
    ss_store(ss_unfollowed, 0);
    ss_store(ss_quiet_until, 0);
    ss_store(window, NULL);
    ss_store(ss_unsettled_since, UINT64_MAX);
}
