/* The file of this process: one mapping with holes, to which space is given when it is needed.
 *
 * Space is given by posix_fallocate before the first write, since a write to a hole of a full disk would end the
 * program with SIGBUS. The file is opened again for that: the program may close every descriptor that it does not know.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inject.h"

enum { NAMES_TRIED = 10000 };

struct sw_private *sw_private;
struct sw_header *sw_header;
uint32_t sw_file;

static struct {
    char path[PATH_MAX];
    dev_t device;
    ino_t inode;
} file;
/* The slots that have space: to read from a hole may need space too, and end the program for the lack of it. */
static uint8_t slot_ready[SW_SLOTS];
/* Calls of a forked process while another thread of it opens its file. */
static uint64_t lost_before_file;

uint64_t sw_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sw_real_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void *sw_at(uint64_t offset)
{
    return (unsigned char *)sw_header + offset;
}

void sw_count_lost(int kind, uint64_t count)
{
    if (sw_load_acquire(sw_private->recording) == SW_OPEN)
        sw_add(sw_header->losses[kind], count);
    else
        sw_add(lost_before_file, count);
}

/* Both clocks at one moment, for records whose time is the GPU's own. Called by one thread at a time. */
void sw_stamp_clocks(void)
{
    struct sw_header *header = sw_header;
    uint64_t sequence = sw_load(header->clock_sequence);
    sw_store(header->clock_sequence, sequence + 1);
    sw_fence();
    uint64_t before = sw_clock();
    uint64_t real = sw_real_clock();
    sw_store(header->clock_ns, before + (sw_clock() - before) / 2);
    sw_store(header->clock_realtime_ns, real);
    sw_store_release(header->clock_sequence, sequence + 2);
}

