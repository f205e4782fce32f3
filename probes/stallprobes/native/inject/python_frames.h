/* Frames of a Python interpreter (python_frames.c). */
#ifndef STALLSCOPE_PYTHON_FRAMES_H
#define STALLSCOPE_PYTHON_FRAMES_H

#include <stdint.h>

#include "own_memory.h"

/* Whether an interpreter's frames can be read. SS_PYTHON_KNOWN: yes. SS_PYTHON_UNKNOWN: no, its table of offsets is
 * unknown. SS_PYTHON_FREE_THREADED: no, the interpreter has no global lock. */
enum { SS_PYTHON_KNOWN = 0, SS_PYTHON_UNKNOWN, SS_PYTHON_FREE_THREADED };
/* Where the interpreter's structures have what is needed: the state of a thread, a frame, code, an object, a string of
 * bytes, a string; and the addresses of the types of three of them. */
struct ss_python_layout {
    uint64_t thread_frame;
    /* Where this is not 0, a thread has its frame in the structure to which it points there. */
    uint64_t thread_cframe, cframe_frame;
    uint64_t previous, executable, instruction, owner;
    /* Where a frame has its variables, which what it works with follows; the end of that is known where ``stack_end`` is
     * not 0. */
    uint64_t variables, stack_end;
    /* The number of a thread in its state. */
    uint64_t thread_ident;
    uint64_t file, name, table, first_line, instructions;
    uint64_t type;
    uint64_t bytes_size, bytes_text;
    uint64_t string_state, string_length, ascii_bytes, other_bytes;
    uint64_t code_type, string_type, bytes_type;
    /* 0 if the address of the type is not known. */
    uint64_t function_type;
    /* Whether an RLock has a mutex in place of the address of a semaphore. */
    uint64_t has_mutex;
};
/* A lock of the module threading for which threads wait: its object, the number of the thread that has it, 0 if it does not
 * say so, and the address of the word for which others wait, 0 where each of them waits for a word of its own. */
struct ss_awaited_lock {
    uint64_t object, owner, word;
};
int ss_learn_python(struct ss_python_layout *layout, const void *runtime);
int ss_learn_old_python(struct ss_python_layout *layout, const char *version);
uint64_t ss_find_python_lock(struct ss_text_pipe *pipe, uint64_t runtime, uint64_t size, const void *thread);
const void *ss_python_lock_holder(struct ss_text_pipe *pipe, uint64_t address);
int ss_find_awaited_lock(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread,
                         struct ss_awaited_lock *found);
int ss_python_is_within(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread, uint64_t lock);
const void *ss_python_thread_within(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread,
                                    uint64_t lock);
const void *ss_python_thread(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread,
                             uint64_t ident);
uint32_t ss_python_text(const struct ss_python_layout *layout, struct ss_text_pipe *pipe, const void *thread,
                        char *bytes, uint32_t size, uint32_t *flags);

#endif
