/* Memory of the process for what the library writes: mappings that lock and fill nothing by themselves, and space for the
 * parts of a file that are about to be used.
 *
 * A program that has called mlockall(MCL_FUTURE) would have every page of a new mapping in memory, and locked, holes
 * included, and needs a limit of locked memory as large. A mapping without rights is filled with nothing; once its one page
 * is unlocked, it gets its rights and grows to its size as it is.
 *
 * Space is given before the first write, since a write to a hole of a full disk would end the program with SIGBUS: by
 * MADV_POPULATE_WRITE, which needs no descriptor. Kernels before 5.14 lack it; there the file is opened again for
 * posix_fallocate, since the program may close every descriptor that it does not know.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "space.h"
#include "state.h"

enum {
    /* MADV_POPULATE_WRITE, which older headers lack. */
    POPULATE_WRITE = 23,
    /* LACK_MS: pause (ms) before space is requested again after a lack of space. PASSING_MS: pause (ms) before space is
     * requested again after a lack that soon passes, such as a lack of descriptors. */
    LACK_MS = 1000,
    PASSING_MS = 10,
    /* Largest number of tries of a request that is interrupted. */
    TRIES = 100,
};
/* Nanoseconds in a millisecond. */
#define MS UINT64_C(1000000)

/* Most bytes that the file may take beside its rings, and those that were given to it. */
static uint64_t allowed, given;
/* Until when no space is asked for (CLOCK_MONOTONIC, ns). */
static uint64_t lacking_until;
/* Whether the kernel has no MADV_POPULATE_WRITE. */
static uint32_t cannot_populate;
/* The file, opened again; -1, with errno. */
static int (*reopen)(void);

/* Maps ``size`` bytes to read and write, of a file or, without a ``descriptor`` (-1), of memory of this process alone; over
 * what is at ``place``, if that is not NULL, at one moment: there always is memory. NULL, with
 * errno, if it cannot be mapped. */
void *ss_map(void *place, uint64_t size, int descriptor)
{
    int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void *page = mmap(NULL, SS_PAGE, PROT_NONE, flags, descriptor, 0);
    if (page == MAP_FAILED)
        return NULL;
    munlock(page, SS_PAGE);
    /* A forked process must not write to its parent's file, and a core dump is no place for it. */
    if (descriptor >= 0)
        madvise(page, SS_PAGE, MADV_DONTFORK);
    madvise(page, SS_PAGE, MADV_DONTDUMP);
    void *base = MAP_FAILED;
    if (!mprotect(page, SS_PAGE, PROT_READ | PROT_WRITE))
        base = mremap(page, SS_PAGE, size, MREMAP_MAYMOVE | (place ? MREMAP_FIXED : 0), place);
    if (base != MAP_FAILED)
        return base;
    int error = errno;
    munmap(page, SS_PAGE);
    errno = error;
    return NULL;
}

/* Whether a file may have a size: beyond the limit of the process the kernel would end the program. */
int ss_size_allowed(uint64_t size)
{
    struct rlimit limit;
    return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= size);
}

/* Seals a memfd, which keeps its size for good: nobody who opens it can cut it off under its mapping. */
int ss_seal(int descriptor)
{
    /* F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK and F_SEAL_GROW, which older headers lack. */
    enum { ADD_SEALS = 1033, SEAL = 1, SHRINK = 2, GROW = 4 };
    return (int)syscall(SYS_fcntl, descriptor, ADD_SEALS, SEAL | SHRINK | GROW);
}

/* For a new file, which may take so many bytes beside its rings. */
void ss_begin_space(uint64_t most, int (*reopen_file)(void))
{
    ss_store(reopen, reopen_file);
    ss_store(allowed, most);
    ss_store(given, 0);
    ss_store(lacking_until, 0);
}

/* Whether space was refused a moment ago, and is not asked for at present. */
int ss_lacks_space(void)
{
    uint64_t until = ss_load(lacking_until);
    return until && ss_clock() < until;
}

static int populate(uint64_t offset, uint64_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)ss_at(offset) & ~(page - 1);
    uintptr_t end = ((uintptr_t)ss_at(offset + size) + page - 1) & ~(page - 1);
    return madvise((void *)first, end - first, POPULATE_WRITE) ? errno : 0;
}

/* Of the signals only SIGSTOP can still interrupt it; it then tries again. */
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

static int allocate_by_name(uint64_t offset, uint64_t size)
{
    int cancel;
    /* A thread must not end inside the driver's call because a cancellation was pending. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int descriptor = ss_load(reopen)();
    int error = descriptor < 0 ? errno : allocate(descriptor, offset, size);
    if (descriptor >= 0)
        close(descriptor);
    pthread_setcancelstate(cancel, NULL);
    return error;
}

static int give(uint64_t offset, uint64_t size)
{
    int error = EINVAL;
    for (int tried = 0; tried < TRIES && !ss_load(cannot_populate); tried++) {
        error = populate(offset, size);
        if (error != EINTR && error != EAGAIN)
            break;
    }
    if (error != EINVAL)
        return error;
    ss_store(cannot_populate, 1);
    return allocate_by_name(offset, size);
}

/* Whether there is no space. Other lacks pass: descriptors, memory of the kernel. */
static int is_lasting(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFAULT;
}

static int note_result(int error)
{
    uint32_t lasting = error && is_lasting(error);
    if (error)
        ss_store(lacking_until, ss_clock() + (lasting ? LACK_MS : PASSING_MS) * MS);
    if (ss_load(ss_header->out_of_space) != lasting)
        ss_store(ss_header->out_of_space, lasting);
    return error ? -1 : 0;
}

/* Gives the file space for a part of a ring, from offset on; 0 if it has it. Where space was refused a moment ago, it is
 * not asked for. */
int ss_give_ring(uint64_t offset, uint64_t size)
{
    if (ss_lacks_space())
        return -1;
    int before = errno, failed = note_result(give(offset, size));
    errno = before;
    return failed;
}

/* Whether ss_give_space would give no such size now. */
int ss_lacks_room(uint64_t size)
{
    return ss_lacks_space() || ss_load(given) + size > ss_load(allowed);
}

/* The same for what grows with the program, as far as the process has room for it. */
int ss_give_space(uint64_t offset, uint64_t size)
{
    if (ss_lacks_room(size))
        return -1;
    int before = errno;
    ss_add(given, size);
    int failed = note_result(give(offset, size));
    if (failed)
        ss_add(given, -size);
    errno = before;
    return failed;
}

/* Gives the file its beginning, which ss_give_space writes to; 0 if it has it, else the error. */
int ss_give_beginning(uint64_t size)
{
    ss_add(given, size);
    return give(0, size);
}

/* What was given for a place that another thread had taken meanwhile does not count twice. */
void ss_uncount_space(uint64_t size)
{
    ss_add(given, -size);
}
