/* A rank of a job: steps of a kernel and a collective, which ends on all ranks once the last one has come.
 *
 * Arguments: its number, the number of ranks, steps, the microseconds of host time before each step, and a file of 8
 * bytes for each rank and step, in which the ranks say when each one came (ns). At the end it prints when its last
 * collective ended (ns).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "stand_in.h"

static const uint64_t US = 1000;
enum { COMPUTE_STREAM = 7, COLLECTIVE_STREAM = 20, OWN_CONTEXT = 1 };
/* CUPTI's kind of a kernel's record. */
enum { KERNEL = 10 };
/* The handles of the streams, which are not their numbers in records. */
static void *const COMPUTE_HANDLE = (void *)0x700, *const COLLECTIVE_HANDLE = (void *)0x2000;

static uint32_t correlation = 1000;
static volatile long steps_done;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void rest(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

/* A launch of this thread on a stream; the record of its kernel comes later. */
static uint32_t launch(void *stream)
{
    struct {
        void *function;
        unsigned sizes[7];
        void *stream, *arguments, *extra;
    } parameters = {.stream = stream};
    int result = 0;
    stand_in_replay_call(STAND_IN_cuLaunchKernel, 0, &parameters, NULL, OWN_CONTEXT, ++correlation);
    stand_in_replay_call(STAND_IN_cuLaunchKernel, 1, &parameters, &result, OWN_CONTEXT, correlation);
    return correlation;
}

/* The record of a kernel. */
static void record(const char *name, uint64_t start, uint64_t end, uint32_t stream, uint32_t number)
{
    struct stand_in_place place = {start, end, 0, OWN_CONTEXT, stream, 0, 0};
    struct stand_in_work work = {KERNEL, 0, 0, 0, 0, number, name, 0, 0, &place};
    stand_in_replay_record(&work);
}

/* When the last one of the ranks came. */
static uint64_t wait_for_all(const uint64_t *arrivals, long ranks)
{
    uint64_t last = 0;
    for (long rank = 0; rank < ranks; rank++) {
        uint64_t came;
        while (!(came = __atomic_load_n(&arrivals[rank], __ATOMIC_ACQUIRE)))
            rest(50 * US);
        last = came > last ? came : last;
    }
    return last;
}

__attribute__((noinline)) static void prepare_batch(uint64_t host_us)
{
    rest(host_us * US);
    steps_done++;
}

/* Returns when the collective ended. */
__attribute__((noinline)) static uint64_t train_step(uint64_t *arrivals, long rank, long ranks)
{
    /* The collective begins after the kernel, so that to wait for its stream is to wait for both. */
    struct { void *stream; } parameters = {COLLECTIVE_HANDLE};
    int result = 0;
    uint32_t computes = launch(COMPUTE_HANDLE), reduces = launch(COLLECTIVE_HANDLE);
    uint64_t start = now() + 4 * US, came = start + 500 * US;
    stand_in_replay_call(STAND_IN_cuStreamSynchronize, 0, &parameters, NULL, OWN_CONTEXT, ++correlation);
    __atomic_store_n(&arrivals[rank], came, __ATOMIC_RELEASE);
    uint64_t end = wait_for_all(arrivals, ranks) + 300 * US + (uint64_t)rank * US;
    uint64_t present = now();
    if (present < end)
        rest(end - present);
    record("_Z4gemmPf", start, came, COMPUTE_STREAM, computes);
    record("ncclDevKernel_AllReduce_Sum_f32_RING_LL", came, end, COLLECTIVE_STREAM, reduces);
    stand_in_replay_call(STAND_IN_cuStreamSynchronize, 1, &parameters, &result, OWN_CONTEXT, correlation);
    steps_done++;
    return end;
}

int main(int count, char **arguments)
{
    if (count != 6)
        return 2;
    long rank = strtol(arguments[1], NULL, 10), ranks = strtol(arguments[2], NULL, 10);
    long steps = strtol(arguments[3], NULL, 10);
    uint64_t host_us = strtoull(arguments[4], NULL, 10), end = 0;
    size_t size = (size_t)(ranks * steps) * sizeof(uint64_t);
    int file = open(arguments[5], O_RDWR | O_CLOEXEC);
    uint64_t *arrivals = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || arrivals == MAP_FAILED)
        return 3;
    cuInit(0);
    for (long step = 0; step < steps; step++) {
        prepare_batch(host_us);
        end = train_step(arrivals + step * ranks, rank, ranks);
    }
    printf("%" PRIu64 "\n", end);
    return 0;
}
