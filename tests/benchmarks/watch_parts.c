/* An injected library with nothing but CUPTI, for bench_watch_parts.py: what each part of watching costs by itself.
 *
 * PARTS names phases, as "base:1.5;sub:1;calls:1.5;off:1;records:2", each with its seconds. A thread of its own goes
 * through them once the program has made the file READY, writes to stderr when each began, and ends the process. base:
 * nothing yet; sub: subscribed; waits, calls: callbacks of the functions that wait, of all that can block; clock, buffers:
 * a clock and buffers for records are registered; records, kN: activity kinds of watch, or kind N, without a
 * subscription where there was none; off: nothing enabled; unsub: unsubscribed; final: CUPTI is finalized. A comma joins
 * parts. EARLY=N enables kind N before the program runs. API=v2 subscribes by cuptiSubscribe_v2, as the one subscriber;
 * API=fields moreover lets records have only the fields that watch reads; API=hardware asks for timestamps by hardware.
 * dump: the streams that exist are written to stderr, by cuptiActivityEnableAndDump, with their flags.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    DRIVER = 1,
    FUNCTIONS = 2048,
    KINDS = 64,
    KERNEL = 10,
    START_AT = 16,
    CORRELATION_AT = 92,
    BUFFER = 1 << 20,
    IDS = 1 << 24,
    PHASES = 160,
    FLUSH_US = 100000,
    STREAM = 37,
    STREAM_IDS_AT = 4,
    STREAM_FLAG_AT = 16,
    USER_DEFINED_RECORDS = 11,
    TIMESTAMP_CALLBACK = 22,
    LAYOUTS_SHOWN = 8,
};
static const int watched_kinds[] = {1, 2, 10, 17, 22, 57};
/* CUPTI's numbers of the fields of a kernel that watch reads, and their places here. All other kinds have their first. */
static int kernel_fields[] = {0, 22, 10, 11, 12, 4, 7, 8, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24, 31};
enum { FIELD_CORRELATION_AT = 4, FIELD_START_AT = 24 };
/* CUpti_SubscriberParams. */
struct subscriber_parameters {
    size_t size;
    const char *name;
    char *older;
    size_t older_size;
    uint8_t several, padding[7];
};
/* CUpti_ActivityConfig. */
struct kind_parameters {
    size_t size;
    struct {
        size_t size, count;
        int *fields;
    } selection;
    void *options;
};
/* CUpti_BufferCallbackCompleteInfo. */
struct buffer_information {
    size_t size;
    uint64_t thread;
    struct {
        size_t size;
        void *entries;
        size_t count, bytes;
    } **layouts;
    size_t count;
};
/* The begin of CUpti_CallbackData. */
struct callback_data {
    int site;
    const char *function;
    const void *parameters;
    void *result;
    const char *symbol;
    void *context;
    uint32_t context_number;
    uint64_t *correlation_data;
    uint32_t correlation;
};
static int (*subscribe)(void **, void *, void *), (*unsubscribe)(void *);
static int (*enable_callback)(uint32_t, void *, int, uint32_t);
static int (*callback_name)(int, uint32_t, const char **), (*set_timestamps)(void *), (*set_buffers)(void *, void *);
static int (*enable_kind)(int), (*disable_kind)(int), (*flush)(uint32_t), (*next_record)(uint8_t *, size_t, uint8_t **);
static int (*finalize)(void), (*dump_kind)(int), (*hardware_timestamps)(uint8_t);
static int (*subscribe_v2)(void **, void *, void *, void *), (*next_record_v2)(void *, uint8_t *, size_t, uint8_t **);
static int (*enable_kind_v2)(void *, int, void *), (*disable_kind_v2)(void *, int, void *);
static int (*set_buffers_v2)(void *, void *, void *), (*set_attribute_v2)(void *, int, size_t *, void *);
static int newer, chosen_fields;
static void *subscriber;
/* Which calls had a callback, by their correlation, and the records of each phase whose call had one, or none. */
static uint8_t called[IDS];
static uint64_t begins[PHASES];
static long with_call[PHASES], without_call[PHASES];
static int phases;
static uint32_t waiting[FUNCTIONS], blocking[FUNCTIONS];
static int waiting_count, blocking_count, callbacks_on, has_clock, has_buffers;
static uint64_t kinds_on;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void on_call(void *user, int domain, uint32_t number, const struct callback_data *data)
{
    (void)user, (void)domain, (void)number;
    if (data->site)
        called[data->correlation % IDS] = 1;
}

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(8, BUFFER);
    *size = BUFFER;
    *most = 0;
}

