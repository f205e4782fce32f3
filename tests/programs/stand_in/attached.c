/* A program that is attached while it runs: attached CALL [blocked] [handler] [storm] [hung] [parent] [many]
 * [several] [graphs].
 *
 * A thread with the name of libcuda's own sleeps in the system call CALL: poll, ppoll, epoll, select, accept, sleep, or
 * one in which no thread may be borrowed: futex, read. Where it says so, all threads block all signals; there is a handler
 * of SIGSEGV with a stack of its own in each thread; a storm of signals with a handler reaches the sleeping thread; a
 * thread hangs in a call from before on, or once there is the file of HANGS_ONCE_THERE_IS; the program has started another one like it, whose output goes nowhere; not one
 * thread makes launches, but MANY or SEVERAL; each instantiates a graph with each wait. For each line on its input, the thread is woken and compares what it has with what it
 * had before it slept: registers, extended state, signal mask, alternate stack, errno; the program answers with a line:
 * what differs and how often the call was interrupted without a signal. Launches continue meanwhile, and each is counted
 * by the program itself. At the end of the input it exits with 0.
 */
#ifndef __x86_64__

/* Attaching is for x86-64 alone. */
int main(void)
{
    return 2;
}

#else
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "stand_in.h"

enum { MANY = 64, SEVERAL = 10, REGISTERS = 6, VECTORS = 16, SIGNALS = 65, ERRNO = 77 };

struct state {
    uint64_t registers[REGISTERS];
    uint8_t vectors[VECTORS][32];
};

static const char *call;
static int blocked, handler, storm, hung, graphs, launchers = 1;
static int wake[2], ready[2], listening;
static uint32_t ended;
static uint64_t handled;
/* Signals that are queued one by one, so that none may be lost. */
static uint64_t queued, delivered;
static pid_t sleeper;
static struct sigaction before[SIGNALS];
static uint64_t launches;
static uint32_t word;

/* Writes a line at once: what a FILE has is also written by exit, in another thread, which takes no lock for it. */
static void say(const char *format, ...)
{
    char line[512];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (write(1, line, (size_t)length) != length)
        _exit(4);
}

static int is(const char *name)
{
    return !strcmp(call, name);
}

static void on_signal(int number)
{
    __atomic_fetch_add(number == SIGRTMIN + 2 ? &delivered : &handled, 1, __ATOMIC_RELAXED);
}

static void own_stack(void)
{
    if (!handler)
        return;
    void *memory = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory, .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
}

/* A system call with known values in all registers that it keeps; ``after`` becomes what they are then. AVX is optional:
 * without it, the lower halves. */
__attribute__((noinline)) static long checked_call(long number, const long arguments[6], const struct state *known,
                                                   struct state *after, int avx)
{
    long result;
    const uint64_t *from = known->registers;
    if (avx)
        __asm__ volatile("vmovdqu (%0), %%ymm6\n vmovdqu 32(%0), %%ymm7\n vmovdqu 64(%0), %%ymm14\n" : : "r"(known->vectors) : "xmm6", "xmm7", "xmm14");
    else
        __asm__ volatile("movdqu (%0), %%xmm6\n movdqu 32(%0), %%xmm7\n movdqu 64(%0), %%xmm14\n" : : "r"(known->vectors) : "xmm6", "xmm7", "xmm14");
    /* Below what the compiler may use without moving the stack pointer. The last of the known values is where to. */
    __asm__ volatile("lea -128(%%rsp), %%rsp\n push %%rbx\n push %%r12\n push %%r13\n push %%r14\n push %%r15\n"
                     "push 40(%%rcx)\n"
                     "mov (%%rcx), %%rbx\n mov 8(%%rcx), %%r12\n mov 16(%%rcx), %%r13\n mov 24(%%rcx), %%r14\n"
                     "mov 32(%%rcx), %%r15\n"
                     "mov 8(%%rdi), %%rsi\n mov 16(%%rdi), %%rdx\n mov 24(%%rdi), %%r10\n mov 32(%%rdi), %%r8\n"
                     "mov 40(%%rdi), %%r9\n mov (%%rdi), %%rdi\n"
                     "syscall\n pop %%rcx\n"
                     "mov %%rbx, (%%rcx)\n mov %%r12, 8(%%rcx)\n mov %%r13, 16(%%rcx)\n mov %%r14, 24(%%rcx)\n"
                     "mov %%r15, 32(%%rcx)\n"
                     "pop %%r15\n pop %%r14\n pop %%r13\n pop %%r12\n pop %%rbx\n lea 128(%%rsp), %%rsp\n"
                     : "=a"(result), "+c"(from), "+D"(arguments)
                     : "a"(number)
                     : "rsi", "rdx", "r8", "r9", "r10", "r11", "memory");
    if (avx)
        __asm__ volatile("vmovdqu %%ymm6, (%0)\n vmovdqu %%ymm7, 32(%0)\n vmovdqu %%ymm14, 64(%0)\n vzeroupper\n" : : "r"(after->vectors) : "memory");
    else
        __asm__ volatile("movdqu %%xmm6, (%0)\n movdqu %%xmm7, 32(%0)\n movdqu %%xmm14, 64(%0)\n" : : "r"(after->vectors) : "memory");
    return result;
}

