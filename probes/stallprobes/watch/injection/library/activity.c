/* Activity records: from the buffers that CUPTI fills to the ring and the names of the file.
 *
 * CUPTI hands buffers over in any thread, also the program's; there they are only marked. One helper thread decodes
 * them, so that the ring has one writer. Another one asks CUPTI for the buffers that are not full: a flush may wait for
 * a call in flight, which must hold up neither the program nor the decoding.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inject.h"

enum {
    BUFFERS = 64,
    BUFFER_BYTES = 64 * 1024,
    NAMES = 8192,
    FLUSH_MS = 100,
    /* The longest that the program's exit waits for the last records. */
    EXIT_MS = 1000,
};
enum { FREE, WITH_CUPTI, COMPLETED };
/* What the helper threads have been asked for, and what they have done. */
enum { RUN, FINISH, FLUSHED, FINISHED };

static struct {
    uint32_t state;
    uint64_t ticket;
    size_t valid;
} buffers[BUFFERS];
static uint8_t *memory;
static uint64_t tickets;
static uint32_t completions;
static uint32_t stage;
static struct cupti cupti;
static const struct sw_record_layout *layouts[UINT8_MAX + 1];
/* The names in the file by their hash; only the decoding thread uses them. */
static struct {
    uint64_t hash;
    uint32_t place;
} names[NAMES];

static void wait_for_change(uint32_t *word, uint32_t value, long ms)
{
    struct timespec limit = {ms / 1000, ms % 1000 * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0);
}

static void wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void set_stage(uint32_t value)
{
    sw_store_release(stage, value);
    wake(&stage);
    __atomic_fetch_add(&completions, 1, __ATOMIC_RELEASE);
    wake(&completions);
}

static void requested(uint8_t **buffer, size_t *size, size_t *most)
{
    *most = 0;
    for (uint32_t number = 0; number < BUFFERS; number++) {
        uint32_t expected = FREE;
        if (sw_load(buffers[number].state) == FREE &&
            __atomic_compare_exchange_n(&buffers[number].state, &expected, WITH_CUPTI, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            *buffer = memory + (size_t)number * BUFFER_BYTES;
            *size = BUFFER_BYTES;
            return;
        }
    }
    /* CUPTI drops what has no buffer, and counts it. */
    *buffer = NULL;
    *size = 0;
    if (sw_load_acquire(sw_private->recording) == SW_OPEN)
        sw_count_lost(SW_LOST_NO_BUFFER, 1);
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    size_t number = (size_t)(buffer - memory) / BUFFER_BYTES;
    (void)context, (void)stream, (void)size;
    if (buffer < memory || number >= BUFFERS)
        return;
    buffers[number].valid = valid;
    buffers[number].ticket = __atomic_fetch_add(&tickets, 1, __ATOMIC_RELAXED);
    sw_store_release(buffers[number].state, COMPLETED);
    __atomic_fetch_add(&completions, 1, __ATOMIC_RELEASE);
    wake(&completions);
}

static int oldest_completed(void)
{
    int found = -1;
    for (int number = 0; number < BUFFERS; number++)
        if (sw_load_acquire(buffers[number].state) == COMPLETED &&
            (found < 0 || buffers[number].ticket < buffers[found].ticket))
            found = number;
    return found;
}

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t at = 0; at < length; at++)
        hash = (hash ^ (unsigned char)text[at]) * UINT64_C(1099511628211);
    return hash;
}

/* The place of a name among the names of the file, plus 1; 0 if there is no space left. */
static uint32_t name_place(const char *name)
{
    size_t length = strnlen(name, SW_LONGEST_NAME);
    uint64_t hash = hash_of(name, length);
    char *text = sw_at(SW_NAMES_AT);
    size_t slot = hash % NAMES;
    for (size_t tried = 0; tried < NAMES; tried++, slot = (slot + 1) % NAMES) {
        uint32_t place = names[slot].place;
        uint32_t known;
        if (!place)
            break;
        memcpy(&known, text + place - 1, sizeof known);
        if (names[slot].hash == hash && known == length && !memcmp(text + place + 3, name, length))
            return place;
    }
    uint32_t used = sw_load(sw_header->name_bytes);
    uint32_t size = (uint32_t)(sizeof(uint32_t) + length + 3) / 4 * 4;
    if (names[slot].place || used + size > SW_NAME_BYTES) {
        sw_count_lost(SW_LOST_NO_NAME, 1);
        return 0;
    }
    uint32_t written = (uint32_t)length;
    memcpy(text + used, &written, sizeof written);
    memcpy(text + used + sizeof written, name, length);
    sw_store_release(sw_header->name_bytes, used + size);
    names[slot].hash = hash;
    names[slot].place = used + 1;
    return used + 1;
}

