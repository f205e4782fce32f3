/* The stub and its frame, for x86-64.
 *
 * The frame is that of a signal: the kernel restores from it the registers, the extended state and the signal mask, in one
 * system call that nothing can interrupt. So the thread returns to what it did without its tracer.
 */
#include "stub.h"

#if defined(__x86_64__)

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

/* Text for the stub's assembler code. AT: a member of the struct ss_stub whose address is in rbx. OFFSET: operand with
 * the member's offset, which AT needs. */
#define AT(member) "%c[" #member "](%%rbx)"
#define OFFSET(member) [member] "i"(offsetof(struct ss_stub, member))

/* UC_: offset (bytes) in a signal's frame (the kernel's struct ucontext and struct sigcontext_64). FLAG_: bit of
 * uc_flags. XSTATE_SOFTWARE, XSTATE_FEATURES: offset (bytes) in the extended state. XSTATE_LEGACY, XSTATE_HEADER: size
 * (bytes) of the first and of the second part of the extended state. SW_: offset (bytes) from XSTATE_SOFTWARE on
 * (struct _fpx_sw_bytes). */
enum {
    UC_FLAGS = 0, UC_STACK_FLAGS = 24, UC_R8 = 40, UC_RDI = 104, UC_RSI = 112, UC_RBP = 120, UC_RBX = 128, UC_RDX = 136,
    UC_RAX = 144, UC_RCX = 152, UC_RSP = 160, UC_RIP = 168, UC_EFLAGS = 176, UC_CS = 184, UC_SS = 190, UC_FPSTATE = 224,
    UC_MASK = 296,
    FLAG_XSTATE = 1, FLAG_SS = 2, FLAG_STRICT_SS = 4,
    /* Invalid flags of an alternate stack: the kernel rejects them, so that the thread keeps its alternate stack. */
    NO_STACK_CHANGE = 0x40,
    XSTATE_SOFTWARE = 464, XSTATE_FEATURES = 512, XSTATE_LEGACY = 512, XSTATE_HEADER = 64,
    SW_MAGIC = 0, SW_EXTENDED = 4, SW_FEATURES = 8, SW_SIZE = 16,
    /* Size (bytes) of MAGIC2. */
    MAGIC2_BYTES = 4,
    /* Code segment (cs) of a thread that runs 64-bit code. */
    CODE_OF_64_BITS = 0x33,
    /* Number of the feature with AMX's tiles. Only a thread that has requested AMX has room for the tiles. */
    TILE_DATA = 18,
    /* Flag of clock_nanosleep for an absolute time (TIMER_ABSTIME). */
    ABSOLUTE_TIME = 1,
    /* Longest time limit (ms) in poll or epoll_wait of a thread that may be borrowed: the limit begins anew when the
     * call is made again. Only loops that poll, as in libcuda's own thread, have limits this short. */
    SHORT_MS = 1000,
    /* Results of an interrupted system call. RESTART_: ERESTARTSYS and its variants, which only a tracer sees.
     * INTERRUPTED: EINTR. */
    RESTART_SYS = -512, RESTART_NO_INTR = -513, RESTART_NO_HANDLER = -514, RESTART_BLOCK = -516, INTERRUPTED = -4,
};
/* FP_XSTATE_MAGIC1 and FP_XSTATE_MAGIC2, which mark begin and end of an extended state in a signal's frame. */
static const uint32_t MAGIC1 = 0x46505853, MAGIC2 = 0x46505845;

