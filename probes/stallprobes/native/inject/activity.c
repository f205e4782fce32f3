/* Activity records: from the buffers that CUPTI fills to the ring and the names of the file.
 *
 * CUPTI hands buffers over in any thread, also the program's; there they are only marked. One helper thread decodes
 * them, so that the ring has one writer, and changes windows. Another one asks CUPTI for the buffers that are not full: a
 * flush may wait for a call in flight, and takes seconds beside streams that wait for each other (six on an H200, CUPTI
 * 13.5, where the GPU was never idle), which must hold up neither the program, nor the decoding, nor windows.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "activity.h"
#include "call_log.h"
#include "devices.h"
#include "gate.h"
#include "map.h"
#include "space.h"
#include "state.h"
#include "threads.h"
#include "windows.h"

/* A benchmark sets less, to have more flushes. */
#ifndef SS_FLUSH_MS
#define SS_FLUSH_MS 100
#endif

enum {
    /* Number of entries in each of the two tables of kernel names. */
    NAMES = 8192,
    /* Largest number of bytes of a name that are read. */
    MOST_OF_NAME = 1 << 16,
    /* Period (ms) at which CUPTI is asked for its buffers that are not full. */
    FLUSH_MS = SS_FLUSH_MS,
    /* Pause (ms) of the decoding thread while buffers keep coming. To wake the thread for each buffer would take a
     * system call of a thread of the program, and an interrupt of another CPU. */
    REST_MS = 10,
    /* Longest pause (ms) of the thread that looks at the rate of calls, once it has nothing left to do. */
    LONGEST_REST_MS = 10000,
    /* A thread that fills a small buffer within this time (ms) gets large ones. Reason: with small ones a launch takes
     * 0.3 us longer (H100), and a large one of such a thread is full after half a second. */
    FILLED_SOON_MS = 30,
    /* Number of places for what threads got last, a power of 2. */
    PLACES = 64,
    /* Longest wait (ms) of the program's exit for the last records. */
    EXIT_MS = 1000,
    /* CUPTI_ACTIVITY_KIND_INVALID, the kind of an unfinished record. */
    NO_KIND = 0,
};
/* Nanoseconds in a millisecond. */
#define MS UINT64_C(1000000)
/* Stage of the helper threads. RUN: the threads run. FINISH: the threads have been asked to end. FLUSHED: CUPTI was
 * asked for its last buffers. FINISHED: the threads have ended. */
enum { RUN, FINISH, FLUSHED, FINISHED };

static uint32_t completions;
/* Whether the decoding thread waits for a buffer. */
static uint32_t awaited;
static uint32_t stage;
static struct ss_cupti cupti;
/* The names in the file by their hash, and by CUPTI's pointers to them; only the decoding thread uses them. */
static struct {
    uint64_t hash;
    uint32_t place;
} names[NAMES];
static struct {
    const char *pointer;
    uint32_t place;
} pointers[NAMES];
/* The places of the ring of records, a multiple of SS_RECORDS_STEP, and those that have space. */
static uint64_t places, places_ready;
/* The bytes of the names that have space. */
static uint32_t names_ready;

static void wait_for_change(uint32_t *word, uint32_t value, long ms)
{
    ss_wait_for_change(word, value, ms * (long)MS);
}

static void set_stage(uint32_t value)
{
    ss_store_release(stage, value);
    ss_wake(&stage);
    __atomic_fetch_add(&completions, 1, __ATOMIC_RELEASE);
    ss_wake(&completions);
}

static void on_completed(void)
{
    __atomic_fetch_add(&completions, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&awaited, __ATOMIC_SEQ_CST))
        ss_wake(&completions);
}

/* Whether the thread that asks for a buffer gets a small one: CUPTI hands a buffer over once all work in it has ended
 * (CUPTI 13.5), which is when it is full where the GPU is never idle. A thread that fills its buffers soon gets large
 * ones. Threads with one place share it, which is right for the faster one. */
