/* Device-to-device copies of 1 MiB at 1 kHz, with CUPTI's records of them: when each call returned and when the GPU
 * started and ended the copy.
 *
 * timeline LIBCUPTI PTX MODE TURNS WARM_UP_TURNS
 *
 * MODE: "alone": copies in a secondary context, nothing else. "same": the spin kernel of the package runs in the copies'
 * context, on 16 blocks. "other": it runs in the primary context, the copies in a secondary one. Writes TURNS x 4 int64
 * of nanoseconds of CLOCK_MONOTONIC to stdout: began, returned, start, end; start and end are 0 without a record.
 *
 * "launch": launches of the empty kernel at 1 kHz in the primary context, while CUPTI is detached and while it records
 * kernels, in turn, TURNS windows of each, of WARM_UP_TURNS launches. Writes TURNS x 2 int64 of nanoseconds: the medians
 * of the call, detached and recording. The thread sleeps until 150 us before each launch, as the engine's probes do.
 * "launch-awake": the same by a thread that never sleeps.
 *
 * It needs NVIDIA's header cupti_activity.h (package nvidia-cuda-cupti) and no toolkit:
 *
 * cc -O2 -pthread -D COPY=CUpti_ActivityMemcpy7 -I tests/data/cupti -isystem INCLUDE -o timeline timeline.c -ldl
 */
#define _GNU_SOURCE
#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define SECOND 1000000000LL
#define PERIOD 1000000LL
#define BYTES (1 << 20)
#define BUFFER (64 << 10)
#define STREAM_NON_BLOCKING 1
#define CLOCK_RATE 13
#define SPIN_MS 50
#define LEAD 150000LL
#define WARM_UP 100

typedef int (*call_t)();

static void *cuda, *cupti;
static long copies, room;
static int64_t *starts, *ends;
static volatile int stop;

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return found;
}

static void check(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s returned %d\n", what, status);
        exit(1);
    }
}

#define CUDA(name, ...) check(((call_t)symbol(cuda, #name))(__VA_ARGS__), #name)
#define CUPTI(name, ...) check(((call_t)symbol(cupti, #name))(__VA_ARGS__), #name)

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static uint64_t timestamp(void) { return (uint64_t)now(); }

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
    *buffer = aligned_alloc(8, BUFFER);
    *size = BUFFER;
    *most = 0;
}

static void completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    CUpti_Activity *record = NULL;
    while (((call_t)symbol(cupti, "cuptiActivityGetNextRecord"))(buffer, valid, &record) == 0) {
        if (record->kind != CUPTI_ACTIVITY_KIND_MEMCPY) continue;
        COPY *copy = (COPY *)record;
        if (copy->bytes != BYTES || copies >= room) continue;
        starts[copies] = (int64_t)copy->start;
        ends[copies++] = (int64_t)copy->end;
    }
    free(buffer);
}

static void *kernel, *kernel_context;
static uint64_t cycles;
static uint64_t *word;

