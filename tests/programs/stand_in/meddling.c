/* A library that is preloaded into a program, and does what a hostile or an unlucky one may do while it is attached.
 *
 * MEDDLING_SWAP=FILE: a thread puts FILE, opened as a place only, at the number of every memfd for the injected library.
 * MEDDLING_EXEC_MS=N: a thread executes the program again after N ms, again and again.
 * MEDDLING_EXEC_WHEN=FILE: a thread executes "sleep 600" once FILE is there.
 * MEDDLING_UNDUMPABLE=1: the process protects its memory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { DESCRIPTORS = 32 };

static void rest(long ns)
{
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

static void *swap(void *path)
{
    int victim = open(path, O_PATH | O_CLOEXEC);
    /* Far from the numbers that are searched. */
    victim = fcntl(victim, F_DUPFD_CLOEXEC, 200);
    for (;;)
        for (int number = 3; number < DESCRIPTORS; number++) {
            char name[64], link[128] = "";
            snprintf(name, sizeof name, "/proc/self/fd/%d", number);
            if (readlink(name, link, sizeof link - 1) > 0 && strstr(link, "memfd:stallscope-inject"))
                dup2(victim, number);
        }
    return NULL;
}

static void *execute_again(void *ms)
{
    rest(strtol(ms, NULL, 10) * 1000000);
    char command[4096];
    char *words[16] = {NULL};
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = read(file, command, sizeof command - 1);
    for (ssize_t at = 0, number = 0; at < size && number < 15; at += (ssize_t)strlen(command + at) + 1)
        words[number++] = command + at;
    for (int number = 3; number < 256; number++)
        fcntl(number, F_SETFD, FD_CLOEXEC);
    execv("/proc/self/exe", words);
    return NULL;
}

static void *execute_when(void *path)
{
    while (access(path, F_OK))
        rest(1000000);
    /* It has no need of this library, nor of the descriptors of the program. */
    unsetenv("LD_PRELOAD");
    execlp("sleep", "sleep", "600", (char *)NULL);
    return NULL;
}

static void start(void *(*body)(void *), const char *variable)
{
    char *value = getenv(variable);
    pthread_t thread;
    if (value)
        pthread_create(&thread, NULL, body, value);
}

__attribute__((constructor)) static void meddle(void)
{
    if (getenv("MEDDLING_UNDUMPABLE"))
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    start(swap, "MEDDLING_SWAP");
    start(execute_again, "MEDDLING_EXEC_MS");
    start(execute_when, "MEDDLING_EXEC_WHEN");
}