static uint64_t field(const uint8_t *record, uint8_t offset, size_t size)
{
    uint64_t value = 0;
    if (offset)
        memcpy(&value, record + offset, size);
    return value;
}

static void keep_record(const struct sw_record *record)
{
    uint64_t number = sw_load(sw_header->records);
    struct sw_record *place = (struct sw_record *)sw_at(SW_RECORDS_AT) + number % SW_RECORDS;
    sw_store(place->sequence, 2 * number + 1);
    sw_fence();
    memcpy((char *)place + sizeof place->sequence, (const char *)record + sizeof record->sequence,
           sizeof *record - sizeof record->sequence);
    sw_store_release(place->sequence, 2 * number + 2);
    sw_store_release(sw_header->records, number + 1);
}

static void decode(const uint8_t *raw)
{
    uint32_t kind;
    memcpy(&kind, raw, sizeof kind);
    const struct sw_record_layout *layout = kind <= UINT8_MAX ? layouts[kind] : NULL;
    if (!layout) {
        sw_count_lost(SW_LOST_UNKNOWN_RECORD, 1);
        return;
    }
    struct sw_record record = {
        .start = field(raw, layout->start, 8),
        .end = field(raw, layout->end, 8),
        .bytes = field(raw, layout->bytes, 8),
        .kind = (uint16_t)kind,
        .source = (uint8_t)field(raw, layout->source, 1),
        .target = (uint8_t)field(raw, layout->target, 1),
        .subkind = (uint32_t)field(raw, layout->subkind, layout->subkind_bytes),
        .correlation = (uint32_t)field(raw, layout->correlation, 4),
        .device = (uint32_t)field(raw, layout->device, 4),
        .context = (uint32_t)field(raw, layout->context, 4),
        .stream = (uint32_t)field(raw, layout->stream, 4),
    };
    if (kind == SW_KIND_KERNEL) {
        const char *name = (const char *)(uintptr_t)field(raw, SW_KERNEL_NAME, sizeof name);
        record.name = name ? name_place(name) : 0;
    } else if (kind == SW_KIND_PEER_COPY) {
        record.device = (uint32_t)field(raw, SW_PEER_SOURCE_DEVICE, 4);
        record.thread = (uint32_t)field(raw, SW_PEER_TARGET_DEVICE, 4);
    } else if (kind == SW_KIND_OVERHEAD) {
        if (field(raw, SW_OVERHEAD_OBJECT, 4) == CUPTI_OBJECT_THREAD)
            record.thread = (uint32_t)field(raw, SW_OVERHEAD_THREAD, 4);
        if (sw_header->cupti_version >= SW_OVERHEAD_CORRELATION_SINCE)
            record.correlation = (uint32_t)field(raw, SW_OVERHEAD_CORRELATION, 4);
    }
    keep_record(&record);
}

static void decode_buffer(int number)
{
    uint8_t *buffer = memory + (size_t)number * BUFFER_BYTES;
    uint8_t *record = NULL;
    size_t valid = buffers[number].valid;
    int code = CUPTI_SUCCESS;
    while (valid && !(code = cupti.next_record(buffer, valid, &record)))
        decode(record);
    if (code && code != CUPTI_NO_MORE_RECORDS)
        sw_count_lost(SW_LOST_UNKNOWN_RECORD, 1);
    sw_store_release(buffers[number].state, FREE);
}

static void *decoding_thread(void *unused)
{
    prctl(PR_SET_NAME, "stallscope-read");
    for (;;) {
        uint32_t before = sw_load_acquire(completions);
        uint32_t asked = sw_load_acquire(stage);
        int number;
        while ((number = oldest_completed()) >= 0)
            decode_buffer(number);
        sw_stamp_clocks();
        if (asked == FLUSHED)
            break;
        wait_for_change(&completions, before, FLUSH_MS);
    }
    set_stage(FINISHED);
    return unused;
}

