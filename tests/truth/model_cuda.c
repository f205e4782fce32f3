/* A libcuda.so.1 with a model of two GPUs: streams in order, events, copy engines, graphs, a launch queue, host functions.
 *
 * When an operation begins and ends is computed when it is submitted; calls that wait sleep until then, others take the
 * time that they take on an H100, about. A kernel is that of program.c: its arguments are how long it lasts and where its
 * begin and end are written. The GPU's clock is CLOCK_MONOTONIC. The stand-in for libcupti records it (model_cupti.c).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "../programs/stand_in/stand_in.h"

enum { COPY = 1, KERNEL = 10, OVERHEAD = 17, SWITCH = 57, HOST_FUNCTION = 0, PAGEABLE = 1, PINNED = 2, DEVICE = 3 };
enum { DEVICES = 2, QUEUE = 1024, MOST_STREAMS = 32, MOST_PINNED = 256, NODES = 4096, NOT_READY = 600 };
enum { FIRST_STREAM_NUMBER = 13, MODULE_LOADING = 4 << 16, CONTEXT_STARTS = 1, INVALID = 1 };
/* Times (ns) of calls and between operations, and bytes per us of copies. */
enum { LAUNCH = 2500, SHORT_CALL = 700, GRAPH_LAUNCH = 6000, LATENCY = 2500, GAP = 1000, WAKE_UP = 5000 };
enum { MALLOC = 60000, FREE_HOST = 60000, LOAD = 3000000, MALLOC_PER_MIB = 2000, PIN_PER_MIB = 150000 };
enum { PAGEABLE_RATE = 10000, PINNED_RATE = 50000, COPY_LATENCY = 8000, LONG_SLEEP = 150000 };

struct event {
    uint64_t time;
};

struct node {
    uint64_t ns, begin, end, counter;
};

struct graph {
    int count;
    struct node nodes[NODES];
};

/* An operation whose record, or host function, is due at its end. */
struct pending {
    struct pending *next;
    struct stand_in_work work;
    struct stand_in_place place;
    void (*function)(void *);
    void *argument;
};

struct stream {
    int device, number;
    uint64_t tail, awaited, ends[QUEUE], submitted;
    struct graph *captures;
    struct pending *first, *last;
};

#define NAMES(f)                                                                                                        \
    f(cuDevicePrimaryCtxRetain) f(cuCtxSynchronize) f(cuModuleLoadData) f(cuModuleUnload) f(cuModuleGetFunction)       \
    f(cuStreamCreate) f(cuStreamSynchronize) f(cuStreamQuery) f(cuStreamWaitEvent) f(cuEventCreate) f(cuEventRecord)   \
    f(cuEventSynchronize) f(cuEventQuery) f(cuMemAlloc_v2) f(cuMemFree_v2) f(cuMemHostAlloc) f(cuMemFreeHost)          \
    f(cuMemsetD8_v2) f(cuMemcpyHtoDAsync_v2) f(cuMemcpyDtoHAsync_v2) f(cuLaunchKernel) f(cuLaunchHostFunc)             \
    f(cuStreamBeginCapture_v2) f(cuStreamEndCapture) f(cuGraphInstantiateWithFlags) f(cuGraphLaunch)
enum {
    NO_FUNCTION,
#define NUMBER(name) NUMBER_##name,
    NAMES(NUMBER)
#undef NUMBER
        NUMBERS_END
};
static const char *const function_names[] = {
    NULL,
#define NAME(name) #name,
    NAMES(NAME)
#undef NAME
};

static pthread_mutex_t state = PTHREAD_MUTEX_INITIALIZER, driver_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t submitted = PTHREAD_COND_INITIALIZER;
static struct stream *streams[MOST_STREAMS];
static int stream_count;
static uint64_t copy_engines[DEVICES][2];
static struct { char *begin, *end; } pinned[MOST_PINNED];
static uint32_t correlations;
static __thread int present_device;
static int contexts[DEVICES] = {0, 1};
static stand_in_call_hook call_hook;
static int (*is_recorded)(uint32_t kind);
static void (*deliver)(const struct stand_in_work *work);

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Sleeps, and at the end computes, as a driver that waits. */
static void wait_until(uint64_t time)
{
    if (time > now() + LONG_SLEEP) {
        uint64_t until = time - LONG_SLEEP / 2;
        struct timespec moment = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL))
            ;
    }
    while (now() < time)
        ;
}

