/* A stand-in for libcupti.so.13: callbacks and activity records of the stand-in for libcuda.
 *
 * The sizes of records and the version are given on the compiler's command line. Environment variables make it fail:
 * STAND_IN_SUBSCRIBE is the code of cuptiSubscribe, STAND_IN_WAITS a file for which it waits, STAND_IN_VERSION the
 * version, STAND_IN_REFUSED a kind that is not available, STAND_IN_FLUSH_MS the time that a flush takes,
 * STAND_IN_SWITCH_MS that until a kind is off, STAND_IN_LEAKS a number of records to drop, STAND_IN_UNTIMED makes kernel
 * records without times. STAND_IN_STREAMS has context, number and flag of each stream that exists.
 *
 * As CUPTI does, it gives no more records of a thread once a kind was switched during a call of it that submits work. And
 * as it does (13.5), it gives all later calls of a thread one number once the callback of a function went off during a
 * call of it, whose end is missing: until an end comes whose begin is missing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stand_in.h"

enum { SUCCESS = 0, INVALID_PARAMETER = 1, NO_MORE_RECORDS = 12, NOT_COMPATIBLE = 14, INVALID_KIND = 21, TAKEN = 39 };
enum { DRIVER_API = 1, KINDS = 64, PROCESS_OBJECT = 1, THREAD_OBJECT = 2 };
enum { COPY = 1, MEMSET = 2, KERNEL = 10, OVERHEAD = 17, PEER_COPY = 22, STREAM = 37, SWITCH = 57 };

/* As NVIDIA's structures lie in memory. */
struct callback_data {
    int site;
    const char *function;
    const void *parameters;
    const void *result;
    const char *symbol;
    void *context;
    uint32_t context_number;
    uint64_t *shared;
    uint32_t correlation;
};
typedef void (*callback)(void *user, int domain, uint32_t number, const struct callback_data *data);