static void *spin(void *unused) {
    (void)unused;
    void *stream;
    CUDA(cuCtxSetCurrent, kernel_context);
    CUDA(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    void *arguments[] = {&cycles, &word};
    while (!stop) {
        CUDA(cuLaunchKernel, kernel, 16, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
        CUDA(cuStreamSynchronize, stream);
    }
    return NULL;
}

static int by_size(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* The median of ``count`` calls at 1 kHz by a thread that sleeps until ``lead`` ns before each. */
static int64_t launches(void *empty, void *stream, long count, int64_t lead) {
    call_t launch = (call_t)symbol(cuda, "cuLaunchKernel"), wait = (call_t)symbol(cuda, "cuStreamSynchronize");
    int64_t *took = calloc(count, sizeof *took), due = now() + PERIOD;
    for (long turn = 0; turn < count; turn++, due += PERIOD) {
        int64_t wake = due - lead;
        struct timespec t = {wake / SECOND, wake % SECOND};
        if (lead < PERIOD) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        while (now() < due) {
        }
        int64_t began = now();
        int status = launch(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        took[turn] = now() - began;
        check(status, "cuLaunchKernel");
        check(wait(stream), "cuStreamSynchronize");
    }
    qsort(took, count, sizeof *took, by_size);
    int64_t median = took[count / 2];
    free(took);
    return median;
}

static int detaching;

/* NVIDIA's documentation advises to call cuptiFinalize here. */
static void finalize(void *unused, int domain, uint32_t number, const CUpti_CallbackData *data) {
    (void)unused, (void)domain, (void)number;
    if (!detaching || data->callbackSite != CUPTI_API_EXIT) return;
    detaching = 0;
    CUPTI(cuptiFinalize);
}

static int cost(void *primary, const char *ptx, long windows, long count, int64_t lead) {
    void *module, *empty, *stream, *subscriber;
    CUDA(cuCtxSetCurrent, primary);
    CUDA(cuModuleLoadData, &module, ptx);
    CUDA(cuModuleGetFunction, &empty, module, "empty");
    CUDA(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    prctl(PR_SET_TIMERSLACK, 1);
    for (long window = 0; window < windows; window++) {
        launches(empty, stream, WARM_UP, lead);
        int64_t row[2] = {launches(empty, stream, count, lead), 0};
        CUPTI(cuptiSubscribe, &subscriber, finalize, NULL);
        CUPTI(cuptiActivityRegisterTimestampCallback, timestamp);
        CUPTI(cuptiActivityRegisterCallbacks, requested, completed);
        CUPTI(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        launches(empty, stream, WARM_UP, lead);
        row[1] = launches(empty, stream, count, lead);
        CUPTI(cuptiActivityDisable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        CUPTI(cuptiActivityFlushAll, 1);
        CUPTI(cuptiEnableDomain, 1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
        detaching = 1;
        CUDA(cuCtxSynchronize);
        if (detaching || fwrite(row, sizeof *row, 2, stdout) != 2) return 1;
    }
    return 0;
}

static char *contents(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, size + 1);
    if (text == NULL || fread(text, 1, size, file) != (size_t)size) exit(1);
    fclose(file);
    return text;
}

int main(int count, char **arguments) {
    if (count != 6) {
        fprintf(stderr, "usage: timeline LIBCUPTI PTX alone|same|other|launch|launch-awake TURNS WARM_UP_TURNS\n");
        return 2;
    }
    long turns = atol(arguments[4]), warm = atol(arguments[5]);
    const char *mode = arguments[3];
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    cupti = dlopen(arguments[1], RTLD_NOW);
    if (cuda == NULL || cupti == NULL || turns < 1 || warm < 0) {
        fprintf(stderr, "timeline: no library, or an argument is out of range\n");
        return 1;
    }
    room = turns + warm;
    int64_t *began = calloc(room, sizeof *began), *returned = calloc(room, sizeof *returned);
    starts = calloc(room, sizeof *starts);
    ends = calloc(room, sizeof *ends);
    void *primary, *secondary, *module, *stream;
    int device, khz;
    CUDA(cuInit, 0);
    CUDA(cuDeviceGet, &device, 0);
    CUDA(cuDevicePrimaryCtxRetain, &primary, device);
    CUDA(cuCtxCreate_v2, &secondary, 0, device);
    CUDA(cuDeviceGetAttribute, &khz, CLOCK_RATE, device);
    if (strncmp(mode, "launch", 6) == 0)
        return cost(primary, contents(arguments[2]), turns, warm, strcmp(mode, "launch") == 0 ? LEAD : PERIOD);
    int with_kernel = strcmp(mode, "alone") != 0;
    kernel_context = strcmp(mode, "same") == 0 ? secondary : primary;
    cycles = (uint64_t)khz * SPIN_MS;

    CUPTI(cuptiActivityRegisterTimestampCallback, timestamp);
    CUPTI(cuptiActivityRegisterCallbacks, requested, completed);
    CUPTI(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    CUPTI(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_MEMCPY);

    uint64_t source, target;
    CUDA(cuCtxSetCurrent, kernel_context);
    CUDA(cuModuleLoadData, &module, contents(arguments[2]));
    CUDA(cuModuleGetFunction, &kernel, module, "spin");
    CUDA(cuMemAllocHost_v2, (void **)&word, sizeof *word);
    CUDA(cuCtxSetCurrent, secondary);
    CUDA(cuMemAlloc_v2, &source, (size_t)BYTES);
    CUDA(cuMemAlloc_v2, &target, (size_t)BYTES);
    CUDA(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    pthread_t thread;
    if (with_kernel && pthread_create(&thread, NULL, spin, NULL) != 0) return 1;

    call_t copy = (call_t)symbol(cuda, "cuMemcpyDtoDAsync_v2"), wait = (call_t)symbol(cuda, "cuStreamSynchronize");
    prctl(PR_SET_TIMERSLACK, 1);
    int64_t due = now();
    for (long turn = 0; turn < room; turn++) {
        while (now() < due) {
        }
        began[turn] = now();
        int status = copy(target, source, (size_t)BYTES, stream);
        returned[turn] = now();
        check(status, "cuMemcpyDtoDAsync");
        check(wait(stream), "cuStreamSynchronize");
        do due += PERIOD;
        while (due < now());
    }
    stop = 1;
    if (with_kernel) pthread_join(thread, NULL);
    CUPTI(cuptiActivityFlushAll, 1);
    for (long turn = warm; turn < room; turn++) {
        int64_t row[] = {began[turn], returned[turn], turn < copies ? starts[turn] : 0, turn < copies ? ends[turn] : 0};
        if (fwrite(row, sizeof *row, 4, stdout) != 4) return 1;
    }
    fprintf(stderr, "%ld of %ld copies have a record\n", copies, room);
    return 0;
}
