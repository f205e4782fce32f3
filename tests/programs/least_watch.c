/* The least that a library can do that watches with CUPTI, to compare with: callbacks that read the clock, fill a
 * histogram and count all calls, and buffers of records that are counted. LEAST_WATCH_CUPTI is the path of libcupti,
 * LEAST_WATCH_KINDS the kinds of records ("10,1,2").
 *
 * gcc -O2 -shared -fPIC, with the folders of cupti.h and of the generated layout.h.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti.h"

enum { FUNCTIONS = 2048, BUFFER_BYTES = 1 << 20 };

static const char *const watched[] = {
    "cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuStreamSynchronize", "cuEventSynchronize",
    "cuCtxSynchronize", "cuMemAlloc", "cuMemFree", "cuMemHost", "cuEventRecord", "cuStreamWaitEvent",
};
static __thread uint64_t began;
static __thread uint64_t durations[64];
static uint64_t calls;
static uint64_t records;
static ss_next_record next_record;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void on_call(void *user, int domain, uint32_t number, const struct ss_callback_data *data)
{
    (void)user, (void)domain, (void)number;
    if (data->site == SS_CALL_ENTER)
        began = now();
    else {
        durations[(now() - began) >> 10 & 63]++;
        __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    }
}

static void requested(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *most = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    uint8_t *record = NULL;
    while (valid && !next_record(buffer, valid, &record))
        __atomic_fetch_add(&records, 1, __ATOMIC_RELAXED);
    free(buffer);
}

static void *library;

static void find(const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

__attribute__((visibility("default"))) int InitializeInjection(void)
{
    struct ss_cupti cupti;
    void *subscriber;
    library = dlopen(getenv("LEAST_WATCH_CUPTI"), RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 1;
    find("cuptiSubscribe", &cupti.subscribe);
    find("cuptiEnableCallback", &cupti.enable_callback);
    find("cuptiGetCallbackName", &cupti.get_callback_name);
    find("cuptiActivityRegisterTimestampCallback", &cupti.set_timestamps);
    find("cuptiActivityRegisterCallbacks", &cupti.set_buffers);
    find("cuptiActivityEnable", &cupti.enable);
    find("cuptiActivityGetNextRecord", &next_record);
    if (cupti.subscribe(&subscriber, on_call, NULL))
        return 1;
    char *kinds = getenv("LEAST_WATCH_KINDS");
    if (kinds && *kinds) {
        cupti.set_timestamps(now);
        cupti.set_buffers(requested, completed);
        for (char *kind = strtok(kinds, ","); kind; kind = strtok(NULL, ","))
            cupti.enable(atoi(kind));
    }
    for (uint32_t number = 1; number < FUNCTIONS; number++) {
        const char *name = NULL;
        if (cupti.get_callback_name(SS_DRIVER_API, number, &name) || !name)
            continue;
        for (size_t at = 0; at < sizeof watched / sizeof *watched; at++)
            if (!strncmp(name, watched[at], strlen(watched[at])))
                cupti.enable_callback(1, subscriber, SS_DRIVER_API, number);
    }
    return 1;
}