static callback subscriber;
static void *subscriber_data;
static const char *(*name_of)(uint32_t number);
static uint32_t on[STAND_IN_FUNCTIONS];
static uint64_t (*clock_of_records)(void);
static void (*buffer_requested)(uint8_t **buffer, size_t *size, size_t *most);
static void (*buffer_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
static uint32_t kinds[KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *current;
static size_t capacity, used, dropped;
/* How often a kind was switched: in all, and until the thread's call in flight began. The thread's words are of the
 * initial part: LeakSanitizer fails at the exit of a program that hangs in a call where two later libraries have some. */
static uint32_t switches;
static __thread uint32_t switches_before __attribute__((tls_model("initial-exec")));
static __thread int lost __attribute__((tls_model("initial-exec")));

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static void take(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static uint64_t real_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The number that CUPTI gives a call of this thread, of which one callback more comes, or not. */
static uint32_t numbered(int site, int comes, uint32_t correlation)
{
    static __thread uint32_t level __attribute__((tls_model("initial-exec")));
    static __thread uint32_t missing __attribute__((tls_model("initial-exec")));
    static __thread uint32_t number __attribute__((tls_model("initial-exec")));
    static __thread uint64_t begun __attribute__((tls_model("initial-exec")));
    uint64_t bit = UINT64_C(1) << (site && level ? level - 1 : level) % 64;
    if (!site) {
        level++;
        begun = comes ? begun | bit : begun & ~bit;
        return missing ? number : correlation;
    }
    level -= level > 0;
    uint32_t given = missing ? number : correlation;
    if (begun & bit && !comes) {
        number = given;
        missing++;
    } else if (!(begun & bit) && comes && missing) {
        missing--;
    }
    begun &= ~bit;
    return given;
}

static void on_call(uint32_t number, const char *name, int site, const void *parameters, const int *result,
                    uint32_t context, uint32_t correlation)
{
    uint64_t shared = 0;
    int comes = __atomic_load_n(&subscriber, __ATOMIC_ACQUIRE) && __atomic_load_n(&on[number], __ATOMIC_RELAXED);
    correlation = numbered(site, comes, correlation);
    struct callback_data data = {site, name, parameters, result, NULL, NULL, context, &shared, correlation};
    callback present = __atomic_load_n(&subscriber, __ATOMIC_ACQUIRE);
    if (!site)
        switches_before = __atomic_load_n(&switches, __ATOMIC_ACQUIRE);
    if (!present || !comes)
        return;
    if (site && switches_before != __atomic_load_n(&switches, __ATOMIC_ACQUIRE) && !strstr(name, "Synchronize") &&
        !strstr(name, "Query"))
        lost = 1;
    present(subscriber_data, DRIVER_API, number, &data);
    if (!site)
        switches_before = __atomic_load_n(&switches, __ATOMIC_ACQUIRE);
}

static size_t size_of(uint32_t kind)
{
    switch (kind) {
    case COPY: return COPY_BYTES;
    case MEMSET: return MEMSET_BYTES;
    case KERNEL: return KERNEL_BYTES;
    case OVERHEAD: return OVERHEAD_BYTES;
    case PEER_COPY: return PEER_COPY_BYTES;
    case SWITCH: return CONTEXT_SWITCH_BYTES;
    case STREAM: return STREAM_BYTES;
    default: return 0;
    }
}

static void put(uint8_t *record, size_t offset, const void *value, size_t size)
{
    memcpy(record + offset, value, size);
}

/* The fields of each kind at the offsets of CUPTI's structures. */
static void fill(uint8_t *record, const struct stand_in_work *work)
{
    const struct stand_in_place *place = work->place;
    uint64_t start = clock_of_records ? clock_of_records() : real_clock();
    start -= work->began_ago_ns;
    uint64_t end = start + (work->length_ns ? work->length_ns : 1000);
    uint64_t gpu_clock = real_clock();
    uint32_t device = 3, context = 1, stream = 7, peer = 4, object = THREAD_OBJECT;
    uint32_t thread = (uint32_t)syscall(SYS_gettid);
    if (place) {
        start = gpu_clock = place->start_ns, end = place->end_ns;
        device = place->device, context = place->context, stream = place->stream;
        peer = place->peer, thread = place->thread, object = place->thread ? THREAD_OBJECT : PROCESS_OBJECT;
    }
    /* As CUPTI 12.6 to 13.0 made some with a timestamp callback. */
    if (work->kind == KERNEL && setting("STAND_IN_UNTIMED", 0))
        start = end = 0;
    uint8_t small[] = {(uint8_t)work->subkind, (uint8_t)work->source, (uint8_t)work->target};
    uint32_t kind = work->kind == KERNEL && setting("STAND_IN_UNFINISHED", 0) ? 0 : work->kind;
    put(record, 0, &kind, 4);
    switch (work->kind) {
    case KERNEL:
        if (work->subkind)
            put(record, 52, (uint32_t[]){work->subkind, 1, 1, 128, 1, 1}, 24);
        put(record, 16, &start, 8), put(record, 24, &end, 8);
        put(record, 40, &device, 4), put(record, 44, &context, 4), put(record, 48, &stream, 4);
        put(record, 92, &work->correlation, 4), put(record, 104, &work->name, 8);
        break;
    case COPY:
    case PEER_COPY:
        put(record, 4, small, sizeof small), put(record, 8, &work->bytes, 8);
        put(record, 16, &start, 8), put(record, 24, &end, 8);
        put(record, 32, &device, 4), put(record, 36, &context, 4), put(record, 40, &stream, 4);
        put(record, work->kind == COPY ? 44 : 60, &work->correlation, 4);
        if (work->kind == PEER_COPY)
            put(record, 44, &device, 4), put(record, 52, &peer, 4);
        break;
    case MEMSET:
        put(record, 8, &work->bytes, 8), put(record, 16, &start, 8), put(record, 24, &end, 8);
        put(record, 32, &device, 4), put(record, 36, &context, 4), put(record, 40, &stream, 4);
        put(record, 44, &work->correlation, 4);
        break;
    case OVERHEAD:
        put(record, 4, &work->subkind, 4), put(record, 8, &object, 4), put(record, 16, &thread, 4);
        put(record, 24, &start, 8), put(record, 32, &end, 8);
        if (OVERHEAD_BYTES > 40)
            put(record, 40, &work->correlation, 4);
        break;
    case SWITCH:
        put(record, 4, &context, 4), put(record, 8, &gpu_clock, 8), put(record, 16, &work->subkind, 4);
        break;
    }
}

/* Hands the current buffer over. The caller has the lock, which the callback does not need. */
static void complete(void)
{
    uint8_t *buffer = current;
    size_t size = capacity, valid = used;
    current = NULL;
    used = 0;
    if (buffer)
        buffer_completed(NULL, 0, buffer, size, valid);
}

/* Space for a record, filled with zeros; NULL if there is none. The caller has the lock. */
static uint8_t *space_of(size_t size)
{
    size_t most = 0;
    if (current && used + size > capacity)
        complete();
    if (!current)
        buffer_requested(&current, &capacity, &most);
    if (!current)
        return NULL;
    used += size;
    return memset(current + used - size, 0, size);
}

static void on_work(const struct stand_in_work *work)
{
    pthread_mutex_lock(&lock);
    if (buffer_requested && work->kind < KINDS && kinds[work->kind] && !lost) {
        uint8_t *space = setting("STAND_IN_LEAKS", 0) ? NULL : space_of(size_of(work->kind));
        if (space)
            fill(space, work);
        else
            dropped++;
    }
    pthread_mutex_unlock(&lock);
}

static void connect(void)
{
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void (*set)(stand_in_call_hook, stand_in_work_hook);
    void *found = libcuda ? dlsym(libcuda, "stand_in_set_hooks") : NULL;
    memcpy(&set, &found, sizeof found);
    found = libcuda ? dlsym(libcuda, "stand_in_name") : NULL;
    memcpy(&name_of, &found, sizeof found);
    if (set)
        set(on_call, on_work);
}

/* Whether work was ever recorded. */
static int recorded;

int cuptiGetVersion(uint32_t *version)
{
    *version = (uint32_t)setting("STAND_IN_VERSION", VERSION);
    return SUCCESS;
}

int cuptiSubscribe(void **subscription, callback function, void *user)
{
    long code = setting("STAND_IN_SUBSCRIBE", SUCCESS);
    const char *awaited = getenv("STAND_IN_WAITS");
    while (awaited && access(awaited, F_OK))
        take(1);
    if (code)
        return (int)code;
    if (subscriber)
        return TAKEN;
    subscriber_data = user;
    __atomic_store_n(&subscriber, function, __ATOMIC_RELEASE);
    *subscription = &subscriber;
    connect();
    return SUCCESS;
}

int cuptiUnsubscribe(void *subscription)
{
    (void)subscription;
    __atomic_store_n(&subscriber, NULL, __ATOMIC_RELEASE);
    for (size_t number = 0; number < STAND_IN_FUNCTIONS; number++)
        __atomic_store_n(&on[number], 0, __ATOMIC_RELAXED);
    return SUCCESS;
}

/* The driver is left: nothing may be subscribed, and no work have been recorded. */
int cuptiFinalize(void)
{
    return subscriber || recorded ? INVALID_PARAMETER : SUCCESS;
}

int cuptiEnableCallback(uint32_t enabled, void *subscription, int domain, uint32_t number)
{
    (void)subscription;
    if (domain != DRIVER_API || number >= STAND_IN_FUNCTIONS)
        return INVALID_PARAMETER;
    __atomic_store_n(&on[number], enabled, __ATOMIC_RELAXED);
    return SUCCESS;
}

int cuptiGetCallbackName(int domain, uint32_t number, const char **name)
{
    if (domain != DRIVER_API)
        return INVALID_PARAMETER;
    *name = name_of ? name_of(number) : NULL;
    return *name ? SUCCESS : INVALID_PARAMETER;
}

int cuptiSetThreadIdType(int type)
{
    (void)type;
    return SUCCESS;
}

int cuptiActivityRegisterTimestampCallback(uint64_t (*function)(void))
{
    clock_of_records = function;
    return SUCCESS;
}

int cuptiActivityRegisterCallbacks(void (*requested)(uint8_t **, size_t *, size_t *),
                                   void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t))
{
    pthread_mutex_lock(&lock);
    buffer_requested = requested;
    buffer_completed = completed;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuptiActivityEnable(int kind)
{
    if (kind == setting("STAND_IN_REFUSED", -1))
        return NOT_COMPATIBLE;
    if (kind < 0 || kind >= KINDS || !size_of((uint32_t)kind))
        return INVALID_KIND;
    pthread_mutex_lock(&lock);
    kinds[kind] = recorded = 1;
    __atomic_fetch_add(&switches, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuptiActivityEnableAndDump(int kind)
{
    const char *text = getenv("STAND_IN_STREAMS");
    uint32_t context, number, flag;
    int length;
    pthread_mutex_lock(&lock);
    for (; kind == STREAM && text && sscanf(text, "%u %u %u%n", &context, &number, &flag, &length) == 3; text += length) {
        const uint32_t fields[STREAM_BYTES / 4] = {STREAM, context, number, 0, flag, 0};
        uint8_t *space = space_of(sizeof fields);
        if (space)
            memcpy(space, fields, sizeof fields);
    }
    pthread_mutex_unlock(&lock);
    return cuptiActivityEnable(kind);
}

int cuptiActivityDisable(int kind)
{
    take(setting("STAND_IN_SWITCH_MS", 0));
    pthread_mutex_lock(&lock);
    kinds[kind] = 0;
    __atomic_fetch_add(&switches, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    take(setting("STAND_IN_FLUSH_MS", 0));
    pthread_mutex_lock(&lock);
    complete();
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    uint8_t *next = buffer;
    uint32_t kind;
    if (*record) {
        memcpy(&kind, *record, sizeof kind);
        if (!kind)
            return INVALID_KIND;
        next = *record + size_of(kind);
    }
    if (next >= buffer + valid)
        return NO_MORE_RECORDS;
    *record = next;
    return SUCCESS;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    pthread_mutex_lock(&lock);
    *count = dropped;
    dropped = 0;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
