/* The thread that begins and ends recordings while the program runs: stallscope asks for them through memory that both
 * share, a memfd of this process (layouts/attaching.py).
 *
 * While the library sleeps, this thread waits for a request, and nothing else of the library runs. While it records, the
 * thread looks once a second whether the stallscope that asked for it still holds its lock on the memfd: where it was
 * killed, the recording ends too.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "activity.h"
#include "control.h"
#include "gate.h"
#include "map.h"
#include "recording.h"
#include "room.h"
#include "space.h"
#include "state.h"
#include "threads.h"

enum {
    /* Period (ms) of the checks whether the stallscope that asked for the recording still runs. */
    WATCHER_MS = 1000,
    /* Longest wait (ms) for the end of the threads of the previous recording. After a longer wait, the new recording
     * fails. */
    ENDING_MS = 2000,
    /* Time (ms) from switching callbacks on to the first try to switch records on. Reason: calls that began without
     * callbacks return in this time, unless they block. The library also learns in this time whether the program
     * instantiates graphs again and again. */
    SETTLE_MS = 100,
    /* Kinds of records are switched at a moment without a call in flight. AGAIN_MS: pause (ms) between two tries.
     * RECORDS_MS: longest time (ms) for tries before the recording counts as begun. Later tries may still switch
     * records on. */
    AGAIN_MS = 2,
    RECORDS_MS = 200,
    /* Time (ms) before the first try that waits longer for calls in flight (SS_PATIENTLY). The time doubles after each
     * such try. Reason: a call may hang, and a long wait holds other calls up. */
    PATIENCE_MS = 20,
    /* Longest wait (ms) for a libcupti that stallscope sends. */
    SENDING_MS = 10000,
    /* The end of a recording switches kinds of records off at a moment without a call in flight. There may be no such
     * moment, if two hundred threads make calls or a call hangs.
     * UNGATED_VERSION: first version of CUPTI (13.1) with which kinds are also switched off during calls. CUPTI 13.0
     * has crashed in such a switch. GATED_MS: longest wait (ms) for a moment without a call. With an older CUPTI the
     * wait has no limit. The records that a switch during calls loses are not needed. */
    UNGATED_VERSION = 130100,
    GATED_MS = 1000,
};
/* Nanoseconds in a millisecond. */
#define MS UINT64_C(1000000)

static int descriptor;
static struct stat identity;
/* When a switch is next tried with patience, and how long after that again. */
static uint64_t patient_ns, patience_ns;
/* Whether records of the GPU's work are still to begin. */
static int without_records;
static uint32_t started;

static void set_state(uint32_t state)
{
    ss_store_release(ss_control->state, state);
}

/* Whether a descriptor is that of a file: the program may have closed ours, and use the number. */
static int is_of(int number, const struct stat *file)
{
    struct stat status;
    return !ss_file_status(number, &status) && status.st_dev == file->st_dev && status.st_ino == file->st_ino;
}

/* Whether the stallscope that asked for the recording has ended: the kernel released its lock. Where that cannot be
 * known, it has not. A copy of the descriptor is looked at and used, which is no file of the program's meanwhile. */
static int watcher_has_ended(void)
{
    int copy = (int)syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, 0);
    int has_ended = copy >= 0 && is_of(copy, &identity) && !flock(copy, LOCK_SH | LOCK_NB);
    if (has_ended)
        flock(copy, LOCK_UN);
    if (copy >= 0)
        close(copy);
    return has_ended;
}

static void rest(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * (long)MS};
    nanosleep(&pause, NULL);
}

static void take_settings(void)
{
    /* A recording that was asked for goes to memory, also after one to a folder. */
    ss_settings.folder[0] = 0;
    memcpy(ss_settings.cupti, ss_control->cupti, sizeof ss_settings.cupti - 1);
    /* A thread may still be in a callback of the recording before. */
    ss_store(ss_settings.slow_ns, ss_control->slow_ns);
    ss_store(ss_settings.cost_ppm, ss_control->cost_ppm);
    ss_store(ss_settings.calls_only, !!(ss_control->flags & SS_FLAG_CALLS_ONLY));
    ss_store(ss_settings.yield, !!(ss_control->flags & SS_FLAG_YIELD));
    ss_store(ss_settings.beside, !!(ss_control->flags & SS_FLAG_BESIDE));
    ss_store(ss_settings.no_stacks, !!(ss_control->flags & SS_FLAG_NO_STACKS));
}