/* A socket of the abstract namespace, at which the sleeping thread accepts. The kernel chooses its name: processes of
 * different PID namespaces can have one number. */
static int start_listening(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int made = socket(AF_UNIX, SOCK_STREAM, 0);
    return bind(made, (struct sockaddr *)&address, sizeof address.sun_family) || listen(made, 8) ? -1 : made;
}

/* Sleeps in the system call until it is woken; its result. */
static long sleep_in_call(const struct state *known, struct state *after, int avx)
{
    static int waiting = -1;
    struct pollfd poll = {.fd = wake[0], .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    fd_set readable;
    struct timespec moment = {0, 20000000}, never = {3600, 0};
    struct timeval time = {3600, 0};
    char byte;
    FD_ZERO(&readable);
    FD_SET(wake[0], &readable);
    if (is("poll"))
        return checked_call(SYS_poll, (long[6]){(long)&poll, 1, -1}, known, after, avx);
    if (is("ppoll"))
        return checked_call(SYS_ppoll, (long[6]){(long)&poll, 1, (long)&never, 0, 8}, known, after, avx);
    if (is("select"))
        return checked_call(SYS_select, (long[6]){wake[0] + 1, (long)&readable, 0, 0, (long)&time}, known, after, avx);
    if (is("futex"))
        return checked_call(SYS_futex, (long[6]){(long)&word, FUTEX_WAIT_PRIVATE, 0, 0}, known, after, avx);
    if (is("read")) {
        long got = checked_call(SYS_read, (long[6]){wake[0], (long)&byte, 1}, known, after, avx);
        return got == 1 && write(wake[1], &byte, 1) == 1 ? 1 : got;
    }
    if (is("sleep")) {
        long result = checked_call(SYS_clock_nanosleep, (long[6]){CLOCK_MONOTONIC, 0, (long)&moment, 0}, known, after, avx);
        struct pollfd now = {.fd = wake[0], .events = POLLIN};
        int kept = errno, woken = syscall(SYS_poll, &now, 1, 0) == 1;
        errno = kept;
        return woken ? woken : result;
    }
    if (is("epoll")) {
        if (waiting < 0) {
            waiting = epoll_create1(EPOLL_CLOEXEC);
            epoll_ctl(waiting, EPOLL_CTL_ADD, wake[0], &event);
        }
        return checked_call(SYS_epoll_wait, (long[6]){waiting, (long)&event, 1, -1}, known, after, avx);
    }
    long accepted = checked_call(SYS_accept, (long[6]){listening, 0, 0}, known, after, avx);
    if (accepted < 0)
        return accepted;
    close((int)accepted);
    return 1;
}

static void *sleeping_thread(void *unused)
{
    struct state known, after;
    stack_t stack, same;
    sigset_t mask, masked;
    uint64_t interrupted = 0, signals = 0;
    int avx = __builtin_cpu_supports("avx");
    (void)unused;
    prctl(PR_SET_NAME, "cuda-EvtHandlr");
    sleeper = (pid_t)syscall(SYS_gettid);
    own_stack();
    sigaltstack(NULL, &stack);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (size_t at = 0; at < sizeof known; at++)
        ((uint8_t *)&known)[at] = (uint8_t)(at * 37 + 11);
    known.registers[REGISTERS - 1] = (uint64_t)after.registers;
    if (write(ready[1], "r", 1) != 1)
        return NULL;
    for (;;) {
        memset(&after, 0, sizeof after);
        errno = ERRNO;
        long result = sleep_in_call(&known, &after, avx);
        int kept = errno;
        if (result == -EINTR)
            interrupted++;
        /* One that is sent to the process may interrupt the call, and be taken by another thread, which still has to handle
         * it. */
        signals = __atomic_load_n(&handled, __ATOMIC_RELAXED) + __atomic_load_n(&delivered, __ATOMIC_RELAXED);
        if (result <= 0 && result != -EINTR && !(is("sleep") && !result)) {
            say("the call returned %ld\n", result);
            return NULL;
        }
        char what[256] = "";
        if (memcmp(known.registers, after.registers, 5 * sizeof *known.registers))
            strcat(what, " registers");
        for (int vector = 0; vector < 3; vector++)
            if (memcmp(known.vectors[vector], after.vectors[vector], avx ? 32 : 16))
                strcat(what, " vectors");
        sigaltstack(NULL, &same);
        if (memcmp(&stack, &same, sizeof stack))
            strcat(what, " stack");
        pthread_sigmask(SIG_SETMASK, NULL, &masked);
        for (int number = 1; number < SIGNALS; number++)
            if (sigismember(&mask, number) != sigismember(&masked, number))
                strcat(what, what[200] ? "" : " mask");
        if (kept != ERRNO)
            strcat(what, " errno");
        if (*what || (result == -EINTR && interrupted > signals + (uint64_t)storm)) {
            say("differs:%s, interrupted %lu times for %lu signals\n", what, interrupted, signals);
            return NULL;
        }
        if (result <= 0)
            continue;
        char byte;
        if (read(wake[0], &byte, 1) == 1) {
            for (int number = 1; number < SIGNALS; number++) {
                struct sigaction now;
                if (!sigaction(number, NULL, &now) && (now.sa_handler != before[number].sa_handler ||
                                                       now.sa_flags != before[number].sa_flags))
                    say("signal %d has another handler\n", number);
            }
            say("same, %lu launches\n", __atomic_load_n(&launches, __ATOMIC_RELAXED));
        }
    }
    return NULL;
}

static void *storming_thread(void *unused)
{
    struct timespec pause = {0, 100000};
    while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE)) {
        syscall(SYS_tgkill, getpid(), sleeper, SIGUSR1);
        kill(getpid(), SIGUSR2);
        /* ThreadSanitizer keeps signals back until a function of its own is called. */
#if !defined(__SANITIZE_THREAD__)
        queued += !syscall(SYS_tgkill, getpid(), sleeper, SIGRTMIN + 2);
#endif
        nanosleep(&pause, NULL);
    }
    return unused;
}

