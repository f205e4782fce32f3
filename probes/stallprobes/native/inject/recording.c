/* Recordings: the library subscribes to callbacks of CUPTI for the calls that can block, collects activity records, and
 * releases CUPTI at the end.
 */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "activity.h"
#include "calls.h"
#include "driver_functions.h"
#include "gaps.h"
#include "gate.h"
#include "host_memory.h"
#include "map.h"
#include "recording.h"
#include "stack.h"
#include "state.h"
#include "threads.h"
#include "windows.h"

/* MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, which older headers lack. */
enum { REGISTER_PRIVATE_EXPEDITED = 1 << 4 };
/* Time (ns) that callbacks in flight get to return before CUPTI is released. */
enum { LAST_CALLBACKS_NS = 50000000 };
/* Oldest version of CUPTI (13.1) that the library finalizes. No older version was tried. */
enum { FINALIZED_SINCE = 130100 };
/* Longest wait (ns) of the program's exit until CUPTI is finalized. Finalizing takes 3 to 24 ms. */
enum { FINALIZED_NS = 100000000 };

static struct ss_cupti cupti;
static void *cupti_library;
/* Whether the program had loaded that libcupti before, and whether work of the GPU was ever recorded. */
static int is_shared, had_records;
/* Whether that libcupti is another one than the program's, which is loaded too. */
static int is_beside;
/* Whether CUPTI is being finalized. */
static uint32_t finalizes;
static void *subscriber;
static uint32_t subscribed;
/* Whether calls, and the end of the program, are followed, for the first recording and all later ones. */
static int prepared, follows_exit;

static int is_cupti(const struct dl_phdr_info *library)
{
    const char *name = library->dlpi_name ? strrchr(library->dlpi_name, '/') : NULL;
    return name && !strncmp(name, "/libcupti.so", strlen("/libcupti.so"));
}

static int remember_cupti(struct dl_phdr_info *library, size_t size, void *path)
{
    (void)size;
    if (!is_cupti(library))
        return 0;
    snprintf(path, PATH_MAX, "%s", library->dlpi_name);
    return 1;
}

/* Number of loaded libcuptis, and whether a loaded library needs a libcupti. */
struct cupti_users {
    int libraries, needed;
};