/* A libcupti for a process that finds none as a file. It stays for all recordings. */
static void receive_cupti(void)
{
    static char path[64];
    int memory = -1;
    if (ss_control->sends_cupti && !*path)
        memory = (int)syscall(SYS_memfd_create, "stallscope-cupti", MEMFD_CLOEXEC);
    struct stat made;
    if (memory >= 0 && !ss_file_status(memory, &made)) {
        ss_note_step("read");
        ss_store(ss_control->cupti_sent, 0);
        ss_store_release(ss_control->cupti_descriptor, (uint32_t)memory + 1);
        uint64_t limit = ss_clock() + SENDING_MS * MS;
        while (!ss_load_acquire(ss_control->cupti_sent) && ss_clock() < limit)
            rest(1);
        if (ss_load_acquire(ss_control->cupti_sent))
            /* Not as the attacher writes it: the C library knows a library by its path, and the number may have been ours. */
            snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), memory);
        else if (is_of(memory, &made))
            close(memory);
        ss_store_release(ss_control->cupti_descriptor, 0);
    }
    if (ss_control->sends_cupti)
        strcpy(ss_settings.cupti, path);
}

static void return_stub(void)
{
    if (ss_control->stub_at && ss_control->stub_bytes)
        munmap((void *)(uintptr_t)ss_control->stub_at, ss_control->stub_bytes);
    ss_control->stub_at = ss_control->stub_bytes = 0;
}

static int wait_for_helpers(void)
{
    uint64_t limit = ss_clock() + ENDING_MS * MS;
    while (!ss_activity_ended()) {
        if (ss_clock() > limit)
            return -1;
        rest(1);
    }
    return 0;
}

static void begin_tries(void)
{
    patience_ns = PATIENCE_MS * MS;
    patient_ns = ss_clock() + patience_ns;
}

/* How the gate is closed for the next try. Those that hold calls up for longer are ever rarer, since a call may hang. */
static int next_gate(void)
{
    uint64_t now = ss_clock();
    if (now < patient_ns)
        return SS_QUICKLY;
    patience_ns *= 2;
    patient_ns = now + patience_ns;
    return SS_PATIENTLY;
}

static void try_records(void)
{
    without_records = ss_begin_records(next_gate());
    ss_control->held_ns = ss_longest_hold();
}

static void wake_up(void)
{
    set_state(SS_CONTROL_STARTING);
    ss_control->code = 0;
    ss_control->recording = SS_STATE_STARTING;
    return_stub();
    take_settings();
    receive_cupti();
    ss_note_step("cuptiActivityFlushAll");
    if (wait_for_helpers()) {
        ss_control->recording = SS_STATE_CUPTI_FAILED;
        set_state(SS_CONTROL_FAILED);
        return;
    }
    ss_note_step("open");
    int code = 0;
    uint32_t recording = ss_begin_recording(&code);
    ss_control->code = code;
    ss_control->lack_needed = ss_lack.needed;
    ss_control->lack_available = ss_lack.available;
    ss_control->lack = ss_lack.reason;
    ss_control->recording = recording;
    ss_control->held_ns = ss_longest_hold();
    without_records = recording == SS_STATE_RECORDING;
    begin_tries();
    uint64_t limit = ss_clock() + RECORDS_MS * MS;
    for (long pause = SETTLE_MS; without_records && ss_clock() < limit; pause = AGAIN_MS) {
        rest(pause);
        try_records();
    }
    set_state(recording == SS_STATE_RECORDING ? SS_CONTROL_AWAKE : SS_CONTROL_FAILED);
}

