/* A program whose thread sleeps where a tracer has to take care: odd_stacks KIND.
 *
 * A thread with the name of libcuda's own sleeps in poll. ``handler``: in the handler of a signal that interrupted the
 * allocator, which may have a lock. ``guarded``: near the end of its stack, before a page without rights. ``beside``: near
 * the end of its stack, before other data. At the end of the input the thread is woken; the program exits with 0 if all is
 * as before.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stand_in.h"

/* LEFT: bytes of the stack that are left below the sleeping thread, less than a signal's frame has. */
enum { BESIDE = 1 << 14, STACK = 1 << 16, LEFT = 1200, KNOWN = 0x5a };

static uint8_t *memory;
static int wake[2];
static uint32_t asleep;
static const char *kind;

/* Without a function of the C library, which may need more of the stack than is left. */
static void sleep_in_poll(void)
{
    struct pollfd poll = {.fd = wake[0], .events = POLLIN};
    __atomic_store_n(&asleep, 1, __ATOMIC_RELEASE);
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_poll), "D"(&poll), "S"(1), "d"(-1) : "rcx", "r11", "memory");
#else
    ppoll(&poll, 1, NULL, NULL);
#endif
}

static void on_signal(int number)
{
    (void)number;
    sleep_in_poll();
}

__attribute__((noinline)) static void sleep_deep(void)
{
    volatile uint8_t used[256];
    used[0] = 1;
    if ((uint8_t *)used - (memory + BESIDE) > LEFT)
        sleep_deep();
    else
        sleep_in_poll();
    used[0] = 2;
}

static void *sleeping_thread(void *unused)
{
    prctl(PR_SET_NAME, "cuda-EvtHandlr");
    for (size_t size = 1; !strcmp(kind, "handler"); size = size % 30000 + 1)
        free(malloc(size));
    sleep_deep();
    return unused;
}

int main(int count, char **words)
{
    char byte;
    pthread_t thread;
    pthread_attr_t attributes;
    kind = count > 1 ? words[1] : "";
    memory = mmap(NULL, BESIDE + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, KNOWN, BESIDE);
    if (!strcmp(kind, "guarded") && mprotect(memory, BESIDE, PROT_NONE))
        return 2;
    struct sigaction action = {.sa_handler = on_signal};
    if (sigaction(SIGUSR1, &action, NULL) || pipe(wake) || cuInit(0) || pthread_attr_init(&attributes) ||
        pthread_attr_setstack(&attributes, memory + BESIDE, STACK) ||
        pthread_create(&thread, &attributes, sleeping_thread, NULL))
        return 2;
    if (!strcmp(kind, "handler"))
        pthread_kill(thread, SIGUSR1);
    while (!__atomic_load_n(&asleep, __ATOMIC_ACQUIRE))
        usleep(1000);
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    if (write(wake[1], "w", 1) != 1)
        return 3;
    /* The thread in the allocator goes on until the end of the program. */
    if (strcmp(kind, "handler"))
        pthread_join(thread, NULL);
    for (size_t at = 0; strcmp(kind, "guarded") && at < BESIDE; at++)
        if (memory[at] != KNOWN)
            return 4;
    return 0;
}