static void *hanging_thread(void *unused)
{
    static char target[64];
    const char *awaited = getenv("HANGS_ONCE_THERE_IS");
    struct timespec pause = {0, 1000000};
    prctl(PR_SET_NAME, "hung");
    while (awaited && access(awaited, F_OK))
        syscall(SYS_nanosleep, &pause, NULL);
    stand_in_length(UINT64_C(3600000000000));
    cuMemcpyDtoHAsync_v2(target, UINT64_C(0x7f0000000000), sizeof target, (void *)0x55);
    return unused;
}

static void *launching_thread(void *unused)
{
    while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE)) {
        cuLaunchKernel("_Z3addPf", 1, 1, 1, 1, 1, 1, 0, (void *)0x1234, NULL, NULL);
        if (__atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED) % 64 == 0) {
            struct timespec pause = {0, 1000000};
            void *executable;
            if (graphs)
                cuGraphInstantiateWithFlags(&executable, (void *)0x9000, 0);
            cuStreamSynchronize(NULL);
            syscall(SYS_nanosleep, &pause, NULL);
        }
    }
    return unused;
}

/* Wakes the thread in whichever call it sleeps. */
static void wake_sleeper(void)
{
    if (write(wake[1], "w", 1) != 1)
        exit(3);
    if (is("accept")) {
        struct sockaddr_un address;
        socklen_t bytes = sizeof address;
        int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
        if (getsockname(listening, (struct sockaddr *)&address, &bytes) ||
            connect(descriptor, (struct sockaddr *)&address, bytes))
            exit(3);
        close(descriptor);
    }
}