/* Never run here. */
__attribute__((used, noinline)) static void stub(void)
{
    __asm__ volatile(
        ".globl ss_stub_code\n.globl ss_stub_code_end\n"
        ".hidden ss_stub_code\n.hidden ss_stub_code_end\n"
        "ss_stub_code:\n"
        /* All signals wait until the end: rt_sigprocmask(SIG_SETMASK, all). */
        "mov $14, %%eax\n mov $2, %%edi\n lea " AT(all_signals) ", %%rsi\n xor %%edx, %%edx\n mov $8, %%r10d\n syscall\n"
        "movl %[begun], " AT(state) "\n"
        /* clock_gettime(CLOCK_MONOTONIC) */
        "mov $228, %%eax\n mov $1, %%edi\n lea " AT(began) ", %%rsi\n syscall\n"
        "call *" AT(errno_location) "\n mov (%%rax), %%eax\n mov %%eax, " AT(kept_errno) "\n"
        "movl %[loading], " AT(state) "\n"
        "lea " AT(path) ", %%rdi\n mov $2, %%esi\n call *" AT(dlopen) "\n"
        "mov %%rax, " AT(handle) "\n test %%rax, %%rax\n jz 1f\n"
        "movl %[entered], " AT(state) "\n"
        "mov %%rax, %%rdi\n lea " AT(entry) ", %%rsi\n call *" AT(dlsym) "\n"
        "test %%rax, %%rax\n jz 1f\n"
        "call *%%rax\n movslq %%eax, %%rax\n mov %%rax, " AT(result) "\n jmp 3f\n"
        /* The reason, as text. */
        "1: call *" AT(dlerror) "\n test %%rax, %%rax\n jz 3f\n"
        "xor %%ecx, %%ecx\n"
        "2: movb (%%rax,%%rcx), %%dl\n movb %%dl, %c[error](%%rbx,%%rcx)\n test %%dl, %%dl\n jz 3f\n"
        "inc %%rcx\n cmp %[room], %%rcx\n jb 2b\n"
        /* close(descriptor) */
        "3: mov $3, %%eax\n mov " AT(descriptor) ", %%rdi\n syscall\n"
        "call *" AT(errno_location) "\n mov " AT(kept_errno) ", %%ecx\n mov %%ecx, (%%rax)\n"
        "mov $228, %%eax\n mov $1, %%edi\n lea " AT(ended) ", %%rsi\n syscall\n"
        /* Where a signal came meanwhile, the system call ends as it would have: rt_sigpending. */
        "mov $127, %%eax\n lea " AT(pending) ", %%rdi\n mov $8, %%esi\n syscall\n"
        "mov " AT(frame) ", %%rdx\n"
        "mov " AT(mask) ", %%rax\n not %%rax\n and " AT(pending) ", %%rax\n jz 4f\n"
        "mov " AT(interrupted) ", %%rax\n test %%rax, %%rax\n jz 4f\n"
        "mov %%rax, %c[rip](%%rdx)\n movq $-4, %c[rax](%%rdx)\n"
        "4: movl %[done], " AT(state) "\n"
        "mov %%rdx, %%rsp\n mov $15, %%eax\n syscall\n"
        "ss_stub_code_end:\n"
        :
        : OFFSET(all_signals), OFFSET(state), OFFSET(began), OFFSET(errno_location), OFFSET(kept_errno), OFFSET(path),
          OFFSET(dlopen), OFFSET(handle), OFFSET(entry), OFFSET(dlsym), OFFSET(result), OFFSET(dlerror), OFFSET(error),
          OFFSET(descriptor), OFFSET(ended), OFFSET(pending), OFFSET(frame), OFFSET(mask), OFFSET(interrupted),
          [begun] "i"(SS_STUB_BEGUN), [loading] "i"(SS_STUB_LOADING), [entered] "i"(SS_STUB_ENTERED),
          [done] "i"(SS_STUB_DONE), [room] "i"(sizeof ((struct ss_stub *)0)->error - 1), [rip] "i"(UC_RIP),
          [rax] "i"(UC_RAX)
        : "memory");
}

static int ends_with_eintr(uint64_t call)
{
    return call == SYS_epoll_wait || call == SYS_epoll_pwait;
}

/* Of calls with a signal mask of their own, kernels before 5.1 tell a tracer that mask, and not the thread's. */
static int tells_masks(void)
{
    struct utsname name;
    unsigned major = 0, minor = 0;
    return !uname(&name) && sscanf(name.release, "%u.%u", &major, &minor) == 2 && (major > 5 || (major == 5 && minor));
}

/* Whether the call has a time limit that begins anew when the call is made again, and is worth speaking of. The kernel
 * counts down the one of select and ppoll itself. */
static int begins_its_time_anew(const struct user_regs_struct *registers)
{
    int32_t ms;
    switch (registers->orig_rax) {
    case SYS_poll: ms = (int32_t)registers->rdx; break;
    case SYS_epoll_wait:
    case SYS_epoll_pwait: ms = (int32_t)registers->r10; break;
    default: return 0;
    }
    return ms > SHORT_MS;
}

uint64_t ss_sleep_anew(const struct user_regs_struct *registers)
{
    /* The kernel counts down a time to whose place it writes what is left of it, as sleep() of the C library asks it to. */
    int anew = registers->orig_rax == SYS_clock_nanosleep && !(registers->rsi & ABSOLUTE_TIME) &&
               registers->r10 != registers->rdx;
    return anew ? registers->rdx : 0;
}

int ss_may_be_borrowed(const struct user_regs_struct *registers)
{
    static const uint16_t sleeping[] = {SYS_poll, SYS_epoll_wait, SYS_select, SYS_accept, SYS_accept4,
                                        SYS_clock_nanosleep};
    uint64_t call = registers->orig_rax;
    /* A thread without the C library's own memory cannot call it. */
    if (registers->cs != CODE_OF_64_BITS || !registers->fs_base || begins_its_time_anew(registers))
        return 0;
    if (call == SYS_ppoll || call == SYS_pselect6 || call == SYS_epoll_pwait)
        return tells_masks();
    for (size_t at = 0; at < sizeof sleeping / sizeof *sleeping; at++)
        if (call == sleeping[at])
            return 1;
    return 0;
}

/* Whether the call was interrupted by the stop alone, and has to be made again. */
static int begins_again(const struct user_regs_struct *registers)
{
    switch ((int64_t)registers->rax) {
    case RESTART_SYS:
    case RESTART_NO_INTR:
    case RESTART_NO_HANDLER:
    case RESTART_BLOCK: return 1;
    case INTERRUPTED: return ends_with_eintr(registers->orig_rax);
    default: return 0;
    }
}

