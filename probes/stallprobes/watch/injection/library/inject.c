/* The library that stallscope injects into a CUDA program (CUDA_INJECTION64_PATH).
 *
 * libcuda loads it in cuInit and calls InitializeInjection. It subscribes to callbacks of CUPTI for the calls that can
 * block, collects activity records, and writes both to a file of this process in a private folder, which the reader
 * maps or reads. Whatever fails is written to that file; the program starts and ends as it would have.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inject.h"

#define EXPORTED __attribute__((visibility("default")))

struct sw_settings sw_settings;

static struct cupti cupti;
static void *cupti_library;
static void *subscriber;
static uint32_t subscribed;

static int read_settings(void)
{
    const char *folder = secure_getenv(SW_VARIABLE_FOLDER);
    const char *library = secure_getenv(SW_VARIABLE_CUPTI);
    const char *slow = secure_getenv(SW_VARIABLE_SLOW);
    const char *calls_only = secure_getenv(SW_VARIABLE_CALLS_ONLY);
    const char *yield = secure_getenv(SW_VARIABLE_YIELD);
    const char *no_stacks = secure_getenv(SW_VARIABLE_NO_STACKS);
    if (!folder || folder[0] != '/' || strlen(folder) >= sizeof sw_settings.folder)
        return -1;
    strcpy(sw_settings.folder, folder);
    if (library && strlen(library) < sizeof sw_settings.cupti)
        strcpy(sw_settings.cupti, library);
    char *end = NULL;
    sw_settings.slow_ns = slow ? strtoull(slow, &end, 10) : SW_DEFAULT_SLOW_NS;
    if (slow && (end == slow || *end))
        sw_settings.slow_ns = SW_DEFAULT_SLOW_NS;
    sw_settings.calls_only = calls_only && !strcmp(calls_only, "1");
    sw_settings.yield = yield && !strcmp(yield, "1");
    sw_settings.no_stacks = no_stacks && !strcmp(no_stacks, "1");
    return 0;
}

static int remember_cupti(struct dl_phdr_info *library, size_t size, void *path)
{
    const char *name = library->dlpi_name ? strrchr(library->dlpi_name, '/') : NULL;
    (void)size;
    if (!name || strncmp(name, "/libcupti.so", strlen("/libcupti.so")))
        return 0;
    snprintf(path, PATH_MAX, "%s", library->dlpi_name);
    return 1;
}

/* libcupti: the one that the program has loaded, else the one that the settings name, else the system's. */
static void *open_cupti(void)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    char path[PATH_MAX] = "";
    void *library = NULL;
    if (dl_iterate_phdr(remember_cupti, path))
        library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library && sw_settings.cupti[0])
        return dlopen(sw_settings.cupti, RTLD_NOW | RTLD_LOCAL);
    for (size_t at = 0; !library && at < sizeof names / sizeof *names; at++)
        library = dlopen(names[at], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static void load_functions(void *library)
{
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuptiGetVersion", &cupti.get_version},
        {"cuptiSubscribe", &cupti.subscribe},
        {"cuptiUnsubscribe", &cupti.unsubscribe},
        {"cuptiEnableCallback", &cupti.enable_callback},
        {"cuptiGetCallbackName", &cupti.get_callback_name},
        {"cuptiSetThreadIdType", &cupti.set_thread_id_type},
        {"cuptiActivityRegisterTimestampCallback", &cupti.set_timestamps},
        {"cuptiActivityRegisterCallbacks", &cupti.set_buffers},
        {"cuptiActivityEnable", &cupti.enable},
        {"cuptiActivityDisable", &cupti.disable},
        {"cuptiActivityFlushAll", &cupti.flush},
        {"cuptiActivityGetNextRecord", &cupti.next_record},
        {"cuptiActivityGetNumDroppedRecords", &cupti.dropped_records},
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        void *found = dlsym(library, functions[at].name);
        memcpy(functions[at].function, &found, sizeof found);
    }
}

static uint32_t failed(const char *function, int code, uint32_t state)
{
    strncpy(sw_header->function, function, sizeof sw_header->function - 1);
    sw_header->code = code;
    return state;
}