void stand_in_set_hooks(stand_in_call_hook call, stand_in_work_hook work)
{
    (void)work;
    __atomic_store_n(&call_hook, call, __ATOMIC_RELEASE);
}

void model_set_recorder(int (*recorded)(uint32_t), void (*delivers)(const struct stand_in_work *))
{
    __atomic_store_n(&deliver, delivers, __ATOMIC_RELEASE);
    __atomic_store_n(&is_recorded, recorded, __ATOMIC_RELEASE);
}

const char *stand_in_name(uint32_t number)
{
    return number < NUMBERS_END ? function_names[number] : NULL;
}

static uint32_t enter(uint32_t number, const void *parameters)
{
    stand_in_call_hook hook = __atomic_load_n(&call_hook, __ATOMIC_ACQUIRE);
    uint32_t correlation = __atomic_add_fetch(&correlations, 1, __ATOMIC_RELAXED);
    if (hook)
        hook(number, function_names[number], 0, parameters, NULL, (uint32_t)present_device + 1, correlation);
    return correlation;
}

static int leave(uint32_t number, const void *parameters, uint32_t correlation, int result)
{
    stand_in_call_hook hook = __atomic_load_n(&call_hook, __ATOMIC_ACQUIRE);
    if (hook)
        hook(number, function_names[number], 1, parameters, &result, (uint32_t)present_device + 1, correlation);
    return result;
}
/* The begin and the end of a function, with its parameters as CUPTI's structures have them. */
#define ENTER(name, ...)                                                                                                \
    __VA_ARGS__;                                                                                                        \
    uint32_t correlation = enter(NUMBER_##name, &parameters)
#define LEAVE(name, result) return leave(NUMBER_##name, &parameters, correlation, result)

static int recorded(uint32_t kind)
{
    int (*ask)(uint32_t) = __atomic_load_n(&is_recorded, __ATOMIC_ACQUIRE);
    return ask && ask(kind);
}

/* Due at the end of an operation. The caller has the state's lock. */
static void enqueue(struct stream *stream, struct stand_in_work work, uint64_t begin, uint64_t end,
                    void (*function)(void *), void *argument)
{
    struct pending *pending = malloc(sizeof *pending);
    uint32_t device = (uint32_t)stream->device;
    *pending = (struct pending){NULL, work, {begin, end, device, device + 1, (uint32_t)stream->number, 0, 0}, function,
                                argument};
    if (stream->last)
        stream->last->next = pending;
    else
        stream->first = pending;
    stream->last = pending;
    if (function)
        pthread_cond_signal(&submitted);
}

/* Where an operation of a stream lies; the caller has the state's lock. */
static uint64_t place(struct stream *stream, uint64_t *engine, uint64_t ns)
{
    uint64_t begin = later(now() + LATENCY, later(stream->awaited, stream->tail ? stream->tail + GAP : 0));
    begin = engine ? later(begin, *engine) : begin;
    stream->tail = begin + ns;
    if (engine)
        *engine = stream->tail;
    return begin;
}

/* Waits for a place in the launch queue, which is taken. */
static void take_place(struct stream *stream)
{
    uint64_t end = stream->ends[stream->submitted % QUEUE];
    if (now() < end)
        wait_until(end);
}

/* What the kernel of program.c does. */
static void write_times(const struct node *node, uint64_t begin, uint64_t end)
{
    uint64_t *counter = (uint64_t *)(uintptr_t)node->counter, offset = counter ? *counter * 2 : 0;
    if (node->begin)
        ((uint64_t *)(uintptr_t)node->begin)[offset] = begin;
    if (node->end)
        ((uint64_t *)(uintptr_t)node->end)[offset] = end;
    if (node->end && counter)
        ++*counter;
}

static void *deliver_ended(void *unused)
{
    prctl(PR_SET_NAME, "cuda-model");
    pthread_mutex_lock(&state);
    for (;;) {
        uint64_t present = now(), next = present + 1000000;
        for (int at = 0; at < stream_count; at++) {
            struct stream *stream = streams[at];
            struct pending *pending;
            while ((pending = stream->first) && pending->place.end_ns <= present) {
                stream->first = pending->next;
                if (!stream->first)
                    stream->last = NULL;
                pthread_mutex_unlock(&state);
                pending->work.place = &pending->place;
                if (pending->function)
                    pending->function(pending->argument);
                else
                    deliver(&pending->work);
                free(pending);
                pthread_mutex_lock(&state);
            }
            for (pending = stream->first; pending && pending->place.end_ns < next; pending = pending->next)
                if (pending->function)
                    next = pending->place.end_ns;
        }
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        uint64_t wait = next > (present = now()) ? next - present : 0;
        uint64_t ns = (uint64_t)until.tv_nsec + wait;
        until.tv_sec += (time_t)(ns / 1000000000u), until.tv_nsec = (long)(ns % 1000000000u);
        if (wait)
            pthread_cond_timedwait(&submitted, &state, &until);
    }
    return unused;
}

/* As libcuda's own thread, which sleeps and can be borrowed. */
static void *handle_events(void *unused)
{
    prctl(PR_SET_NAME, "cuda-EvtHandlr");
    for (;;)
        poll(NULL, 0, -1);
    return unused;
}

static struct stream *stream_of(void *handle)
{
    return handle ? handle : streams[0];
}

static uint64_t end_of_device(int device)
{
    uint64_t end = 0;
    pthread_mutex_lock(&state);
    for (int at = 0; at < stream_count; at++)
        if (streams[at]->device == device)
            end = later(end, streams[at]->tail);
    pthread_mutex_unlock(&state);
    return end;
}

static void wait_for(uint64_t end)
{
    if (end > now())
        wait_until(end + WAKE_UP);
    else
        wait_until(now() + SHORT_CALL);
}

/* A task of the driver under its lock. */
static void hold_driver(uint64_t ns)
{
    pthread_mutex_lock(&driver_lock);
    wait_until(now() + ns);
    pthread_mutex_unlock(&driver_lock);
}

int cuInit(unsigned flags)
{
    static uint32_t once;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    pthread_t thread;
    (void)flags;
    if (__atomic_exchange_n(&once, 1, __ATOMIC_ACQ_REL))
        return 0;
    pthread_create(&thread, NULL, handle_events, NULL);
    pthread_create(&thread, NULL, deliver_ended, NULL);
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*initialize)(void);
    void *found = library ? dlsym(library, "InitializeInjection") : NULL;
    memcpy(&initialize, &found, sizeof found);
    if (initialize)
        initialize();
    return 0;
}

