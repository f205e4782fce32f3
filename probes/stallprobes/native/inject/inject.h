/* What the files of the library share. */
#ifndef STALLSCOPE_INJECT_H
#define STALLSCOPE_INJECT_H

#include <stdint.h>
#include <sys/stat.h>

#include "cupti.h"
#include "glibc.h"
#include "layout.h"
#include "words.h"

/* The library's code runs inside callbacks of the program's own calls: it makes no CUDA call and takes no lock. */

/* What the driver, NVTX and the program's profiler call; the program sees nothing else. */
#define SS_SHOWN __attribute__((visibility("default")))

/* Flags of memfd_create, which older headers lack. */
enum { MEMFD_CLOEXEC = 1, MEMFD_SEALABLE = 2 };

/* Whether this process records. A forked process begins with SS_FORKED. */
enum { SS_FORKED = 0, SS_OPENING, SS_OPEN, SS_OFF };

struct ss_private {
    uint32_t recording;
    /* The number of the file while this process records, else 0. */
    uint32_t file;
    uint32_t helpers;
    uint32_t looks;
    /* Whether there is a gate. */
    uint32_t gated;
};

struct ss_settings {
    char folder[3072];
    char cupti[1024];
    uint64_t slow_ns;
    uint64_t cost_ppm;
    int calls_only;
    int yield;
    int no_stacks;
};

extern struct ss_settings ss_settings;
extern struct ss_private *ss_private;
extern struct ss_file_header *ss_header;
/* The number of the file, from 1: a forked process has one of its own. */
extern uint32_t ss_file;

/* inject.c */
void ss_set_recording(uint32_t recording);
uint32_t ss_begin_recording(int *code);
int ss_begin_records(int gate);
int ss_end_recording(int gate);
uint64_t ss_longest_hold(void);
void ss_note_hold(uint64_t began);
uint64_t ss_rest_after(uint64_t began, uint64_t held_since);

/* control.c */
int ss_start_control(void);
void ss_stop_control(void);
int ss_is_exiting(void);
void ss_end_at_last(void);
void ss_note_step(const char *function);
void ss_hand_file_over(int memory);

/* abandoned.c */
int ss_may_be_abandoned(void);
void ss_look_for_users(void);

/* space.c */
void *ss_map(void *place, uint64_t size, int descriptor);
int ss_size_allowed(uint64_t size);
int ss_seal(int descriptor);
void ss_begin_space(uint64_t most);
int ss_lacks_space(void);
int ss_lacks_room(uint64_t size);
int ss_give_space(uint64_t offset, uint64_t size);
int ss_give_ring(uint64_t offset, uint64_t size);
int ss_give_beginning(uint64_t size);
void ss_uncount_space(uint64_t size);

/* room.c */
/* Sizes of a recording: places of the ring of records, blocks of calls, CUPTI's buffers of both sizes, and what the file
 * may take beside its rings (bytes). */
struct ss_room {
    uint32_t records, blocks, large, small;
    uint64_t growing;
};
/* Why there is no file: one of enum SS_LACK, what is needed of it and what there is. */
struct ss_lack {
    uint32_t reason;
    uint64_t needed, available;
};
/* The names in an open folder, from a descriptor; nothing else of it is set at first. */
struct ss_listing {
    int descriptor;
    long at, bytes;
    char entries[2048] __attribute__((aligned(8)));
};
extern struct ss_lack ss_lack;
int ss_note_lack(uint32_t reason, uint64_t needed, uint64_t available);
int ss_note_error(int error, uint32_t otherwise);
const char *ss_next_name(struct ss_listing *listing);
uint32_t ss_count_threads(void);
int ss_find_room(struct ss_room *room, int folder, int calls_only, uint64_t file, uint64_t buffers);

/* map.c */
int ss_reopen_file(void);
int ss_file_status(int descriptor, struct stat *status);
const char *ss_parse_number(const char *text, uint64_t *number);
uint64_t ss_start_ticks(void);
int ss_open_file(uint32_t flags);
void ss_close_file(void);
int ss_own_folder(void);
void ss_remove_file(int folder);
uint64_t ss_clock(void);
uint64_t ss_real_clock(void);
void ss_stamp_clocks(void);
void ss_count_lost(int kind, uint64_t count);
void *ss_at(uint64_t offset);
struct ss_slot *ss_claim_slot(uint32_t *number);
void ss_release_slot(struct ss_slot *slot);
struct ss_slow_call *ss_slow_call_at(uint32_t slot, uint64_t number);
struct ss_slot *ss_live_slot(uint32_t number);
uint64_t ss_count_finished(uint64_t *busiest);
struct ss_call_histogram *ss_histogram_of(struct ss_slot *slot, uint32_t number, uint32_t api);
struct ss_named_range *ss_claim_range(const char *name, uint32_t thread);
void ss_release_range(struct ss_named_range *range);

