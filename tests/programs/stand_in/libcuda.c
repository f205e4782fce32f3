/* A stand-in for libcuda.so.1: its functions take the time that the calling thread asks for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stand_in.h"

/* The kinds of CUpti_ActivityKind, and CUPTI's numbers of memory kinds and directions. */
enum { COPY = 1, MEMSET = 2, KERNEL = 10, OVERHEAD = 17, PEER_COPY = 22, SWITCH = 57 };
enum { PAGEABLE = 1, PINNED = 2, DEVICE = 3 };
enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2, PEER = 10 };
enum { NOT_READY = 600, MODULE_LOADING = 4 << 16, CONTEXT_STARTS = 1 };
enum { OWN_CONTEXT = 1 };

static stand_in_call_hook call_hook;
static stand_in_work_hook work_hook;
static uint32_t correlations;
static uint32_t begun;
static __thread uint64_t length_ns;
static __thread int next_result;
static __thread uint64_t kernel_length_ns;
static __thread int takes_lock, starves;
static uint32_t locked, waiting;
static const struct stand_in_function *functions;
static uint32_t function_count;

void stand_in_set_hooks(stand_in_call_hook call, stand_in_work_hook work)
{
    __atomic_store_n(&work_hook, work, __ATOMIC_RELEASE);
    __atomic_store_n(&call_hook, call, __ATOMIC_RELEASE);
}

uint32_t stand_in_begun(void)
{
    return __atomic_load_n(&begun, __ATOMIC_ACQUIRE);
}

void stand_in_length(uint64_t ns)
{
    length_ns = ns;
}

void stand_in_result(int result)
{
    next_result = result;
}

void stand_in_kernel_length(uint64_t ns)
{
    kernel_length_ns = ns;
}

void stand_in_take_lock(void)
{
    takes_lock = 1;
}

void stand_in_starve(void)
{
    starves = 1;
}

int cuInit(unsigned flags)
{
    static uint32_t once;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    (void)flags;
    if (__atomic_exchange_n(&once, 1, __ATOMIC_ACQ_REL) || !path)
        return 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*initialize)(void);
    void *found = library ? dlsym(library, "InitializeInjection") : NULL;
    memcpy(&initialize, &found, sizeof found);
    if (initialize)
        initialize();
    return 0;
}

void stand_in_use_functions(const struct stand_in_function *found, uint32_t count)
{
    functions = found;
    function_count = count;
}

const char *stand_in_name(uint32_t number)
{
    for (uint32_t at = 0; at < function_count; at++)
        if (functions[at].number == number)
            return functions[at].name;
    if (functions)
        return NULL;
    switch (number) {
#define NAME(number, name)                                                                                             \
    case number: return #name;
        FUNCTIONS(NAME)
#undef NAME
    default: return NULL;
    }
}

void stand_in_replay_call(uint32_t number, int site, const void *parameters, const int *result, uint32_t context,
                          uint32_t correlation)
{
    stand_in_call_hook hook = __atomic_load_n(&call_hook, __ATOMIC_ACQUIRE);
    if (hook)
        hook(number, stand_in_name(number), site, parameters, result, context, correlation);
}

void stand_in_replay_record(const struct stand_in_work *work)
{
    stand_in_work_hook submit = __atomic_load_n(&work_hook, __ATOMIC_ACQUIRE);
    if (submit)
        submit(work);
}

static void take_time(void)
{
    if (length_ns) {
        struct timespec time = {(time_t)(length_ns / 1000000000u), (long)(length_ns % 1000000000u)};
        nanosleep(&time, NULL);
    }
}

/* Whether the first thread sleeps at a futex with a limit, as in the gate of the library. The clock cannot tell: a thread
 * that has no CPU makes no calls either. */
static int is_first_thread_held(void)
{
    char path[64];
    long number = -1;
    unsigned long limit = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)getpid());
    FILE *file = fopen(path, "r");
    int known = file && fscanf(file, "%ld %*x %*x %*x %lx", &number, &limit) == 2;
    if (file)
        fclose(file);
    return known && number == SYS_futex && limit;
}