static void put(uint8_t *at, size_t offset, uint64_t value)
{
    memcpy(at + offset, &value, sizeof value);
}

static void put_short(uint8_t *at, size_t offset, uint32_t value)
{
    memcpy(at + offset, &value, sizeof value);
}

static uint64_t word(const uint8_t *at, size_t offset)
{
    uint64_t value;
    memcpy(&value, at + offset, sizeof value);
    return value;
}

/* Where each feature of the extended state lies, by the processor, which says the same to all processes. */
static size_t size_of_features(uint64_t features)
{
    size_t size = XSTATE_LEGACY + XSTATE_HEADER;
    for (uint32_t feature = 2; feature < 63; feature++) {
        uint32_t bytes, offset, c, d;
        if (!(features >> feature & 1))
            continue;
        __asm__("cpuid" : "=a"(bytes), "=b"(offset), "=c"(c), "=d"(d) : "a"(0xd), "c"(feature));
        size = offset + bytes > size ? offset + bytes : size;
    }
    return size;
}

/* Makes the thread's extended state, which is at ``xstate``, one that rt_sigreturn restores; its size, 0 if it cannot. */
static size_t finish_xstate(uint8_t *xstate, size_t bytes)
{
    if (bytes < XSTATE_LEGACY + XSTATE_HEADER)
        return 0;
    uint64_t present = word(xstate, XSTATE_FEATURES), features = word(xstate, XSTATE_SOFTWARE);
    /* The kernel takes no more than the thread has room for. */
    if (!(present >> TILE_DATA & 1))
        features &= ~(UINT64_C(1) << TILE_DATA);
    size_t size = size_of_features(features);
    if (present & ~features || size > bytes)
        return 0;
    memset(xstate + XSTATE_SOFTWARE, 0, XSTATE_LEGACY - XSTATE_SOFTWARE);
    put_short(xstate + XSTATE_SOFTWARE, SW_MAGIC, MAGIC1);
    put_short(xstate + XSTATE_SOFTWARE, SW_EXTENDED, (uint32_t)size + MAGIC2_BYTES);
    put(xstate + XSTATE_SOFTWARE, SW_FEATURES, features);
    put_short(xstate + XSTATE_SOFTWARE, SW_SIZE, (uint32_t)size);
    memcpy(xstate + size, &MAGIC2, sizeof MAGIC2);
    return size + MAGIC2_BYTES;
}

size_t ss_write_frame(const struct ss_stopped *stopped, uint64_t at, uint8_t frame[SS_FRAME_BYTES])
{
    const struct user_regs_struct *of = &stopped->registers;
    uint64_t state_at = (at + SS_CONTEXT_BYTES + 63) & ~UINT64_C(63);
    uint8_t *xstate = frame + (state_at - at);
    memset(frame, 0, SS_FRAME_BYTES);
    memcpy(xstate, stopped->xstate, stopped->xstate_bytes);
    size_t size = finish_xstate(xstate, stopped->xstate_bytes);
    if (!size)
        return 0;
    const uint64_t upper[] = {of->r8, of->r9, of->r10, of->r11, of->r12, of->r13, of->r14, of->r15};
    memcpy(frame + UC_R8, upper, sizeof upper);
    put(frame, UC_FLAGS, FLAG_XSTATE | FLAG_SS | FLAG_STRICT_SS);
    put_short(frame, UC_STACK_FLAGS, NO_STACK_CHANGE);
    put(frame, UC_RDI, of->rdi);
    put(frame, UC_RSI, of->rsi);
    put(frame, UC_RBP, of->rbp);
    put(frame, UC_RBX, of->rbx);
    put(frame, UC_RDX, of->rdx);
    put(frame, UC_RCX, of->rcx);
    put(frame, UC_RSP, of->rsp);
    put(frame, UC_RAX, begins_again(of) ? of->orig_rax : of->rax);
    put(frame, UC_RIP, begins_again(of) ? of->rip - 2 : of->rip);
    put(frame, UC_EFLAGS, of->eflags);
    memcpy(frame + UC_CS, &(uint16_t){(uint16_t)of->cs}, 2);
    memcpy(frame + UC_SS, &(uint16_t){(uint16_t)of->ss}, 2);
    put(frame, UC_FPSTATE, state_at);
    put(frame, UC_MASK, stopped->mask);
    return (size_t)(state_at - at) + size;
}

/* Returns 1 if ``context`` is the context of a signal frame with another signal mask than ``mask``, else 0. */
int ss_is_other_mask(const uint8_t context[SS_CONTEXT_BYTES], uint64_t mask)
{
    uint16_t code;
    memcpy(&code, context + UC_CS, sizeof code);
    return word(context, UC_FLAGS) <= (FLAG_XSTATE | FLAG_SS | FLAG_STRICT_SS) && code == CODE_OF_64_BITS &&
           word(context, UC_MASK) != mask;
}

#endif