static int count_users(struct dl_phdr_info *library, size_t size, void *counted)
{
    struct cupti_users *users = counted;
    (void)size;
    users->libraries += is_cupti(library);
    for (int at = 0; at < library->dlpi_phnum; at++) {
        if (library->dlpi_phdr[at].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entries = (const void *)(library->dlpi_addr + library->dlpi_phdr[at].p_vaddr);
        const char *names = NULL;
        for (const ElfW(Dyn) *entry = entries; entry->d_tag != DT_NULL; entry++)
            if (entry->d_tag == DT_STRTAB)
                names = (const char *)entry->d_un.d_ptr;
        /* An offset, not an address, if glibc could not write the section (vDSO). */
        if ((uintptr_t)names < library->dlpi_addr)
            continue;
        for (const ElfW(Dyn) *entry = entries; entry->d_tag != DT_NULL; entry++)
            users->needed |= entry->d_tag == DT_NEEDED &&
                             !strncmp(names + entry->d_un.d_val, "libcupti.so", strlen("libcupti.so"));
    }
    return 0;
}

/* Whether no library of the program uses the libcupti of the recording. */
static int is_alone(void)
{
    struct cupti_users users = {0};
    ss_wait_to_load();
    dl_iterate_phdr(count_users, &users);
    ss_end_loading();
    return !is_shared && users.libraries > users.needed;
}

/* The version of a libcupti, 0 if it does not answer. */
static uint32_t version_of(void *library)
{
    int (*get_version)(uint32_t *version);
    uint32_t version = 0;
    void *found = dlsym(library, "cuptiGetVersion");
    memcpy(&get_version, &found, sizeof found);
    return found && !get_version(&version) ? version : 0;
}

/* libcupti: the one that the program has ``loaded``, else the one that the settings name, else the system's. Where the
 * program's is too old, or may have another one beside it and records no context switches, that of the settings is
 * loaded beside it. If only calls are recorded, that of the settings is loaded too, so that it can be finalized at the
 * end; not where the library yields to the program's profiler, which cannot subscribe beside it. After records by the
 * settings' libcupti, the program's gets none until the process ends (CUPTI 13.5, 13.0). */
static void *open_cupti(void **loaded)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    char path[PATH_MAX] = "";
    void *library = NULL;
    if (dl_iterate_phdr(remember_cupti, path))
        library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    *loaded = library;
    is_beside = 0;
    uint32_t oldest = ss_settings.beside ? SS_SWITCHES_SINCE : SS_OLDEST_VERSION;
    int finalizes_own = ss_settings.calls_only && !ss_settings.yield;
    if (ss_settings.cupti[0] && (!library || finalizes_own || version_of(library) < oldest)) {
        void *same = dlopen(ss_settings.cupti, RTLD_NOW | RTLD_NOLOAD);
        if (same)
            *loaded = same;
        void *other = dlopen(ss_settings.cupti, RTLD_NOW | RTLD_LOCAL);
        if (!library || (other && version_of(other) >= SS_SWITCHES_SINCE)) {
            is_beside = library && other != library;
            return other;
        }
        if (other)
            dlclose(other);
    }
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
        {"cuptiFinalize", &cupti.finalize},
        {"cuptiEnableCallback", &cupti.enable_callback},
        {"cuptiGetCallbackName", &cupti.get_callback_name},
        {"cuptiSetThreadIdType", &cupti.set_thread_id_type},
        {"cuptiActivityRegisterTimestampCallback", &cupti.set_timestamps},
        {"cuptiActivityRegisterCallbacks", &cupti.set_buffers},
        {"cuptiActivityEnable", &cupti.enable},
        {"cuptiActivityDisable", &cupti.disable},
        {"cuptiActivityEnableAndDump", &cupti.enable_and_dump},
        {"cuptiActivityFlushAll", &cupti.flush},
        {"cuptiActivityGetNextRecord", &cupti.next_record},
        {"cuptiActivityGetNumDroppedRecords", &cupti.count_dropped},
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        void *found = dlsym(library, functions[at].name);
        memcpy(functions[at].function, &found, sizeof found);
    }
}

static uint32_t failed(const char *function, int code, uint32_t state)
{
    strncpy(ss_header->function, function, sizeof ss_header->function - 1);
    ss_header->code = code;
    return state;
}

/* CUPTI 13.5 registers the process for barriers while it holds locks that calls of the program wait for, and the kernel
 * answers a process of several threads after a grace period of RCU, 13 to 20 ms later. Registered before, CUPTI's own
 * request returns at once. A kernel that refuses refuses CUPTI too. */
static void register_for_barriers(void)
{
#ifdef SYS_membarrier
    syscall(SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0);
#endif
}

/* The state to write to the file, with the reason for one in which nothing is recorded. A recording that begins ``late``
 * has its callbacks first: with them, no kind of records is switched on while a call is in flight. */
