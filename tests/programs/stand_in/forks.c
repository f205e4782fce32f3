/* A program that forks while the injected library reads the loader's list of libraries: the child loads a library, and
 * exits with 0 if it could. Each time that the list is read takes a while here. Then it forks a child whose first call
 * has a cancellation that is pending, and that exits with 7 if it returns from it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stand_in.h"

typedef int (*callback)(struct dl_phdr_info *, size_t, void *);

/* Longest time (s) of the child. */
enum { CHILD_S = 20 };
/* Exit code of the second child. */
enum { RETURNED = 7 };

static uint32_t inside;

struct reading {
    callback function;
    void *data;
};

static int read_slowly(struct dl_phdr_info *library, size_t size, void *user)
{
    const struct reading *reading = user;
    if (!__atomic_exchange_n(&inside, 1, __ATOMIC_ACQ_REL))
        usleep(50000);
    return reading->function(library, size, reading->data);
}

/* In the place of the C library's. */
int dl_iterate_phdr(callback function, void *data)
{
    int (*usual)(callback, void *);
    void *found = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    memcpy(&usual, &found, sizeof found);
    return usual(read_slowly, &(struct reading){function, data});
}

static void *forking_thread(void *status)
{
    while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE))
        usleep(100);
    pid_t child = fork();
    if (!child) {
        alarm(CHILD_S);
        _exit(!dlopen("libm.so.6", RTLD_NOW));
    }
    waitpid(child, status, 0);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    int status = -1;
    if (pthread_create(&thread, NULL, forking_thread, &status) || cuInit(0) || pthread_join(thread, NULL))
        return 2;
    cuLaunchKernel("_Z3addPf", 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return 3;
    pid_t child = fork();
    if (!child) {
        pthread_cancel(pthread_self());
        cuLaunchKernel("_Z3addPf", 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        _exit(RETURNED);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == RETURNED ? 0 : 4;
}
