/* Programs that use CUDA in the ways that an injected library must stand: the first argument names one.
 *
 * What they print on standard output is all that may be there.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stand_in.h"

static const uint64_t MS = 1000000;
static const uint64_t DEVICE_ADDRESS = UINT64_C(0x7f0000000000);
static long calls_each;

static void launch(const char *kernel)
{
    cuLaunchKernel((void *)kernel, 1, 1, 1, 1, 1, 1, 0, (void *)0x1234, NULL, NULL);
}

/* No thread ends before all have made their calls, so that none takes over what another has used. */
static void *make_calls(void *all)
{
    for (long done = 0; done < calls_each; done++)
        launch(NULL);
    pthread_barrier_wait(all);
    return NULL;
}

static void many_threads(long count)
{
    pthread_t threads[1024];
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, (unsigned)count);
    for (long number = 0; number < count; number++)
        pthread_create(&threads[number], NULL, make_calls, &all);
    for (long number = 0; number < count; number++)
        pthread_join(threads[number], NULL);
    pthread_barrier_destroy(&all);
}

/* Threads that come and go, at most ``together`` at a time. */
static void short_threads(long count, long together)
{
    for (long done = 0; done < count; done += together)
        many_threads(together);
}

static void *hang(void *unused)
{
    static char target[64];
    prctl(PR_SET_NAME, "hung");
    stand_in_length(3600000 * MS);
    cuMemcpyDtoHAsync_v2(target, DEVICE_ADDRESS, sizeof target, (void *)0x55);
    return unused;
}

/* A thread makes calls that end only while the first thread is held. */
static void *starve(void *unused)
{
    prctl(PR_SET_NAME, "starved");
    for (;;) {
        stand_in_starve();
        launch("_Z3subPf");
    }
    return unused;
}

/* A thread hangs in a call; the caller continues once it does. */
static void start_hung_call(void)
{
    pthread_t thread;
    uint32_t before = stand_in_begun();
    struct timespec pause = {0, 1000000};
    pthread_create(&thread, NULL, hang, NULL);
    while (stand_in_begun() == before)
        nanosleep(&pause, NULL);
}

static void replay(uint32_t number, int site, const void *parameters, int result, uint32_t correlation)
{
    stand_in_replay_call(number, site, parameters, &result, 3, correlation);
}

/* Launches, and what may come between the begin and the end of one: a failure, a launch in a copy, a launch that never
 * returns, one that never began. The last ones have their stream in a CUlaunchConfig, or none. */
static void launches(void)
{
    enum { LAUNCH = STAND_IN_cuLaunchKernel, LAUNCH_EX = STAND_IN_cuLaunchKernelEx };
    enum { COPY = STAND_IN_cuMemcpyDtoHAsync_v2, MANY = 600, FAILED = 2 };
    static char target[64];
    struct {
        void *function;
        unsigned sizes[7];
        void *stream;
        void **arguments, **extra;
    } launched = {NULL, {1, 1, 1, 1, 1, 1, 0}, (void *)0x11, NULL, NULL};
    struct {
        void *target;
        uint64_t source;
        size_t bytes;
        void *stream;
    } copied = {target, DEVICE_ADDRESS, sizeof target, (void *)0x22};
    uint32_t number = 1000;
    for (int made = 0; made < MANY; made++, number++) {
        launched.stream = (void *)(uintptr_t)(0x11 + made % 3);
        replay(LAUNCH, 0, &launched, 0, number);
        replay(LAUNCH, 1, &launched, made % 100 == 50 ? FAILED : 0, number);
    }
    for (int made = 0; made < 3; made++, number += 10) {
        replay(COPY, 0, &copied, 0, number);
        replay(LAUNCH, 0, &launched, 0, number + 1);
        replay(LAUNCH, 1, &launched, 0, number + 1);
        replay(LAUNCH, 0, &launched, 0, number + 2);
        /* The second launch in it never returns. */
        replay(COPY, 1, &copied, 0, number);
        replay(LAUNCH, 0, &launched, 0, number + 3);
        replay(LAUNCH, 1, &launched, 0, number + 3);
        /* This one never began. */
        replay(LAUNCH, 1, &launched, 0, number + 4);
        replay(LAUNCH, 0, &launched, 0, number + 5);
        replay(LAUNCH, 1, &launched, 0, number + 6);
        replay(LAUNCH, 1, &launched, 0, number + 5);
        replay(LAUNCH, 0, NULL, 0, number + 7);
        replay(LAUNCH, 1, NULL, 0, number + 7);
    }
    struct {
        unsigned sizes[7];
        void *stream, *attributes;
        unsigned count;
    } config = {{1, 1, 1, 1, 1, 1, 0}, (void *)0x33, NULL, 0};
    struct {
        const void *config;
        void *function, **arguments, **extra;
    } launched_ex = {&config, NULL, NULL, NULL};
    for (int made = 0; made < 3; made++, number++) {
        launched_ex.config = made < 2 ? &config : NULL;
        replay(LAUNCH_EX, 0, &launched_ex, 0, number);
        replay(LAUNCH_EX, 1, &launched_ex, 0, number);
    }
}

