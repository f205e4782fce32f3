/* The library that stallscope injects into a CUDA program (CUDA_INJECTION64_PATH).
 *
 * libcuda loads it in cuInit and calls InitializeInjection; in a program that runs already, stallscope's attacher loads
 * it and calls an entry of its own. It subscribes to callbacks of CUPTI for the calls that can block, collects activity
 * records, and writes both to a file of this process in a private folder, which the reader maps or reads. Whatever fails
 * is written to that file; the program starts and ends as it would have.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "abandoned.h"
#include "control.h"
#include "recording.h"
#include "state.h"

static int read_settings(void)
{
    const char *folder = secure_getenv(SS_FOLDER_VARIABLE);
    const char *library = secure_getenv(SS_CUPTI_VARIABLE);
    const char *slow = secure_getenv(SS_SLOW_VARIABLE);
    const char *calls_only = secure_getenv(SS_CALLS_ONLY_VARIABLE);
    const char *yield = secure_getenv(SS_YIELD_VARIABLE);
    const char *no_stacks = secure_getenv(SS_NO_STACKS_VARIABLE);
    const char *cost = secure_getenv(SS_COST_VARIABLE);
    if (!folder || folder[0] != '/' || strlen(folder) >= sizeof ss_settings.folder)
        return -1;
    strcpy(ss_settings.folder, folder);
    if (library && strlen(library) < sizeof ss_settings.cupti)
        strcpy(ss_settings.cupti, library);
    const char *end = slow ? ss_parse_number(slow, &ss_settings.slow_ns) : NULL;
    if (!end || *end)
        ss_settings.slow_ns = SS_DEFAULT_SLOW_NS;
    end = cost ? ss_parse_number(cost, &ss_settings.cost_ppm) : NULL;
    if (!end || *end)
        ss_settings.cost_ppm = SS_DEFAULT_COST_PPM;
    ss_settings.calls_only = calls_only && !strcmp(calls_only, "1");
    ss_settings.yield = yield && !strcmp(yield, "1");
    ss_settings.beside = !ss_settings.yield;
    ss_settings.no_stacks = no_stacks && !strcmp(no_stacks, "1");
    return 0;
}

static void *private_page(void)
{
    void *page = mmap(NULL, SS_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    /* From Linux 4.14 on, for forks that call no handler. */
    madvise(page, SS_PAGE, MADV_WIPEONFORK);
    return page;
}

/* Prepares the library in this process, once; 0 if the caller may go on. */
static int prepare_process(void)
{
    static uint32_t once;
    struct ss_private *page;
    if (__atomic_exchange_n(&once, 1, __ATOMIC_ACQ_REL) || !(page = private_page()))
        return -1;
    ss_store(page->recording, SS_OFF);
    /* NVTX may be in use by now. */
    ss_store_release(ss_private, page);
    return 0;
}

SS_SHOWN int InitializeInjection(void)
{
    const char *asleep = secure_getenv(SS_ASLEEP_VARIABLE);
    int sleeps = asleep && !strcmp(asleep, "1");
    if ((!sleeps && read_settings()) || prepare_process())
        return 1;
    if (sleeps) {
        ss_start_control();
        return 1;
    }
    ss_record(0, ss_may_be_abandoned());
    if (ss_load_acquire(ss_private->recording) == SS_OPEN && ss_may_be_abandoned())
        ss_look_for_users();
    return 1;
}

/* What the attacher calls in a program that runs, in a thread that it has borrowed: a thread of the library does the
 * rest. Returns 0 if stallscope can wake the library from now on, else what the process lacks (enum SS_LACK), or -1. */
SS_SHOWN int stallscope_attach_library(void)
{
    prepare_process();
    return ss_private ? ss_start_control() : -1;
}

/* Where the library is preloaded, these stand before the functions of libcupti, so that the program's own profiler
 * announces itself here. Elsewhere nothing calls them, unless libcuda loads the library for all to see. */
SS_SHOWN int cuptiSubscribe(void **subscription, ss_cupti_callback callback, void *user)
{
    int (*next)(void **, ss_cupti_callback, void *);
    void *found = ss_next_function("cuptiSubscribe");
    memcpy(&next, &found, sizeof next);
    return next ? next(subscription, callback, user) : SS_CUPTI_NOT_INITIALIZED;
}

SS_SHOWN int cuptiSubscribe_v2(void **subscription, ss_cupti_callback callback, void *user, void *parameters)
{
    int (*next)(void **, ss_cupti_callback, void *, void *);
    void *found = ss_next_function("cuptiSubscribe_v2");
    memcpy(&next, &found, sizeof next);
    return next ? next(subscription, callback, user, parameters) : SS_CUPTI_NOT_INITIALIZED;
}

SS_SHOWN int cuptiActivityRegisterCallbacks(ss_buffer_requested requested, ss_buffer_completed completed)
{
    int (*next)(ss_buffer_requested, ss_buffer_completed);
    void *found = ss_next_function("cuptiActivityRegisterCallbacks");
    memcpy(&next, &found, sizeof next);
    return next ? next(requested, completed) : SS_CUPTI_NOT_INITIALIZED;
}
