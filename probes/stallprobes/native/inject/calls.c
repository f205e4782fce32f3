/* The callbacks at enter and exit of the driver's functions: calls in flight, histograms, slow calls, and the time that
 * passes inside calls and between them.
 *
 * Most calls are plain: the outermost call of a thread that has a slot, such as a launch, of which only the stream is of
 * interest, and which returns soon and without an error. They have functions of their own, enter_plain and leave_plain,
 * with few instructions and lines of memory: those that a callback brings to the CPU's caches are as many of the driver's
 * that it takes from them. A call that is not plain they leave to enter and leave, which take any.
 */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "arguments.h"
#include "call_log.h"
#include "calls.h"
#include "driver_functions.h"
#include "gaps.h"
#include "gate.h"
#include "histogram.h"
#include "map.h"
#include "nvtx.h"
#include "samples.h"
#include "slots.h"
#include "space.h"
#include "stack.h"
#include "state.h"
#include "threads.h"
#include "windows.h"

enum {
    /* Number of calls after which a thread without a slot looks for a slot again. */
    RETRY = 256,
    /* Shortest duration (ns) of a callback that is left out of the measured cost. Reason: such a callback took a stack,
     * was held at the gate, or had no CPU. */
    LONGEST_TIMED_NS = 10000,
};
static pthread_key_t thread_end;

/* A call in flight; ``which`` is its API and its correlation. */
struct begun {
    uint64_t start_ns;
    uint64_t which;
};

/* Two lines have what a plain call needs. */
struct own {
    uint32_t file;
    uint32_t depth;
    struct ss_slot *slot;
    struct ss_call_log log;
    /* Calls that take less are plain: ``slow_ns``, or 0 while the thread has no name yet. */
    uint64_t plain_ns;
    /* The histogram of the API that was called last. */
    struct ss_call_histogram *histogram;
    uint32_t histogram_api;
    /* Callbacks until one is timed. */
    uint32_t untimed;
    struct begun outermost;
    /* Whether its call counts at the gate, and as a call of which slot, -1 for none. */
    uint32_t counts;
    /* Whether Python had a state of this thread when that was last looked at. */
    uint32_t has_python;
    struct ss_sampling sampling;
    struct begun nested[SS_DEPTH - 1];
    struct ss_naming naming;
    uint64_t slow_ns;
    int64_t counted_in;
    uint32_t number;
    uint32_t retry;
    /* Whether the last search for a slot had no space, which may have passed. */
    int lacks_space;
    struct ss_credit credit;
};
_Static_assert(offsetof(struct own, sampling.waits) <= 128, "two lines of the cache");
static __thread struct own own_words __attribute__((aligned(64)));

/* What a thread has of its own. Its address is a call of the dynamic linker, which the compiler would repeat for each
 * use: so it is asked for once in a callback. */
SS_INLINE struct own *of_thread(void)
{
    struct own *self = &own_words;
    __asm__("" : "+r"(self));
    return self;
}

static void end_thread(void *slot)
{
    struct own *self = of_thread();
    if (self->slot == slot && self->file == ss_file && ss_load_acquire(ss_private->recording) == SS_OPEN) {
        ss_end_block(&self->log, slot);
        ss_release_slot(slot);
    }
    /* The gate of a later recording counts no call of an earlier one. */
    if (self->counts && self->file == ss_file)
        ss_leave_gate(self->counted_in);
    self->slot = NULL;
    self->log = (struct ss_call_log){0};
    self->depth = 0;
    self->counts = 0;
}

/* In a forked process, which must not write to its parent's file. The page is wiped too, as not every fork runs this. */
static void after_fork(void)
{
    ss_store(ss_private->helpers, 0);
    ss_store(ss_private->looks, 0);
    ss_set_recording(SS_FORKED);
}

/* What the callbacks need of the system: the ends of threads, and forks. */
int ss_prepare_calls(void)
{
    return pthread_key_create(&thread_end, end_thread) || pthread_atfork(NULL, NULL, after_fork) || ss_follow_forks();
}

