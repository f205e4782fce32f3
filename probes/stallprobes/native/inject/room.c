/* The room that a process has for a recording: how large its parts may be, or what the process lacks.
 *
 * It is asked for once, before a file is made. Of the memory that is free, by the machine's figures and by the limits of
 * the process's cgroup and of each one above it, a recording takes a quarter at most, in its rings, in CUPTI's buffers and
 * in what it needs for each thread; of the space that is free in the folder, too. Pages of files that the kernel drops when
 * it needs memory count as free.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "room.h"
#include "space.h"
#include "state.h"
#include "threads.h"

/* Folders of the kernel's files; tests set other folders. */
#ifndef SS_PROC
#define SS_PROC "/proc"
#endif
#ifndef SS_CGROUPS
#define SS_CGROUPS "/sys/fs/cgroup"
#endif

enum {
    /* Number of bytes in a KiB. */
    KIB = 1024,
    /* Divisor of the free memory, and of the free space in the folder: a recording takes at most a quarter of each. */
    SHARE = 4,
    /* Largest number of bytes that are read of a file, with the final zero. */
    TEXT = 8192,
    /* Divisor of the file's size: a quarter, up to MOST_GROWING, is for what grows with the program (threads, stacks,
     * ...). */
    GROWING = 4,
};
#define MIB ((uint64_t)KIB * KIB)
/* Smallest and largest size (bytes) of what grows with the program. */
#define LEAST_GROWING (3 * MIB)
#define MOST_GROWING (64 * MIB)
/* Assumed size (bytes) for a thread: its slot, histograms of some functions, and SS_SLOW_STEP slow calls. */
#define THREAD_BYTES (96 * (uint64_t)KIB)
/* Limit (bytes) of the share of a recording, above the size of every recording. */
#define MOST_SHARE (4096 * MIB)
/* Size (bytes) of a GPU record in the file. */
#define RECORD_BYTES (sizeof(struct ss_watch_record))
/* Smallest size (bytes) of all buffers for CUPTI. */
#define LEAST_BUFFERS (16 * (uint64_t)SS_BUFFER_BYTES)
/* Value (bytes) that stands for no limit. If a limit is not set, the kernel writes a larger number. */
#define NO_LIMIT (UINT64_C(1) << 60)
/* Address space (bytes) for the stacks of the library's threads, and for what the C library takes for these threads. */
#define STACKS (3 * SS_CUPTI_STACK + SS_SMALL_STACK + 2 * (uint64_t)KIB * KIB)

struct ss_lack ss_lack;
/* One thread at a time looks for room, which may have a small stack: what was read last, the list of cgroups, the folder of
 * one, and a path in it. */
static char text[TEXT], list_of_cgroups[TEXT], folder_of_cgroup[PATH_MAX], path[PATH_MAX];

int ss_note_lack(uint32_t reason, uint64_t needed, uint64_t available)
{
    ss_lack = (struct ss_lack){.reason = reason, .needed = needed, .available = available};
    return -1;
}

/* What an open or a mapping lacked that failed. */
int ss_note_error(int error, uint32_t otherwise)
{
    struct rlimit limit;
    uint64_t available = 0;
    switch (error) {
    case EMFILE:
    case ENFILE: return ss_note_lack(SS_LACK_DESCRIPTORS, 1, 0);
    case EAGAIN:
        if (!getrlimit(RLIMIT_MEMLOCK, &limit))
            available = limit.rlim_cur;
        return ss_note_lack(SS_LACK_LOCKED, 0, available);
    case ENOMEM: return ss_note_lack(SS_LACK_ADDRESSES, 0, 0);
    default: return ss_note_lack(otherwise, 0, 0);
    }
}

/* Reads the begin of a file; 0 if it can be read. */
static int read_file(const char *name, char into[TEXT])
{
    int descriptor = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t got = 0, more = 1;
    while (descriptor >= 0 && more > 0 && got < TEXT - 1)
        if ((more = read(descriptor, into + got, (size_t)(TEXT - 1 - got))) > 0)
            got += more;
    into[got] = 0;
    if (descriptor >= 0)
        close(descriptor);
    return descriptor >= 0 && got > 0 ? 0 : -1;
}

/* The number in a line that begins with a name; 0 without one. */
static uint64_t number_in(const char *lines, const char *name)
{
    size_t length = strlen(name);
    uint64_t number;
    for (const char *line = lines; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, length)) {
            line += length;
            line += strspn(line, " \t");
            return ss_parse_number(line, &number) ? number : 0;
        }
    }
    return 0;
}

/* The number in a file of a cgroup; NO_LIMIT if there is none, or it is "max". */
static uint64_t number_of(const char *folder, const char *name)
{
    uint64_t number;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || read_file(path, text) ||
        !ss_parse_number(text, &number) || number > NO_LIMIT)
        return NO_LIMIT;
    return number;
}

/* The memory that is free, and what limits it. */
struct memory {
    uint64_t available;
    uint32_t reason;
};

