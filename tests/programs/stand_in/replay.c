/* A program that replays a stream: the calls of a recorded program in threads like its own, and its activity records.
 *
 * The first argument is the stream's file, which factories/call_stream.py describes and writes. One call begins or ends
 * at a time, in the order of the stream, and every clock stands at the stream's time: the injected library reads it
 * through clock_gettime, which this program replaces. So what the library writes does not depend on the machine's speed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stand_in.h"

enum { BEGIN = 0, END = 1, THREAD_ENDS = 2 };
enum { MOST_THREADS = 1024, MOST_UNREAD = 10000 };

struct header {
    uint64_t started_ns, ended_ns;
    /* What is added to a time of CLOCK_MONOTONIC for CLOCK_REALTIME. */
    uint64_t realtime_offset_ns;
    /* Where the library counts its records in its file. */
    uint64_t count_at;
    /* Whether CUPTI delivers records. */
    uint32_t collects;
    uint32_t functions, threads, events, records, name_bytes;
};

/* The first thread is the main thread. */
struct thread {
    uint32_t id;
    uint32_t unused;
    char name[16];
};

/* ``pointer``: where in the parameters the address of ``block`` lies, -1 for nowhere. */
struct event {
    uint64_t at_ns;
    uint32_t kind, thread, number, correlation, context;
    int32_t result, pointer;
    uint32_t unused;
    uint64_t parameters[12];
    uint64_t block[25];
};

/* Delivered before the event with the number ``before``. ``name`` is the place of a kernel's name, plus 1. */
struct record {
    uint64_t start_ns, end_ns, bytes;
    uint32_t kind, subkind, source, target, correlation, device, context, stream, peer, thread, name, before;
};
_Static_assert(sizeof(struct header) == 56, "header of a stream");
_Static_assert(sizeof(struct thread) == 24, "thread of a stream");
_Static_assert(sizeof(struct event) == 336, "event of a stream");
_Static_assert(sizeof(struct record) == 72, "record of a stream");

static const struct header *header;
static const struct thread *threads;
static struct event *events;
static const struct record *records;
static const char *names;
static uint64_t now_ns;
static uint32_t next_event, next_record;
static sem_t turns[MOST_THREADS];
static pthread_t handles[MOST_THREADS];
static uint32_t ids[MOST_THREADS];
static int ends[MOST_THREADS];

int clock_gettime(clockid_t clock, struct timespec *found)
{
    uint64_t now = __atomic_load_n(&now_ns, __ATOMIC_RELAXED);
    if (clock == CLOCK_REALTIME)
        now += header->realtime_offset_ns;
    else if (clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, found);
    found->tv_sec = (time_t)(now / 1000000000u);
    found->tv_nsec = (long)(now % 1000000000u);
    return 0;
}

static void fail(const char *what)
{
    perror(what);
    _exit(3);
}

static void load(const char *path)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status))
        fail(path);
    char *found = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (found == MAP_FAILED)
        fail(path);
    close(file);
    header = (const struct header *)found;
    const struct stand_in_function *functions = (const struct stand_in_function *)(found + sizeof *header);
    threads = (const struct thread *)(functions + header->functions);
    events = (struct event *)(threads + header->threads);
    records = (const struct record *)(events + header->events);
    names = (const char *)(records + header->records);
    if (header->threads > MOST_THREADS || names + header->name_bytes != found + status.st_size)
        fail("a stream of another format");
    stand_in_use_functions(functions, header->functions);
}

/* How many records the library has written to its file. */
static uint64_t written(void)
{
    static char path[4096];
    uint64_t count = 0;
    snprintf(path, sizeof path, "%s/%ld-0.watch", getenv("STALLSCOPE_WATCH_FOLDER"), (long)getpid());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || pread(file, &count, sizeof count, (off_t)header->count_at) != sizeof count)
        fail(path);
    close(file);
    return count;
}

/* A stream takes less time than its records need: no more are on their way than CUPTI has buffers for. */
static void await_records(uint32_t most_unread)
{
    struct timespec pause = {0, 1000000};
    while (header->collects && next_record - written() > most_unread)
        nanosleep(&pause, NULL);
}

static uint32_t present_id(uint32_t recorded)
{
    for (uint32_t number = 0; number < header->threads; number++)
        if (threads[number].id == recorded)
            return ids[number];
    return recorded;
}

static void deliver(uint32_t before)
{
    for (; next_record < header->records && records[next_record].before <= before; next_record++) {
        const struct record *record = &records[next_record];
        struct stand_in_place place = {record->start_ns, record->end_ns, record->device, record->context,
                                       record->stream, record->peer, present_id(record->thread)};
        struct stand_in_work work = {record->kind, record->subkind, record->bytes, record->source, record->target,
                                     record->correlation, record->name ? names + record->name - 1 : NULL, 0, 0, &place};
        stand_in_replay_record(&work);
        if (next_record % MOST_UNREAD == MOST_UNREAD - 1)
            await_records(MOST_UNREAD);
    }
}

static void perform(struct event *event)
{
    if (event->pointer >= 0) {
        uint64_t address = (uint64_t)(uintptr_t)event->block;
        memcpy((char *)event->parameters + event->pointer, &address, sizeof address);
    }
    stand_in_replay_call(event->number, event->kind == BEGIN ? 0 : 1, event->parameters,
                         event->kind == BEGIN ? NULL : &event->result, event->context, event->correlation);
}

static void end_thread(uint32_t number)
{
    ends[number] = 1;
    sem_post(&turns[number]);
    pthread_join(handles[number], NULL);
}

/* The thread whose turn it is. The main thread ends the others, and the program. */
static uint32_t performer(void)
{
    return next_event < header->events && events[next_event].kind != THREAD_ENDS ? events[next_event].thread : 0;
}

static void take_turns(uint32_t self)
{
    for (;;) {
        while (sem_wait(&turns[self]))
            ;
        if (ends[self])
            return;
        while (next_event < header->events && performer() == self) {
            struct event *event = &events[next_event];
            __atomic_store_n(&now_ns, event->at_ns, __ATOMIC_RELAXED);
            deliver(next_event);
            if (event->kind == THREAD_ENDS)
                end_thread(event->thread);
            else
                perform(event);
            next_event++;
        }
        uint32_t next = performer();
        if (next == self)
            return;
        sem_post(&turns[next]);
    }
}

static void *run_thread(void *number)
{
    uint32_t self = (uint32_t)(uintptr_t)number;
    prctl(PR_SET_NAME, threads[self].name);
    ids[self] = (uint32_t)syscall(SYS_gettid);
    sem_post(&turns[0]);
    take_turns(self);
    return NULL;
}

static void start_threads(void)
{
    prctl(PR_SET_NAME, threads[0].name);
    ids[0] = (uint32_t)getpid();
    for (uint32_t number = 0; number < header->threads; number++)
        sem_init(&turns[number], 0, 0);
    for (uint32_t number = 1; number < header->threads; number++) {
        if (pthread_create(&handles[number], NULL, run_thread, (void *)(uintptr_t)number))
            fail("pthread_create");
        while (sem_wait(&turns[0]))
            ;
    }
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    load(arguments[1]);
    now_ns = header->started_ns;
    cuInit(0);
    start_threads();
    sem_post(&turns[0]);
    take_turns(0);
    deliver(header->events);
    await_records(0);
    if (!header->ended_ns)
        kill(getpid(), SIGKILL);
    __atomic_store_n(&now_ns, header->ended_ns, __ATOMIC_RELAXED);
    exit(0);
}