static int gets_small(uint64_t now)
{
    static struct {
        uint64_t since_ns, small;
    } last[PLACES];
    uint64_t place = (uint64_t)pthread_self() * UINT64_C(0x9e3779b97f4a7c15) / (UINT64_MAX / PLACES + 1);
    uint64_t bytes = ss_load(last[place].small) ? SS_BUFFER_BYTES : SS_LARGE_BUFFER_BYTES;
    uint64_t since = ss_load(last[place].since_ns), soon_ns = FILLED_SOON_MS * MS * (bytes / SS_BUFFER_BYTES);
    int small = !since || now - since > soon_ns;
    ss_store(last[place].since_ns, now);
    ss_store(last[place].small, (uint64_t)small);
    return small;
}

/* CUPTI drops what has no buffer, and counts it. */
static void requested(uint8_t **buffer, size_t *size, size_t *most)
{
    ss_give_buffer(buffer, size, most, gets_small(ss_clock()));
    if (!*buffer && ss_load_acquire(ss_private->recording) == SS_OPEN)
        ss_count_lost(SS_LOST_NO_BUFFER, 1);
}

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t at = 0; at < length; at++)
        hash = (hash ^ (unsigned char)text[at]) * UINT64_C(1099511628211);
    return hash;
}

/* What is kept of a name. */
struct kept_name {
    const char *text;
    uint32_t length;
    char ends[2 * SS_NAME_ENDS + sizeof SS_NAME_GAP - 1];
};

/* Both ends of a name that is too long: names of templates begin alike, and often end in what they differ in. */
static void keep_name(struct kept_name *kept, const char *name, size_t length)
{
    size_t longest = ss_load(ss_header->name_bytes) < SS_NAME_BYTES / 2 ? SS_LONGEST_NAME : SS_LONGEST_LATE_NAME;
    kept->text = name;
    kept->length = (uint32_t)length;
    if (length <= longest)
        return;
    memcpy(kept->ends, name, SS_NAME_ENDS);
    memcpy(kept->ends + SS_NAME_ENDS, SS_NAME_GAP, sizeof SS_NAME_GAP - 1);
    memcpy(kept->ends + sizeof kept->ends - SS_NAME_ENDS, name + length - SS_NAME_ENDS, SS_NAME_ENDS);
    kept->text = kept->ends;
    kept->length = sizeof kept->ends;
}

/* Whether there is space for the names up to ``end``: it is given when it is first needed. */
static int has_names(uint32_t end)
{
    while (names_ready < end) {
        if (end > SS_NAME_BYTES || ss_give_space(SS_NAMES_AT + names_ready, SS_NAMES_STEP))
            return 0;
        names_ready += SS_NAMES_STEP;
    }
    return 1;
}

/* Whether the name at a place of the file is this one, as it is kept. */
static int is_at(uint32_t place, const char *name, size_t length)
{
    const char *text = (const char *)ss_at(SS_NAMES_AT) + place - 1;
    uint32_t known;
    memcpy(&known, text, sizeof known);
    text += sizeof known;
    if (known == length)
        return !memcmp(text, name, length);
    return length > known && known == sizeof ((struct kept_name *)0)->ends && !memcmp(text, name, SS_NAME_ENDS) &&
           !memcmp(text + known - SS_NAME_ENDS, name + length - SS_NAME_ENDS, SS_NAME_ENDS);
}

/* The place of a name among the names of the file, plus 1; 0 if there is no space left. */
static uint32_t place_by_text(const char *name, size_t length)
{
    uint64_t hash = hash_of(name, length);
    size_t slot = hash % NAMES;
    for (size_t tried = 0; tried < NAMES; tried++, slot = (slot + 1) % NAMES) {
        uint32_t place = names[slot].place;
        if (!place)
            break;
        if (names[slot].hash == hash && is_at(place, name, length))
            return place;
    }
    struct kept_name kept;
    keep_name(&kept, name, length);
    char *text = ss_at(SS_NAMES_AT);
    uint32_t used = ss_load(ss_header->name_bytes);
    uint32_t size = (uint32_t)(sizeof kept.length + kept.length + 3) / 4 * 4;
    if (names[slot].place || !has_names(used + size)) {
        ss_count_lost(SS_LOST_NO_NAME, 1);
        return 0;
    }
    memcpy(text + used, &kept.length, sizeof kept.length);
    memcpy(text + used + sizeof kept.length, kept.text, kept.length);
    ss_store_release(ss_header->name_bytes, used + size);
    names[slot].hash = hash;
    names[slot].place = used + 1;
    return used + 1;
}