static void copies(void)
{
    void *pinned, *pageable = malloc(4096), *registered = malloc(8192);
    uint64_t device;
    cuMemAlloc_v2(&device, 4096);
    cuMemHostAlloc(&pinned, 4096, 0);
    cuMemHostRegister_v2(registered, 8192, 0);
    stand_in_length(2 * MS);
    cuMemcpyDtoHAsync_v2(pageable, device, 4096, (void *)0x11);
    cuMemcpyDtoHAsync_v2((char *)pinned + 100, device, 96, (void *)0x12);
    cuMemcpyHtoDAsync_v2(device, (char *)registered + 4096, 1000, NULL);
    cuMemcpyDtoH_v2(pageable, device, 4);
    struct {
        size_t x, y;
        uint32_t type;
        const void *host;
        uint64_t device;
        void *array;
        size_t pitch;
        size_t target_x, target_y;
        uint32_t target_type;
        void *target_host;
        uint64_t target_device;
        void *target_array;
        size_t target_pitch, width, height;
    } block = {0, 0, 2, NULL, device, NULL, 64, 0, 0, 1, pinned, 0, NULL, 64, 32, 8};
    cuMemcpy2D_v2(&block);
    cuMemsetD8Async(device, 1, 512, NULL);
    stand_in_result(2);
    cuStreamSynchronize((void *)0x11);
    stand_in_length(0);
    cuEventQuery(NULL);
    cuMemHostUnregister(registered);
    stand_in_length(2 * MS);
    cuMemcpyHtoDAsync_v2(device, registered, 1000, NULL);
    stand_in_length(0);
    cuMemFreeHost(pinned);
    cuMemFree_v2(device);
    int number;
    cuCtxGetDevice(&number);
    free(pageable);
    free(registered);
}

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

static void stop_at_term(void)
{
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
}

/* Steps of launches and a wait until the program is told to end, at most a thousand a second; the first ones also
 * instantiate a graph each. */
static void steps_until_stopped(long launches, long graphs)
{
    struct timespec pause = {0, 1000000};
    void *executable;
    stop_at_term();
    while (!stopped) {
        if (graphs-- > 0)
            cuGraphInstantiateWithFlags(&executable, (void *)0x9000, 0);
        for (long done = 0; done < launches; done++)
            launch("_Z3addPf");
        cuStreamSynchronize(NULL);
        nanosleep(&pause, NULL);
    }
}

