/* The file of this process: one mapping with holes, to which space is given when it is needed (space.c). It lies in the
 * folder of the settings; without a folder it is a memfd, which stallscope takes from outside by its name in /proc.
 *
 * All files of a process have one place in memory, one after the other.
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

enum { NAMES_TRIED = 10000 };

struct ss_private *ss_private;
struct ss_file_header *ss_header;
uint32_t ss_file;

static struct {
    char path[PATH_MAX];
    dev_t device;
    ino_t inode;
    /* That of a memfd, by which it is reached from outside; -1 for a file in a folder. */
    int descriptor;
    /* Where the file is mapped, or what had its place; NULL before the first one. */
    void *base;
    /* Whether it still is mapped there once it was given up. */
    int keeps_place;
} file = {.descriptor = -1};
/* The slots that have space: to read from a hole may need space too, and end the program for the lack of it. */
static uint8_t slot_ready[SS_SLOTS];
static uint8_t range_ready[SS_RANGES];
/* How many slots and histograms have space that was given ahead. */
static uint32_t slots_ahead, histograms_ahead;
/* Bits for the steps of a slot's slow calls that have space; only its owner uses them. */
static uint8_t slow_ready[SS_SLOTS];
_Static_assert(SS_SLOW_CALLS / SS_SLOW_STEP <= 8 && SS_SLOW_CALLS % SS_SLOW_STEP == 0, "a bit for each step");
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