/* place_by_text, for a name of which most records come with the same pointer: to hash some hundred characters takes as
 * long as everything else. The text is compared, since a pointer may come to be that of another name. */
static uint32_t name_place(const char *name)
{
    size_t slot = ((uintptr_t)name >> 4) % NAMES, length = strnlen(name, MOST_OF_NAME);
    uint32_t place = pointers[slot].place;
    if (place && pointers[slot].pointer == name && is_at(place, name, length))
        return place;
    place = place_by_text(name, length);
    pointers[slot].pointer = name;
    pointers[slot].place = place;
    return place;
}

/* Whether the ring has space for its record number ``number``: space is given when it is first needed. */
static int has_place(uint64_t number)
{
    if (number < places_ready || places_ready == places)
        return 1;
    if (ss_give_ring(SS_RECORDS_AT + places_ready * sizeof(struct ss_watch_record),
                      SS_RECORDS_STEP * sizeof(struct ss_watch_record)))
        return 0;
    places_ready += SS_RECORDS_STEP;
    return 1;
}

static void keep_record(const struct ss_watch_record *record)
{
    uint64_t number = ss_load(ss_header->records);
    if (!has_place(number)) {
        ss_count_lost(SS_LOST_NO_SPACE, 1);
        return;
    }
    struct ss_watch_record *place = (struct ss_watch_record *)ss_at(SS_RECORDS_AT) + number % places;
    ss_store(place->sequence, 2 * number + 1);
    ss_fence();
    memcpy((char *)place + sizeof place->sequence, (const char *)record + sizeof record->sequence,
           sizeof *record - sizeof record->sequence);
    ss_store_release(place->sequence, 2 * number + 2);
    ss_store_release(ss_header->records, number + 1);
}

static void decode(const uint8_t *raw)
{
    struct ss_activity activity;
    if (!ss_decode(raw, ss_header->cupti_version, &activity) || activity.kind == SS_KIND_DRIVER_CALL) {
        ss_count_lost(SS_LOST_UNKNOWN_RECORD, 1);
        return;
    }
    if (activity.kind == SS_KIND_STREAM)
        activity.start = activity.end = ss_load(ss_header->recorded_ns);
    /* The end of a context switch is 0. */
    if (!activity.start) {
        ss_count_lost(SS_LOST_NO_TIME, 1);
        return;
    }
    struct ss_watch_record record = {
        .start = activity.start,
        .end = activity.end,
        .bytes = activity.bytes,
        .kind = (uint16_t)activity.kind,
        .source = activity.source,
        .target = activity.target,
        .subkind = activity.subkind,
        .correlation = activity.correlation,
        .device = activity.device,
        .context = activity.context,
        .stream = activity.stream,
        .name = activity.name ? name_place(activity.name) : 0,
        .thread = activity.thread,
    };
    if (activity.kind == SS_KIND_KERNEL) {
        record.subkind = activity.blocks;
        record.thread = activity.shape;
        record.bytes = activity.local;
    }
    if (activity.kind == SS_KIND_PEER_COPY) {
        record.device = activity.source_device;
        record.thread = activity.target_device;
    }
    keep_record(&record);
}

static void decode_buffer(int number)
{
    uint8_t *buffer = ss_buffer_memory(number);
    uint8_t *record = NULL, *before = NULL;
    size_t valid = ss_load(ss_pool.states[number].valid);
    int code = SS_CUPTI_SUCCESS;
    uint32_t unfinished = 0;
    for (; valid && !(code = cupti.next_record(buffer, valid, &record)) && record != before; before = record) {
        /* The record of a launch that was held up when CUPTI was asked for its buffers (CUPTI 13.5). */
        if (*(const uint32_t *)(const void *)record == NO_KIND)
            unfinished++;
        else
            decode(record);
    }
    if (code == SS_CUPTI_INVALID_KIND && !unfinished)
        unfinished = 1;
    else if (code && code != SS_CUPTI_NO_MORE_RECORDS && code != SS_CUPTI_INVALID_KIND)
        ss_count_lost(SS_LOST_UNKNOWN_RECORD, 1);
    if (unfinished)
        ss_add(ss_header->unfinished, unfinished);
    ss_release_buffer(number);
}