/* As steps_until_stopped, on a stream of its own. */
static void *steps_on_stream(void *stream)
{
    struct timespec pause = {0, 1000000};
    while (!stopped) {
        for (long done = 0; done < calls_each; done++)
            cuLaunchKernel((void *)"_Z3addPf", 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        cuStreamSynchronize(stream);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void threads_until_stopped(long count)
{
    pthread_t threads[64];
    stop_at_term();
    for (long number = 0; number < count; number++)
        pthread_create(&threads[number], NULL, steps_on_stream, (void *)(0x5000 + 0x100 * number));
    for (long number = 0; number < count; number++)
        pthread_join(threads[number], NULL);
}

static void records(long count)
{
    static const char names[2][16] = {"_Z3addPf", "_Z3mulPf"};
    void *module, *pageable = malloc(64);
    cuModuleLoadData(&module, NULL);
    for (long done = 0; done < count; done++)
        launch(names[done % 2]);
    cuMemcpyDtoHAsync_v2(pageable, DEVICE_ADDRESS, 64, NULL);
    cuMemcpyPeerAsync(DEVICE_ADDRESS, NULL, DEVICE_ADDRESS, NULL, 128, NULL);
    cuMemsetD8Async(DEVICE_ADDRESS, 0, 256, NULL);
    cuStreamSynchronize(NULL);
    free(pageable);
}

/* Kernels with names of a length that differ in their middle or at their ends. */
static void long_names(long count, size_t length)
{
    for (long number = 0; number < count; number++) {
        char *name = malloc(length + 1), digits[16];
        int size = snprintf(digits, sizeof digits, "%08ld", number);
        memset(name, 'x', length);
        name[length] = 0;
        memcpy(name, "_Z", 2);
        /* Every tenth one differs in what is left out of a name that is too long. */
        memcpy(name + (number % 10 ? length - (size_t)size : length / 2), digits, (size_t)size);
        launch(name);
    }
    cuStreamSynchronize(NULL);
}

/* Registers ranges of a size far from each other, as no program has memory. */
static void register_ranges(long ranges, size_t size)
{
    for (long number = 0; number < ranges; number++)
        cuMemHostRegister_v2((char *)((uintptr_t)(number + 1) << 32), size, 0);
}

/* A copy to memory in no range, one to the last range, and one to memory beside it. */
static void copies_beside_ranges(long ranges, size_t size)
{
    /* A random address would now and then share a block of the filter with a range: then its kind is unknown. */
    char *memory = (char *)(uintptr_t)0xF0000000;
    char *last = (char *)((uintptr_t)ranges << 32);
    register_ranges(ranges, size);
    stand_in_length(2 * MS);
    cuMemcpyDtoHAsync_v2(memory, DEVICE_ADDRESS, 64, NULL);
    cuMemcpyDtoHAsync_v2(last, DEVICE_ADDRESS, 64, NULL);
    cuMemcpyDtoHAsync_v2(last + size, DEVICE_ADDRESS, 64, NULL);
}

/* Prints the time of a call in nanoseconds; ``ranges`` of host memory are registered. ``kind``: 0 launches, 1 copies, 2
 * queries of one event, 3 of two by turns. */
static void cost(long calls, int kind, long ranges, size_t size)
{
    static char memory[4096];
    struct timespec from, to;
    register_ranges(ranges, size);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long done = 0; done < calls; done++)
        if (kind > 1)
            cuEventQuery(kind == 3 && done % 2 ? (void *)0x22 : (void *)0x11);
        else if (kind)
            cuMemcpyDtoHAsync_v2(memory, DEVICE_ADDRESS, 64, NULL);
        else
            launch(NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ns = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
    printf("%.2f\n", ns / (double)calls);
}

static void *copy_with_lock(void *unused)
{
    static char target[4096];
    prctl(PR_SET_NAME, "loader");
    stand_in_take_lock();
    stand_in_length(10 * MS);
    cuMemcpyDtoHAsync_v2(target, DEVICE_ADDRESS, sizeof target, (void *)0x55);
    return unused;
}

/* Launches that wait for the lock that a pageable copy of another thread holds. */
static void launches_beside_copies(long rounds)
{
    stand_in_take_lock();
    for (long done = 0; done < rounds; done++) {
        uint32_t before = stand_in_begun();
        pthread_t thread;
        pthread_create(&thread, NULL, copy_with_lock, NULL);
        while (stand_in_begun() == before)
            sched_yield();
        launch(NULL);
        pthread_join(thread, NULL);
    }
}

/* A copy and a synchronization behind a kernel that lasts longer than either. */
static void waits_behind_kernel(void)
{
    static char target[4];
    stand_in_kernel_length(3600000 * MS);
    launch("_Z6reducePf");
    stand_in_length(5 * MS);
    cuMemcpyDtoHAsync_v2(target, DEVICE_ADDRESS, sizeof target, (void *)0x1234);
    cuStreamSynchronize((void *)0x1234);
}

static void load_module(void)
{
    void *module;
    stand_in_length(5 * MS);
    cuModuleLoadData(&module, NULL);
}

/* Functions of their own on the stack: their calls are not the last thing that they do. */
static __thread volatile long steps_done;

__attribute__((noinline)) static void read_loss(void)
{
    static char target[4];
    cuMemcpyDtoHAsync_v2(target, DEVICE_ADDRESS, sizeof target, (void *)0x11);
    steps_done++;
}

__attribute__((noinline)) static void train_step(void)
{
    read_loss();
    steps_done++;
}

__attribute__((noinline)) static void *train(void *count)
{
    stand_in_length(2 * MS);
    for (long done = 0; done < *(long *)count; done++)
        train_step();
    return NULL;
}

/* Slow copies in several threads, each of which calls them through two functions. */
static void train_in_threads(long steps, long threads)
{
    pthread_t found[64];
    for (long number = 0; number < threads; number++)
        pthread_create(&found[number], NULL, train, &steps);
    for (long number = 0; number < threads; number++)
        pthread_join(found[number], NULL);
}

static void compute(uint64_t ns)
{
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((uint64_t)(now.tv_sec - from.tv_sec) * 1000 * MS + (uint64_t)now.tv_nsec - (uint64_t)from.tv_nsec < ns);
}

__attribute__((noinline)) static void wait_for_step(void)
{
    stand_in_length(MS / 5);
    cuStreamSynchronize((void *)0x11);
    steps_done++;
}

__attribute__((noinline)) static void launch_after_work(void)
{
    compute(MS / 10);
    stand_in_length(0);
    launch("_Z3addPf");
    steps_done++;
}

/* Short waits, which no limit calls slow, and work of the host between calls: twice as much time in the former. */
__attribute__((noinline)) static void *short_steps(void *count)
{
    for (long done = 0; done < *(long *)count; done++) {
        launch_after_work();
        wait_for_step();
    }
    return NULL;
}

static void short_steps_in_threads(long steps, long threads)
{
    pthread_t found[64];
    for (long number = 0; number < threads; number++)
        pthread_create(&found[number], NULL, short_steps, &steps);
    for (long number = 0; number < threads; number++)
        pthread_join(found[number], NULL);
}

/* A depth of the stack beyond what is recorded. */
__attribute__((noinline)) static long call_deeply(long depth)
{
    if (depth)
        return call_deeply(depth - 1) + steps_done;
    read_loss();
    return steps_done;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    long first = count > 2 ? strtol(arguments[2], NULL, 10) : 0;
    calls_each = count > 3 ? strtol(arguments[3], NULL, 10) : 1;
    long third = count > 4 ? strtol(arguments[4], NULL, 10) : 1;
    if (!strcmp(name, "fork-first")) {
        /* Nothing of CUDA in the parent: the child is a process like any other. */
        if (fork())
            wait(NULL);
        else
            cuInit(0), launch(NULL);
        return 0;
    }
    cuInit(0);
    if (!strcmp(name, "launches")) {
        launches();
    } else if (!strcmp(name, "queries")) {
        /* Two handles in turn, one again and again, and again after a launch. None is ready. */
        for (int query = 0; query < 1000; query++)
            cuEventQuery(query < 10 && query % 2 ? (void *)0x22 : (void *)0x11);
        launch(NULL);
        cuEventQuery((void *)0x11);
    } else if (!strcmp(name, "threads")) {
        many_threads(first);
    } else if (!strcmp(name, "short-threads")) {
        short_threads(first, third);
    } else if (!strcmp(name, "cost")) {
        cost(first, (int)calls_each, third, count > 5 ? strtoul(arguments[5], NULL, 10) : 4096);
    } else if (!strcmp(name, "ranges")) {
        copies_beside_ranges(first, (size_t)calls_each);
    } else if (!strcmp(name, "beside-copies")) {
        launches_beside_copies(first);
    } else if (!strcmp(name, "behind-kernel")) {
        waits_behind_kernel();
    } else if (!strcmp(name, "load-module")) {
        load_module();
    } else if (!strcmp(name, "steps")) {
        train(&first);
    } else if (!strcmp(name, "threads-of-steps")) {
        train_in_threads(first, calls_each);
    } else if (!strcmp(name, "short-steps")) {
        short_steps(&first);
    } else if (!strcmp(name, "threads-of-short-steps")) {
        short_steps_in_threads(first, calls_each);
    } else if (!strcmp(name, "fork-short-steps")) {
        short_steps(&first);
        if (fork())
            wait(NULL);
        else
            short_steps(&first);
    } else if (!strcmp(name, "deep")) {
        stand_in_length(2 * MS);
        call_deeply(first);
    } else if (!strcmp(name, "fork-steps")) {
        train(&first);
        if (fork())
            wait(NULL);
        else
            train(&first);
    } else if (!strcmp(name, "copies")) {
        copies();
    } else if (!strcmp(name, "steps-until-stopped")) {
        steps_until_stopped(first, calls_each);
    } else if (!strcmp(name, "threads-until-stopped")) {
        threads_until_stopped(first);
    } else if (!strcmp(name, "steps-beside-starved")) {
        pthread_t thread;
        pthread_create(&thread, NULL, starve, NULL);
        steps_until_stopped(first, 0);
    } else if (!strcmp(name, "steps-beside-hung")) {
        start_hung_call();
        steps_until_stopped(first, 0);
    } else if (!strcmp(name, "streams")) {
        void *stream;
        for (unsigned flags = 0; flags < 2; flags++)
            if (cuStreamCreate(&stream, flags))
                return 1;
        printf("%" PRIuPTR "\n", (uintptr_t)stream);
    } else if (!strcmp(name, "records")) {
        records(first);
    } else if (!strcmp(name, "names")) {
        long_names(first, (size_t)calls_each);
    } else if (!strcmp(name, "fork")) {
        launch(NULL);
        for (long number = 0; number < 2; number++)
            if (!fork()) {
                for (long done = 0; number == 0 && done < 3; done++)
                    launch(NULL);
                return 0;
            }
        while (wait(NULL) > 0)
            ;
        launch(NULL);
    } else if (!strcmp(name, "exec")) {
        launch(NULL);
        execv("/proc/self/exe", (char *[]){arguments[0], "threads", "1", "5", NULL});
    } else if (!strcmp(name, "replace")) {
        launch(NULL);
        execlp("sleep", "sleep", "3600", NULL);
    } else if (!strcmp(name, "abort")) {
        start_hung_call();
        launch(NULL);
        abort();
    } else if (!strcmp(name, "kill")) {
        start_hung_call();
        launch(NULL);
        kill(getpid(), SIGKILL);
    } else if (!strcmp(name, "exit-hung")) {
        start_hung_call();
        launch("_Z4lastv");
        exit(7);
    } else if (!strcmp(name, "hang")) {
        start_hung_call();
        puts("hung");
        fflush(stdout);
        pause();
    } else if (!strcmp(name, "close-descriptors")) {
        launch(NULL);
        for (int descriptor = 3; descriptor < 256; descriptor++)
            close(descriptor);
        int own = open("/dev/null", O_RDWR);
        cuStreamSynchronize(NULL);
        puts(own == 3 ? "own" : "other");
    } else if (!strcmp(name, "output")) {
        launch(NULL);
        puts("only this");
    } else {
        return 2;
    }
    return 0;
}