/* A call, with the work that it submits; ``work`` may be NULL. */
static int call(uint32_t number, const char *name, const void *parameters, struct stand_in_work *work)
{
    stand_in_call_hook hook = __atomic_load_n(&call_hook, __ATOMIC_ACQUIRE);
    uint32_t correlation = __atomic_add_fetch(&correlations, 1, __ATOMIC_RELAXED);
    int result = next_result;
    next_result = 0;
    if (hook)
        hook(number, name, 0, parameters, NULL, OWN_CONTEXT, correlation);
    if (takes_lock) {
        __atomic_fetch_add(&waiting, 1, __ATOMIC_RELAXED);
        while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
            sched_yield();
        __atomic_fetch_sub(&waiting, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&begun, 1, __ATOMIC_RELEASE);
    take_time();
    while (starves && !is_first_thread_held()) {
        struct timespec pause = {0, 200000};
        nanosleep(&pause, NULL);
    }
    starves = 0;
    if (takes_lock) {
        __atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
        /* The call that waits ends with this one, also where the threads share a CPU. */
        while (__atomic_load_n(&waiting, __ATOMIC_RELAXED))
            sched_yield();
    }
    stand_in_work_hook submit = __atomic_load_n(&work_hook, __ATOMIC_ACQUIRE);
    if (submit && work) {
        work->correlation = correlation;
        work->began_ago_ns = work->kind == OVERHEAD ? length_ns : 0;
        work->length_ns = work->kind == KERNEL ? kernel_length_ns : work->began_ago_ns;
        submit(work);
    }
    if (hook)
        hook(number, name, 1, parameters, &result, OWN_CONTEXT, correlation);
    return result;
}
#define CALL(function, parameters, work) call(STAND_IN_##function, #function, parameters, work)

static void *copy_four_bytes(void *length)
{
    static char target[4];
    length_ns = *(uint64_t *)length;
    cuMemcpyDtoHAsync_v2(target, UINT64_C(0x7f0000000000), sizeof target, (void *)0x77);
    return NULL;
}

void stand_in_copy_in_thread(void)
{
    pthread_t thread;
    if (!pthread_create(&thread, NULL, copy_four_bytes, &length_ns))
        pthread_join(thread, NULL);
}

/* STAND_IN_GPUS has a character for each GPU: the bytes of its UUID. */
int cuDeviceGetCount(int *count)
{
    const char *gpus = getenv("STAND_IN_GPUS");
    *count = gpus ? (int)strlen(gpus) : 0;
    return 0;
}

int cuDeviceGetUuid_v2(void *uuid, int device)
{
    memset(uuid, getenv("STAND_IN_GPUS")[device], 16);
    return 0;
}

/* As an H200: CUdevice_attribute. */
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    static const int values[][2] = {{16, 132}, {39, 2048}, {82, 65536}, {81, 233472}, {106, 32}, {111, 1024}};
    (void)device;
    for (size_t at = 0; at < sizeof values / sizeof *values; at++)
        if (values[at][0] == attribute) {
            *value = values[at][1];
            return 0;
        }
    return 1;
}

int cuCtxGetDevice(int *device)
{
    struct { int *device; } parameters = {device};
    *device = 0;
    return CALL(cuCtxGetDevice, &parameters, NULL);
}

int cuCtxSynchronize(void)
{
    return CALL(cuCtxSynchronize, NULL, NULL);
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    struct { uint64_t *address; size_t bytes; } parameters = {address, bytes};
    *address = UINT64_C(0x7f0000000000);
    return CALL(cuMemAlloc_v2, &parameters, NULL);
}

int cuMemFree_v2(uint64_t address)
{
    struct { uint64_t address; } parameters = {address};
    return CALL(cuMemFree_v2, &parameters, NULL);
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    struct { void **address; size_t bytes; unsigned flags; } parameters = {address, bytes, flags};
    *address = malloc(bytes);
    return CALL(cuMemHostAlloc, &parameters, NULL);
}

int cuMemFreeHost(void *address)
{
    struct { void *address; } parameters = {address};
    int result = CALL(cuMemFreeHost, &parameters, NULL);
    free(address);
    return result;
}

int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    struct { void *address; size_t bytes; unsigned flags; } parameters = {address, bytes, flags};
    return CALL(cuMemHostRegister_v2, &parameters, NULL);
}

int cuMemHostUnregister(void *address)
{
    struct { void *address; } parameters = {address};
    return CALL(cuMemHostUnregister, &parameters, NULL);
}

int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t bytes)
{
    struct { void *target; uint64_t source; size_t bytes; } parameters = {target, source, bytes};
    struct stand_in_work work = {COPY, DEVICE_TO_HOST, bytes, DEVICE, PAGEABLE, 0, NULL, 0, 0, NULL};
    return CALL(cuMemcpyDtoH_v2, &parameters, &work);
}

int cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t bytes, void *stream)
{
    struct { void *target; uint64_t source; size_t bytes; void *stream; } parameters = {target, source, bytes, stream};
    struct stand_in_work work = {COPY, DEVICE_TO_HOST, bytes, DEVICE, PAGEABLE, 0, NULL, 0, 0, NULL};
    return CALL(cuMemcpyDtoHAsync_v2, &parameters, &work);
}

int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t bytes, void *stream)
{
    struct { uint64_t target; const void *source; size_t bytes; void *stream; } parameters = {target, source, bytes,
                                                                                              stream};
    struct stand_in_work work = {COPY, HOST_TO_DEVICE, bytes, PINNED, DEVICE, 0, NULL, 0, 0, NULL};
    return CALL(cuMemcpyHtoDAsync_v2, &parameters, &work);
}

int cuMemcpy2D_v2(const void *copy)
{
    struct { const void *copy; } parameters = {copy};
    return CALL(cuMemcpy2D_v2, &parameters, NULL);
}

int cuMemcpyPeerAsync(uint64_t target, void *target_context, uint64_t source, void *source_context, size_t bytes,
                      void *stream)
{
    struct {
        uint64_t target;
        void *target_context;
        uint64_t source;
        void *source_context;
        size_t bytes;
        void *stream;
    } parameters = {target, target_context, source, source_context, bytes, stream};
    struct stand_in_work work = {PEER_COPY, PEER, bytes, DEVICE, DEVICE, 0, NULL, 0, 0, NULL};
    return CALL(cuMemcpyPeerAsync, &parameters, &work);
}

int cuMemsetD8Async(uint64_t target, unsigned char value, size_t count, void *stream)
{
    struct { uint64_t target; unsigned char value; size_t count; void *stream; } parameters = {target, value, count,
                                                                                               stream};
    struct stand_in_work work = {MEMSET, 0, count, 0, 0, 0, NULL, 0, 0, NULL};
    return CALL(cuMemsetD8Async, &parameters, &work);
}

struct launch {
    void *function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    void *stream;
    void **parameters, **extra;
};

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra)
{
    struct launch parameters = {function, grid_x,  grid_y, grid_z, block_x, block_y,
                                block_z,  shared,  stream, arguments, extra};
    struct stand_in_work work = {KERNEL, 0, 0, 0, 0, 0, function, 0, 0, NULL};
    return CALL(cuLaunchKernel, &parameters, function ? &work : NULL);
}

int cuLaunchKernel_ptsz(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments,
                        void **extra)
{
    struct launch parameters = {function, grid_x,  grid_y, grid_z, block_x, block_y,
                                block_z,  shared,  stream, arguments, extra};
    return CALL(cuLaunchKernel_ptsz, &parameters, NULL);
}

int cuStreamSynchronize(void *stream)
{
    struct { void *stream; } parameters = {stream};
    return CALL(cuStreamSynchronize, &parameters, NULL);
}

int cuEventQuery(void *event)
{
    struct { void *event; } parameters = {event};
    stand_in_result(NOT_READY);
    return CALL(cuEventQuery, &parameters, NULL);
}

int cuModuleLoadData(void **module, const void *image)
{
    struct { void **module; const void *image; } parameters = {module, image};
    struct stand_in_work loading = {OVERHEAD, MODULE_LOADING, 0, 0, 0, 0, NULL, 0, 0, NULL};
    struct stand_in_work contexts = {SWITCH, CONTEXT_STARTS, 0, 0, 0, 0, NULL, 0, 0, NULL};
    stand_in_work_hook submit = __atomic_load_n(&work_hook, __ATOMIC_ACQUIRE);
    if (submit)
        submit(&contexts);
    return CALL(cuModuleLoadData, &parameters, &loading);
}

/* A function is its name, which must last. */
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    struct { void **function; void *module; const char *name; } parameters = {function, module, name};
    *function = (void *)name;
    return CALL(cuModuleGetFunction, &parameters, NULL);
}

int cuDeviceGet(int *device, int number)
{
    *device = number;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    struct { void **context; int device; } parameters = {context, device};
    *context = &correlations;
    return CALL(cuDevicePrimaryCtxRetain, &parameters, NULL);
}

int cuCtxSetCurrent(void *context)
{
    (void)context;
    return 0;
}

int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags)
{
    struct { void **executable; void *graph; unsigned long long flags; } parameters = {executable, graph, flags};
    *executable = graph;
    return CALL(cuGraphInstantiateWithFlags, &parameters, NULL);
}

int cuStreamCreate(void **stream, unsigned flags)
{
    struct { void **stream; unsigned flags; } parameters = {stream, flags};
    *stream = &begun;
    return CALL(cuStreamCreate, &parameters, NULL);
}
