/* Times cuLaunchKernel of the package's empty kernel, one call each PERIOD ns, with the clock read around the call.
 *
 * launch PTX THREADS PERIOD_NS TURNS WARM_UP_TURNS
 *
 * Each thread has a non-blocking stream of its own in the primary context of the first GPU, and nothing waits for the
 * GPU. Writes THREADS x TURNS int64 of nanoseconds to stdout. Needs neither the CUDA headers nor the toolkit:
 *
 * cc -O2 -pthread -o launch launch.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define MOST_THREADS 16
#define SECOND 1000000000LL
#define STREAM_NON_BLOCKING 1

typedef int (*init_t)(unsigned);
typedef int (*device_get_t)(int *, int);
typedef int (*retain_t)(void **, int);
typedef int (*set_current_t)(void *);
typedef int (*synchronize_t)(void);
typedef int (*load_data_t)(void **, const void *);
typedef int (*get_function_t)(void **, void *, const char *);
typedef int (*stream_create_t)(void **, unsigned);
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);

static void *library, *context, *kernel;
static launch_t launch;
static long period, turns, warm;
static pthread_barrier_t ready;

static void check(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s returned %d\n", what, status);
        exit(1);
    }
}

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(1);
    }
    return found;
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static char *contents(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    size_t size = 0, room = 1 << 16;
    char *text = malloc(room + 1);
    while (text != NULL) {
        size_t got = fread(text + size, 1, room - size, file);
        if (got == 0) break;
        size += got;
        if (size == room) text = realloc(text, (room *= 2) + 1);
    }
    fclose(file);
    if (text == NULL) exit(1);
    text[size] = 0;
    return text;
}

static void *repeat(void *result) {
    int64_t *samples = result;
    void *stream;
    prctl(PR_SET_TIMERSLACK, 1);
    check(((set_current_t)symbol("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    check(((stream_create_t)symbol("cuStreamCreate"))(&stream, STREAM_NON_BLOCKING), "cuStreamCreate");
    pthread_barrier_wait(&ready);
    int64_t due = now();
    for (long turn = -warm; turn < turns; turn++) {
        while (now() < due) {
        }
        int64_t began = now();
        int status = launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        int64_t end = now();
        check(status, "cuLaunchKernel");
        if (turn >= 0) samples[turn] = end - began;
        do due += period;
        while (due < end);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: launch PTX THREADS PERIOD_NS TURNS WARM_UP_TURNS\n");
        return 2;
    }
    int threads = atoi(argv[2]), device;
    void *module;
    period = atol(argv[3]);
    turns = atol(argv[4]);
    warm = atol(argv[5]);
    if (threads < 1 || threads > MOST_THREADS || period < 1 || turns < 1 || warm < 0) {
        fprintf(stderr, "launch: an argument is out of range\n");
        return 2;
    }
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    check(((init_t)symbol("cuInit"))(0), "cuInit");
    check(((device_get_t)symbol("cuDeviceGet"))(&device, 0), "cuDeviceGet");
    check(((retain_t)symbol("cuDevicePrimaryCtxRetain"))(&context, device), "cuDevicePrimaryCtxRetain");
    check(((set_current_t)symbol("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    check(((load_data_t)symbol("cuModuleLoadData"))(&module, contents(argv[1])), "cuModuleLoadData");
    check(((get_function_t)symbol("cuModuleGetFunction"))(&kernel, module, "empty"), "cuModuleGetFunction");
    launch = (launch_t)symbol("cuLaunchKernel");

    /* Touched beforehand, so that no store in the loop faults. */
    size_t count = (size_t)threads * turns;
    int64_t *samples = malloc(count * sizeof *samples);
    if (samples == NULL) return 1;
    for (size_t i = 0; i < count; i++) samples[i] = -1;

    pthread_t ids[MOST_THREADS];
    pthread_barrier_init(&ready, NULL, threads);
    for (int i = 0; i < threads; i++)
        if (pthread_create(ids + i, NULL, repeat, samples + (size_t)i * turns) != 0) return 1;
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    check(((synchronize_t)symbol("cuCtxSynchronize"))(), "cuCtxSynchronize");
    return fwrite(samples, sizeof *samples, count, stdout) == count ? 0 : 1;
}