/* call_log.c */
/* The block of a thread, its next entry, and how many are left. */
struct ss_call_log {
    struct ss_call_block *block;
    struct ss_logged_call *next;
    uint32_t left;
};
void ss_begin_log(uint32_t count, uint32_t threads);
void ss_prepare_blocks(void);
int ss_take_block(struct ss_call_log *log, struct ss_slot *slot, uint32_t slot_number);
void ss_end_block(struct ss_call_log *log, struct ss_slot *slot);

/* A call as words, as plain calls are written: to read more at once than was written at once, the CPU has to wait until it
 * is in the cache, behind all that the driver wrote meanwhile. */
typedef uint64_t __attribute__((may_alias)) ss_word;
_Static_assert(sizeof(struct ss_call) == 5 * sizeof(ss_word), "a call has five words");

SS_INLINE void ss_copy_call(struct ss_call *to, const struct ss_call *from)
{
    ss_word *target = (ss_word *)to;
    const ss_word *source = (const ss_word *)from;
    ss_store(target[0], ss_load(source[0]));
    ss_store(target[1], ss_load(source[1]));
    ss_store(target[2], ss_load(source[2]));
    ss_store(target[3], ss_load(source[3]));
    ss_store(target[4], ss_load(source[4]));
}

/* Adds a finished call to a block that has room. */
SS_INLINE void ss_log_call(struct ss_call_log *log, const struct ss_call *call, uint64_t end_ns)
{
    struct ss_logged_call *entry = log->next++;
    ss_copy_call(&entry->call, call);
    ss_store(entry->end_ns, end_ns);
    ss_store_release(log->block->calls, SS_BLOCK_CALLS - --log->left);
    /* The log is larger than the CPU's caches: by the next call, its entry is there. */
    __builtin_prefetch((const char *)(entry + 2) - 1, 1);
}

/* calls.c */
void ss_callback(void *user, int domain, uint32_t number, const struct ss_callback_data *data);
int ss_prepare_calls(void);

/* stack.c */
/* Of what a thread may spend on stacks, the parts for slow calls and its name, for samples of its time and for those of
 * its waits: what is for one is spent on no other, so that none decides which of the others get a stack. */
enum { SS_SLOW_PARTS = 16, SS_TIME_PARTS = 11, SS_WAIT_PARTS = 5, SS_ALL_PARTS = 32 };
/* What a thread may still spend on frames of Python and on native ones (ns) by its ``parts`` of SS_ALL_PARTS, and when
 * that was last counted. */
struct ss_credit {
    uint32_t parts;
    int64_t python_ns;
    int64_t native_ns;
    uint64_t at;
};
/* When a stack is taken next for the name of a thread, UINT64_MAX if never again, and how often that may still fail. */
struct ss_naming {
    uint64_t due;
    uint32_t tries;
};
void ss_prepare_stacks(void);
void ss_begin_stacks(int forked);
uint32_t ss_stack_of_call(struct ss_credit *credit, uint32_t api, uint64_t start, uint64_t now);
struct ss_naming ss_begin_naming(uint32_t thread);
uint32_t ss_stack_for_name(struct ss_naming *naming, struct ss_credit *credit, uint32_t api, uint64_t start,
                           uint64_t now);

int ss_has_stacks(void);
int ss_can_read_python(void);
const void *ss_own_python(void);
uint32_t ss_stack_of_python(const void *thread);

/* own_memory.c */
/* A pipe of the process with the number ``file``; ``device`` and ``inode`` are its identity. */
struct ss_text_pipe {
    uint32_t file;
    int ends[2];
    dev_t device;
    ino_t inode;
};
struct iovec;
long ss_read_memory(struct ss_text_pipe *pipe, const struct iovec *from, const struct iovec *to, int count);

/* python_frames.c */
/* Whether frames of an interpreter can be read by its table of offsets. */
enum { SS_PYTHON_KNOWN = 0, SS_PYTHON_UNKNOWN, SS_PYTHON_FREE_THREADED };
/* Where the interpreter's structures have what is needed: the state of a thread, a frame, code, an object, a string of
 * bytes, a string; and the addresses of the types of three of them. */
struct ss_python_layout {
    uint64_t thread_frame;
    /* Where this is not 0, a thread has its frame in the structure to which it points there. */
    uint64_t thread_cframe, cframe_frame;
    uint64_t previous, executable, instruction, owner;
    uint64_t file, name, table, first_line, instructions;
    uint64_t type;
    uint64_t bytes_size, bytes_text;
    uint64_t string_state, string_length, ascii_bytes, other_bytes;
    uint64_t code_type, string_type, bytes_type;
};
int ss_learn_python(struct ss_python_layout *layout, const void *runtime);
int ss_learn_old_python(struct ss_python_layout *layout, const char *version);
uint32_t ss_python_text(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread,
                        char *bytes, uint32_t size, uint32_t *flags);

