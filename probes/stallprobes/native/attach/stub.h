/* The code that the attacher lets a thread of another process run, and the frame by which that thread returns. */
#ifndef STALLSCOPE_STUB_H
#define STALLSCOPE_STUB_H

#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#if defined(__x86_64__)

#include <sys/user.h>

/* The code, which is the same at any address: with the address of a struct ss_stub in rbx and a stack in rsp, it calls
 * dlopen and the library's entry, and returns by rt_sigreturn on the stub's frame. */
extern const unsigned char ss_stub_code[];
extern const unsigned char ss_stub_code_end[];

enum {
    /* Largest supported size (bytes) of a thread's extended state. With AMX, the state has 11 008 bytes. */
    SS_MOST_XSTATE = 1 << 14,
    /* Size (bytes) of the kernel's struct ucontext in a signal's frame, without the extended state. */
    SS_CONTEXT_BYTES = 304,
    /* Largest size (bytes) of a frame, with 128 bytes for the alignment and the end mark of the extended state. */
    SS_FRAME_BYTES = SS_CONTEXT_BYTES + SS_MOST_XSTATE + 128,
};

/* What a thread was when it was stopped. */
struct ss_stopped {
    struct user_regs_struct registers;
    uint64_t mask;
    uint8_t xstate[SS_MOST_XSTATE];
    size_t xstate_bytes;
};

/* Whether the thread is in a system call in which it sleeps and holds no lock, or returns from one, and which can be made
 * again without sleeping longer. */
int ss_may_be_borrowed(const struct user_regs_struct *registers);
/* The address of the time (struct timespec) of a sleep that begins anew when the call is made again, 0 for another call. */
uint64_t ss_sleep_anew(const struct user_regs_struct *registers);
/* The frame for rt_sigreturn at the address ``at`` of the process, in ``frame``; how many bytes it has, 0 if the thread's
 * extended state has no form that the kernel restores. */
size_t ss_write_frame(const struct ss_stopped *stopped, uint64_t at, uint8_t frame[SS_FRAME_BYTES]);
/* Returns 1 if ``context`` is the context of a signal frame with another signal mask than ``mask``, else 0. */
int ss_is_other_mask(const uint8_t context[SS_CONTEXT_BYTES], uint64_t mask);

#endif

#endif