static uint32_t connect_to_cupti(int late, int gate)
{
    void *before = cupti_library, *loaded = NULL;
    /* Another libcupti gets no records after those of the first. */
    if (!had_records) {
        ss_wait_to_load();
        cupti_library = open_cupti(&loaded);
        ss_end_loading();
    }
    if (cupti_library != before)
        is_shared = cupti_library == loaded;
    if (is_beside)
        ss_store(ss_header->flags, ss_load(ss_header->flags) | SS_FLAG_BESIDE);
    if (!cupti_library)
        return failed("dlopen", 0, SS_STATE_NO_CUPTI);
    load_functions(cupti_library);
    if (!cupti.get_version || !cupti.subscribe || !cupti.unsubscribe || !cupti.enable_callback ||
        !cupti.get_callback_name)
        return failed("dlsym", 0, SS_STATE_CUPTI_TOO_OLD);
    Dl_info where;
    void *address;
    memcpy(&address, &cupti.subscribe, sizeof address);
    if (dladdr(address, &where) && where.dli_fname)
        strncpy(ss_header->cupti_path, where.dli_fname, sizeof ss_header->cupti_path - 1);
    int code = cupti.get_version(&ss_header->cupti_version);
    if (code)
        return failed("cuptiGetVersion", code, SS_STATE_CUPTI_FAILED);
    if (ss_header->cupti_version < SS_OLDEST_VERSION)
        return failed("cuptiGetVersion", 0, SS_STATE_CUPTI_TOO_OLD);
    if (late)
        register_for_barriers();
    ss_note_step("cuptiSubscribe");
    uint64_t began = ss_clock();
    code = cupti.subscribe(&subscriber, ss_callback, NULL);
    if (code)
        return failed("cuptiSubscribe", code, code == SS_CUPTI_TAKEN ? SS_STATE_CUPTI_TAKEN : SS_STATE_CUPTI_FAILED);
    uint64_t held_since = ss_rest_after(began, began);
    ss_store_release(subscribed, 1);
    ss_set_recording(SS_OPEN);
    if (gate)
        ss_use_gate(1);
    if (!late && ss_settings.calls_only)
        ss_start_rating(&cupti);
    else if (!late)
        ss_start_activity(&cupti, SS_NO_GATE);
    ss_start_looking();
    ss_note_step("cuptiEnableCallback");
    int chosen = ss_choose_calls(&cupti, subscriber, held_since);
    ss_write_apis();
    return chosen ? SS_STATE_RECORDING : failed("cuptiEnableCallback", 0, SS_STATE_CUPTI_FAILED);
}

static void at_exit(void)
{
    ss_begin_exit();
    /* CUPTI must not be finalized while the driver ends. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint64_t limit = ss_clock() + FINALIZED_NS;
    while (__atomic_load_n(&finalizes, __ATOMIC_SEQ_CST) && ss_clock() < limit)
        nanosleep(&(struct timespec){.tv_nsec = FINALIZED_NS / 100}, NULL);
    if (ss_load_acquire(ss_private->recording) != SS_OPEN)
        return;
    ss_stop_looking();
    ss_finish_activity();
    ss_store_release(ss_header->ended_ns, ss_clock());
}

/* The state of the recording that begins, to a new file; SS_STATE_STARTING if there is no file. ``gate``: it can end, or its
 * kinds of records be switched, while the program makes calls. */
uint32_t ss_record(uint32_t flags, int gate)
{
    flags |= (ss_settings.calls_only ? SS_FLAG_CALLS_ONLY : 0) | (ss_settings.yield ? SS_FLAG_YIELD : 0);
    if (!prepared && ss_prepare_calls())
        return SS_STATE_STARTING;
    prepared = 1;
    ss_prepare_stacks();
    if (ss_open_file(flags))
        return SS_STATE_STARTING;
    uint32_t state = connect_to_cupti(flags & SS_FLAG_LATE, gate);
    ss_store_release(ss_header->state, state);
    if (ss_load(subscribed) && !follows_exit)
        follows_exit = !atexit(at_exit);
    return state;
}

/* Begins a recording while the program runs, by the settings. Returns its state, SS_STATE_STARTING if there is no file;
 * ``code`` is CUPTI's where it failed. */
uint32_t ss_begin_recording(int *code)
{
    ss_forget_holds();
    ss_forget_host_memory();
    uint32_t state = ss_record(SS_FLAG_LATE, 1);
    if (state == SS_STATE_STARTING)
        return state;
    *code = ss_header->code;
    if (state != SS_STATE_RECORDING) {
        ss_note_step(ss_header->function);
        ss_end_recording(SS_QUICKLY);
    }
    return state;
}

/* Begins with records of the GPU's work, in a recording that began late; 1 if a call in flight prevents it. Without a
 * ``gate``, work of calls in flight may have no record. A program that instantiates graphs again and again has none. */
int ss_begin_records(int gate)
{
    if (!ss_load_acquire(subscribed))
        return 0;
    if (ss_settings.calls_only || ss_leaves_graphs(ss_header->started_ns)) {
        ss_start_rating(&cupti);
        return 0;
    }
    ss_note_step("cuptiActivityEnable");
    uint64_t began = ss_clock(), let_through = ss_load(ss_header->not_held);
    int again = ss_start_activity(&cupti, gate) > 0;
    ss_note_switch(began, gate, let_through);
    return again;
}

static void wait_for_callbacks(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LAST_CALLBACKS_NS}, NULL);
}