/* The file of a forked process, once it makes a call; 0 if this thread has opened it. */
static SS_APART int open_in_fork(void)
{
    uint32_t expected = SS_FORKED;
    if (!__atomic_compare_exchange_n(&ss_private->recording, &expected, SS_OPENING, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return -1;
    int error = errno, cancel;
    uint32_t flags = SS_FLAG_FORKED | SS_FLAG_CALLS_ONLY;
    /* A pending cancellation must not end the thread inside a driver call. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    /* Nobody would end a recording to memory: the control is the parent's. */
    int failed = !ss_settings.folder[0] || ss_open_file(flags);
    if (!failed) {
        ss_write_apis();
        ss_store(ss_header->state, SS_STATE_RECORDING);
    }
    ss_set_recording(failed ? SS_OFF : SS_OPEN);
    pthread_setcancelstate(cancel, NULL);
    errno = error;
    return failed;
}

static SS_APART void set_naming(struct own *self, struct ss_naming naming)
{
    self->naming = naming;
    self->plain_ns = naming.due == UINT64_MAX ? self->slow_ns : 0;
}

/* Whether a call of the function is recorded: in a forked process, the first one opens its file. */
static int is_recorded(const struct ss_driver_function *function, const struct ss_callback_data *data)
{
    if (!ss_load_acquire(function->api))
        return 0;
    uint32_t recording = ss_load_acquire(ss_private->recording);
    if (recording == SS_OPEN || (recording == SS_FORKED && !open_in_fork()))
        return 1;
    if (recording != SS_OFF && data->site != SS_CALL_ENTER)
        ss_count_lost(SS_LOST_BEFORE_FILE, 1);
    return 0;
}

/* A slot for a thread that has none in the present file, or NULL. */
static SS_APART struct ss_slot *new_slot(struct own *self)
{
    if (self->file != ss_file) {
        self->file = ss_file;
        self->slot = NULL;
        self->log = (struct ss_call_log){0};
        self->depth = 0;
        self->counts = 0;
        self->retry = 0;
    }
    /* A search that found none is repeated once a thread has ended, or now and then. */
    int may_be_there = ss_load(ss_header->ended_slots) || (self->lacks_space && !ss_lacks_space());
    if (self->retry && self->retry++ % RETRY && !may_be_there)
        return NULL;
    self->retry = 1;
    struct ss_slot *slot = ss_claim_slot(&self->number);
    self->lacks_space = !slot && ss_lacks_space();
    if (!slot)
        return NULL;
    pthread_setspecific(thread_end, slot);
    self->slow_ns = ss_load(ss_settings.slow_ns);
    self->histogram_api = UINT32_MAX;
    self->credit = (struct ss_credit){.parts = SS_SLOW_PARTS};
    set_naming(self, ss_begin_naming(ss_load(slot->thread)));
    self->sampling = ss_begin_sampling(ss_load(slot->thread));
    ss_begin_gaps(self->number);
    self->has_python = (uint32_t)ss_has_python(self->number);
    self->slot = slot;
    return slot;
}

/* The slot of the calling thread if this process records; NULL without one. */
SS_INLINE struct ss_slot *ready_slot(const struct own *self)
{
    return ss_likely(self->file == ss_load_acquire(ss_private->file)) ? self->slot : NULL;
}

static struct begun *begun_at(struct own *self, uint32_t depth)
{
    return depth ? &self->nested[depth - 1] : &self->outermost;
}

SS_INLINE uint64_t pair_of(uint32_t low, uint64_t high)
{
    return high << 32 | low;
}

/* A call begins, after which ``depth`` of them are in flight. */
SS_INLINE void show_call(struct ss_slot *slot, uint32_t depth, const struct ss_call *call)
{
    uint64_t sequence = ss_load(slot->sequence);
    ss_store(slot->sequence, sequence + 1);
    ss_fence();
    ss_copy_call(&slot->calls[depth - 1], call);
    ss_store(slot->depth, depth);
    ss_store_release(slot->sequence, sequence + 2);
}

_Static_assert(offsetof(struct ss_call, stream) == 8 && offsetof(struct ss_call, bytes) == 16 &&
                   offsetof(struct ss_call, context) == 24 && offsetof(struct ss_call, correlation) == 28 &&
                   offsetof(struct ss_call, api) == 32 && offsetof(struct ss_call, flags) == 38,
               "the words of a plain call");

/* The same of a plain call, word by word. */
SS_INLINE void show_plain_call(struct ss_slot *slot, struct begun begun, uint64_t stream, uint32_t context)
{
    ss_word *words = (ss_word *)&slot->calls[0];
    uint64_t sequence = ss_load(slot->sequence);
    ss_store(slot->sequence, sequence + 1);
    ss_fence();
    ss_store(words[0], begun.start_ns);
    ss_store(words[1], stream);
    ss_store(words[2], 0);
    ss_store(words[3], pair_of(context, begun.which >> 32));
    ss_store(words[4], pair_of((uint32_t)begun.which, SS_CALL_STREAM << 16));
    ss_store(slot->depth, 1);
    ss_store_release(slot->sequence, sequence + 2);
}

/* A call that is not nested in another one, and does not only wait. */
static SS_APART void pass_gate(struct own *self, const struct ss_slot *slot, const struct ss_driver_function *function)
{
    if (self->depth || self->counts || function->waits)
        return;
    self->counted_in = slot ? (int64_t)self->number : -1;
    self->counts = (uint32_t)ss_enter_gate(self->counted_in, (uint32_t *)&function->held);
}

static void leave_gate(struct own *self)
{
    if (!self->counts)
        return;
    self->counts = 0;
    ss_leave_gate(self->counted_in);
}

/* Returns the stack of the sample, 0 for none. */
static uint32_t take_sample(struct own *self, int sampled, uint32_t api, uint64_t since, uint64_t at, uint32_t stack)
{
    struct ss_time_sample sample = {.at_ns = at, .since_ns = since, .stack = stack, .api = api};
    sample.thread = ss_load(self->slot->thread);
    sample.sampled = (uint16_t)sampled;
    if (sampled == SS_SAMPLED_WAITS) {
        ss_take_wait(&self->sampling, &sample);
        return sample.stack;
    }
    uint32_t stacks[SS_GAP_STACKS] = {0}, holders[SS_GAP_STACKS] = {0};
    uint32_t count = sampled == SS_SAMPLED_BETWEEN ? ss_gap_stacks(self->number, since, stacks, holders) : 0;
    ss_take_sample(&self->sampling, &sample, stacks, holders, count);
    ss_store_release(ss_gaps[self->number].python, ss_own_python());
    self->has_python = (uint32_t)ss_has_python(self->number);
    return sample.stack;
}

/* Takes a sample of the time before a call that has just begun. Returns when the call begins after that. */
static SS_APART uint64_t sample_before_call(struct own *self, const struct ss_driver_function *function, uint64_t now)
{
    uint64_t left = self->sampling.left_ns;
    if (ss_load(ss_quiet_until) > left) {
        /* It may have made calls since. */
        ss_leave_out(&self->sampling, now - left);
        return now;
    }
    /* A first stack takes milliseconds, for which no switch of kinds has to wait. */
    leave_gate(self);
    take_sample(self, SS_SAMPLED_BETWEEN, function->api - 1u, self->sampling.left_ns, now, 0);
    if (ss_load(ss_private->gated))
        pass_gate(self, self->slot, function);
    uint64_t begun = ss_clock();
    ss_leave_out(&self->sampling, begun - now);
    return begun;
}

/* Whether a sample of the time inside calls is due. */
SS_INLINE int is_inside_due(const struct own *self)
{
    return self->sampling.inside_ns >= self->sampling.due_ns[SS_SAMPLED_INSIDE];
}

/* Whether a sample of the time between calls is due when a call begins at ``now``. */
SS_INLINE int is_gap_due(const struct own *self, uint64_t now)
{
    return now - self->sampling.inside_ns >= self->sampling.due_ns[SS_SAMPLED_BETWEEN];
}

/* A call that lost its CPU on the way to the gate while callbacks went off has returned unseen. */
static void forget_unfollowed(struct own *self)
{
    if (!self->depth || self->outermost.start_ns >= ss_load(ss_quiet_since) ||
        !ss_is_frequent((uint32_t)self->outermost.which))
        return;
    self->depth = 0;
    leave_gate(self);
}

/* Any call begins. */
static SS_APART void enter(struct own *self, const struct ss_driver_function *function,
                           const struct ss_callback_data *data)
{
    if (!is_recorded(function, data))
        return;
    forget_unfollowed(self);
    struct ss_slot *slot = self->file == ss_file && self->slot ? self->slot : new_slot(self);
    uint32_t api = function->api - 1u;
    if (ss_load(ss_private->gated))
        pass_gate(self, slot, function);
    struct ss_call call = {.api = api, .context = data->context_number, .correlation = data->correlation};
    call.flags = self->depth ? SS_CALL_NESTED : 0;
    if (function->only_stream && data->parameters) {
        call.stream = ss_stream_of(function, data->parameters);
        call.flags |= SS_CALL_STREAM;
    } else if (function->shape && data->parameters) {
        ss_describe_call(&call, function->shape, data->parameters);
        ss_before_use(function->shape, data->parameters);
    }
    if (self->depth >= SS_DEPTH)
        return;
    call.start_ns = ss_clock();
    if (is_gap_due(self, call.start_ns) && slot && !self->depth)
        call.start_ns = sample_before_call(self, function, call.start_ns);
    if (self->counts && !self->depth)
        ss_note_flight(self->counted_in, call.start_ns);
    *begun_at(self, self->depth++) = (struct begun){call.start_ns, pair_of(api, data->correlation)};
    if (slot)
        show_call(slot, self->depth, &call);
}

/* What precedes a plain call now and then, or where there is a gate. Returns when it begins. */
static SS_APART uint64_t prepare_call(struct own *self, const struct ss_driver_function *function, uint64_t now)
{
    if (is_gap_due(self, now))
        now = sample_before_call(self, function, now);
    if (self->counts)
        ss_note_flight(self->counted_in, now);
    return now;
}

/* CUPTI gives a call the number of the one before: that of a call whose end it has missed. From then on records have no
 * owner, so that no more are begun. */
static SS_APART void note_repeated(void)
{
    if (!ss_load(ss_header->not_held))
        ss_add(ss_header->not_held, 1);
}

/* A call begins that is plain so far. */
static SS_APART void enter_plain(struct own *self, const struct ss_driver_function *function,
                                 const struct ss_callback_data *data)
{
    if (ss_unlikely(!ss_load_acquire(function->is_plain) || !ready_slot(self) || self->depth || !data->parameters)) {
        enter(self, function, data);
        return;
    }
    if (ss_unlikely(ss_load(ss_private->gated)))
        pass_gate(self, self->slot, function);
    if (ss_unlikely(self->outermost.which >> 32 == data->correlation))
        note_repeated();
    uint64_t start = (uint64_t)ss_monotonic();
    if (ss_unlikely(is_gap_due(self, start) || self->counts))
        start = prepare_call(self, function, start);
    self->outermost = (struct begun){start, pair_of(function->api - 1u, data->correlation)};
    self->depth = 1;
    show_plain_call(self->slot, self->outermost, ss_stream_of(function, data->parameters), data->context_number);
}

/* Keeps the stack by which the reader names this thread. */
static SS_APART void keep_stack(struct own *self, struct ss_slot *slot, uint32_t stack)
{
    if (!stack || ss_load(slot->stack))
        return;
    ss_store(slot->stack, stack);
    set_naming(self, (struct ss_naming){.due = UINT64_MAX});
}

/* Takes a stack by which the reader names this thread. */
static SS_APART void name_thread(struct own *self, struct ss_slot *slot, uint32_t api, uint64_t start, uint64_t now)
{
    struct ss_naming naming = self->naming;
    uint32_t stack = ss_stack_for_name(&naming, &self->credit, api, start, now);
    set_naming(self, naming);
    keep_stack(self, slot, stack);
}

/* Returns the number of its stack. */
static SS_APART uint32_t keep_slow_call(struct own *self, struct ss_slot *slot, uint32_t depth, uint64_t end_ns,
                                        int32_t result)
{
    const struct begun *begun = begun_at(self, depth);
    uint32_t stack = ss_stack_of_call(&self->credit, (uint32_t)begun->which, begun->start_ns, end_ns);
    keep_stack(self, slot, stack);
    uint64_t number = ss_load(slot->slow_calls);
    struct ss_slow_call *slow = ss_slow_call_at(self->number, number);
    if (!slow) {
        /* It is counted, and not listed. */
        ss_store_release(slot->slow_calls, number + 1);
        return stack;
    }
    ss_store(slow->sequence, 2 * number + 1);
    ss_fence();
    slow->end_ns = end_ns;
    slow->call = slot->calls[depth];
    slow->result = result;
    slow->thread = ss_load(slot->thread);
    slow->stack = stack;
    ss_copy_range(slow->range, sizeof slow->range, begun->start_ns);
    ss_store_release(slow->sequence, 2 * number + 2);
    ss_store_release(slot->slow_calls, number + 1);
    return stack;
}

/* What follows an outermost call, of which the library has made something that takes long. */
static SS_APART void end_long_call(struct own *self, uint32_t api, uint64_t start, uint64_t now, uint32_t stack,
                                   int wait_due)
{
    if (is_inside_due(self))
        stack = take_sample(self, SS_SAMPLED_INSIDE, api, start, now, stack);
    if (wait_due)
        take_sample(self, SS_SAMPLED_WAITS, api, start, now, stack);
    self->sampling.left_ns = ss_clock();
    ss_leave_out(&self->sampling, self->sampling.left_ns - now);
}

/* A call returns of which the library saw no begin. It may be older than a recording that began late, or have begun
 * while callbacks were off. */
static SS_APART void count_unmatched(const struct own *self)
{
    if ((self->file == ss_file || !(ss_header->flags & SS_FLAG_LATE)) && !ss_load(ss_quiet_until))
        ss_count_lost(SS_LOST_UNMATCHED, 1);
}

/* Whether the thread's block of the log has room for one more call. */
SS_INLINE int has_room(struct own *self, struct ss_slot *slot)
{
    return ss_likely(self->log.left) || ss_take_block(&self->log, slot, self->number);
}

/* Without room for a histogram, each call looks for it again. */
static void find_histogram(struct own *self, struct ss_slot *slot, uint32_t api)
{
    ss_note_use(api);
    self->histogram = ss_histogram_of(slot, self->number, api);
    self->histogram_api = self->histogram ? api : UINT32_MAX;
}

SS_INLINE void count_call(struct ss_call_histogram *histogram, uint64_t ns)
{
    ss_increase(histogram->counts[ss_bucket((int64_t)ns)], 1);
    ss_increase(histogram->total_ns, ns);
    if (ss_unlikely(ns > ss_load(histogram->max_ns)))
        ss_store(histogram->max_ns, ns);
}

static void count_any_call(struct own *self, struct ss_slot *slot, uint32_t api, uint64_t ns, int32_t result)
{
    if (self->histogram_api != api)
        find_histogram(self, slot, api);
    struct ss_call_histogram *histogram = self->histogram;
    if (!histogram) {
        ss_increase(slot->lost, 1);
        return;
    }
    count_call(histogram, ns);
    if (ns >= self->slow_ns)
        ss_increase(histogram->slow, 1);
    if (result && result != SS_CUDA_NOT_READY)
        ss_increase(histogram->failed, 1);
}

/* Counts of calls by which the cost of watching is known. */
static void count_kind(const struct ss_driver_function *function, struct ss_slot *slot, int32_t result)
{
    if (function->instantiates && !result)
        ss_add(ss_header->graphs, 1);
    if (function->asks)
        ss_increase(slot->asked, 1);
    else
        ss_increase(slot->finished, 1);
    if (!function->frequent)
        ss_increase(slot->kept, 1);
}

/* Adds to the time inside outermost calls. */
SS_INLINE void pass_time(struct own *self, uint64_t ns, uint64_t now)
{
    self->sampling.inside_ns += ns;
    self->sampling.left_ns = now;
}

/* The thread is between calls. */
SS_INLINE void end_call(const struct own *self, struct ss_slot *slot)
{
    if (self->has_python) {
        struct ss_gap *gap = &ss_gaps[self->number];
        ss_store(gap->due_ns, self->sampling.inside_ns + self->sampling.due_ns[SS_SAMPLED_BETWEEN]);
        ss_store_release(gap->left_ns, self->sampling.left_ns);
    }
    ss_store_release(slot->depth, 0);
}

/* Whether a call asks whether the same has ended as those two did that were logged last, a moment ago, and it has not: such
 * a wait needs no more of its queries. */
static int asks_again(const struct own *self, const struct ss_driver_function *function, const struct ss_call *call,
                      int32_t result)
{
    if (!function->asks || result != SS_CUDA_NOT_READY || !self->log.left || self->log.left > SS_BLOCK_CALLS - 2)
        return 0;
    for (int back = 1; back <= 2; back++) {
        const struct ss_call *last = &self->log.next[-back].call;
        if (last->api != call->api || last->stream != call->stream || last->bytes != call->bytes)
            return 0;
    }
    return call->start_ns - self->log.next[-1].end_ns < SS_QUERIES_NS;
}

/* Any call returns. */
static SS_APART void leave(struct own *self, const struct ss_driver_function *function,
                           const struct ss_callback_data *data, uint64_t now)
{
    if (!is_recorded(function, data))
        return;
    struct ss_slot *slot = self->file == ss_file ? self->slot : NULL;
    uint32_t depth = self->file == ss_file ? self->depth : 0;
    uint32_t api = function->api - 1u;
    int32_t result = data->result ? *(const int32_t *)data->result : 0;
    int noted = function->noted && data->parameters && !result;
    if (noted)
        ss_after_use(function->shape, data->parameters);
    /* Calls above it never returned. */
    while (depth && begun_at(self, depth - 1)->which != pair_of(api, data->correlation))
        depth--;
    if (!depth) {
        count_unmatched(self);
        return;
    }
    depth--;
    self->depth = depth;
    if (!depth)
        leave_gate(self);
    if (!slot) {
        ss_count_lost(SS_LOST_NO_SLOT, 1);
        return;
    }
    uint64_t start = begun_at(self, depth)->start_ns;
    uint64_t ns = now > start ? now - start : 0;
    int slow = ns >= self->slow_ns;
    count_any_call(self, slot, api, ns, result);
    count_kind(function, slot, result);
    if (function->waits && start >= ss_load(ss_unsettled_since) && !result)
        ss_settle_window(now);
    const struct ss_call *call = &slot->calls[depth];
    struct ss_call created;
    if (noted && function->shape->use == SS_USE_CREATES_STREAM) {
        created = ss_with_stream(*call, data->parameters);
        call = &created;
    }
    if (asks_again(self, function, call, result))
        ;
    else if (has_room(self, slot))
        ss_log_call(&self->log, call, start + ns);
    else
        ss_count_lost(SS_LOST_NO_BLOCK, 1);
    int named = now >= self->naming.due && !slow;
    uint32_t stack = slow ? keep_slow_call(self, slot, depth, now, result) : 0;
    if (named)
        name_thread(self, slot, api, start, now);
    if (depth) {
        ss_store_release(slot->depth, depth);
        return;
    }
    pass_time(self, ns, now);
    int waits = function->waits || slot->calls[0].target == SS_MEMORY_PAGEABLE;
    int wait_due = waits && ss_count_wait(&self->sampling, now);
    if (slow || named || wait_due || is_inside_due(self))
        end_long_call(self, api, start, now, stack, wait_due);
    end_call(self, slot);
}

/* What follows a plain call now and then, or where there is a gate. */
static SS_APART void finish_call(struct own *self, struct ss_slot *slot, uint32_t api, uint64_t start, uint64_t now)
{
    leave_gate(self);
    if (is_inside_due(self))
        end_long_call(self, api, start, now, 0, 0);
    end_call(self, slot);
}

/* A call returns that is plain so far. */
static SS_APART void leave_plain(struct own *self, const struct ss_driver_function *function,
                                 const struct ss_callback_data *data, uint64_t now)
{
    int is_plain = ss_load_acquire(function->is_plain);
    uint32_t api = is_plain ? function->api - 1u : 0;
    struct ss_slot *slot = ready_slot(self);
    /* If the clock went back, ``ns`` is very large. */
    uint64_t start = self->outermost.start_ns, ns = now - start;
    if (ss_unlikely(!is_plain || !slot || self->depth != 1 ||
                    self->outermost.which != pair_of(api, data->correlation) || ns >= self->plain_ns ||
                    self->histogram_api != api || !self->log.left || !data->result || *(const int32_t *)data->result)) {
        leave(self, function, data, now);
        return;
    }
    self->depth = 0;
    count_call(self->histogram, ns);
    ss_increase(slot->finished, 1);
    ss_log_call(&self->log, &slot->calls[0], now);
    pass_time(self, ns, now);
    if (ss_unlikely(is_inside_due(self) || self->counts))
        finish_call(self, slot, api, start, now);
    else
        end_call(self, slot);
}

/* What the library's part of one callback in some hundred takes, for the cost that the report states. One that takes
 * longer took a stack, which is counted apart, was held at the gate, or lost its CPU. */
static void count_time(uint64_t took)
{
    if (took >= LONGEST_TIMED_NS || ss_load_acquire(ss_private->recording) != SS_OPEN)
        return;
    ss_add(ss_header->timed_ns, took);
    ss_add(ss_header->timed, 1);
}

static SS_APART void time_callback(struct own *self, const struct ss_driver_function *function,
                                   const struct ss_callback_data *data, uint64_t now)
{
    uint64_t before = now ? now : ss_clock();
    if (data->site == SS_CALL_ENTER)
        enter_plain(self, function, data);
    else
        leave_plain(self, function, data, now);
    count_time(ss_clock() - before);
}

SS_INLINE int is_timed(struct own *self)
{
    if (ss_likely(self->untimed--))
        return 0;
    self->untimed = SS_TIMED_CALLBACKS - 1;
    return 1;
}

void ss_callback(void *user, int domain, uint32_t number, const struct ss_callback_data *data)
{
    (void)user;
    if (ss_unlikely(domain != SS_DRIVER_API || number >= SS_DRIVER_FUNCTIONS))
        return;
    const struct ss_driver_function *function = &ss_driver_functions[number];
    if (data->site == SS_CALL_ENTER) {
        struct own *self = of_thread();
        if (is_timed(self))
            time_callback(self, function, data, 0);
        else
            enter_plain(self, function, data);
    } else {
        uint64_t now = (uint64_t)ss_monotonic();
        struct own *self = of_thread();
        if (is_timed(self))
            time_callback(self, function, data, now);
        else
            leave_plain(self, function, data, now);
    }
}