int cuDeviceGet(int *device, int number)
{
    *device = number;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = DEVICES;
    return 0;
}

/* A UUID of equal bytes for each GPU. */
int cuDeviceGetUuid_v2(void *uuid, int device)
{
    memset(uuid, 'A' + device, 16);
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    present_device = *(int *)context;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    ENTER(cuDevicePrimaryCtxRetain, struct { void **context; int device; } parameters = {context, device});
    *context = &contexts[device];
    wait_until(now() + LOAD);
    LEAVE(cuDevicePrimaryCtxRetain, 0);
}

int cuCtxSynchronize(void)
{
    ENTER(cuCtxSynchronize, int parameters = 0);
    wait_for(end_of_device(present_device));
    LEAVE(cuCtxSynchronize, 0);
}

int cuModuleLoadData(void **module, const void *image)
{
    ENTER(cuModuleLoadData, struct { void **module; const void *image; } parameters = {module, image});
    wait_for(end_of_device(present_device));
    struct stand_in_place begun = {now(), 0, (uint32_t)present_device, (uint32_t)present_device + 1, 0, 0, 0};
    hold_driver(LOAD);
    *module = &correlations;
    begun.end_ns = now();
    if (recorded(OVERHEAD))
        deliver(&(struct stand_in_work){OVERHEAD, MODULE_LOADING, 0, 0, 0, correlation, NULL, 0, 0, &begun});
    if (recorded(SWITCH))
        deliver(&(struct stand_in_work){SWITCH, CONTEXT_STARTS, 0, 0, 0, 0, NULL, 0, 0, NULL});
    LEAVE(cuModuleLoadData, 0);
}