static void *flushing_thread(void *unused)
{
    prctl(PR_SET_NAME, "stallscope-flush");
    uint32_t asked;
    do {
        wait_for_change(&stage, RUN, FLUSH_MS);
        asked = sw_load_acquire(stage);
        cupti.flush(0);
        size_t dropped = 0;
        if (!cupti.dropped_records(NULL, 0, &dropped) && dropped)
            sw_count_lost(SW_LOST_DROPPED_BY_CUPTI, dropped);
    } while (asked == RUN);
    set_stage(FLUSHED);
    return unused;
}

/* A thread that takes no signal of the program. */
static int start_thread(void *(*body)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes))
        return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) ||
                 pthread_create(&thread, &attributes, body, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed ? -1 : 0;
}

static int refuse(const char *function, int code)
{
    strncpy(sw_header->function, function, sizeof sw_header->function - 1);
    sw_header->code = code;
    return -1;
}

/* Collects all kinds that this libcupti has; -1, with the reason in the file, if it collects none. */
int sw_start_activity(const struct cupti *functions)
{
    int code;
    cupti = *functions;
    if (!cupti.set_timestamps || !cupti.set_buffers || !cupti.enable || !cupti.disable || !cupti.flush ||
        !cupti.next_record || !cupti.dropped_records)
        return refuse("cuptiActivityRegisterTimestampCallback", CUPTI_NOT_INITIALIZED);
    void *pages = mmap(NULL, (size_t)BUFFERS * BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);
    if (pages == MAP_FAILED)
        return refuse("mmap", -1);
    memory = pages;
    if (cupti.set_thread_id_type)
        cupti.set_thread_id_type(CUPTI_SYSTEM_THREAD_IDS);
    /* Before any kind is enabled, or some times would be those of another clock. */
    if ((code = cupti.set_timestamps(sw_clock)))
        return refuse("cuptiActivityRegisterTimestampCallback", code);
    if ((code = cupti.set_buffers(requested, completed)))
        return refuse("cuptiActivityRegisterCallbacks", code);
    for (size_t at = 0; at < sizeof sw_record_layouts / sizeof *sw_record_layouts; at++) {
        uint8_t kind = sw_record_layouts[at].kind;
        layouts[kind] = &sw_record_layouts[at];
        code = cupti.enable(kind);
        if (code) {
            sw_header->refused_kind = kind;
            sw_header->refused_code = code;
        } else {
            sw_header->kinds |= UINT64_C(1) << kind;
        }
    }
    if (!sw_header->kinds)
        return refuse("cuptiActivityEnable", sw_header->refused_code);
    sw_store(stage, RUN);
    if (start_thread(decoding_thread) || start_thread(flushing_thread)) {
        sw_stop_activity(functions);
        sw_header->kinds = 0;
        return refuse("pthread_create", -1);
    }
    sw_store_release(sw_private->helpers, 1);
    return 0;
}

/* Collects no more, takes back every buffer, and restores what was set: the next user of CUPTI knows of none of it.
 * CUPTI's own clock is CLOCK_REALTIME. */
void sw_stop_activity(const struct cupti *functions)
{
    for (uint32_t kind = 0; kind < 64; kind++)
        if (sw_header->kinds >> kind & 1)
            functions->disable((int)kind);
    functions->flush(1);
    functions->set_timestamps(sw_real_clock);
    if (functions->set_thread_id_type)
        functions->set_thread_id_type(CUPTI_DEFAULT_THREAD_IDS);
    sw_finish_activity();
}

/* Lets the helper threads take the last records and end; waits for them, but not for long. */
void sw_finish_activity(void)
{
    uint32_t expected = RUN;
    if (!sw_load_acquire(sw_private->helpers) ||
        !__atomic_compare_exchange_n(&stage, &expected, FINISH, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return;
    wake(&stage);
    uint64_t limit = sw_clock() + EXIT_MS * UINT64_C(1000000);
    for (uint32_t now = sw_load_acquire(stage); now != FINISHED && sw_clock() < limit; now = sw_load_acquire(stage))
        wait_for_change(&stage, now, 10);
}