static void note_limit(struct memory *memory, uint64_t limit, uint64_t used, uint32_t reason)
{
    uint64_t available = limit > used ? limit - used : 0;
    if (available < memory->available)
        *memory = (struct memory){.available = available, .reason = reason};
}

/* The limits of one cgroup: those of the second version, and that of the first one, which has other names. */
static void look_at_cgroup(struct memory *memory, const char *folder, int is_second)
{
    uint64_t limit = number_of(folder, is_second ? "memory.max" : "memory.limit_in_bytes");
    uint64_t high = is_second ? number_of(folder, "memory.high") : NO_LIMIT;
    uint64_t used = number_of(folder, is_second ? "memory.current" : "memory.usage_in_bytes");
    limit = high < limit ? high : limit;
    if (limit == NO_LIMIT || used == NO_LIMIT ||
        snprintf(path, sizeof path, "%s/memory.stat", folder) >= (int)sizeof path)
        return;
    uint64_t inactive =
        read_file(path, text) ? 0 : number_in(text, is_second ? "inactive_file" : "total_inactive_file");
    note_limit(memory, limit, used > inactive ? used - inactive : 0, SS_LACK_CGROUP);
}

/* The limits of a cgroup and of all above it. In a container, whose own one is the first, names of the host are not
 * there. */
static void look_at_cgroups(struct memory *memory, const char *root, const char *name, size_t length, int is_second)
{
    char *const folder = folder_of_cgroup;
    size_t first = strlen(root);
    if (first + length >= sizeof folder_of_cgroup)
        return;
    memcpy(folder, root, first);
    memcpy(folder + first, name, length);
    folder[first + length] = 0;
    /* One that lies outside of what the process sees. */
    if (strstr(folder, "/.."))
        folder[first] = 0;
    for (;;) {
        size_t end = strlen(folder);
        if (end > first && folder[end - 1] == '/')
            folder[--end] = 0;
        look_at_cgroup(memory, folder, is_second);
        if (end <= first)
            return;
        *strrchr(folder, '/') = 0;
    }
}

/* Whether a list of controllers, up to the next colon, has that of memory. */
static int has_memory(const char *list)
{
    static const char name[] = "memory";
    size_t length = sizeof name - 1;
    for (; *list && *list != ':'; list++)
        if (!strncmp(list, name, length) && (list[length] == ',' || list[length] == ':'))
            return 1;
    return 0;
}

static struct memory free_memory(void)
{
    struct memory memory = {.available = NO_LIMIT, .reason = SS_LACK_MEMORY};
    if (!read_file(SS_PROC "/meminfo", text)) {
        uint64_t available = number_in(text, "MemAvailable:");
        if (available)
            memory.available = available * KIB;
    }
    if (read_file(SS_PROC "/self/cgroup", list_of_cgroups))
        return memory;
    /* Lines of "number:controllers:name"; the second version has no controllers there. */
    for (const char *line = list_of_cgroups; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *list = strchr(line, ':'), *name = list ? strchr(list + 1, ':') : NULL;
        if (!name)
            break;
        size_t length = strcspn(++name, "\n");
        if (list[1] == ':') {
            look_at_cgroups(&memory, SS_CGROUPS, name, length, 1);
            look_at_cgroups(&memory, SS_CGROUPS "/unified", name, length, 1);
        } else if (has_memory(list + 1)) {
            look_at_cgroups(&memory, SS_CGROUPS "/memory", name, length, 0);
        }
    }
    return memory;
}

/* The bytes that are free on the file system of a folder; NO_LIMIT where that is not known, or it has no limit. */
static uint64_t free_space(int folder)
{
    struct statvfs status;
    if (folder < 0 || fstatvfs(folder, &status) || !status.f_blocks)
        return NO_LIMIT;
    return (uint64_t)status.f_bavail * status.f_frsize;
}

/* The address space (bytes) that the process may still take, all of it and that of private memory. */
static void find_addresses(uint64_t *all, uint64_t *private)
{
    struct rlimit limit;
    *all = *private = NO_LIMIT;
    if (read_file(SS_PROC "/self/status", text))
        return;
    uint64_t used = number_in(text, "VmSize:") * KIB, data = number_in(text, "VmData:") * KIB;
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
        *all = limit.rlim_cur > used ? limit.rlim_cur - used : 0;
    if (!getrlimit(RLIMIT_DATA, &limit) && limit.rlim_cur != RLIM_INFINITY)
        *private = limit.rlim_cur > data ? limit.rlim_cur - data : 0;
}

/* 0 if half of the address space that the process may still take is enough. ``file`` and ``buffers`` have none yet. */
static int has_addresses(uint64_t file, uint64_t buffers)
{
    uint64_t all, private, needed = 2 * (file + buffers + STACKS), needed_private = 2 * (buffers + STACKS);
    find_addresses(&all, &private);
    if (all < needed)
        return ss_note_lack(SS_LACK_ADDRESSES, needed, all);
    if (private < needed_private)
        return ss_note_lack(SS_LACK_ADDRESSES, needed_private, private);
    return 0;
}