/* The state to write to the file, with the reason for one in which nothing is recorded. */
static uint32_t connect_to_cupti(void)
{
    cupti_library = open_cupti();
    if (!cupti_library)
        return failed("dlopen", 0, SW_STATE_NO_CUPTI);
    load_functions(cupti_library);
    if (!cupti.get_version || !cupti.subscribe || !cupti.unsubscribe || !cupti.enable_callback ||
        !cupti.get_callback_name)
        return failed("dlsym", 0, SW_STATE_CUPTI_TOO_OLD);
    Dl_info where;
    void *address;
    memcpy(&address, &cupti.subscribe, sizeof address);
    if (dladdr(address, &where) && where.dli_fname)
        strncpy(sw_header->cupti_path, where.dli_fname, sizeof sw_header->cupti_path - 1);
    int code = cupti.get_version(&sw_header->cupti_version);
    if (code)
        return failed("cuptiGetVersion", code, SW_STATE_CUPTI_FAILED);
    if (sw_header->cupti_version < CUPTI_OLDEST_VERSION)
        return failed("cuptiGetVersion", 0, SW_STATE_CUPTI_TOO_OLD);
    code = cupti.subscribe(&subscriber, sw_callback, NULL);
    if (code)
        return failed("cuptiSubscribe", code, code == CUPTI_TAKEN ? SW_STATE_CUPTI_TAKEN : SW_STATE_CUPTI_FAILED);
    sw_store_release(subscribed, 1);
    sw_store_release(sw_private->recording, SW_OPEN);
    if (!sw_settings.calls_only)
        sw_start_activity(&cupti);
    int chosen = sw_choose_calls(&cupti, subscriber);
    sw_write_apis();
    return chosen ? SW_STATE_RECORDING : failed("cuptiEnableCallback", 0, SW_STATE_CUPTI_FAILED);
}

static void at_exit(void)
{
    if (sw_load_acquire(sw_private->recording) != SW_OPEN)
        return;
    sw_finish_activity();
    sw_store_release(sw_header->ended_ns, sw_clock());
}

static void *private_page(void)
{
    void *page = mmap(NULL, SW_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    /* From Linux 4.14 on, for forks that call no handler. */
    madvise(page, SW_PAGE, MADV_WIPEONFORK);
    return page;
}

EXPORTED int InitializeInjection(void)
{
    static uint32_t once;
    if (__atomic_exchange_n(&once, 1, __ATOMIC_ACQ_REL) || read_settings() || !(sw_private = private_page()))
        return 1;
    uint32_t flags = (sw_settings.calls_only ? SW_FLAG_CALLS_ONLY : 0) | (sw_settings.yield ? SW_FLAG_YIELD : 0);
    sw_store(sw_private->recording, SW_OFF);
    sw_prepare_stacks();
    if (sw_prepare_calls() || sw_open_file(flags))
        return 1;
    sw_store_release(sw_header->state, connect_to_cupti());
    if (sw_load(subscribed))
        atexit(at_exit);
    return 1;
}

/* Gives CUPTI up, so that the program's own profiler can have it. */
static void yield(void)
{
    uint32_t expected = 1;
    /* A forked process has no file before its first call, and no subscription of its own to give up. */
    if (!sw_settings.yield || sw_load_acquire(sw_private->recording) != SW_OPEN ||
        !__atomic_compare_exchange_n(&subscribed, &expected, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    if (sw_header->kinds)
        sw_stop_activity(&cupti);
    cupti.unsubscribe(subscriber);
    sw_header->yielded_ns = sw_clock();
    sw_store_release(sw_header->state, SW_STATE_YIELDED);
}

/* Where the library is preloaded, these stand before the functions of libcupti, so that the program's own profiler
 * announces itself here. Elsewhere nothing calls them, unless libcuda loads the library for all to see. */
static void *next_function(const char *name)
{
    yield();
    void *found = dlsym(RTLD_NEXT, name);
    return found || !cupti_library ? found : dlsym(cupti_library, name);
}

EXPORTED int cuptiSubscribe(void **subscription, cupti_callback callback, void *user)
{
    int (*next)(void **, cupti_callback, void *);
    void *found = next_function("cuptiSubscribe");
    memcpy(&next, &found, sizeof next);
    return next ? next(subscription, callback, user) : CUPTI_NOT_INITIALIZED;
}

EXPORTED int cuptiSubscribe_v2(void **subscription, cupti_callback callback, void *user, void *parameters)
{
    int (*next)(void **, cupti_callback, void *, void *);
    void *found = next_function("cuptiSubscribe_v2");
    memcpy(&next, &found, sizeof next);
    return next ? next(subscription, callback, user, parameters) : CUPTI_NOT_INITIALIZED;
}

EXPORTED int cuptiActivityRegisterCallbacks(cupti_requested requested, cupti_completed completed)
{
    int (*next)(cupti_requested, cupti_completed);
    void *found = next_function("cuptiActivityRegisterCallbacks");
    memcpy(&next, &found, sizeof next);
    return next ? next(requested, completed) : CUPTI_NOT_INITIALIZED;
}