/* Releases CUPTI after the last callback, so that the program's own profiler can subscribe. Returns 1 if CUPTI has seen
 * the ends of all calls whose begins it has seen, else 0. */
static int unsubscribe(void)
{
    int left = ss_leave_calls();
    wait_for_callbacks();
    uint64_t began = ss_clock();
    cupti.unsubscribe(subscriber);
    ss_note_hold(began);
    return left;
}

/* Finalizes CUPTI, which else slows launches of graphs until the process ends. If work was recorded before, launches of
 * graphs fail after that (CUPTI 13.5). */
static void finalize(void)
{
    if (had_records || !cupti.finalize || ss_header->cupti_version < FINALIZED_SINCE || !is_alone())
        return;
    ss_note_step("cuptiFinalize");
    wait_for_callbacks();
    __atomic_store_n(&finalizes, 1, __ATOMIC_SEQ_CST);
    uint64_t began = ss_clock();
    if (!ss_is_exiting() && !cupti.finalize())
        ss_store_release(ss_header->flags, ss_load(ss_header->flags) | SS_FLAG_FINALIZED);
    ss_note_hold(began);
    __atomic_store_n(&finalizes, 0, __ATOMIC_SEQ_CST);
}

/* Ends the recording; 1 if a call in flight prevents it, where there is a ``gate``. CUPTI is free then, for the program's
 * own profiler too. */
int ss_end_recording(int gate)
{
    uint32_t expected = 1;
    if (ss_load_acquire(subscribed)) {
        ss_note_step("cuptiActivityDisable");
        uint64_t began = ss_clock(), let_through = ss_load(ss_header->not_held);
        int again = ss_stop_activity(&cupti, gate);
        ss_note_switch(began, gate, let_through);
        if (again)
            return 1;
        if (__atomic_compare_exchange_n(&subscribed, &expected, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            ss_stop_looking();
            ss_note_step("cuptiUnsubscribe");
            had_records |= ss_header->kinds != 0;
            /* The end of a call in flight would call code of CUPTI that has been unloaded. */
            if (unsubscribe())
                finalize();
        }
    }
    ss_store_release(ss_header->ended_ns, ss_clock());
    ss_set_recording(SS_OFF);
    ss_close_file();
    if (ss_activity_ended())
        ss_return_pages();
    return 0;
}

/* Gives CUPTI up, so that the program's own profiler can have it. */
static void yield(void)
{
    uint32_t expected = 1;
    /* A forked process has no file before its first call, and no subscription of its own to give up. */
    if (!ss_load(ss_settings.yield) || ss_load_acquire(ss_private->recording) != SS_OPEN ||
        !__atomic_compare_exchange_n(&subscribed, &expected, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    had_records |= ss_header->kinds != 0;
    ss_stop_activity(&cupti, SS_NO_GATE);
    unsubscribe();
    ss_header->yielded_ns = ss_clock();
    ss_store_release(ss_header->state, SS_STATE_YIELDED);
}

/* A function of libcupti for the program's own profiler, which gets CUPTI first where it may. */
void *ss_next_function(const char *name)
{
    yield();
    void *found = dlsym(RTLD_NEXT, name);
    return found || !cupti_library ? found : dlsym(cupti_library, name);
}
