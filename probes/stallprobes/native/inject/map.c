/* The file of this process: one mapping with holes, to which space is given when it is needed (space.c). It lies in the
 * folder of the settings; without a folder it is a memfd, which stallscope takes from outside by its name in /proc.
 *
 * All files of a process have one place in memory, one after the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "call_log.h"
#include "clock.h"
#include "map.h"
#include "room.h"
#include "samples.h"
#include "slots.h"
#include "space.h"
#include "stack.h"
#include "state.h"
#include "windows.h"

enum {
    /* Number of different names for the files of one process. */
    NAMES_TRIED = 10000,
    /* TAKING_NS: longest wait (ns) until stallscope has taken the file of a recording. TAKING_STEP_NS: period (ns) of
     * the checks. */
    TAKING_NS = 1000000000,
    TAKING_STEP_NS = 1000000,
};

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
static int reopen_file(void)
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
    ss_begin_space(room->growing, reopen_file);
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

/* Waits until stallscope has taken the file of the recording that begins: the program may end soon, and the file with it. */
static void hand_file_over(void)
{
    ss_store(ss_control->file_taken, 0);
    ss_store_release(ss_control->file_descriptor, (uint32_t)file.descriptor + 1);
    uint64_t limit = ss_clock() + TAKING_NS;
    while (!ss_load_acquire(ss_control->file_taken) && ss_clock() < limit)
        nanosleep(&(struct timespec){.tv_nsec = TAKING_STEP_NS}, NULL);
    ss_store_release(ss_control->file_descriptor, 0);
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
        hand_file_over();
    ss_forget_slots();
    ss_file++;
    ss_header->record_places = room.records;
    ss_header->call_blocks = room.blocks;
    describe_process(ss_header, flags);
    ss_begin_stacks(flags & SS_FLAG_FORKED);
    ss_begin_samples();
    ss_begin_log(room.blocks, threads);
    ss_prepare_slots(threads);
    ss_forget_windows();
    ss_header->losses[SS_LOST_BEFORE_FILE] = __atomic_exchange_n(&ss_lost_before_file, 0, __ATOMIC_RELAXED);
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
    int descriptor = reopen_file();
    const char *name = strrchr(file.path, '/');
    if (descriptor < 0 || !name)
        return;
    if (file.keeps_place || !ftruncate(descriptor, 0))
        unlinkat(folder, name + 1, 0);
    close(descriptor);
}
