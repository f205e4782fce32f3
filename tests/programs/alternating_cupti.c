/* Stands before libcupti, and gives the callbacks of every second step of a program to the library that subscribed, the
 * others to the least that a library can do (two readings of the clock, a histogram, a count of all calls), so that what
 * that library adds to a call is measured within one process. A step ends with cuStreamSynchronize, and so does a warm-up
 * before the first one. ALTERNATING_CUPTI is the path of libcupti; ALTERNATING_FIRST=1: the first step is the library's,
 * else the second.
 *
 * gcc -O2 -shared -fPIC, with the folders of cupti.h and of the generated layout.h, linked with that libcupti: what is not
 * here is found there.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti.h"

static ss_cupti_callback theirs;
static void *their_user;
static int is_theirs;
static __thread uint64_t began;
static __thread uint64_t durations[64];
static uint64_t calls;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void on_call(void *user, int domain, uint32_t number, const struct ss_callback_data *data)
{
    (void)user;
    if (is_theirs)
        theirs(their_user, domain, number, data);
    else if (data->site == SS_CALL_ENTER)
        began = now();
    else {
        durations[(now() - began) >> 10 & 63]++;
        __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    }
    if (data->site != SS_CALL_ENTER && !strncmp(data->function, "cuStreamSynchronize", 19))
        is_theirs = !is_theirs;
}

__attribute__((visibility("default"))) int cuptiSubscribe(void **subscriber, ss_cupti_callback callback, void *user)
{
    int (*subscribe)(void **, ss_cupti_callback, void *);
    const char *path = getenv("ALTERNATING_CUPTI"), *first = getenv("ALTERNATING_FIRST");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *found = library ? dlsym(library, "cuptiSubscribe") : NULL;
    if (!found)
        return 1;
    memcpy(&subscribe, &found, sizeof subscribe);
    theirs = callback;
    their_user = user;
    is_theirs = !(first && *first == '1');
    return subscribe(subscriber, on_call, user);
}
