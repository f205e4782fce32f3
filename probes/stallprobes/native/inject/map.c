/* The file of this process: one mapping with holes, to which space is given when it is needed. It lies in the folder of the
 * settings; without a folder it is a memfd, which stallscope takes from outside by its name in /proc.
 *
 * Space is given by posix_fallocate before the first write, since a write to a hole of a full disk would end the
 * program with SIGBUS. The file is opened again for that: the program may close every descriptor that it does not know.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "inject.h"

/* MFD_CLOEXEC and MFD_ALLOW_SEALING, which older headers lack. */
enum { NAMES_TRIED = 10000, MEMFD_CLOEXEC = 1, MEMFD_SEALABLE = 2 };

struct ss_private *ss_private;
struct ss_file_header *ss_header;
uint32_t ss_file;

static struct {
    char path[PATH_MAX];
    dev_t device;
    ino_t inode;
    /* That of a memfd, by which it is reached from outside; -1 for a file in a folder. */
    int descriptor;
} file = {.descriptor = -1};
/* The slots that have space: to read from a hole may need space too, and end the program for the lack of it. */
static uint8_t slot_ready[SS_SLOTS];
static uint8_t range_ready[SS_RANGES];
/* Calls of a forked process while another thread of it opens its file. */
static uint64_t lost_before_file;
/* The finished calls of each slot when they were last counted. */
static uint64_t counted[SS_SLOTS];

uint64_t ss_clock(void)
{
    return (uint64_t)ss_monotonic();
}

uint64_t ss_real_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void *ss_at(uint64_t offset)
{
    return (unsigned char *)ss_header + offset;
}

void ss_count_lost(int kind, uint64_t count)
{
    if (ss_load_acquire(ss_private->recording) == SS_OPEN)
        ss_add(ss_header->losses[kind], count);
    else
        ss_add(lost_before_file, count);
}

/* Both clocks at one moment, for records whose time is the GPU's own. Called by one thread at a time. */
void ss_stamp_clocks(void)
{
    struct ss_file_header *header = ss_header;
    uint64_t sequence = ss_load(header->clock_sequence);
    ss_store(header->clock_sequence, sequence + 1);
    ss_fence();
    uint64_t before = ss_clock();
    uint64_t real = ss_real_clock();
    ss_store(header->clock_ns, before + (ss_clock() - before) / 2);
    ss_store(header->clock_realtime_ns, real);
    ss_store_release(header->clock_sequence, sequence + 2);
}

/* fstat, which glibc has as a function from 2.33 on only; the kernel's structure is that of the C library. */
int ss_file_status(int descriptor, struct stat *status)
{
    return (int)syscall(SYS_fstat, descriptor, status);
}

/* What follows a decimal number, which is at most UINT64_MAX; NULL without one. strtoull has other names and versions in
 * newer C libraries. */
const char *ss_parse_number(const char *text, uint64_t *number)
{
    const char *at = text;
    *number = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (*number > (UINT64_MAX - digit) / 10)
            return NULL;
        *number = *number * 10 + digit;
    }
    return at == text ? NULL : at;
}

