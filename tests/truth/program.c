/* A program that runs a schedule and writes down what it did: program SCHEDULE TRACE.
 *
 * The schedule is text, as tests/truth/schedules.py writes it: settings, then actors (threads and child processes) with
 * their operations, which each actor repeats until the first one has run for the seconds of the schedule at a step. The
 * trace is a line of JSON and then the entries of all actors: begin and end of each operation on the host, and of the
 * first and last kernel of each launch by the GPU's clock. Before the schedule begins, each launch and copy is made a few
 * times alone, behind a long kernel, so that its own duration is known.
 *
 * It needs gcc alone: the driver's functions are declared here and found in libcuda.so.1 when it starts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ACTORS = 16, OPERATIONS = 256, NUMBERS = 5, GPUS = 2, STREAMS = 8, EVENTS = 16, QUEUES = 8, LOCKS = 4 };
enum { ITEM_BYTES = 4096, NOT_READY = 600, CALIBRATION = 1, REPEATS = 3, ARGUMENTS = 4, CLOCK_READINGS = 40 };
static const uint64_t US = 1000, MS = 1000000, SHORT_SPIN_NS = 20000, GRAPH_LAUNCHES = 1 << 18;

#define DRIVER(f)                                                                                                       \
    f(cuInit, (unsigned)) f(cuDeviceGet, (int *, int)) f(cuDeviceGetCount, (int *))                                    \
    f(cuDevicePrimaryCtxRetain, (void **, int)) f(cuCtxSetCurrent, (void *)) f(cuCtxSynchronize, (void))               \
    f(cuModuleLoadData, (void **, const void *)) f(cuModuleUnload, (void *))                                           \
    f(cuModuleGetFunction, (void **, void *, const char *)) f(cuStreamCreate, (void **, unsigned))                     \
    f(cuStreamSynchronize, (void *)) f(cuStreamQuery, (void *)) f(cuStreamWaitEvent, (void *, void *, unsigned))       \
    f(cuEventCreate, (void **, unsigned)) f(cuEventRecord, (void *, void *)) f(cuEventSynchronize, (void *))           \
    f(cuEventQuery, (void *)) f(cuMemAlloc_v2, (uint64_t *, size_t)) f(cuMemFree_v2, (uint64_t))                       \
    f(cuMemHostAlloc, (void **, size_t, unsigned)) f(cuMemFreeHost, (void *))                                          \
    f(cuMemsetD8_v2, (uint64_t, unsigned char, size_t))                                                                \
    f(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *))                                                  \
    f(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *))                                                        \
    f(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,  \
                       void **))                                                                                        \
    f(cuLaunchHostFunc, (void *, void (*)(void *), void *)) f(cuStreamBeginCapture_v2, (void *, int))                  \
    f(cuStreamEndCapture, (void *, void **)) f(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))     \
    f(cuGraphLaunch, (void *, void *))
#define DECLARE(name, parameters) static int (*name) parameters;
DRIVER(DECLARE)
#undef DECLARE

/* A kernel of one thread. Its begin and end are written where its arguments say; with a counter, to the 16 bytes that
 * the counter chooses, and the kernel that writes an end counts. Short ones last by cycles: %globaltimer may be coarse. */