/* Ends the recording, where calls always are in flight in the end without a gate. Where the program exits, it continues. */
void ss_end_at_last(void)
{
    begin_tries();
    uint64_t limit = ss_clock() + GATED_MS * MS;
    for (int gate = SS_QUICKLY; ss_end_recording(gate) && !ss_is_exiting(); gate = next_gate()) {
        rest(AGAIN_MS);
        if (ss_clock() > limit && ss_header->cupti_version >= UNGATED_VERSION && !ss_end_recording(SS_NO_GATE))
            break;
    }
}

static void fall_asleep(void)
{
    set_state(SS_CONTROL_STOPPING);
    ss_end_at_last();
    ss_control->held_ns = ss_longest_hold();
    set_state(SS_CONTROL_ASLEEP);
}

static void wait_for_request(uint32_t done, int awake)
{
    long ms = without_records ? AGAIN_MS : WATCHER_MS;
    const struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * (long)MS};
    syscall(SYS_futex, &ss_control->asked, FUTEX_WAIT, done, awake ? &limit : NULL, NULL, 0);
}

static void *controlling_thread(void *unused)
{
    prctl(PR_SET_NAME, "stallscope-wait");
    for (uint32_t done = 0; !ss_is_exiting();) {
        uint32_t asked = ss_load_acquire(ss_control->asked);
        int awake = ss_control->state == SS_CONTROL_AWAKE;
        if (asked == done) {
            if (awake && watcher_has_ended())
                fall_asleep();
            else
                wait_for_request(done, awake);
            if (awake && without_records)
                try_records();
            continue;
        }
        ss_control->began_ns = ss_clock();
        if (awake)
            fall_asleep();
        if (ss_control->wish)
            wake_up();
        else
            set_state(SS_CONTROL_ASLEEP);
        ss_control->ready_ns = ss_clock();
        done = asked;
        ss_store_release(ss_control->answered, asked);
        syscall(SYS_futex, &ss_control->answered, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    return unused;
}

/* Gives an open memfd its size and maps it; NULL, with the reason in ss_lack, if that fails. */
static void *map_control(void)
{
    if (!ss_size_allowed(sizeof *ss_control)) {
        ss_note_lack(SS_LACK_FILE_SIZE, sizeof *ss_control, 0);
        return NULL;
    }
    void *memory = NULL;
    if (ftruncate(descriptor, sizeof *ss_control) || ss_seal(descriptor) || ss_file_status(descriptor, &identity) ||
        !(memory = ss_map(NULL, sizeof *ss_control, descriptor)))
        ss_note_error(errno, SS_LACK_MEMFD);
    return memory;
}

/* The memory that is shared; NULL without it. A forked process has none: it is its parent's. */
static struct ss_control *new_control(void)
{
    descriptor = (int)syscall(SYS_memfd_create, SS_CONTROL_NAME, MEMFD_CLOEXEC | MEMFD_SEALABLE);
    if (descriptor < 0) {
        ss_note_error(errno, SS_LACK_MEMFD);
        return NULL;
    }
    void *memory = map_control();
    if (!memory)
        close(descriptor);
    return memory;
}

/* Begins to wait for requests; 0 if it does, or did before. Else what the process lacks, which a later try may find. */
int ss_start_control(void)
{
    if (__atomic_exchange_n(&started, 1, __ATOMIC_ACQ_REL))
        return 0;
    struct ss_control *made = new_control();
    if (made) {
        made->format = SS_CONTROL_FORMAT;
        made->pid = (uint32_t)getpid();
        made->start_ticks = ss_start_ticks();
        ss_store_release(ss_control, made);
        if (!ss_start_thread(controlling_thread, SS_CUPTI_STACK)) {
            ss_store_release(made->magic, SS_CONTROL_MAGIC);
            return 0;
        }
        ss_note_lack(SS_LACK_THREADS, 1, 0);
        ss_store_release(ss_control, NULL);
        munmap(made, sizeof *made);
        close(descriptor);
    }
    ss_store_release(started, 0);
    return ss_lack.reason ? (int)ss_lack.reason : -1;
}