/* The folder, if it is one that nobody else can write to; -1 otherwise. */
static int private_folder(void)
{
    int folder = open(ss_settings.folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (folder < 0)
        return -1;
    if (ss_file_status(folder, &status) || status.st_uid != geteuid() || (status.st_mode & 077)) {
        close(folder);
        return -1;
    }
    return folder;
}

/* Closes the memfd of a recording before, or of the parent, unless the program uses its number for something else. */
static void close_memory(void)
{
    struct stat status;
    if (file.descriptor >= 0 && !ss_file_status(file.descriptor, &status) && status.st_dev == file.device &&
        status.st_ino == file.inode)
        close(file.descriptor);
    file.descriptor = -1;
}

/* As new_file, without a folder. */
static int new_memory(void)
{
    static uint32_t made;
    char name[64];
    close_memory();
    snprintf(name, sizeof name, SS_RECORDING_NAME "%ld-%u.watch", (long)getpid(), made++ % NAMES_TRIED);
    int found = (int)syscall(SYS_memfd_create, name, MEMFD_CLOEXEC | MEMFD_SEALABLE);
    if (found >= 0 && fchmod(found, S_IRUSR | S_IWUSR)) {
        close(found);
        return -1;
    }
    file.descriptor = found;
    snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", found);
    return found;
}

/* A new file; its name has the process's number and how many files a process of this number made before. */
static int new_file(void)
{
    if (!ss_settings.folder[0])
        return new_memory();
    int folder = private_folder();
    int found = -1;
    for (int number = 0; folder >= 0 && found < 0 && number < NAMES_TRIED; number++) {
        char name[64];
        snprintf(name, sizeof name, "%ld-%d.watch", (long)getpid(), number);
        if (snprintf(file.path, sizeof file.path, "%s/%s", ss_settings.folder, name) >= (int)sizeof file.path)
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
    return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= SS_FILE_BYTES);
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
int ss_give_space(uint64_t offset, uint64_t size)
{
    struct stat status;
    int error = errno;
    int cancel;
    /* A thread must not end inside the driver's call because a cancellation was pending. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int descriptor = open(file.path, O_RDWR | (file.descriptor < 0 ? O_NOFOLLOW : 0) | O_CLOEXEC);
    int failed = descriptor < 0 || ss_file_status(descriptor, &status) || status.st_dev != file.device ||
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
uint64_t ss_start_ticks(void)
{
    char text[1024];
    read_text("/proc/self/stat", text, sizeof text);
    /* The second field is the name in parentheses, which may contain anything; the 22nd is wanted. */
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    uint64_t ticks;
    return at && ss_parse_number(at + 1, &ticks) ? ticks : 0;
}

static void describe_process(struct ss_file_header *header, uint32_t flags)
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
    header->format = SS_FILE_FORMAT;
    header->flags = flags;
    header->pid = (uint32_t)getpid();
    header->parent_pid = (uint32_t)getppid();
    header->start_ticks = ss_start_ticks();
    header->slow_ns = ss_settings.slow_ns;
    header->cost_ppm = ss_settings.cost_ppm;
}

/* A new file for this process, mapped as ss_header; 0 if it is ready. Then SS_OPEN may be set.
 *
 * Where there is no room for it, an empty file that is read-only says so to the reader.
 */
int ss_open_file(uint32_t flags)
{
    struct stat status;
    int descriptor = new_file();
    if (descriptor < 0)
        return -1;
    uint64_t first = flags & SS_FLAG_CALLS_ONLY ? SS_NAMES_AT : SS_RECORDS_AT;
    void *base = MAP_FAILED;
    if (size_allowed() && !ss_file_status(descriptor, &status) && !allocate(descriptor, 0, first) &&
        !ftruncate(descriptor, SS_FILE_BYTES))
        base = mmap(NULL, SS_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (base == MAP_FAILED && file.descriptor < 0 && (ftruncate(descriptor, 0) || fchmod(descriptor, S_IRUSR)))
        unlink(file.path);
    if (base == MAP_FAILED || file.descriptor < 0)
        close(descriptor);
    if (base == MAP_FAILED) {
        file.descriptor = -1;
        return -1;
    }
    /* A forked process must not write to its parent's file, and a core dump is no place for it. */
    madvise(base, SS_FILE_BYTES, MADV_DONTFORK);
    madvise(base, SS_FILE_BYTES, MADV_DONTDUMP);
    file.device = status.st_dev;
    file.inode = status.st_ino;
    if (flags & SS_FLAG_LATE)
        ss_hand_file_over(descriptor);
    memset(slot_ready, 0, sizeof slot_ready);
    memset(range_ready, 0, sizeof range_ready);
    memset(counted, 0, sizeof counted);
    ss_store_release(ss_header, base);
    ss_file++;
    describe_process(ss_header, flags);
    ss_begin_stacks(flags & SS_FLAG_FORKED);
    ss_begin_samples();
    ss_begin_log();
    ss_forget_windows();
    ss_header->losses[SS_LOST_BEFORE_FILE] = __atomic_exchange_n(&lost_before_file, 0, __ATOMIC_RELAXED);
    ss_header->started_ns = ss_clock();
    ss_header->started_realtime_ns = ss_real_clock();
    ss_stamp_clocks();
    ss_store_release(ss_header->magic, SS_FILE_MAGIC);
    return 0;
}

/* Gives the file up, whose memory and space on disk are free then. A thread that is still in a callback may write to
 * what it had of it, which goes nowhere: other memory has its place, and keeps it. */
void ss_close_file(void)
{
    int nowhere = (int)syscall(SYS_memfd_create, "stallscope-closed", MEMFD_CLOEXEC);
    if (nowhere < 0)
        return;
    if (!ftruncate(nowhere, SS_FILE_BYTES) &&
        mmap(ss_header, SS_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, nowhere, 0) != MAP_FAILED) {
        madvise(ss_header, SS_FILE_BYTES, MADV_DONTFORK);
        madvise(ss_header, SS_FILE_BYTES, MADV_DONTDUMP);
    }
    close(nowhere);
    close_memory();
}

static struct ss_slot *slot_at(uint32_t number)
{
    return ss_at(SS_SLOTS_AT + (uint64_t)number * SS_SLOT_PITCH);
}

static struct ss_call_histogram *histogram_at(uint32_t number)
{
    return ss_at(SS_HISTOGRAMS_AT + (uint64_t)number * SS_HISTOGRAM_PITCH);
}

/* The next of a number of places, all of one size, with space for it; -1 if there are no more. */
static int64_t next_place(uint32_t *used, uint32_t places, uint64_t at, uint64_t pitch)
{
    uint32_t number = ss_load(*used);
    do
        if (number >= places || ss_load(ss_header->out_of_space))
            return -1;
    while (!__atomic_compare_exchange_n(used, &number, number + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (ss_give_space(at + number * pitch, pitch)) {
        /* The place stays a hole, which reads as zeros. */
        ss_store(ss_header->out_of_space, 1);
        return -1;
    }
    return number;
}

struct ss_call_histogram *ss_histogram_of(struct ss_slot *slot, uint32_t number, uint32_t api)
{
    uint32_t known = ss_load(slot->histograms[api]);
    if (__builtin_expect(known != 0, 1))
        return histogram_at(known - 1);
    int64_t place = next_place(&ss_header->histograms, SS_HISTOGRAMS, SS_HISTOGRAMS_AT, SS_HISTOGRAM_PITCH);
    if (place < 0)
        return NULL;
    struct ss_call_histogram *histogram = histogram_at((uint32_t)place);
    histogram->api = api;
    histogram->slot = number;
    ss_store_release(slot->histograms[api], (uint32_t)place + 1);
    return histogram;
}

/* The slot of a thread that has ended, with its figures, to which those of its next owner are added; -1 without one. */
static int64_t take_over(void)
{
    static uint32_t first;
    struct ss_file_header *header = ss_header;
    uint32_t slots = ss_load(header->slots);
    uint32_t start = ss_load(first);
    if (slots > SS_SLOTS || !ss_load_acquire(header->ended_slots))
        return -1;
    for (uint32_t tried = 0; tried < slots; tried++) {
        uint32_t number = (start + tried) % slots;
        uint32_t expected = SS_SLOT_ENDED;
        if (!ss_load_acquire(slot_ready[number]) ||
            !__atomic_compare_exchange_n(&slot_at(number)->use, &expected, SS_SLOT_CLAIMED, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        ss_add(header->ended_slots, -1u);
        ss_store(first, number + 1);
        return number;
    }
    return -1;
}

/* A slot for the calling thread; NULL if all belong to live threads. */
struct ss_slot *ss_claim_slot(uint32_t *number)
{
    struct ss_file_header *header = ss_header;
    int64_t found = -1;
    /* Threads that come and go must not use up what is left. */
    if (ss_load(header->histograms) > SS_HISTOGRAMS / 4 * 3)
        found = take_over();
    if (found < 0) {
        found = next_place(&header->slots, SS_SLOTS, SS_SLOTS_AT, SS_SLOT_PITCH);
        if (found >= 0)
            ss_store_release(slot_ready[found], 1);
        else
            found = take_over();
    }
    if (found < 0)
        return NULL;
    struct ss_slot *slot = slot_at((uint32_t)found);
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    memcpy(slot->name, name, sizeof slot->name);
    ss_store(slot->stack, 0);
    ss_store(slot->thread, (uint32_t)syscall(SYS_gettid));
    ss_store(slot->started_ns, ss_clock());
    ss_store(slot->ended_ns, 0);
    ss_store(slot->depth, 0);
    ss_forget_flight((uint32_t)found);
    ss_store(slot->owners, ss_load(slot->owners) + 1);
    ss_store_release(slot->use, SS_SLOT_LIVE);
    *number = (uint32_t)found;
    return slot;
}

/* The slot with a number, if a live thread has it; NULL otherwise. */
struct ss_slot *ss_live_slot(uint32_t number)
{
    if (number >= ss_load(ss_header->slots) || !ss_load_acquire(slot_ready[number]))
        return NULL;
    return ss_load_acquire(slot_at(number)->use) == SS_SLOT_LIVE ? slot_at(number) : NULL;
}

void ss_release_slot(struct ss_slot *slot)
{
    ss_store(slot->depth, 0);
    ss_store(slot->ended_ns, ss_clock());
    ss_store_release(slot->use, SS_SLOT_ENDED);
    __atomic_fetch_add(&ss_header->ended_slots, 1, __ATOMIC_RELEASE);
}

/* The calls of all slots that have returned, without those that only ask. ``busiest`` becomes the most that one slot has
 * had since this was asked before. Called by one thread. */
uint64_t ss_count_finished(uint64_t *busiest)
{
    uint32_t slots = ss_load(ss_header->slots);
    uint64_t sum = 0;
    *busiest = 0;
    for (uint32_t number = 0; number < slots && number < SS_SLOTS; number++) {
        if (!ss_load_acquire(slot_ready[number]))
            continue;
        uint64_t calls = ss_load(slot_at(number)->finished);
        if (calls - counted[number] > *busiest)
            *busiest = calls - counted[number];
        counted[number] = calls;
        sum += calls;
    }
    return sum;
}

static struct ss_named_range *range_at(uint32_t number)
{
    return ss_at(SS_RANGES_AT + (uint64_t)number * SS_RANGE_PITCH);
}

/* The ranges of a thread that has ended, with this name, to which those of another one are added; -1 without any. */
static int64_t take_over_range(const char *name)
{
    uint32_t ranges = ss_load(ss_header->ranges);
    for (uint32_t number = 0; number < ranges && number < SS_RANGES; number++) {
        uint32_t expected = SS_SLOT_ENDED;
        if (ss_load_acquire(range_ready[number]) && ss_load_acquire(range_at(number)->use) == SS_SLOT_ENDED &&
            !memcmp(range_at(number)->name, name, SS_RANGE) &&
            __atomic_compare_exchange_n(&range_at(number)->use, &expected, SS_SLOT_CLAIMED, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return number;
    }
    return -1;
}

/* A place for the ranges with this name, of SS_RANGE bytes, that a thread begins; NULL if there are no more. */
struct ss_named_range *ss_claim_range(const char *name, uint32_t thread)
{
    int64_t found = take_over_range(name);
    if (found < 0) {
        found = next_place(&ss_header->ranges, SS_RANGES, SS_RANGES_AT, SS_RANGE_PITCH);
        if (found < 0)
            return NULL;
        memcpy(range_at((uint32_t)found)->name, name, SS_RANGE);
        ss_store_release(range_ready[found], 1);
    }
    struct ss_named_range *range = range_at((uint32_t)found);
    ss_store(range->thread, thread);
    ss_store_release(range->use, SS_SLOT_LIVE);
    return range;
}

void ss_release_range(struct ss_named_range *range)
{
    ss_store_release(range->use, SS_SLOT_ENDED);
}