/* How long (ms) the decoding thread may wait, at most ``most``, until a window is due. */
static long until_window(long most)
{
    uint64_t due = ss_change_window();
    return due < (uint64_t)most * MS ? (long)(due / MS) + 1 : most;
}

static void *decoding_thread(void *unused)
{
    prctl(PR_SET_NAME, "stallscope-read");
    for (;;) {
        uint32_t before = ss_load_acquire(completions);
        uint32_t asked = ss_load_acquire(stage);
        int number, found = 0;
        for (; (number = ss_oldest_completed()) >= 0; found = 1)
            decode_buffer(number);
        ss_stamp_clocks();
        ss_prepare_blocks();
        if (asked == FLUSHED)
            break;
        long rest = found ? REST_MS : FLUSH_MS;
        if (asked == RUN)
            rest = until_window(rest);
        if (found) {
            wait_for_change(&stage, asked, rest);
            continue;
        }
        __atomic_store_n(&awaited, 1, __ATOMIC_SEQ_CST);
        wait_for_change(&completions, before, rest);
        __atomic_store_n(&awaited, 0, __ATOMIC_SEQ_CST);
    }
    ss_end_windows();
    set_stage(FINISHED);
    return unused;
}

static void *flushing_thread(void *unused)
{
    prctl(PR_SET_NAME, "stallscope-flush");
    uint32_t asked;
    int has_devices = 0;
    do {
        wait_for_change(&stage, RUN, FLUSH_MS);
        asked = ss_load_acquire(stage);
        if (!has_devices)
            has_devices = ss_note_devices();
        /* The last records are asked for in any case. */
        if (ss_begin_flush() || asked != RUN)
            cupti.flush(0);
        ss_end_flush();
        size_t dropped = 0;
        if (!cupti.count_dropped(NULL, 0, &dropped) && dropped)
            ss_count_lost(SS_LOST_DROPPED_BY_CUPTI, dropped);
    } while (asked == RUN);
    set_stage(FLUSHED);
    return unused;
}