static void show_stream(const uint8_t *record)
{
    uint32_t numbers[2], flag;
    memcpy(numbers, record + STREAM_IDS_AT, sizeof numbers);
    memcpy(&flag, record + STREAM_FLAG_AT, sizeof flag);
    fprintf(stderr, "STREAM context %u stream %u flag %u %.3f s after the phase began\n", numbers[0], numbers[1], flag,
            (double)(now() - begins[phases ? phases - 1 : 0]) / 1e9);
}

static void give_buffer_v2(uint8_t **buffer, size_t *size, size_t *most, void *information)
{
    (void)information;
    give_buffer(buffer, size, most);
}

static void take_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    uint8_t *record = NULL;
    (void)context, (void)stream, (void)size;
    while (valid && !(newer ? next_record_v2(subscriber, buffer, valid, &record) : next_record(buffer, valid, &record))) {
        uint32_t kind, correlation;
        uint64_t start;
        memcpy(&kind, record, sizeof kind);
        if (kind == STREAM)
            show_stream(record);
        if (kind != KERNEL)
            continue;
        memcpy(&start, record + (chosen_fields ? FIELD_START_AT : START_AT), sizeof start);
        memcpy(&correlation, record + (chosen_fields ? FIELD_CORRELATION_AT : CORRELATION_AT), sizeof correlation);
        int at = phases - 1;
        while (at > 0 && begins[at] > start)
            at--;
        (called[correlation % IDS] ? with_call : without_call)[at < 0 ? 0 : at]++;
    }
    free(buffer);
}

static void take_buffer_v2(uint8_t *buffer, size_t size, size_t valid, const struct buffer_information *information)
{
    static int shown;
    for (size_t at = 0; chosen_fields && information && at < information->count && shown < LAYOUTS_SHOWN; at++)
        if (information->layouts[at] && ++shown)
            fprintf(stderr, "LAYOUT %zu: %zu fields, %zu bytes\n", at, information->layouts[at]->count,
                    information->layouts[at]->bytes);
    take_buffer(NULL, 0, buffer, size, valid);
}

static void load(const char *name, void *function, void *library)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

static void load_cupti(void)
{
    if (subscribe)
        return;
    const char *path = getenv("CUPTI");
    void *library = dlopen(path && *path ? path : "libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "no libcupti: %s\n", dlerror());
        _exit(1);
    }
    load("cuptiSubscribe", &subscribe, library);
    load("cuptiUnsubscribe", &unsubscribe, library);
    load("cuptiEnableCallback", &enable_callback, library);
    load("cuptiGetCallbackName", &callback_name, library);
    load("cuptiActivityRegisterTimestampCallback", &set_timestamps, library);
    load("cuptiActivityRegisterCallbacks", &set_buffers, library);
    load("cuptiActivityEnable", &enable_kind, library);
    load("cuptiActivityDisable", &disable_kind, library);
    load("cuptiActivityFlushAll", &flush, library);
    load("cuptiActivityGetNextRecord", &next_record, library);
    load("cuptiFinalize", &finalize, library);
    load("cuptiActivityEnableAndDump", &dump_kind, library);
    load("cuptiActivityEnableHWTrace", &hardware_timestamps, library);
    load("cuptiSubscribe_v2", &subscribe_v2, library);
    load("cuptiActivityGetNextRecord_v2", &next_record_v2, library);
    load("cuptiActivityEnable_v2", &enable_kind_v2, library);
    load("cuptiActivityDisable_v2", &disable_kind_v2, library);
    load("cuptiActivityRegisterCallbacks_v2", &set_buffers_v2, library);
    load("cuptiActivitySetAttribute_v2", &set_attribute_v2, library);
    const char *api = getenv("API") ? getenv("API") : "";
    chosen_fields = !strcmp(api, "fields");
    newer = chosen_fields || !strcmp(api, "v2");
    if (!strcmp(api, "hardware"))
        fprintf(stderr, "timestamps by hardware: %d\n", hardware_timestamps(1));
}

