/* The collector of the timeline: rounds of flush, decode, match and publish. */
#include <string.h>

#include "clock.h"
#include "core.h"
#include "cupti.h"

/* The subscriber's callback, and what it is to do. */
SS_EXPORTED struct ss_detachment ss_detachment = {.code = SS_NOT_FINALIZED};

/* Detaches CUPTI at the exit of a driver call, as NVIDIA's documentation advises. */
SS_EXPORTED void ss_detach(void *user, int domain, uint32_t number, const struct ss_callback_data *data)
{
    (void)user, (void)domain, (void)number;
    if (data->site == SS_CALL_ENTER)
        return;
    uintptr_t address = (uintptr_t)__atomic_exchange_n(&ss_detachment.finalize, NULL, __ATOMIC_ACQ_REL);
    int (*finalize)(void) = (int (*)(void))address;
    if (finalize)
        ss_store_release(ss_detachment.code, finalize());
}

/* The clock of CUPTI's records. */
SS_EXPORTED uint64_t ss_timestamp(void)
{
    return (uint64_t)ss_monotonic();
}

/* Whether the record of the collector's own kinds has a time; a driver call is kept for its id. */
static int take(struct ss_collector *collector, const struct ss_activity *activity, struct ss_gpu_record *record)
{
    struct ss_timeline_words *words = collector->timeline;
    if (activity->kind == SS_KIND_DRIVER_CALL) {
        struct ss_driver_call *call = &collector->calls[activity->correlation % SS_IDS];
        call->id = activity->correlation;
        call->thread = activity->thread;
        call->start_ns = (int64_t)activity->start;
        call->end_ns = (int64_t)activity->end;
        return 0;
    }
    *record = (struct ss_gpu_record){
        .sequence = words->rounds,
        .kind = activity->kind,
        .start_ns = (int64_t)activity->start,
        .end_ns = (int64_t)activity->end,
        .device = activity->device,
        .context = activity->context,
        .stream = activity->stream,
        .correlation = activity->correlation,
        .probe = SS_NONE,
        .op = SS_NONE,
        .began_ns = SS_NONE,
        .returned_ns = SS_NONE,
        .subkind = activity->subkind,
        .memory = activity->source | activity->target << 8,
        .bytes = (int64_t)activity->bytes,
        .iteration = SS_NONE,
    };
    ss_increase(words->collected, 1);
    /* 0: CUPTI had no memory on the GPU for the times. */
    if (record->start_ns && (record->kind != SS_KIND_CONTEXT_SWITCH || ss_to_host_time(collector, record)))
        return 1;
    ss_increase(words->dropped, 1);
    return 0;
}

/* Decodes completed buffers into the batch, behind the records that are kept there, and releases them.
 *
 * Times in the batch are of the host's clock. Returns the number of records in the batch; with room for none, some
 * buffers may still wait. */
static uint32_t decode_buffers(struct ss_collector *collector)
{
    uint32_t filled = (uint32_t)collector->kept;
    int number;
    while (filled + SS_BUFFER_BYTES / SS_LEAST_RECORD <= SS_BATCH && (number = ss_oldest_completed()) >= 0) {
        uint8_t *buffer = ss_buffer_memory(number), *raw = NULL;
        size_t valid = ss_load(ss_pool.states[number].valid);
        while (filled < SS_BATCH && !collector->next_record(buffer, valid, &raw)) {
            struct ss_activity activity;
            if (!ss_decode(raw, (uint32_t)collector->version, &activity))
                ss_increase(collector->timeline->unknown, 1);
            else
                filled += (uint32_t)take(collector, &activity, &collector->batch[filled]);
        }
        ss_release_buffer(number);
    }
    return filled;
}

/* Orders the numbers of the batch's records by their starts, those of one start as they came: runs that are in order
 * are merged, since each stream's records nearly are. */