/* samples.c */
/* The time of a thread inside its outermost calls and, less that, the clock's: two clocks, of which the second moves
 * between calls alone. By enum SS_SAMPLED: when the next sample is due by either, UINT64_MAX for never, and up to when the
 * last one has all time. ``left_ns`` is when the last outermost call returned. ``credit`` is what may be spent on stacks
 * of these samples, ``wait_credit`` that on those of waits. ``waits`` were made since the last one with a sample, and
 * ``passed`` since ``chosen_ns``, when the ``distance`` to the next one was chosen, which is 0 until then. */
struct ss_sampling {
    uint64_t inside_ns;
    uint64_t due_ns[2];
    uint64_t left_ns;
    uint64_t waits;
    uint64_t passed;
    uint64_t distance;
    uint64_t chosen_ns;
    uint64_t taken_ns[2];
    uint64_t random;
    struct ss_credit credit;
    struct ss_credit wait_credit;
};
void ss_begin_samples(void);
uint64_t ss_thread_cpu(void);
struct ss_sampling ss_begin_sampling(uint32_t thread);
void ss_take_sample(struct ss_sampling *sampling, struct ss_time_sample *sample, const uint32_t *stacks, uint32_t count);
int ss_count_wait(struct ss_sampling *sampling, uint64_t now);
void ss_take_wait(struct ss_sampling *sampling, struct ss_time_sample *sample);
void ss_leave_out(struct ss_sampling *sampling, uint64_t ns);

/* gaps.c */
/* Stacks of one time between two calls. */
enum { SS_GAP_STACKS = 8 };
/* Where a thread of Python is between its calls, by its slot. The thread itself writes when its last outermost call
 * returned, when the next sample of the time between calls is due, and Python's state of it, NULL if it has none. The
 * thread that looks writes the ``stacks`` that it found since ``seen_ns``, which is then ``left_ns``; the time between
 * them, and when the next one is due. */
struct ss_gap {
    uint64_t left_ns;
    uint64_t due_ns;
    const void *python;
    uint64_t seen_ns;
    uint64_t distance;
    uint64_t next_ns;
    uint32_t count;
    uint32_t stacks[SS_GAP_STACKS];
} __attribute__((aligned(64)));
extern struct ss_gap ss_gaps[SS_SLOTS];
void ss_begin_gaps(uint32_t number);
int ss_has_python(uint32_t number);
uint32_t ss_gap_stacks(uint32_t number, uint64_t left_ns, uint32_t *stacks);
void ss_start_looking(void);
void ss_stop_looking(void);

/* nvtx.c */
void ss_copy_range(char *text, size_t size, uint64_t since);

/* host_memory.c */
void ss_add_host_memory(uint64_t address, uint64_t size, uint8_t kind);
void ss_remove_host_memory(uint64_t address);
void ss_forget_host_memory(void);
uint8_t ss_host_memory_kind(uint64_t address, uint8_t otherwise);

/* gate.c */
void ss_use_gate(int on);
int ss_gate_is_used(void);
uint64_t ss_longest_wait(void);
void ss_forget_flight(uint32_t number);
int ss_enter_gate(int64_t number);
void ss_note_flight(int64_t number, uint64_t began_ns);
void ss_leave_gate(int64_t number);
int ss_close_gate(int patient);
void ss_open_gate(void);

/* windows.c */
/* Calls that begin from then on and wait for the GPU settle the window; UINT64_MAX if it is settled or has no records. */
extern uint64_t ss_unsettled_since;
void ss_settle_window(uint64_t now);
void ss_begin_windows(const struct ss_cupti *cupti, uint64_t since);
uint64_t ss_change_window(void);
void ss_end_windows(void);
void ss_stop_windows(void);
void ss_forget_windows(void);

/* activity.c */
int ss_activity_ended(void);
/* How a gate has to be closed before kinds are switched. */
enum { SS_NO_GATE = 0, SS_QUICKLY, SS_PATIENTLY };
int ss_start_activity(const struct ss_cupti *cupti, int gate);
int ss_stop_activity(const struct ss_cupti *cupti, int gate);
void ss_finish_activity(void);
/* Stacks (bytes) of the library's threads: of those that call CUPTI, as large as Java's, whose threads do so too, and of the
 * others. */
enum { SS_CUPTI_STACK = 1 << 20, SS_SMALL_STACK = 256 << 10 };
int ss_start_thread(void *(*body)(void *), size_t stack_bytes);
void ss_wait_for_change(uint32_t *word, uint32_t value, long ns);
void ss_wake(uint32_t *word);

#endif