static void connect(void)
{
    static const char *const parts[] = {"cuLaunch", "cuMem", "Synchronize", "cuEvent", "cuStream", "cuCtxCreate",
                                        "cuCtxDestroy", "cuModule", "cuLibrary", "cuGraph", "cuFuncLoad"};
    if (subscriber)
        return;
    struct subscriber_parameters parameters = {.size = offsetof(struct subscriber_parameters, padding) + 7};
    int failed = newer ? subscribe_v2(&subscriber, (void *)on_call, NULL, &parameters)
                       : subscribe(&subscriber, (void *)on_call, NULL);
    if (failed) {
        fprintf(stderr, "no subscription: %d\n", failed);
        _exit(1);
    }
    if (chosen_fields) {
        uint8_t on = 1;
        size_t size = sizeof on;
        failed = set_attribute_v2(subscriber, USER_DEFINED_RECORDS, &size, &on);
        if (failed)
            fprintf(stderr, "chosen fields are refused: %d\n", failed);
    }
    for (uint32_t number = 1; number < FUNCTIONS; number++) {
        const char *name = NULL;
        if (callback_name(DRIVER, number, &name) || !name)
            continue;
        if (strstr(name, "Synchronize"))
            waiting[waiting_count++] = number;
        for (size_t at = 0; at < sizeof parts / sizeof *parts; at++)
            if (strstr(name, parts[at])) {
                blocking[blocking_count++] = number;
                break;
            }
    }
}

static void register_records(int clock, int buffers)
{
    if (clock && !has_clock++) {
        uint64_t (*clock_of_records)(void) = now;
        size_t size = sizeof clock_of_records;
        int failed = newer ? set_attribute_v2(subscriber, TIMESTAMP_CALLBACK, &size, &clock_of_records)
                           : set_timestamps((void *)now);
        if (failed)
            fprintf(stderr, "no clock: %d\n", failed);
    }
    if (buffers && !has_buffers++) {
        if (newer)
            set_buffers_v2(subscriber, (void *)give_buffer_v2, (void *)take_buffer_v2);
        else
            set_buffers((void *)give_buffer, (void *)take_buffer);
    }
}

static void switch_callbacks(int wanted)
{
    for (int step = 0; step < 2; step++) {
        int chosen = step ? wanted : callbacks_on;
        const uint32_t *numbers = chosen == 1 ? waiting : blocking;
        int count = chosen == 1 ? waiting_count : chosen ? blocking_count : 0;
        for (int at = 0; at < count; at++)
            enable_callback((uint32_t)step, subscriber, DRIVER, numbers[at]);
    }
    callbacks_on = wanted;
}

static int enable_one(int kind)
{
    struct kind_parameters parameters = {.size = sizeof parameters, .selection.size = sizeof parameters.selection};
    if (!newer)
        return enable_kind(kind);
    parameters.selection.fields = kernel_fields;
    parameters.selection.count = kind == KERNEL ? sizeof kernel_fields / sizeof *kernel_fields : 1;
    return enable_kind_v2(subscriber, kind, chosen_fields ? &parameters : NULL);
}