int cuModuleUnload(void *module)
{
    ENTER(cuModuleUnload, struct { void *module; } parameters = {module});
    wait_for(end_of_device(present_device));
    hold_driver(MALLOC);
    LEAVE(cuModuleUnload, 0);
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    ENTER(cuModuleGetFunction, struct { void **function; void *module; const char *name; } parameters =
                                   {function, module, name});
    *function = (void *)(uintptr_t)name;
    LEAVE(cuModuleGetFunction, 0);
}

int cuStreamCreate(void **stream, unsigned flags)
{
    ENTER(cuStreamCreate, struct { void **stream; unsigned flags; } parameters = {stream, flags});
    struct stream *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&state);
    int room = stream_count < MOST_STREAMS;
    if (room) {
        made->device = present_device, made->number = FIRST_STREAM_NUMBER + stream_count;
        streams[stream_count++] = made;
        *stream = made;
    }
    pthread_mutex_unlock(&state);
    LEAVE(cuStreamCreate, room ? 0 : INVALID);
}

int cuStreamSynchronize(void *stream)
{
    ENTER(cuStreamSynchronize, struct { void *stream; } parameters = {stream});
    wait_for(__atomic_load_n(&stream_of(stream)->tail, __ATOMIC_RELAXED));
    LEAVE(cuStreamSynchronize, 0);
}

int cuStreamQuery(void *stream)
{
    ENTER(cuStreamQuery, struct { void *stream; } parameters = {stream});
    wait_until(now() + SHORT_CALL);
    int ready = __atomic_load_n(&stream_of(stream)->tail, __ATOMIC_RELAXED) <= now();
    LEAVE(cuStreamQuery, ready ? 0 : NOT_READY);
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    ENTER(cuStreamWaitEvent, struct { void *stream; void *event; unsigned flags; } parameters = {stream, event, flags});
    pthread_mutex_lock(&state);
    stream_of(stream)->awaited = later(stream_of(stream)->awaited, ((struct event *)event)->time);
    pthread_mutex_unlock(&state);
    wait_until(now() + SHORT_CALL);
    LEAVE(cuStreamWaitEvent, 0);
}

int cuEventCreate(void **event, unsigned flags)
{
    ENTER(cuEventCreate, struct { void **event; unsigned flags; } parameters = {event, flags});
    *event = calloc(1, sizeof(struct event));
    LEAVE(cuEventCreate, 0);
}

int cuEventRecord(void *event, void *stream)
{
    ENTER(cuEventRecord, struct { void *event; void *stream; } parameters = {event, stream});
    pthread_mutex_lock(&state);
    ((struct event *)event)->time = later(stream_of(stream)->tail, stream_of(stream)->awaited);
    pthread_mutex_unlock(&state);
    wait_until(now() + SHORT_CALL);
    LEAVE(cuEventRecord, 0);
}

int cuEventSynchronize(void *event)
{
    ENTER(cuEventSynchronize, struct { void *event; } parameters = {event});
    wait_for(((struct event *)event)->time);
    LEAVE(cuEventSynchronize, 0);
}

