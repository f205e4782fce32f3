/* Times cuLaunchKernel of the package's empty kernel, one call each period, with the clock read around the call: a shared
 * library, so that it measures in the process in which the loop does.
 *
 * launch_prepare is called once with a current context, launch_run from one thread at a time. Each of its threads
 * launches on one of the streams that were given, and begins its calls at multiples of the period. Nothing waits for the
 * GPU. Needs neither the CUDA headers nor the toolkit:
 *
 * cc -O2 -fPIC -shared -pthread -o launch.so launch.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <time.h>

#define MOST_THREADS 16
#define SECOND 1000000000LL

typedef int (*current_t)(void **);
typedef int (*set_current_t)(void *);
typedef int (*synchronize_t)(void);
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);

struct thread {
    void *stream;
    int64_t *samples;
    int cpu, status;
};

static void *context, *kernel;
static set_current_t set_current;
static synchronize_t synchronize;
static launch_t launch;
static int64_t period, calls, warm;
static pthread_barrier_t ready;
static struct thread threads[MOST_THREADS];

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static void *repeat(void *argument) {
    struct thread *own = argument;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(own->cpu, &cpus);
    prctl(PR_SET_TIMERSLACK, 1);
    own->status = pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus) ? -1 : set_current(context);
    pthread_barrier_wait(&ready);
    int64_t due = (now() / period + 2) * period;
    for (int64_t call = -warm; call < calls && !own->status; call++) {
        while (now() < due) {
        }
        int64_t began = now();
        own->status = launch(kernel, 1, 1, 1, 1, 1, 1, 0, own->stream, NULL, NULL);
        int64_t end = now();
        if (call >= 0)
            own->samples[call] = end - began;
        do
            due += period;
        while (due < end);
    }
    return NULL;
}

/* Takes the kernel and the streams, one for each thread that is to run. CUDA's code, or -1 without a driver or for a count
 * that is out of range. */
int launch_prepare(void *of_kernel, int count, void *const *streams) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL || count < 1 || count > MOST_THREADS)
        return -1;
    current_t current = (current_t)dlsym(library, "cuCtxGetCurrent");
    set_current = (set_current_t)dlsym(library, "cuCtxSetCurrent");
    synchronize = (synchronize_t)dlsym(library, "cuCtxSynchronize");
    launch = (launch_t)dlsym(library, "cuLaunchKernel");
    kernel = of_kernel;
    for (int number = 0; number < count; number++)
        threads[number].stream = streams[number];
    return current(&context);
}

/* Writes count x of_calls durations in ns to samples, after of_warm calls of each thread on its CPU. CUDA's code, or -1
 * for an argument that is out of range or a thread that cannot be made. */
int launch_run(int count, const int *cpus, int64_t of_period, int64_t of_calls, int64_t of_warm, int64_t *samples) {
    pthread_t ids[MOST_THREADS];
    if (count < 1 || count > MOST_THREADS || of_period < 1 || of_calls < 1 || of_warm < 0)
        return -1;
    period = of_period;
    calls = of_calls;
    warm = of_warm;
    pthread_barrier_init(&ready, NULL, (unsigned)count);
    for (int number = 0; number < count; number++) {
        threads[number].samples = samples + number * calls;
        threads[number].cpu = cpus[number];
        if (pthread_create(&ids[number], NULL, repeat, &threads[number]))
            return -1;
    }
    int status = 0;
    for (int number = 0; number < count; number++) {
        pthread_join(ids[number], NULL);
        status = status ? status : threads[number].status;
    }
    pthread_barrier_destroy(&ready);
    return status ? status : synchronize();
}