static uint64_t smaller(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* The threads of the process; 0 if that is not known. */
uint32_t ss_count_threads(void)
{
    return read_file(SS_PROC "/self/status", text) ? 0 : (uint32_t)number_in(text, "Threads:");
}

/* Of the bytes for a file, those for what grows with the program, by the threads that it has. */
static uint64_t growing_of(uint64_t bytes)
{
    uint64_t needed = LEAST_GROWING + ss_count_threads() * THREAD_BYTES;
    needed = needed < bytes / GROWING ? bytes / GROWING : smaller(needed, bytes / 2);
    return needed < LEAST_GROWING ? LEAST_GROWING : smaller(needed, MOST_GROWING);
}

/* The part of some bytes for what takes ``size`` of ``all`` where there is room, and no more than that. */
static uint64_t part_of(uint64_t bytes, uint64_t size, uint64_t all)
{
    return smaller(bytes / KIB * (size / KIB) / (all / KIB) * KIB, size);
}

/* How many steps there are in some bytes, ``least`` and ``most`` of them. */
static uint32_t steps_of(uint64_t bytes, uint64_t step, uint64_t least, uint64_t most)
{
    uint64_t steps = bytes / step;
    return (uint32_t)(steps < least ? least : steps > most ? most : steps);
}

/* Divides the buffers' bytes into large ones and small ones. */
static void choose_buffers(struct ss_room *room, uint64_t bytes)
{
    const uint64_t large = (uint64_t)SS_LARGE_BUFFERS * SS_LARGE_BUFFER_BYTES;
    room->large = (uint32_t)(part_of(bytes, large, SS_BUFFER_MEMORY) / SS_LARGE_BUFFER_BYTES);
    bytes -= room->large * (uint64_t)SS_LARGE_BUFFER_BYTES;
    room->small = (uint32_t)smaller(bytes / SS_BUFFER_BYTES, SS_MOST_BUFFERS - SS_LARGE_BUFFERS);
}

/* What a recording may take of a process, to a file in an open ``folder`` or, where that is -1, in memory. ``calls_only``:
 * it has no records. ``file`` and ``buffers`` are the bytes of address space that they still need. Returns 0, or -1 with
 * the reason in ss_lack. */
int ss_find_room(struct ss_room *room, int folder, int calls_only, uint64_t file, uint64_t buffers)
{
    const uint64_t records = calls_only ? 0 : SS_RECORDS * RECORD_BYTES;
    const uint64_t calls = SS_CALL_BLOCKS * (uint64_t)SS_BLOCK_PITCH, rings = records + calls;
    const uint64_t all_buffers = calls_only ? 0 : SS_BUFFER_MEMORY;
    const uint64_t least_file = LEAST_GROWING + (uint64_t)SS_LEAST_BLOCKS * SS_BLOCK_PITCH +
                                (calls_only ? 0 : SS_RECORDS_STEP * RECORD_BYTES);
    const uint64_t least = least_file + (calls_only ? 0 : LEAST_BUFFERS);
    struct memory memory = free_memory();
    uint64_t space = free_space(folder);
    if (!ss_size_allowed(SS_FILE_BYTES)) {
        struct rlimit limit;
        getrlimit(RLIMIT_FSIZE, &limit);
        return ss_note_lack(SS_LACK_FILE_SIZE, SS_FILE_BYTES, limit.rlim_cur);
    }
    if (memory.available / SHARE < least)
        return ss_note_lack(memory.reason, least * SHARE, memory.available);
    if (space / SHARE < least_file)
        return ss_note_lack(SS_LACK_FOLDER, least_file * SHARE, space);
    if (has_addresses(file, buffers))
        return -1;
    /* By the sizes that all have where there is room. */
    uint64_t share = smaller(memory.available / SHARE, MOST_SHARE), growing = growing_of(share);
    uint64_t for_buffers = part_of(share - growing, all_buffers, rings + all_buffers);
    if (!calls_only && for_buffers < LEAST_BUFFERS)
        for_buffers = LEAST_BUFFERS;
    uint64_t for_file = smaller(share - for_buffers, space / SHARE);
    uint64_t for_rings = for_file - growing_of(for_file);
    room->records = steps_of(part_of(for_rings, records, rings), SS_RECORDS_STEP * RECORD_BYTES, 1,
                             SS_RECORDS / SS_RECORDS_STEP) * SS_RECORDS_STEP;
    room->blocks = steps_of(part_of(for_rings, calls, rings), SS_BLOCKS_STEP * (uint64_t)SS_BLOCK_PITCH,
                            SS_LEAST_BLOCKS / SS_BLOCKS_STEP, SS_CALL_BLOCKS / SS_BLOCKS_STEP) * SS_BLOCKS_STEP;
    uint64_t in_rings = smaller(for_rings, rings);
    room->growing = for_file - in_rings;
    choose_buffers(room, for_buffers);
    return 0;
}