static void switch_kinds(uint64_t wanted)
{
    for (int kind = 0; kind < KINDS; kind++) {
        int on = (int)(kinds_on >> kind & 1), want = (int)(wanted >> kind & 1);
        if (on && !want)
            newer ? disable_kind_v2(subscriber, kind, NULL) : disable_kind(kind);
        int refused = !on && want ? enable_one(kind) : 0;
        if (refused)
            fprintf(stderr, "kind %d is refused: %d\n", kind, refused);
    }
    kinds_on = wanted;
}

static void apply(char *words)
{
    int callbacks = 0, dumped = 0;
    uint64_t kinds = 0;
    if (!strcmp(words, "base"))
        return;
    load_cupti();
    if (!strcmp(words, "unsub") || !strcmp(words, "final")) {
        switch_kinds(0);
        if (!strcmp(words, "final"))
            finalize();
        else if (subscriber)
            unsubscribe(subscriber);
        /* A later phase may subscribe again. */
        subscriber = NULL;
        waiting_count = blocking_count = callbacks_on = has_clock = has_buffers = 0;
        return;
    }
    if (strcmp(words, "clock") && strcmp(words, "buffers") && *words != 'k')
        connect();
    for (char *rest = NULL, *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (!strcmp(word, "waits"))
            callbacks = 1;
        else if (!strcmp(word, "calls"))
            callbacks = 2;
        else if (!strcmp(word, "records"))
            for (size_t at = 0; at < sizeof watched_kinds / sizeof *watched_kinds; at++)
                kinds |= UINT64_C(1) << watched_kinds[at];
        else if (!strcmp(word, "dump"))
            dumped = 1;
        else if (!strcmp(word, "clock") || !strcmp(word, "buffers"))
            register_records(*word == 'c', *word == 'b');
        else if (*word == 'k')
            kinds |= UINT64_C(1) << atoi(word + 1);
    }
    if (callbacks != callbacks_on)
        switch_callbacks(callbacks);
    if (kinds)
        register_records(1, 1);
    switch_kinds(kinds);
    if (dumped) {
        register_records(1, 1);
        fprintf(stderr, "dump: %d\n", dump_kind(STREAM));
        disable_kind(STREAM);
        if (!getenv("NO_FLUSH"))
            flush(0);
    }
}

static void *flushing_thread(void *unused)
{
    for (;;) {
        usleep(FLUSH_US);
        if (kinds_on)
            flush(0);
    }
    return unused;
}

static void *phases_thread(void *unused)
{
    char *text = strdup(getenv("PARTS")), *rest = NULL;
    int flushes = 0;
    while (access(getenv("READY"), F_OK))
        usleep(10000);
    for (char *phase = strtok_r(text, ";", &rest); phase && phases < PHASES; phase = strtok_r(NULL, ";", &rest)) {
        char words[64];
        double seconds;
        pthread_t thread;
        if (sscanf(phase, "%63[^:]:%lf", words, &seconds) != 2)
            _exit(1);
        apply(words);
        begins[phases] = now();
        fprintf(stderr, "PHASE %llu\n", (unsigned long long)begins[phases]);
        phases++;
        if (kinds_on && !flushes)
            flushes = !pthread_create(&thread, NULL, flushing_thread, NULL);
        usleep((useconds_t)(seconds * 1e6));
    }
    fprintf(stderr, "PHASE %llu\n", (unsigned long long)now());
    if (kinds_on)
        flush(0);
    usleep(3 * FLUSH_US);
    for (int at = 0; at < phases; at++)
        fprintf(stderr, "RECORDS %ld %ld\n", with_call[at], without_call[at]);
    _exit(0);
    return unused;
}

__attribute__((visibility("default"))) int InitializeInjection(void)
{
    pthread_t thread;
    if (getenv("EARLY")) {
        load_cupti();
        connect();
        register_records(1, 1);
        switch_kinds(UINT64_C(1) << atoi(getenv("EARLY")));
    }
    return !pthread_create(&thread, NULL, phases_thread, NULL);
}