static const char PTX[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 ns, .param .u64 begin, .param .u64 end, .param .u64 counter)\n{\n"
    ".reg .pred %p<8>;\n.reg .u64 %t<16>;\n"
    "mov.u64 %t4, %globaltimer;\nmov.u64 %t9, %clock64;\n"
    "ld.param.u64 %t0, [ns];\nld.param.u64 %t1, [begin];\nld.param.u64 %t2, [end];\nld.param.u64 %t3, [counter];\n"
    "mov.u64 %t5, 0;\nmov.u64 %t6, 0;\nsetp.eq.u64 %p0, %t3, 0;\n@%p0 bra PLAIN;\n"
    "ld.volatile.global.u64 %t5, [%t3];\nshl.b64 %t6, %t5, 4;\n"
    "PLAIN:\nsetp.eq.u64 %p1, %t1, 0;\n@%p1 bra UNTIMED;\nadd.u64 %t7, %t1, %t6;\nst.volatile.global.u64 [%t7], %t4;\n"
    "UNTIMED:\nsetp.lt.u64 %p2, %t0, 10000;\n@%p2 bra SHORT;\n"
    "LONG:\nmov.u64 %t8, %globaltimer;\nsub.u64 %t8, %t8, %t4;\nsetp.lt.u64 %p3, %t8, %t0;\n@%p3 bra LONG;\nbra DONE;\n"
    "SHORT:\nmul.lo.u64 %t10, %t0, 7;\nshr.u64 %t10, %t10, 2;\n"
    "AGAIN:\nmov.u64 %t8, %clock64;\nsub.u64 %t8, %t8, %t9;\nsetp.lt.u64 %p4, %t8, %t10;\n@%p4 bra AGAIN;\n"
    "DONE:\nsetp.eq.u64 %p5, %t2, 0;\n@%p5 bra LEAVE;\nadd.u64 %t7, %t2, %t6;\nmov.u64 %t8, %globaltimer;\n"
    "st.volatile.global.u64 [%t7], %t8;\n@%p0 bra LEAVE;\nadd.u64 %t5, %t5, 1;\nst.volatile.global.u64 [%t3], %t5;\n"
    "LEAVE:\nret;\n}\n";

#define KINDS(f)                                                                                                        \
    f(HOST, host) f(SLEEP, sleep) f(PAUSE, pause) f(COMPILE, compile) f(LAUNCH, launch) f(GRAPH, graph) f(COPY, copy)  \
    f(RECORD, record) f(AWAIT, await) f(SYNC, sync) f(SYNC_EVENT, sync_event) f(SYNC_DEVICE, sync_device)              \
    f(POLL, poll) f(SPIN, spin) f(ALLOCATE, allocate) f(FREE, free) f(PIN, pin) f(UNPIN, unpin) f(LOAD, load)          \
    f(LOCK, lock) f(UNLOCK, unlock) f(PUT, put) f(GET, get) f(SEND, send) f(RECEIVE, receive) f(CALLBACK, callback) f(STEP, step)    \
    f(LOOP, loop) f(END, end)
enum {
#define NUMBER(kind, word) kind,
    KINDS(NUMBER)
#undef NUMBER
        KIND_COUNT
};
static const char *const WORDS[] = {
#define WORD(kind, word) #word,
    KINDS(WORD)
#undef WORD
};

/* One operation that was executed. ``gpu_begin`` is the CPU time of one on the host, and of a copy that blocks when it was
 * submitted: then it waits. */
struct entry {
    uint32_t operation, flags;
    uint64_t begin, end, gpu_begin, gpu_end;
};

struct operation {
    int kind, loop;
    int64_t numbers[NUMBERS];
    long left;
    void *graph;
    uint64_t *ring, counter;
};

struct actor {
    char name[16];
    int number, child, count, gpu;
    struct operation operations[OPERATIONS];
    struct entry *trace;
    uint64_t *used;
    uint64_t calibrations, state, memory, run_delay[2];
    pid_t process, thread;
    char *pinned, *pageable;
    void *host_memory;
    uint64_t device_memory;
};

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long items;
};

static struct actor actors[ACTORS];
static int actor_count, gpus_used = 1, noise_percent, cpus, beside_model;
static double seconds = 6;
static uint64_t capacity = 400000, seed = 1, copy_bytes = 4096;
static volatile uint32_t *stopped;
static void *contexts[GPUS], *functions[GPUS], *streams[GPUS][STREAMS], *events[EVENTS];
static struct queue queues[QUEUES];
static pthread_mutex_t locks[LOCKS];
static int pipes[QUEUES][2];
static volatile uint64_t *clock_cell;
static const char *own_path;

static void fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    _exit(3);
}

static void check(int code, const char *call)
{
    if (code)
        fail("%s failed: %d", call, code);
}
#define DO(call) check(call, #call)