/* The folder, if it is one that nobody else can write to; -1 otherwise. */
static int private_folder(void)
{
    int folder = open(sw_settings.folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (folder < 0)
        return -1;
    if (fstat(folder, &status) || status.st_uid != geteuid() || (status.st_mode & 077)) {
        close(folder);
        return -1;
    }
    return folder;
}

/* A new file; its name has the process's number and how many files a process of this number made before. */
static int new_file(void)
{
    int folder = private_folder();
    int found = -1;
    for (int number = 0; folder >= 0 && found < 0 && number < NAMES_TRIED; number++) {
        char name[64];
        snprintf(name, sizeof name, "%ld-%d.watch", (long)getpid(), number);
        if (snprintf(file.path, sizeof file.path, "%s/%s", sw_settings.folder, name) >= (int)sizeof file.path)
            break;
        found = openat(folder, name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (found < 0 && errno != EEXIST)
            break;
    }
    if (folder >= 0)
        close(folder);
    return found;
}

/* Whether the file may have its size: beyond the limit of the process the kernel would end the program. */
static int size_allowed(void)
{
    struct rlimit limit;
    return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= SW_FILE_BYTES);
}

/* Gives space to an open file; 0 if it has it. Of the signals only SIGSTOP can still interrupt it; it then tries again. */
static int allocate(int descriptor, uint64_t offset, uint64_t size)
{
    sigset_t all, before;
    int error;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    do
        error = posix_fallocate(descriptor, (off_t)offset, (off_t)size);
    while (error == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Gives the file space from offset on. */
int sw_give_space(uint64_t offset, uint64_t size)
{
    struct stat status;
    int error = errno;
    int cancel;
    /* A thread must not end inside the driver's call because a cancellation was pending. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int descriptor = open(file.path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    int failed = descriptor < 0 || fstat(descriptor, &status) || status.st_dev != file.device ||
                 status.st_ino != file.inode || allocate(descriptor, offset, size);
    if (descriptor >= 0)
        close(descriptor);
    pthread_setcancelstate(cancel, NULL);
    errno = error;
    return failed ? -1 : 0;
}

static void read_text(const char *path, char *text, size_t size)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = descriptor < 0 ? -1 : read(descriptor, text, size - 1);
    text[got > 0 ? got : 0] = 0;
    if (descriptor >= 0)
        close(descriptor);
}

/* When the process began, in the kernel's ticks: numbers of processes are used again. */
static uint64_t start_ticks(void)
{
    char text[1024];
    read_text("/proc/self/stat", text, sizeof text);
    /* The second field is the name in parentheses, which may contain anything; the 22nd is wanted. */
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static void describe_process(struct sw_header *header, uint32_t flags)
{
    char command[sizeof header->command] = "";
    int descriptor = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = descriptor < 0 ? -1 : read(descriptor, command, sizeof command - 1);
    if (descriptor >= 0)
        close(descriptor);
    /* The words end with a zero each. */
    for (ssize_t at = 0; at + 1 < got; at++)
        header->command[at] = command[at] ? command[at] : ' ';
    char name[17] = "";
    read_text("/proc/self/comm", name, sizeof name);
    name[strcspn(name, "\n")] = 0;
    memcpy(header->program, name, sizeof header->program);
    header->format = SW_FORMAT;
    header->flags = flags;
    header->pid = (uint32_t)getpid();
    header->parent_pid = (uint32_t)getppid();
    header->start_ticks = start_ticks();
    header->slow_ns = sw_settings.slow_ns;
}

/* A new file for this process, mapped as sw_header; 0 if it is ready. Then SW_OPEN may be set.
 *
 * Where there is no room for it, an empty file that is read-only says so to the reader.
 */
int sw_open_file(uint32_t flags)
{
    struct stat status;
    int descriptor = new_file();
    if (descriptor < 0)
        return -1;
    uint64_t first = flags & SW_FLAG_CALLS_ONLY ? SW_RECORDS_AT : SW_SLOTS_AT;
    void *base = MAP_FAILED;
    if (size_allowed() && !fstat(descriptor, &status) && !allocate(descriptor, 0, first) &&
        !ftruncate(descriptor, SW_FILE_BYTES))
        base = mmap(NULL, SW_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (base == MAP_FAILED && (ftruncate(descriptor, 0) || fchmod(descriptor, S_IRUSR)))
        unlink(file.path);
    close(descriptor);
    if (base == MAP_FAILED)
        return -1;
    /* A forked process must not write to its parent's file, and a core dump is no place for it. */
    madvise(base, SW_FILE_BYTES, MADV_DONTFORK);
    madvise(base, SW_FILE_BYTES, MADV_DONTDUMP);
    file.device = status.st_dev;
    file.inode = status.st_ino;
    memset(slot_ready, 0, sizeof slot_ready);
    sw_header = base;
    sw_file++;
    describe_process(sw_header, flags);
    sw_begin_stacks();
    sw_header->losses[SW_LOST_BEFORE_FILE] = __atomic_exchange_n(&lost_before_file, 0, __ATOMIC_RELAXED);
    sw_header->started_ns = sw_clock();
    sw_header->started_realtime_ns = sw_real_clock();
    sw_stamp_clocks();
    sw_store_release(sw_header->magic, SW_MAGIC);
    return 0;
}

static struct sw_slot *slot_at(uint32_t number)
{
    return sw_at(SW_SLOTS_AT + (uint64_t)number * SW_SLOT_PITCH);
}

static struct sw_histogram *histogram_at(uint32_t number)
{
    return sw_at(SW_HISTOGRAMS_AT + (uint64_t)number * SW_HISTOGRAM_PITCH);
}

/* The next of a number of places, all of one size, with space for it; -1 if there are no more. */
static int64_t next_place(uint32_t *used, uint32_t places, uint64_t at, uint64_t pitch)
{
    uint32_t number = sw_load(*used);
    do
        if (number >= places || sw_load(sw_header->out_of_space))
            return -1;
    while (!__atomic_compare_exchange_n(used, &number, number + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (sw_give_space(at + number * pitch, pitch)) {
        /* The place stays a hole, which reads as zeros. */
        sw_store(sw_header->out_of_space, 1);
        return -1;
    }
    return number;
}

struct sw_histogram *sw_histogram_of(struct sw_slot *slot, uint32_t number, uint32_t api)
{
    uint32_t known = sw_load(slot->histograms[api]);
    if (__builtin_expect(known != 0, 1))
        return histogram_at(known - 1);
    int64_t place = next_place(&sw_header->histograms, SW_HISTOGRAMS, SW_HISTOGRAMS_AT, SW_HISTOGRAM_PITCH);
    if (place < 0)
        return NULL;
    struct sw_histogram *histogram = histogram_at((uint32_t)place);
    histogram->api = api;
    histogram->slot = number;
    sw_store_release(slot->histograms[api], (uint32_t)place + 1);
    return histogram;
}

/* The slot of a thread that has ended, with its figures, to which those of its next owner are added; -1 without one. */
static int64_t take_over(void)
{
    static uint32_t first;
    struct sw_header *header = sw_header;
    uint32_t slots = sw_load(header->slots);
    uint32_t start = sw_load(first);
    if (slots > SW_SLOTS || !sw_load_acquire(header->ended_slots))
        return -1;
    for (uint32_t tried = 0; tried < slots; tried++) {
        uint32_t number = (start + tried) % slots;
        uint32_t expected = SW_SLOT_ENDED;
        if (!sw_load_acquire(slot_ready[number]) ||
            !__atomic_compare_exchange_n(&slot_at(number)->use, &expected, SW_SLOT_CLAIMED, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        sw_add(header->ended_slots, -1u);
        sw_store(first, number + 1);
        return number;
    }
    return -1;
}

/* A slot for the calling thread; NULL if all belong to live threads. */
struct sw_slot *sw_claim_slot(uint32_t *number)
{
    struct sw_header *header = sw_header;
    int64_t found = -1;
    /* Threads that come and go must not use up what is left. */
    if (sw_load(header->histograms) > SW_HISTOGRAMS / 4 * 3)
        found = take_over();
    if (found < 0) {
        found = next_place(&header->slots, SW_SLOTS, SW_SLOTS_AT, SW_SLOT_PITCH);
        if (found >= 0)
            sw_store_release(slot_ready[found], 1);
        else
            found = take_over();
    }
    if (found < 0)
        return NULL;
    struct sw_slot *slot = slot_at((uint32_t)found);
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    memcpy(slot->name, name, sizeof slot->name);
    sw_store(slot->thread, (uint32_t)syscall(SYS_gettid));
    sw_store(slot->started_ns, sw_clock());
    sw_store(slot->ended_ns, 0);
    sw_store(slot->depth, 0);
    sw_increase(slot->owners, 1);
    sw_store_release(slot->use, SW_SLOT_LIVE);
    *number = (uint32_t)found;
    return slot;
}

void sw_release_slot(struct sw_slot *slot)
{
    sw_store(slot->depth, 0);
    sw_store(slot->ended_ns, sw_clock());
    sw_store_release(slot->use, SW_SLOT_ENDED);
    __atomic_fetch_add(&sw_header->ended_slots, 1, __ATOMIC_RELEASE);
}