/* A program as this one, until the pipe of its input has no other end. */
static int start_child(const char *program)
{
    int input[2];
    if (pipe(input))
        return -1;
    fcntl(input[1], F_SETFD, FD_CLOEXEC);
    if (fork())
        return close(input[0]);
    int nowhere = open("/dev/null", O_WRONLY);
    dup2(input[0], 0);
    dup2(nowhere, 1);
    execl(program, program, call, NULL);
    _exit(127);
}

int main(int count, char **words)
{
    call = count > 1 ? words[1] : "poll";
    for (int at = 2; at < count; at++) {
        blocked |= !strcmp(words[at], "blocked");
        handler |= !strcmp(words[at], "handler");
        storm |= !strcmp(words[at], "storm");
        hung |= !strcmp(words[at], "hung");
        if (!strcmp(words[at], "many"))
            launchers = MANY;
        if (!strcmp(words[at], "several"))
            launchers = SEVERAL;
        graphs |= !strcmp(words[at], "graphs");
        if (!strcmp(words[at], "parent") && start_child(words[0]))
            return 2;
    }
    struct sigaction counting = {.sa_handler = on_signal}, restarting = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction segv = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    if (storm) {
        sigaction(SIGUSR1, &counting, NULL);
        sigaction(SIGUSR2, &restarting, NULL);
        sigaction(SIGRTMIN + 2, &restarting, NULL);
    }
    if (handler)
        sigaction(SIGSEGV, &segv, NULL);
    if (blocked) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    }
    for (int number = 1; number < SIGNALS; number++)
        sigaction(number, NULL, &before[number]);
    own_stack();
    if (pipe(wake) || pipe(ready) || (listening = start_listening()) < 0 || cuInit(0))
        return 2;
    pthread_t thread, storming, launching[MANY];
    char byte;
    pthread_create(&thread, NULL, sleeping_thread, NULL);
    if (read(ready[0], &byte, 1) != 1)
        return 2;
    if (storm)
        pthread_create(&storming, NULL, storming_thread, NULL);
    if (hung) {
        uint32_t calls = stand_in_begun();
        struct timespec pause = {0, 1000000};
        pthread_create(&thread, NULL, hanging_thread, NULL);
        while (!getenv("HANGS_ONCE_THERE_IS") && stand_in_begun() == calls)
            nanosleep(&pause, NULL);
    }
    for (int at = 0; at < launchers; at++)
        pthread_create(&launching[at], NULL, launching_thread, NULL);
    say("ready\n");
    for (;;) {
        ssize_t got = read(0, &byte, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        if (byte == '\n')
            wake_sleeper();
    }
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    for (int at = 0; at < launchers; at++)
        pthread_join(launching[at], NULL);
    if (storm)
        pthread_join(storming, NULL);
    struct timespec pause = {0, 1000000};
    uint64_t expected = blocked ? 0 : queued;
    for (int waited = 0; waited < 10000 && __atomic_load_n(&delivered, __ATOMIC_ACQUIRE) < expected; waited++)
        nanosleep(&pause, NULL);
    uint64_t found = __atomic_load_n(&delivered, __ATOMIC_ACQUIRE);
    if (found < expected) {
        say("%lu of %lu signals were delivered\n", found, expected);
        return 5;
    }
    return 0;
}

#endif
