/* Threads of the library, waits between threads, and waits of forks for threads that use the loader. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state.h"
#include "threads.h"

/* Waits while a word has a value, at most so long. */
void ss_wait_for_change(uint32_t *word, uint32_t value, long ns)
{
    struct timespec limit = {ns / 1000000000, ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0);
}

void ss_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* FORK_PAUSE_NS: longest wait (ns) between two checks of the counters below. FORK_LOOKS: largest number of checks, 2 s
 * together. */
enum { FORK_PAUSE_NS = 100000, FORK_LOOKS = 20000 };
/* forks: number of threads inside fork. loading: number of threads that use the loader. */
static uint32_t forks, loading;

/* Begins a use of the loader. Returns -1 if a thread is inside fork. Forks wait until the use ends: the loader locks its
 * list of libraries, glibc 2.36 does not release this lock in a child, and the first dlopen of the child would hang. */
int ss_begin_loading(void)
{
    __atomic_fetch_add(&loading, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&forks, __ATOMIC_SEQ_CST))
        return 0;
    ss_end_loading();
    return -1;
}

void ss_end_loading(void)
{
    __atomic_fetch_sub(&loading, 1, __ATOMIC_SEQ_CST);
}

/* Begins a use of the loader. Waits up to 2 s for threads inside fork. */
void ss_wait_to_load(void)
{
    for (int look = 0; look < FORK_LOOKS; look++) {
        if (!ss_begin_loading())
            return;
        ss_wait_for_change(&forks, ss_load(forks), FORK_PAUSE_NS);
    }
    __atomic_fetch_add(&loading, 1, __ATOMIC_SEQ_CST);
}

static void before_fork(void)
{
    int error = errno;
    uint32_t used;
    __atomic_fetch_add(&forks, 1, __ATOMIC_SEQ_CST);
    for (int look = 0; look < FORK_LOOKS && (used = __atomic_load_n(&loading, __ATOMIC_SEQ_CST)); look++)
        ss_wait_for_change(&loading, used, FORK_PAUSE_NS);
    errno = error;
}

static void in_parent(void)
{
    __atomic_fetch_sub(&forks, 1, __ATOMIC_SEQ_CST);
}

static void in_child(void)
{
    forks = loading = 0;
}

/* Registers the handlers by which forks wait for uses of the loader. Returns 0, or the error of pthread_atfork. */
int ss_follow_forks(void)
{
    return pthread_atfork(before_fork, in_parent, in_child);
}

/* The thread runs on the CPUs of all threads of the process, with no priority in real time: the one that started it may be
 * kept on one CPU, which it needs. */
static void leave_cpu(void)
{
    /* SCHED_OTHER, SCHED_FIFO and SCHED_RR. */
    enum { NORMAL = 0, FIRST_COME = 1, ROUND_ROBIN = 2 };
    unsigned long all[128] = {0}, own[128];
    long policy = syscall(SYS_sched_getscheduler, 0);
    const int priority = 0;
    if (policy == FIRST_COME || policy == ROUND_ROBIN)
        syscall(SYS_sched_setscheduler, 0, NORMAL, &priority);
    struct ss_listing threads = {.descriptor = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    uint64_t thread;
    for (const char *name; (name = ss_next_name(&threads));) {
        long got = ss_parse_number(name, &thread) ? syscall(SYS_sched_getaffinity, (pid_t)thread, sizeof own, own) : -1;
        for (long at = 0; at < got / (long)sizeof *own; at++)
            all[at] |= own[at];
    }
    if (threads.descriptor < 0)
        return;
    close(threads.descriptor);
    syscall(SYS_sched_setaffinity, 0, sizeof all, all);
}

static void *start_body(void *argument)
{
    void *(*body)(void *);
    memcpy(&body, &argument, sizeof body);
    leave_cpu();
    return body(NULL);
}

/* A thread that takes no signal of the program, and none of its CPUs alone; ``stack_bytes`` of stack, which a program that
 * locks its memory has in memory at once. */
int ss_start_thread(void *(*body)(void *), size_t stack_bytes)
{
    void *argument;
    memcpy(&argument, &body, sizeof argument);
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes))
        return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) ||
                 pthread_attr_setstacksize(&attributes, stack_bytes) ||
                 pthread_create(&thread, &attributes, start_body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed ? -1 : 0;
}

/* The time (ns) that the calling thread has spent on a CPU. */
uint64_t ss_thread_cpu(void)
{
    struct timespec time;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time))
        return 0;
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Finds the address of the word for which a thread of this process sleeps in the system call futex; 0 if it does so, and the
 * system says it. */
int ss_find_awaited_word(uint32_t thread, uint64_t *word)
{
    char name[64], text[64];
    snprintf(name, sizeof name, "/proc/self/task/%u/syscall", thread);
    int descriptor = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t got = descriptor < 0 ? -1 : read(descriptor, text, sizeof text - 1);
    if (descriptor >= 0)
        close(descriptor);
    text[got > 0 ? got : 0] = 0;
    uint64_t call;
    const char *at = ss_parse_number(text, &call);
    if (!at || call != SYS_futex || strncmp(at, " 0x", 3))
        return -1;
    /* The first argument, in hexadecimal digits. */
    *word = 0;
    for (at += 3; (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f'); at++)
        *word = *word << 4 | (uint64_t)(*at <= '9' ? *at - '0' : *at - 'a' + 10);
    return 0;
}