/* The folder of the settings, if it is one that nobody else can write to; -1 otherwise. */
int ss_own_folder(void)
{
    int folder = open(ss_settings.folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
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
    if (found < 0)
        return ss_note_error(errno, SS_LACK_MEMFD);
    if (fchmod(found, S_IRUSR | S_IWUSR)) {
        close(found);
        return -1;
    }
    file.descriptor = found;
    snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", found);
    return found;
}

/* A new file in a folder; its name has the process's number, how many files a process of this number made before, and
 * ``more``. */
static int new_name(int folder, const char *more, mode_t mode)
{
    for (int number = 0; number < NAMES_TRIED; number++) {
        char name[128];
        snprintf(name, sizeof name, "%ld-%d%s.watch", (long)getpid(), number, more);
        if (snprintf(file.path, sizeof file.path, "%s/%s", ss_settings.folder, name) >= (int)sizeof file.path)
            break;
        int found = openat(folder, name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, mode);
        if (found >= 0 || errno != EEXIST)
            return found;
    }
    return -1;
}

static int new_file(int folder)
{
    if (folder < 0)
        return new_memory();
    int found = new_name(folder, "", S_IRUSR | S_IWUSR);
    return found < 0 ? ss_note_error(errno, SS_LACK_FOLDER) : found;
}

/* Says what the process lacks by the name of an empty file, since a limit may allow no byte in it. */
static void say_lack(int folder)
{
    char more[80];
    snprintf(more, sizeof more, ".%u.%llu.%llu", ss_lack.reason, (unsigned long long)ss_lack.needed,
             (unsigned long long)ss_lack.available);
    int made = new_name(folder, more, S_IRUSR);
    if (made >= 0)
        close(made);
}

/* The file, opened again; -1, with errno, if its name is that of another one by now. */
int ss_reopen_file(void)
{
    struct stat status;
    int descriptor = open(file.path, O_RDWR | (file.descriptor < 0 ? O_NOFOLLOW : 0) | O_CLOEXEC);
    if (descriptor < 0 ||
        (!ss_file_status(descriptor, &status) && status.st_dev == file.device && status.st_ino == file.inode))
        return descriptor;
    close(descriptor);
    errno = ENOENT;
    return -1;
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

/* Memory to which a thread may write that is still in a callback of a recording that has ended. */
static int map_nowhere(void)
{
    int nowhere = (int)syscall(SYS_memfd_create, "stallscope-closed", MEMFD_CLOEXEC);
    if (nowhere >= 0 && (!ss_size_allowed(SS_FILE_BYTES) || ftruncate(nowhere, SS_FILE_BYTES))) {
        close(nowhere);
        nowhere = -1;
    }
    void *mapped = ss_map(file.base, SS_FILE_BYTES, nowhere);
    if (nowhere >= 0)
        close(nowhere);
    return mapped ? 0 : -1;
}

/* Gives an open file its size, its place in memory, which is that of the file before, and space for its beginning. */
static int map_file(int descriptor, const struct ss_room *room)
{
    struct stat status;
    int is_first = !file.base;
    if (ss_file_status(descriptor, &status) || ftruncate(descriptor, SS_FILE_BYTES))
        return ss_note_error(errno, SS_LACK_FOLDER);
    file.device = status.st_dev;
    file.inode = status.st_ino;
    if (file.descriptor >= 0)
        ss_seal(descriptor);
    void *base = ss_map(file.base, SS_FILE_BYTES, descriptor);
    if (!base)
        return ss_note_error(errno, SS_LACK_ADDRESSES);
    file.base = base;
    ss_store_release(ss_header, base);
    ss_begin_space(room->growing);
    int error = ss_give_beginning(SS_NAMES_AT);
    if (!error)
        return 0;
    if (is_first && !munmap(base, SS_FILE_BYTES))
        file.base = NULL;
    else
        map_nowhere();
    return ss_note_error(error, file.descriptor < 0 ? SS_LACK_FOLDER : SS_LACK_MEMORY);
}

static int map_buffers(void)
{
    void *memory = ss_map(NULL, SS_BUFFER_MEMORY, -1);
    if (!memory)
        return ss_note_error(errno, SS_LACK_ADDRESSES);
    ss_place_buffers(memory);
    return 0;
}

/* A new file and its memory, by the room that the process has. */
static int make_file(int folder, struct ss_room *room, int calls_only)
{
    uint64_t buffers = calls_only || ss_have_memory() ? 0 : SS_BUFFER_MEMORY;
    if (ss_find_room(room, folder, calls_only, file.base ? 0 : SS_FILE_BYTES, buffers) ||
        (buffers && map_buffers()))
        return -1;
    int descriptor = new_file(folder);
    if (descriptor < 0)
        return -1;
    int failed = map_file(descriptor, room);
    if (folder >= 0)
        close(descriptor);
    if (failed && folder >= 0)
        unlink(file.path);
    if (failed)
        close_memory();
    return failed;
}

/* Gives space to the slots and the first histograms of so many threads, which begin to be recorded at about the same time,
 * and would wait for each other in the kernel. */
static void prepare_places(uint32_t threads)
{
    enum { HISTOGRAMS_EACH = 2 };
    uint32_t number = 0, most = threads < SS_SLOTS ? threads : SS_SLOTS;
    while (number < most && !ss_give_space(SS_SLOTS_AT + number * (uint64_t)SS_SLOT_PITCH, offsetof(struct ss_slot, slow)))
        number++;
    uint32_t histograms = HISTOGRAMS_EACH * number;
    ss_store(slots_ahead, number);
    ss_store(histograms_ahead,
             histograms && !ss_give_space(SS_HISTOGRAMS_AT, histograms * (uint64_t)SS_HISTOGRAM_PITCH) ? histograms : 0);
}

/* A new file for this process, mapped as ss_header; 0 if it is ready. Then SS_OPEN may be set.
 *
 * Where there is no room for it, the name of an empty file that is read-only says so to the reader.
 */
int ss_open_file(uint32_t flags)
{
    struct ss_room room;
    uint32_t threads = flags & SS_FLAG_LATE ? ss_count_threads() : 0;
    int calls_only = !!(flags & SS_FLAG_CALLS_ONLY), folder = -1;
    ss_note_lack(SS_LACK_UNKNOWN, 0, 0);
    /* It has not the memory of its parent. */
    if (flags & SS_FLAG_FORKED)
        file.base = NULL;
    if (ss_settings.folder[0] && (folder = ss_own_folder()) < 0)
        return -1;
    int failed = make_file(folder, &room, calls_only);
    if (failed && folder >= 0)
        say_lack(folder);
    if (folder >= 0)
        close(folder);
    if (failed)
        return -1;
    if (!calls_only)
        ss_use_buffers(room.large, room.small);
    if (flags & SS_FLAG_LATE)
        ss_hand_file_over(file.descriptor);
    memset(slot_ready, 0, sizeof slot_ready);
    memset(slow_ready, 0, sizeof slow_ready);
    memset(range_ready, 0, sizeof range_ready);
    memset(counted, 0, sizeof counted);
    ss_file++;
    ss_header->record_places = room.records;
    ss_header->call_blocks = room.blocks;
    describe_process(ss_header, flags);
    ss_begin_stacks(flags & SS_FLAG_FORKED);
    ss_begin_samples();
    ss_begin_log(room.blocks, threads);
    prepare_places(threads);
    ss_forget_windows();
    ss_header->losses[SS_LOST_BEFORE_FILE] = __atomic_exchange_n(&lost_before_file, 0, __ATOMIC_RELAXED);
    ss_header->started_ns = ss_clock();
    ss_header->started_realtime_ns = ss_real_clock();
    ss_stamp_clocks();
    ss_store_release(ss_header->magic, SS_FILE_MAGIC);
    return 0;
}

/* Gives the file up, whose memory and space on disk are free then. A thread that is still in a callback may write to
 * what it had of it, which goes nowhere: other memory has its place, until the next file has it. Without other memory, the
 * file keeps its place until then. */
void ss_close_file(void)
{
    file.keeps_place = map_nowhere();
    close_memory();
}

/* Removes the file, which has been given up, from its folder. */
void ss_remove_file(int folder)
{
    int descriptor = ss_reopen_file();
    const char *name = strrchr(file.path, '/');
    if (descriptor < 0 || !name)
        return;
    if (file.keeps_place || !ftruncate(descriptor, 0))
        unlinkat(folder, name + 1, 0);
    close(descriptor);
}

static struct ss_slot *slot_at(uint32_t number)
{
    return ss_at(SS_SLOTS_AT + (uint64_t)number * SS_SLOT_PITCH);
}

static struct ss_call_histogram *histogram_at(uint32_t number)
{
    return ss_at(SS_HISTOGRAMS_AT + (uint64_t)number * SS_HISTOGRAM_PITCH);
}

/* The next of a number of places, all of one size, with space for its first ``bytes``; -1 if there are no more. Space was
 * given ``ahead`` for the first ones. */
static int64_t next_place(uint32_t *used, uint32_t places, uint32_t ahead, uint64_t at, uint64_t pitch, uint64_t bytes)
{
    uint32_t number = ss_load(*used);
    do
        if (number >= places || (number >= ahead && ss_lacks_room(bytes)))
            return -1;
    while (!__atomic_compare_exchange_n(used, &number, number + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (number < ahead || !ss_give_space(at + number * pitch, bytes))
        return number;
    /* A later try has it, unless the next one is in use: then it stays a hole, which reads as zeros. */
    uint32_t next = number + 1;
    __atomic_compare_exchange_n(used, &next, number, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return -1;
}

struct ss_call_histogram *ss_histogram_of(struct ss_slot *slot, uint32_t number, uint32_t api)
{
    uint32_t known = ss_load(slot->histograms[api]);
    if (__builtin_expect(known != 0, 1))
        return histogram_at(known - 1);
    int64_t place = next_place(&ss_header->histograms, SS_HISTOGRAMS, ss_load(histograms_ahead), SS_HISTOGRAMS_AT,
                               SS_HISTOGRAM_PITCH, SS_HISTOGRAM_PITCH);
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
        found = next_place(&header->slots, SS_SLOTS, ss_load(slots_ahead), SS_SLOTS_AT, SS_SLOT_PITCH,
                           offsetof(struct ss_slot, slow));
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

/* The place of a slow call by its number, in the slot with a number; NULL if there is no space for it. */
struct ss_slow_call *ss_slow_call_at(uint32_t slot, uint64_t number)
{
    uint64_t step = number % SS_SLOW_CALLS / SS_SLOW_STEP;
    struct ss_slow_call *first = &slot_at(slot)->slow[step * SS_SLOW_STEP];
    uint8_t bit = (uint8_t)(1u << step);
    if (!(slow_ready[slot] & bit)) {
        if (ss_give_space((uint64_t)((char *)first - (char *)ss_header), SS_SLOW_STEP * sizeof *first))
            return NULL;
        slow_ready[slot] |= bit;
    }
    return &slot_at(slot)->slow[number % SS_SLOW_CALLS];
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
        found = next_place(&ss_header->ranges, SS_RANGES, 0, SS_RANGES_AT, SS_RANGE_PITCH, SS_RANGE_PITCH);
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