int cuEventQuery(void *event)
{
    ENTER(cuEventQuery, struct { void *event; } parameters = {event});
    wait_until(now() + SHORT_CALL);
    int ready = ((struct event *)event)->time <= now();
    LEAVE(cuEventQuery, ready ? 0 : NOT_READY);
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    ENTER(cuMemAlloc_v2, struct { uint64_t *address; size_t bytes; } parameters = {address, bytes});
    hold_driver(MALLOC + (bytes >> 20) * MALLOC_PER_MIB);
    *address = (uint64_t)(uintptr_t)calloc(1, 64);
    LEAVE(cuMemAlloc_v2, 0);
}

int cuMemFree_v2(uint64_t address)
{
    ENTER(cuMemFree_v2, struct { uint64_t address; } parameters = {address});
    wait_for(end_of_device(present_device));
    hold_driver(MALLOC);
    free((void *)(uintptr_t)address);
    LEAVE(cuMemFree_v2, 0);
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    ENTER(cuMemHostAlloc, struct { void **address; size_t bytes; unsigned flags; } parameters = {address, bytes, flags});
    char *memory = calloc(1, bytes);
    hold_driver(MALLOC + (bytes * PIN_PER_MIB >> 20));
    pthread_mutex_lock(&state);
    for (int at = 0; at < MOST_PINNED; at++)
        if (!pinned[at].begin) {
            pinned[at].begin = memory, pinned[at].end = memory + bytes;
            break;
        }
    pthread_mutex_unlock(&state);
    *address = memory;
    LEAVE(cuMemHostAlloc, 0);
}

int cuMemFreeHost(void *address)
{
    ENTER(cuMemFreeHost, struct { void *address; } parameters = {address});
    wait_for(end_of_device(present_device));
    pthread_mutex_lock(&state);
    for (int at = 0; at < MOST_PINNED; at++)
        if (pinned[at].begin == address)
            pinned[at].begin = NULL;
    pthread_mutex_unlock(&state);
    free(address);
    hold_driver(FREE_HOST);
    LEAVE(cuMemFreeHost, 0);
}

int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t count)
{
    ENTER(cuMemsetD8_v2, struct { uint64_t address; unsigned char value; size_t count; } parameters =
                             {address, value, count});
    memset((void *)(uintptr_t)address, value, count);
    LEAVE(cuMemsetD8_v2, 0);
}

static void copy(void *handle, const void *host, size_t bytes, int from_gpu, uint32_t correlation)
{
    struct stream *stream = stream_of(handle);
    int is_pinned = 0, wanted = recorded(COPY);
    pthread_mutex_lock(&state);
    for (int at = 0; at < MOST_PINNED; at++)
        is_pinned |= pinned[at].begin && (const char *)host >= pinned[at].begin && (const char *)host < pinned[at].end;
    uint64_t ns = COPY_LATENCY + bytes * 1000 / (is_pinned ? PINNED_RATE : PAGEABLE_RATE);
    uint64_t begin = place(stream, &copy_engines[stream->device][from_gpu], ns), end = stream->tail;
    uint32_t memory = is_pinned ? PINNED : PAGEABLE;
    struct stand_in_work work = {COPY, from_gpu ? 2 : 1, bytes, from_gpu ? DEVICE : memory, from_gpu ? memory : DEVICE,
                                 correlation, NULL, 0, 0, NULL};
    if (wanted)
        enqueue(stream, work, begin, end, NULL, NULL);
    pthread_mutex_unlock(&state);
    wait_until(is_pinned ? now() + LAUNCH : end + WAKE_UP);
}

int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t bytes, void *stream)
{
    ENTER(cuMemcpyHtoDAsync_v2, struct { uint64_t target; const void *source; size_t bytes; void *stream; } parameters =
                                    {target, source, bytes, stream});
    copy(stream, source, bytes, 0, correlation);
    LEAVE(cuMemcpyHtoDAsync_v2, 0);
}

int cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t bytes, void *stream)
{
    ENTER(cuMemcpyDtoHAsync_v2, struct { void *target; uint64_t source; size_t bytes; void *stream; } parameters =
                                    {target, source, bytes, stream});
    copy(stream, target, bytes, 1, correlation);
    LEAVE(cuMemcpyDtoHAsync_v2, 0);
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *handle, void **arguments, void **extra)
{
    struct stream *stream = stream_of(handle);
    ENTER(cuLaunchKernel, struct {
        void *function;
        unsigned sizes[7];
        void *stream;
        void **arguments, **extra;
    } parameters = {function, {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared}, handle, arguments, extra});
    struct node node = {*(uint64_t *)arguments[0], *(uint64_t *)arguments[1], *(uint64_t *)arguments[2],
                        *(uint64_t *)arguments[3]};
    if (stream->captures) {
        stream->captures->nodes[stream->captures->count++] = node;
        LEAVE(cuLaunchKernel, 0);
    }
    take_place(stream);
    pthread_mutex_lock(&driver_lock);
    wait_until(now() + LAUNCH);
    pthread_mutex_unlock(&driver_lock);
    int wanted = recorded(KERNEL);
    pthread_mutex_lock(&state);
    uint64_t begin = place(stream, NULL, node.ns), end = stream->tail;
    stream->ends[stream->submitted++ % QUEUE] = end;
    write_times(&node, begin, end);
    if (wanted)
        enqueue(stream, (struct stand_in_work){KERNEL, 1, 0, 0, 0, correlation, "spin", 0, 0, NULL}, begin, end, NULL,
                NULL);
    pthread_mutex_unlock(&state);
    LEAVE(cuLaunchKernel, 0);
}

int cuLaunchHostFunc(void *handle, void (*function)(void *), void *argument)
{
    ENTER(cuLaunchHostFunc, struct { void *stream; void (*function)(void *); void *argument; } parameters =
                                {handle, function, argument});
    pthread_mutex_lock(&state);
    uint64_t begin = place(stream_of(handle), NULL, GAP);
    enqueue(stream_of(handle), (struct stand_in_work){.kind = HOST_FUNCTION}, begin, begin + GAP, function, argument);
    pthread_mutex_unlock(&state);
    wait_until(now() + LAUNCH);
    LEAVE(cuLaunchHostFunc, 0);
}

int cuStreamBeginCapture_v2(void *stream, int mode)
{
    ENTER(cuStreamBeginCapture_v2, struct { void *stream; int mode; } parameters = {stream, mode});
    stream_of(stream)->captures = calloc(1, sizeof(struct graph));
    LEAVE(cuStreamBeginCapture_v2, 0);
}

int cuStreamEndCapture(void *stream, void **graph)
{
    ENTER(cuStreamEndCapture, struct { void *stream; void **graph; } parameters = {stream, graph});
    *graph = stream_of(stream)->captures;
    stream_of(stream)->captures = NULL;
    LEAVE(cuStreamEndCapture, 0);
}

int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags)
{
    ENTER(cuGraphInstantiateWithFlags, struct { void **executable; void *graph; unsigned long long flags; } parameters =
                                           {executable, graph, flags});
    *executable = graph;
    hold_driver(MALLOC + (uint64_t)((struct graph *)graph)->count * GAP);
    LEAVE(cuGraphInstantiateWithFlags, 0);
}

int cuGraphLaunch(void *executable, void *handle)
{
    ENTER(cuGraphLaunch, struct { void *graph; void *stream; } parameters = {executable, handle});
    struct graph *graph = executable;
    struct stream *stream = stream_of(handle);
    take_place(stream);
    wait_until(now() + GRAPH_LAUNCH);
    int wanted = recorded(KERNEL);
    pthread_mutex_lock(&state);
    for (int at = 0; at < graph->count; at++) {
        uint64_t begin = place(stream, NULL, graph->nodes[at].ns), end = stream->tail;
        write_times(&graph->nodes[at], begin, end);
        if (wanted)
            enqueue(stream, (struct stand_in_work){KERNEL, 1, 0, 0, 0, correlation, "spin", 0, 0, NULL}, begin, end,
                    NULL, NULL);
    }
    stream->ends[stream->submitted++ % QUEUE] = stream->tail;
    pthread_mutex_unlock(&state);
    LEAVE(cuGraphLaunch, 0);
}