static uint64_t read_clock(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static void rest(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

/* Computes for some CPU time, where the machine is for it alone, else until it has passed; how long that took. */
static uint64_t compute(uint64_t ns)
{
    int by_time = ns < SHORT_SPIN_NS || (beside_model && !cpus);
    clockid_t clock = by_time ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    uint64_t begin = read_clock(clock), time;
    do {
        for (volatile int turn = 0; turn < 100; turn++)
            ;
        time = read_clock(clock);
    } while (time - begin < ns);
    return time - begin;
}

static double random_share(struct actor *actor)
{
    actor->state ^= actor->state << 13;
    actor->state ^= actor->state >> 7;
    actor->state ^= actor->state << 17;
    return (double)(actor->state >> 11) / 9007199254740992.0;
}

static uint64_t varied(struct actor *actor, int64_t us)
{
    double factor = 1 + (random_share(actor) * 2 - 1) * noise_percent / 100;
    return (uint64_t)((double)us * 1000 * factor);
}

static void put_item(struct queue *queue, long limit)
{
    pthread_mutex_lock(&queue->lock);
    while (limit && queue->items >= limit)
        pthread_cond_wait(&queue->changed, &queue->lock);
    queue->items++;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

static void get_item(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (!queue->items)
        pthread_cond_wait(&queue->changed, &queue->lock);
    queue->items--;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

static void from_host_function(void *queue)
{
    put_item(queue, 0);
}

static void use_gpu(struct actor *actor, int64_t gpu)
{
    if (actor->gpu != gpu)
        DO(cuCtxSetCurrent(contexts[gpu]));
    actor->gpu = (int)gpu;
}

static void launch(int gpu, void *stream, uint64_t ns, volatile uint64_t *begin, volatile uint64_t *end, uint64_t counter)
{
    uint64_t values[ARGUMENTS] = {ns, (uint64_t)(uintptr_t)begin, (uint64_t)(uintptr_t)end, counter};
    void *arguments[ARGUMENTS] = {&values[0], &values[1], &values[2], &values[3]};
    DO(cuLaunchKernel(functions[gpu], 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

/* Another process that computes, under the name of a compiler. */
static void compile(uint64_t ns)
{
    char text[32];
    char *words[] = {(char *)own_path, "--compute", text, NULL}, *nothing[] = {NULL};
    pid_t process;
    snprintf(text, sizeof text, "%" PRIu64, ns);
    if (posix_spawn(&process, own_path, NULL, NULL, words, nothing))
        fail("posix_spawn of %s", own_path);
    while (waitpid(process, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void receive(int64_t number)
{
    static __thread char item[ITEM_BYTES];
    struct pollfd ready = {.fd = pipes[number][0], .events = POLLIN};
    while (poll(&ready, 1, -1) < 1)
        ;
    if (read(pipes[number][0], item, sizeof item) != sizeof item)
        fail("an item of another size");
}

static void copy(struct actor *actor, const struct operation *operation, struct entry *entry)
{
    const int64_t *number = operation->numbers;
    char *memory = number[2] ? actor->pageable : actor->pinned;
    size_t bytes = (size_t)number[0] * 1024;
    void *stream = streams[0][number[3]];
    if (number[1])
        DO(cuMemcpyDtoHAsync_v2(memory, actor->device_memory, bytes, stream));
    else
        DO(cuMemcpyHtoDAsync_v2(actor->device_memory, memory, bytes, stream));
    if (!number[2])
        return;
    entry->gpu_begin = now();
    DO(cuStreamSynchronize(stream));
}

static void execute(struct actor *actor, struct operation *operation, struct entry *entry)
{
    static const char item[ITEM_BYTES];
    const int64_t *number = operation->numbers;
    void *other, *stream = streams[number[1] & 1][number[0] & 7];
    switch (operation->kind) {
    case HOST: entry->gpu_begin = compute(varied(actor, number[0])); break;
    case SLEEP: rest(varied(actor, number[0])); break;
    case PAUSE: rest((uint64_t)(-log(1 - random_share(actor)) * (double)number[0] * 1000)); break;
    case COMPILE: compile(varied(actor, number[0])); break;
    case LAUNCH:
        use_gpu(actor, number[3]);
        for (int64_t at = 0; at < number[1]; at++)
            launch(actor->gpu, streams[actor->gpu][number[2]], (uint64_t)number[0], at ? NULL : &entry->gpu_begin,
                   at < number[1] - 1 ? NULL : &entry->gpu_end, 0);
        break;
    case GRAPH:
        use_gpu(actor, number[3]);
        DO(cuGraphLaunch(operation->graph, streams[actor->gpu][number[2]]));
        break;
    case COPY: use_gpu(actor, 0), copy(actor, operation, entry); break;
    case RECORD: use_gpu(actor, number[2]), DO(cuEventRecord(events[number[0]], streams[number[2]][number[1]])); break;
    case AWAIT:
        use_gpu(actor, number[2]);
        DO(cuStreamWaitEvent(streams[number[2]][number[1]], events[number[0]], 0));
        break;
    case SYNC: use_gpu(actor, number[1]), DO(cuStreamSynchronize(stream)); break;
    case SYNC_EVENT: DO(cuEventSynchronize(events[number[0]])); break;
    case SYNC_DEVICE: use_gpu(actor, number[0]), DO(cuCtxSynchronize()); break;
    case POLL:
        use_gpu(actor, number[1]);
        while (cuStreamQuery(stream) == NOT_READY)
            number[2] ? rest(varied(actor, number[2])) : (void)compute(2 * US);
        break;
    case SPIN: /* On memory: the end of this actor's last launch. */
        for (struct entry *last = entry; last-- > actor->trace;)
            if (actor->operations[last->operation].kind == LAUNCH) {
                /* The model of a GPU writes it at once. */
                while (!__atomic_load_n(&last->gpu_end, __ATOMIC_ACQUIRE) || (beside_model && now() < last->gpu_end))
                    compute(1 * US);
                break;
            }
        break;
    case ALLOCATE: DO(cuMemAlloc_v2(&actor->memory, (size_t)number[0] * 1024)); break;
    case FREE: DO(cuMemFree_v2(actor->memory)); break;
    case PIN: DO(cuMemHostAlloc(&actor->host_memory, (size_t)number[0] * 1024, 1)); break;
    case UNPIN: DO(cuMemFreeHost(actor->host_memory)); break;
    case LOAD: DO(cuModuleLoadData(&other, PTX)), DO(cuModuleUnload(other)); break;
    case LOCK: pthread_mutex_lock(&locks[number[0]]); break;
    case UNLOCK: pthread_mutex_unlock(&locks[number[0]]); break;
    case PUT: put_item(&queues[number[0]], (long)number[1]); break;
    case GET: get_item(&queues[number[0]]); break;
    case SEND:
        if (write(pipes[number[0]][1], item, sizeof item) != sizeof item)
            _exit(0);
        break;
    case RECEIVE: receive(number[0]); break;
    case CALLBACK:
        use_gpu(actor, number[2]);
        DO(cuLaunchHostFunc(streams[number[2]][number[1]], from_host_function, &queues[number[0]]));
        break;
    }
}

/* The next entry of an actor, or NULL where its trace is full. */
static struct entry *next_entry(struct actor *actor)
{
    return *actor->used < capacity ? &actor->trace[*actor->used] : NULL;
}

static struct entry *perform(struct actor *actor, int at, uint32_t flags)
{
    struct entry *entry = next_entry(actor);
    if (!entry)
        return NULL;
    memset(entry, 0, sizeof *entry);
    entry->operation = (uint32_t)at, entry->flags = flags;
    entry->begin = now();
    execute(actor, &actor->operations[at], entry);
    entry->end = now();
    __atomic_store_n(actor->used, *actor->used + 1, __ATOMIC_RELEASE);
    return entry;
}

static void run(struct actor *actor, uint64_t until)
{
    for (int at = 0; !*stopped; at = (at + 1) % actor->count) {
        struct operation *operation = &actor->operations[at];
        if (operation->kind == LOOP) {
            operation->left = (long)operation->numbers[0];
        } else if (operation->kind == END) {
            if (--actor->operations[operation->loop].left > 0)
                at = operation->loop;
        } else {
            struct entry *entry = perform(actor, at, 0);
            if (!entry || (until && operation->kind == STEP && entry->end >= until))
                *stopped = 1;
        }
    }
}

static uint64_t run_delay(pid_t thread)
{
    char path[64];
    uint64_t delay = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", thread);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*u %" SCNu64, &delay) != 1)
        delay = 0;
    if (file)
        fclose(file);
    return delay;
}

static void *run_thread(void *word)
{
    struct actor *actor = word;
    prctl(PR_SET_NAME, actor->name);
    DO(cuCtxSetCurrent(contexts[0]));
    __atomic_store_n(&actor->thread, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    run(actor, 0);
    for (;;)
        pause();
    return NULL;
}

/* The schedule ---------------------------------------------------------------------------------------------------- */
static void add_operation(struct actor *actor, const char *word, char *rest_of_line)
{
    static int open_loops[OPERATIONS], depth;
    int kind = 0;
    while (kind < KIND_COUNT && strcmp(WORDS[kind], word))
        kind++;
    if (kind == KIND_COUNT || actor->count == OPERATIONS)
        fail("not an operation, or one too many: %s", word);
    struct operation *operation = &actor->operations[actor->count];
    operation->kind = kind;
    for (int at = 0; at < NUMBERS; at++)
        operation->numbers[at] = strtoll(rest_of_line, &rest_of_line, 10);
    if (kind == LOOP)
        open_loops[depth++] = actor->count;
    if (kind == END)
        operation->loop = open_loops[--depth];
    if (kind == COPY && (uint64_t)operation->numbers[0] * 1024 > copy_bytes)
        copy_bytes = (uint64_t)operation->numbers[0] * 1024;
    actor->count++;
}

static void read_schedule(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[256], word[32];
    int length;
    struct actor *actor = NULL;
    if (!file)
        fail("%s cannot be read", path);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31s%n", word, &length) != 1)
            continue;
        char *numbers = line + length;
        if (!strcmp(word, "thread") || !strcmp(word, "child")) {
            actor = &actors[actor_count];
            actor->number = actor_count++, actor->child = *word == 'c';
            if (actor_count == ACTORS || sscanf(numbers, "%15s", actor->name) != 1)
                fail("too many actors, or one without a name");
        } else if (!strcmp(word, "seconds")) {
            seconds = strtod(numbers, NULL);
        } else if (!strcmp(word, "seed")) {
            seed = strtoull(numbers, NULL, 10);
        } else if (!strcmp(word, "entries")) {
            capacity = strtoull(numbers, NULL, 10);
        } else if (!strcmp(word, "noise")) {
            noise_percent = atoi(numbers);
        } else if (!strcmp(word, "gpus")) {
            gpus_used = atoi(numbers);
        } else if (!strcmp(word, "cpus")) {
            cpus = atoi(numbers);
        } else if (actor) {
            add_operation(actor, word, numbers);
        } else {
            fail("an operation of no actor: %s", word);
        }
    }
    fclose(file);
}

/* Start-up -------------------------------------------------------------------------------------------------------- */
static void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("no memory");
    return memory;
}

static void start_children(void)
{
    for (int at = 0; at < QUEUES; at++)
        if (pipe2(pipes[at], O_CLOEXEC) || fcntl(pipes[at][1], F_SETPIPE_SZ, 4 * ITEM_BYTES) < 0)
            fail("no pipe");
    for (struct actor *actor = actors; actor < actors + actor_count; actor++) {
        actor->used = shared_memory(sizeof *actor->used);
        actor->state = (seed * 64 + (uint64_t)actor->number + 1) * UINT64_C(0x9e3779b97f4a7c15);
        if (!actor->child)
            continue;
        actor->trace = shared_memory(capacity * sizeof *actor->trace);
        if (!(actor->process = fork())) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            prctl(PR_SET_NAME, actor->name);
            run(actor, 0);
            _exit(0);
        }
    }
}

static void make_graph(struct actor *actor, struct operation *operation)
{
    const int64_t *number = operation->numbers;
    void *graph, *memory, *stream = streams[number[3]][number[2]];
    use_gpu(actor, number[3]);
    DO(cuMemHostAlloc(&memory, GRAPH_LAUNCHES * 16, 1));
    operation->ring = memory;
    DO(cuMemAlloc_v2(&operation->counter, sizeof(uint64_t)));
    DO(cuMemsetD8_v2(operation->counter, 0, sizeof(uint64_t)));
    DO(cuStreamBeginCapture_v2(stream, 2));
    for (int64_t at = 0; at < number[1]; at++) {
        int last = at == number[1] - 1;
        launch((int)number[3], stream, (uint64_t)number[0], at ? NULL : operation->ring,
               last ? operation->ring + 1 : NULL, at && !last ? 0 : operation->counter);
    }
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphInstantiateWithFlags(&operation->graph, graph, 0));
}

static void start_gpus(void *library)
{
    int count = 0, device;
    void *module, *memory;
#define FIND(name, parameters) *(void **)&name = dlsym(library, #name);
    DRIVER(FIND)
#undef FIND
    DO(cuInit(0));
    DO(cuDeviceGetCount(&count));
    if (count < gpus_used)
        fail("the schedule needs %d GPUs", gpus_used);
    for (int gpu = gpus_used - 1; gpu >= 0; gpu--) {
        DO(cuDeviceGet(&device, gpu));
        DO(cuDevicePrimaryCtxRetain(&contexts[gpu], device));
        DO(cuCtxSetCurrent(contexts[gpu]));
        DO(cuModuleLoadData(&module, PTX));
        DO(cuModuleGetFunction(&functions[gpu], module, "spin"));
        for (int at = 0; at < STREAMS; at++)
            DO(cuStreamCreate(&streams[gpu][at], 1));
    }
    DO(cuMemHostAlloc(&memory, 4096, 1));
    clock_cell = memory;
    for (struct actor *actor = actors; actor < actors + actor_count; actor++) {
        if (actor->child)
            continue;
        DO(cuMemHostAlloc(&memory, capacity * sizeof *actor->trace, 1));
        actor->trace = memory;
        DO(cuMemHostAlloc(&memory, copy_bytes, 1));
        actor->pinned = memory;
        actor->pageable = malloc(copy_bytes);
        memset(actor->pageable, 1, copy_bytes);
        DO(cuMemAlloc_v2(&actor->device_memory, copy_bytes));
        for (struct operation *operation = actor->operations; operation < actor->operations + actor->count; operation++)
            if (operation->kind == GRAPH)
                make_graph(actor, operation);
            else if (operation->kind == RECORD && !events[operation->numbers[0]])
                use_gpu(actor, operation->numbers[2]), DO(cuEventCreate(&events[operation->numbers[0]], 2));
        use_gpu(actor, 0);
    }
    for (int at = 0; at < QUEUES; at++)
        pthread_mutex_init(&queues[at].lock, NULL), pthread_cond_init(&queues[at].changed, NULL);
    for (int at = 0; at < LOCKS; at++)
        pthread_mutex_init(&locks[at], NULL);
}

/* Each launch, graph and copy alone: behind a kernel that lasts until all is submitted. */
static void calibrate(struct actor *actor)
{
    for (int at = 0; at < actor->count; at++) {
        const int64_t *number = actor->operations[at].numbers;
        int kind = actor->operations[at].kind, gpu = kind == COPY ? 0 : (int)number[3];
        if (kind != LAUNCH && kind != GRAPH && kind != COPY)
            continue;
        int repeats = kind != COPY && number[0] * number[1] > 200 * (int64_t)MS ? 1 : REPEATS;
        for (int repeat = 0; repeat < repeats; repeat++) {
            use_gpu(actor, gpu);
            if (kind == LAUNCH && number[1] > 1)
                launch(gpu, streams[gpu][number[2]], 1 * MS + (uint64_t)number[1] * 10 * US, NULL, NULL, 0);
            struct entry *entry = perform(actor, at, CALIBRATION);
            DO(cuCtxSynchronize());
            if (entry && kind == COPY)
                entry->gpu_begin = entry->begin, entry->gpu_end = now();
        }
    }
    use_gpu(actor, 0);
    actor->calibrations = *actor->used;
}

/* A moment of the GPU's clock and of the host's. */
static void read_clocks(int gpu, uint64_t *host, uint64_t *on_gpu)
{
    int64_t least = INT64_MAX;
    DO(cuCtxSetCurrent(contexts[gpu]));
    for (int at = 0; at < CLOCK_READINGS; at++) {
        *clock_cell = 0;
        launch(gpu, streams[gpu][STREAMS - 1], 0, clock_cell, NULL, 0);
        while (!*clock_cell)
            ;
        uint64_t present = now();
        if ((int64_t)(present - *clock_cell) < least)
            least = (int64_t)(present - *clock_cell), *host = present, *on_gpu = *clock_cell;
        DO(cuStreamSynchronize(streams[gpu][STREAMS - 1]));
    }
}

/* The times of graphs, which were written to their rings in the order of their launches. */
static void fill_graph_times(struct actor *actor)
{
    uint64_t launches[OPERATIONS] = {0};
    for (uint64_t at = 0; at < *actor->used; at++) {
        struct entry *entry = &actor->trace[at];
        struct operation *operation = &actor->operations[entry->operation];
        uint64_t number = launches[entry->operation]++;
        if (operation->kind == GRAPH && number < GRAPH_LAUNCHES)
            entry->gpu_begin = operation->ring[number * 2], entry->gpu_end = operation->ring[number * 2 + 1];
    }
}

static void write_trace(const char *path, uint64_t begin, uint64_t end, uint64_t clocks[GPUS][4])
{
    FILE *file = fopen(path, "w");
    if (!file)
        fail("%s cannot be written", path);
    fprintf(file, "{\"begin\": %" PRIu64 ", \"end\": %" PRIu64 ", \"clocks\": [", begin, end);
    for (int gpu = 0; gpu < gpus_used; gpu++)
        fprintf(file, "%s[%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", gpu ? ", " : "", clocks[gpu][0],
                clocks[gpu][1], clocks[gpu][2], clocks[gpu][3]);
    fprintf(file, "], \"actors\": [");
    for (struct actor *actor = actors; actor < actors + actor_count; actor++)
        fprintf(file, "%s{\"name\": \"%s\", \"thread\": %d, \"entries\": %" PRIu64 ", \"run_delay\": %" PRIu64 "}",
                actor > actors ? ", " : "", actor->name, actor->child ? actor->process : actor->thread, *actor->used,
                actor->run_delay[1] - actor->run_delay[0]);
    fprintf(file, "]}\n");
    for (struct actor *actor = actors; actor < actors + actor_count; actor++)
        fwrite(actor->trace, sizeof *actor->trace, *actor->used, file);
    if (fclose(file))
        fail("%s cannot be written", path);
}

int main(int count, char **words)
{
    uint64_t clocks[GPUS][4] = {{0}};
    pthread_t thread;
    if (count == 3 && !strcmp(words[1], "--compute")) {
        prctl(PR_SET_NAME, "ptxas");
        compute(strtoull(words[2], NULL, 10));
        return 0;
    }
    if (count != 3)
        fail("usage: program SCHEDULE TRACE");
    own_path = "/proc/self/exe";
    read_schedule(words[1]);
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    stopped = shared_memory(sizeof *stopped);
    if (cpus) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (int at = 0; at < cpus; at++)
            CPU_SET((size_t)at, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fail("%s", dlerror());
    beside_model = dlsym(library, "model_set_recorder") != NULL;
    start_children();
    start_gpus(library);
    for (int gpu = 0; gpu < gpus_used; gpu++)
        read_clocks(gpu, &clocks[gpu][0], &clocks[gpu][1]);
    DO(cuCtxSetCurrent(contexts[0]));
    for (struct actor *actor = actors; actor < actors + actor_count; actor++)
        if (!actor->child)
            calibrate(actor);
    actors->thread = getpid();
    for (struct actor *actor = actors + 1; actor < actors + actor_count; actor++)
        if (!actor->child)
            pthread_create(&thread, NULL, run_thread, actor);
    puts("steady");
    fflush(stdout);
    uint64_t begin = now();
    for (struct actor *actor = actors; actor < actors + actor_count; actor++)
        actor->run_delay[0] = actor->child ? 0 : run_delay(actor->thread);
    run(actors, begin + (uint64_t)(seconds * 1e9));
    uint64_t end = now();
    for (struct actor *actor = actors; actor < actors + actor_count; actor++)
        if (actor->child)
            kill(actor->process, SIGKILL);
        else
            actor->run_delay[1] = run_delay(actor->thread);
    rest(20 * MS);
    for (int gpu = 0; gpu < gpus_used; gpu++) {
        DO(cuCtxSetCurrent(contexts[gpu]));
        DO(cuCtxSynchronize());
        read_clocks(gpu, &clocks[gpu][2], &clocks[gpu][3]);
    }
    for (struct actor *actor = actors; actor < actors + actor_count; actor++)
        fill_graph_times(actor);
    write_trace(words[2], begin, end, clocks);
    exit(0);
}