/* Lets the threads of a recording take the last records and end; waits for them, but not for long. */
static void end_helpers(uint32_t asked)
{
    uint32_t expected = RUN;
    if (!ss_load_acquire(ss_private->helpers) ||
        !__atomic_compare_exchange_n(&stage, &expected, asked, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return;
    ss_wake(&stage);
    __atomic_fetch_add(&completions, 1, __ATOMIC_RELEASE);
    ss_wake(&completions);
    uint64_t limit = ss_clock() + EXIT_MS * UINT64_C(1000000);
    for (uint32_t now = ss_load_acquire(stage); now != FINISHED && ss_clock() < limit; now = ss_load_acquire(stage))
        wait_for_change(&stage, now, 10);
}

static int refuse(const char *function, int code)
{
    strncpy(ss_header->function, function, sizeof ss_header->function - 1);
    ss_header->code = code;
    return -1;
}

/* Whether the helper threads of a recording before have ended: where a call of the program hangs, a flush may wait for
 * it. */
int ss_activity_ended(void)
{
    return !ss_load_acquire(ss_private->helpers) || ss_load_acquire(stage) == FINISHED;
}

static void enable_kinds(void)
{
    static const uint8_t collected[] = SS_COLLECTED_KINDS;
    for (size_t at = 0; at < sizeof collected / sizeof *collected; at++) {
        uint8_t kind = collected[at];
        int code = cupti.enable(kind);
        if (code) {
            ss_header->refused_kind = kind;
            ss_header->refused_code = code;
        } else {
            ss_header->kinds |= UINT64_C(1) << kind;
        }
    }
}

/* The flags of the streams that exist, which were created before the recording. CUPTI then records streams no more: the
 * calls that create others are in the log. */
static void record_streams(void)
{
    if (cupti.enable_and_dump && !cupti.enable_and_dump(SS_KIND_STREAM))
        cupti.disable(SS_KIND_STREAM);
}

/* Collects all kinds that this libcupti has; -1, with the reason in the file, if it collects none. With a ``gate``,
 * callbacks are on, so that a call may be in flight; 1 if one is, and nothing was begun. */
int ss_start_activity(const struct ss_cupti *functions, int gate)
{
    int code;
    cupti = *functions;
    if (!cupti.set_timestamps || !cupti.set_buffers || !cupti.enable || !cupti.disable || !cupti.flush ||
        !cupti.next_record || !cupti.count_dropped)
        return refuse("cuptiActivityRegisterTimestampCallback", SS_CUPTI_NOT_INITIALIZED);
    ss_on_completed = on_completed;
    if (cupti.set_thread_id_type)
        cupti.set_thread_id_type(SS_SYSTEM_THREAD_IDS);
    /* Before any kind is enabled, or some times would be those of another clock. */
    if ((code = cupti.set_timestamps(ss_clock)))
        return refuse("cuptiActivityRegisterTimestampCallback", code);
    if ((code = cupti.set_buffers(requested, ss_completed)))
        return refuse("cuptiActivityRegisterCallbacks", code);
    if (gate && !ss_close_gate(gate == SS_PATIENTLY))
        return 1;
    enable_kinds();
    if (ss_header->flags & SS_FLAG_LATE)
        record_streams();
    uint64_t since = ss_header->flags & SS_FLAG_LATE ? ss_clock() : ss_load(ss_header->started_ns);
    ss_store(ss_header->unrecorded_ns, 0);
    ss_store(ss_header->recorded_ns, since);
    if (gate)
        ss_open_gate();
    if (!ss_header->kinds)
        return refuse("cuptiActivityEnable", ss_header->refused_code);
    /* The file is a new one. */
    memset(names, 0, sizeof names);
    memset(pointers, 0, sizeof pointers);
    places = ss_header->record_places;
    places_ready = names_ready = 0;
    ss_store(stage, RUN);
    ss_begin_windows(&cupti, since);
    /* Both, or none: where the second one cannot be started, the first one ends, without a flush to wait for. */
    ss_store_release(ss_private->helpers, !ss_start_thread(decoding_thread, SS_CUPTI_STACK));
    if (ss_load(ss_private->helpers) && !ss_start_thread(flushing_thread, SS_CUPTI_STACK))
        return 0;
    end_helpers(FLUSHED);
    ss_stop_activity(functions, SS_NO_GATE);
    ss_header->kinds = 0;
    return refuse("pthread_create", -1);
}

/* Without records: looks at the rate of calls until the recording ends. */
static void *rating_thread(void *unused)
{
    prctl(PR_SET_NAME, "stallscope-rate");
    while (ss_load_acquire(stage) == RUN) {
        uint64_t due = ss_change_window();
        wait_for_change(&stage, RUN, due < LONGEST_REST_MS * MS ? (long)(due / MS) + 1 : LONGEST_REST_MS);
    }
    ss_end_windows();
    set_stage(FINISHED);
    return unused;
}

/* In a recording of calls alone: frequent calls are followed no more once they are too many for the budget. */
void ss_start_rating(const struct ss_cupti *functions)
{
    cupti = *functions;
    ss_store(stage, RUN);
    ss_begin_windows(&cupti, ss_header->started_ns);
    ss_store_release(ss_private->helpers, !ss_start_thread(rating_thread, SS_CUPTI_STACK));
}

/* Collects no more, takes back every buffer, and restores what was set: the next user of CUPTI knows of none of it.
 * CUPTI's own clock is CLOCK_REALTIME. With a ``gate``, not while a call is in flight; 1 if one is, and all is as it was,
 * but that no windows follow. */
int ss_stop_activity(const struct ss_cupti *functions, int gate)
{
    ss_stop_windows();
    if (!ss_header->kinds) {
        ss_finish_activity();
        return 0;
    }
    if (gate && !ss_close_gate(gate == SS_PATIENTLY))
        return 1;
    ss_store(ss_header->unrecorded_ns, ss_clock());
    for (uint32_t kind = 0; kind < 64; kind++)
        if (ss_header->kinds >> kind & 1)
            functions->disable((int)kind);
    if (gate)
        ss_open_gate();
    functions->flush(1);
    functions->set_timestamps(ss_real_clock);
    if (functions->set_thread_id_type)
        functions->set_thread_id_type(SS_DEFAULT_THREAD_IDS);
    ss_finish_activity();
    return 0;
}

void ss_finish_activity(void)
{
    end_helpers(FINISH);
}