static uint32_t *in_order(struct ss_collector *collector, uint32_t count)
{
    const struct ss_gpu_record *batch = collector->batch;
    uint32_t *from = collector->order, *to = collector->merged;
    for (uint32_t place = 0; place < count; place++)
        from[place] = place;
    for (uint32_t length = 1; length < count; length *= 2) {
        for (uint32_t begin = 0; begin < count; begin += 2 * length) {
            uint32_t middle = begin + length < count ? begin + length : count;
            uint32_t end = middle + length < count ? middle + length : count;
            uint32_t left = begin, right = middle;
            for (uint32_t place = begin; place < end; place++) {
                int take_left = left < middle &&
                                (right == end || batch[from[left]].start_ns <= batch[from[right]].start_ns);
                to[place] = from[take_left ? left++ : right++];
            }
        }
        uint32_t *merged = to;
        to = from;
        from = merged;
    }
    return from;
}

/* Appends the record to the ring on the board. */
static void publish(struct ss_collector *collector, const struct ss_gpu_record *record)
{
    int64_t number = ss_load(collector->timeline->records);
    struct ss_gpu_record *to = &collector->records[number % SS_GPU_RECORDS];
    ss_store_release(to->sequence, 0);
    const int64_t *words = &record->kind;
    int64_t *targets = &to->kind;
    for (size_t word = 0; word < sizeof *record / sizeof *words - 1; word++)
        ss_store_release(targets[word], words[word]);
    ss_store_release(to->sequence, number + 1);
    ss_store_release(collector->timeline->records, number + 1);
}

/* Matches and publishes the batch's records in the order of their starts; keeps those that wait for their call. */
static void publish_batch(struct ss_collector *collector, uint32_t filled, int64_t now)
{
    struct ss_timeline_words *words = collector->timeline;
    const uint32_t *order = in_order(collector, filled);
    int64_t kept = 0;
    for (uint32_t place = 0; place < filled; place++) {
        struct ss_gpu_record *record = &collector->batch[order[place]];
        if (record->sequence == words->rounds)
            ss_follow_clock(collector, record, now);
        if (record->kind != SS_KIND_CONTEXT_SWITCH && record->kind != SS_KIND_OVERHEAD) {
            enum ss_match answer = ss_match_record(collector, record);
            int is_patient = words->rounds - record->sequence < collector->patience;
            if (answer == SS_LATER && is_patient && kept < SS_MOST_KEPT) {
                collector->waiting[kept++] = *record;
                continue;
            }
            if (answer != SS_MATCHED)
                ss_increase(words->unmatched, 1);
        }
        publish(collector, record);
    }
    memcpy(collector->batch, collector->waiting, (size_t)kept * sizeof *collector->batch);
    collector->kept = kept;
}

/* One round: flush with ``flag``, decode, match with calls that have returned, and publish in order of start. */
SS_EXPORTED void ss_collect_once(struct ss_collector *collector, uint32_t flag)
{
    struct ss_timeline_words *words = collector->timeline;
    int64_t began = ss_monotonic();
    int code = collector->flush(flag);
    if (code)
        ss_store(words->code, code);
    int64_t flushed = ss_monotonic();
    ss_increase(words->flush_ns, flushed - began);
    size_t dropped = 0;
    if (collector->count_dropped && !collector->count_dropped(NULL, 0, &dropped))
        ss_increase(words->dropped, (int64_t)dropped);
    ss_store(words->exhausted, (int64_t)ss_load(ss_pool.exhausted) - collector->exhausted_before);
    for (int step = 0; step < SS_MOST_BATCHES; step++) {
        uint32_t filled = decode_buffers(collector);
        int is_empty = filled == collector->kept;
        for (uint64_t number = 0; number < collector->track_count; number++)
            ss_load_calls(&collector->tracks[number], words);
        publish_batch(collector, filled, began);
        if (is_empty)
            break;
    }
    ss_store(words->pending, collector->kept);
    ss_store(words->collected_ns, began);
    ss_increase(words->decode_ns, ss_monotonic() - flushed);
    ss_store_release(words->rounds, words->rounds + 1);
}

/* Rounds of ``ss_collect_once``, one each period, until ``stop`` is set or a GPU's clock must be read again. */
SS_EXPORTED void ss_collect(struct ss_collector *collector)
{
    int64_t due = ss_monotonic();
    while (!ss_load_acquire(collector->stop) && !ss_is_stale(collector, due)) {
        ss_collect_once(collector, 0);
        due = ss_most(due + collector->period_ns, ss_monotonic());
        while (!ss_load_acquire(collector->stop) && ss_monotonic() < due)
            ss_sleep_until(due);
    }
}
