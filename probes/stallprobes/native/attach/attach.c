/* The attacher: lets a thread of another process load the injected library, by ptrace alone.
 *
 * stallscope-attach PID SYSCALL RETURN DLOPEN DLSYM DLERROR ERRNO LIBRARY MEMORY PROCESS TID...
 *
 * SYSCALL is the address of the instructions "syscall; ret" in the process, RETURN that of those which call
 * rt_sigreturn; then follow the addresses of functions of its C library, three descriptors that it inherits, and the
 * threads to be tried in turn. LIBRARY is the library's file, MEMORY the process's memory (/proc/PID/mem), PROCESS a
 * descriptor of the process (pidfd_open), or -1 before Linux 5.3. Lines of "name value" on standard output say what was
 * done; the last ones are of enum outcome. Where the library could not make its control, "lack" is a number of enum
 * SS_LACK.
 *
 * The memory belongs to the program in which the addresses were found: where the process executes another one meanwhile,
 * nothing of that is read or written. Of the process's descriptors only one is used, the memfd for the library, and only
 * after it is known to be an empty memfd.
 *
 * A thread is borrowed that sleeps in a system call and holds no lock. Each state in which the tracer leaves it, also by
 * being killed, is one from which it returns by itself: before any register is changed, a signal's frame lies on its
 * stack, and each system call that it is made to do ends in the "ret" to rt_sigreturn on that frame. When
 * the process has memory for the stub, a frame in this memory replaces the frame on the stack, and the tracer restores the
 * stack. Reason: the stack may be small, with other data below it. Nothing ends in a fault, and no signal handler is
 * changed. Once the stub has begun, the tracer detaches: a thread inside dlopen may hold the loader's lock.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "layout.h"

/* Exit code of the attacher. */
enum outcome {
    /* The library has been loaded. */
    ATTACHED = 0,
    /* The process was left as it was. */
    REFUSED = 3,
    /* No thread was in a system call in which it can be borrowed. */
    NO_THREAD = 4,
    /* The stub has not ended within LOADED_MS. */
    UNDER_WAY = 5,
    /* dlopen or the library's entry failed. */
    NOT_LOADED = 6,
    /* The process has executed another program. It was left as it was. */
    REPLACED = 7,
};

static int say(enum outcome outcome, const char *text)
{
    printf("outcome %d\nreason %s\n", outcome, text);
    fflush(stdout);
    return (int)outcome;
}

#if !defined(__x86_64__)

int main(void)
{
    return say(REFUSED, "attaching works on x86-64 alone");
}

#else

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stub.h"

enum {
    /* Size (bytes) of a page. */
    PAGE = 4096,
    /* REGION_BYTES: size (bytes) of the stub's memory in the process: a page of code, its data (struct ss_stub), its
     * frame, and a stack. BLOCK_AT: offset (bytes) of the data. FRAME_AT: offset (bytes) of the frame. */
    REGION_BYTES = 1 << 19,
    BLOCK_AT = PAGE,
    FRAME_AT = 2 * PAGE,
    /* Number of bytes below the stack pointer that the ABI lets a function use (the red zone). */
    RED_ZONE = 128,
    /* STOP_MS: longest wait (ms) for a thread to stop. LOADED_MS: longest wait (ms) for the end of the stub. */
    STOP_MS = 500,
    LOADED_MS = 5000,
    /* Bit in the signal number of a stop at a system call (PTRACE_O_TRACESYSGOOD). */
    AT_CALL = 0x80,
    /* MOST_TRIES: number of rounds in which each thread is tried. BETWEEN_TRIES_NS: pause (ns) between two rounds. */
    MOST_TRIES = 10,
    BETWEEN_TRIES_NS = 5000000,
};
/* Nanoseconds in a millisecond. */
#define MS UINT64_C(1000000)
/* Number of the system call pidfd_getfd, which older headers lack; it is the same on all machines. */
enum { SYS_PIDFD_GETFD = 438 };

/* What is known of the process. */
static struct {
    pid_t pid;
    int memory, descriptor;
    uint64_t syscall, sigreturn;
    uint64_t dlopen, dlsym, dlerror, errno_location;
} process;
/* The borrowed thread. ``frame_at``: address of the signal frame by which the thread returns, first on its own stack, then
 * in the stub's memory. */
static struct {
    pid_t tid;
    struct ss_stopped before;
    uint64_t frame_at;
    /* Original bytes of the stack under the signal frame, from address ``kept_at`` on. */
    uint64_t kept_at;
    size_t kept_bytes;
    uint8_t kept[sizeof(uint64_t) + SS_FRAME_BYTES];
    /* A signal at whose delivery it is stopped, 0 for none. */
    int signal;
} thread;
static char reason[256];

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void rest(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* A test ends the tracer behind each of its steps. */
#ifdef SS_ATTACH_STEPS
static void step(void)
{
    static long made;
    const char *last = getenv("STALLSCOPE_ATTACH_STEPS"), *sent = getenv("STALLSCOPE_ATTACH_SIGNAL");
    made++;
    if (sent && made == 1) {
        /* The thread is seized: it stops where the signal is to be delivered. */
        syscall(SYS_tgkill, process.pid, thread.tid, (int)strtol(sent, NULL, 10));
        rest(50000000);
    }
    if (last && made == strtol(last, NULL, 10))
        raise(SIGKILL);
}
#else
#define step() ((void)0)
#endif

static long trace(int request, uintptr_t address, uintptr_t data)
{
    long result = ptrace((enum __ptrace_request)request, thread.tid, (void *)address, (void *)data);
    step();
    return result;
}

static int fail(const char *what)
{
    snprintf(reason, sizeof reason, "%s: %s", what, strerror(errno));
    return -1;
}

/* Waits until the thread has stopped; its status, -1 after STOP_MS or if it has ended.
 *
 * The stop at which a signal is to be delivered is only looked at. Taken by waitpid, the signal would be lost where the
 * tracer is killed before it lets go; the kernel delivers it where the stop was not taken.
 */
static int wait_for_stop(void)
{
    uint64_t limit = now() + STOP_MS * MS;
    for (;;) {
        siginfo_t found = {.si_pid = 0};
        int failed = waitid(P_PID, (id_t)thread.tid, &found, WSTOPPED | WEXITED | __WALL | WNOHANG | WNOWAIT);
        if (!failed && found.si_pid == thread.tid && found.si_code == CLD_TRAPPED) {
            int stop = found.si_status, status;
            int is_event = stop >> 8 || stop == (SIGTRAP | AT_CALL);
            thread.signal = is_event ? 0 : stop;
            if (!is_event || waitpid(thread.tid, &status, __WALL | WNOHANG) == thread.tid)
                return stop << 8 | 0x7f;
            failed = 1;
        }
        if (failed || found.si_pid == thread.tid) {
            errno = ESRCH;
            return fail("the thread has ended");
        }
        if (now() > limit) {
            errno = EBUSY;
            return fail("the thread does not stop");
        }
        rest(5000);
    }
}

static int write_to_process(uint64_t at, const void *from, size_t bytes)
{
    ssize_t written = pwrite(process.memory, from, bytes, (off_t)at);
    step();
    return written == (ssize_t)bytes ? 0 : fail("writing to its memory");
}

static int read_stub(uint64_t region, struct ss_stub *stub)
{
    return pread(process.memory, stub, sizeof *stub, (off_t)(region + BLOCK_AT)) == (ssize_t)sizeof *stub ? 0 : -1;
}

/* Whether the process still executes the program in which the addresses were found. */
static int is_same_program(void)
{
    static const uint8_t expected[] = {0x0f, 0x05, 0xc3};
    uint8_t found[sizeof expected];
    return pread(process.memory, found, sizeof found, (off_t)process.syscall) == (ssize_t)sizeof found &&
           !memcmp(found, expected, sizeof found);
}

/* Whether a sleep that would begin anew is so short that nobody notices, by the time at an address; 0: there is none. */
static int is_short_sleep(uint64_t at)
{
    int64_t time[2];
    return !at || (pread(process.memory, time, sizeof time, (off_t)at) == (ssize_t)sizeof time && !time[0]);
}

/* Returns 1 if the thread is inside a signal handler. The interrupted code may hold a lock, such as the allocator's. The
 * stack may also contain the frame of a handler that has returned; the signal mask in such a frame equals the thread's. */
static int is_in_handler(void)
{
    /* Largest number of words of the stack that are searched. */
    enum { SEARCHED = 1 << 13 };
    static uint64_t words[SEARCHED];
    ssize_t got = pread(process.memory, words, sizeof words, (off_t)thread.before.registers.rsp);
    size_t count = got > 0 ? (size_t)got / sizeof *words : 0;
    for (size_t at = 0; at + 1 + SS_CONTEXT_BYTES / sizeof *words <= count; at++)
        if (words[at] == process.sigreturn && ss_is_other_mask((const uint8_t *)&words[at + 1], thread.before.mask))
            return 1;
    return 0;
}

/* Stops the thread, and reads all that it has; 1 if it is not where it may be borrowed. */
static int stop_thread(pid_t tid)
{
    thread.tid = tid;
    /* The thread may have ended. */
    if (trace(PTRACE_SEIZE, 0, PTRACE_O_TRACESYSGOOD))
        return errno == ESRCH ? 1 : fail("PTRACE_SEIZE");
    if (trace(PTRACE_INTERRUPT, 0, 0))
        return fail("PTRACE_INTERRUPT");
    int status = wait_for_stop();
    if (status < 0)
        return -1;
    if (!is_same_program()) {
        errno = ESRCH;
        return fail("it has executed another program");
    }
    struct iovec state = {thread.before.xstate, sizeof thread.before.xstate};
    if (trace(PTRACE_GETREGS, 0, (uintptr_t)&thread.before.registers))
        return fail("PTRACE_GETREGS");
    /* A signal that stops the process, or one that is to be delivered, goes first. */
    if (status >> 8 != (SIGTRAP | PTRACE_EVENT_STOP << 8) || !ss_may_be_borrowed(&thread.before.registers) ||
        !is_short_sleep(ss_sleep_anew(&thread.before.registers)))
        return 1;
    if (trace(PTRACE_GETREGSET, NT_X86_XSTATE, (uintptr_t)&state))
        return fail("PTRACE_GETREGSET");
    thread.before.xstate_bytes = state.iov_len;
    if (trace(PTRACE_GETSIGMASK, sizeof thread.before.mask, (uintptr_t)&thread.before.mask))
        return fail("PTRACE_GETSIGMASK");
    return is_in_handler();
}

/* A signal that was to be delivered then is. */
static void let_go(void)
{
    trace(PTRACE_DETACH, 0, (uintptr_t)thread.signal);
    thread.signal = 0;
}

/* Reads bytes of the thread's stack with the access rights of the thread. Reason: /proc/PID/mem ignores the rights of
 * pages, such as guard pages. */
static int keep_stack(uint64_t at, size_t bytes)
{
    struct iovec from = {(void *)(uintptr_t)at, bytes}, to = {thread.kept, bytes};
    ssize_t got = process_vm_readv(process.pid, &to, 1, &from, 1, 0);
    if (got < 0 && errno != EFAULT)
        got = pread(process.memory, thread.kept, bytes, (off_t)at);
    thread.kept_at = at;
    thread.kept_bytes = got == (ssize_t)bytes ? bytes : 0;
    return thread.kept_bytes ? 0 : -1;
}

/* Writes a signal frame at an address, and the address of rt_sigreturn before the frame, to which the system call's "ret"
 * returns. */
static int write_return(uint64_t at, const uint8_t *frame, size_t bytes)
{
    uint64_t sigreturn = process.sigreturn;
    return write_to_process(at, frame, bytes) || write_to_process(at - sizeof sigreturn, &sigreturn, sizeof sigreturn);
}

/* Puts the way back onto the thread's stack, below what it uses, as the kernel does with a signal. 1 if there is no room. */
static int prepare_return(void)
{
    static uint8_t frame[SS_FRAME_BYTES];
    uint64_t most = SS_CONTEXT_BYTES + thread.before.xstate_bytes + RED_ZONE;
    thread.frame_at = (thread.before.registers.rsp - RED_ZONE - most) & ~UINT64_C(63);
    size_t bytes = ss_write_frame(&thread.before, thread.frame_at, frame);
    if (!bytes) {
        errno = ENOTSUP;
        return fail("the thread's extended state");
    }
    uint64_t at = thread.frame_at - sizeof process.sigreturn;
    return keep_stack(at, sizeof process.sigreturn + bytes) || write_return(thread.frame_at, frame, bytes);
}

/* Moves the signal frame into the region, and restores the thread's stack. */
static int move_return(uint64_t region)
{
    static uint8_t frame[SS_FRAME_BYTES];
    struct user_regs_struct registers;
    size_t bytes = ss_write_frame(&thread.before, region + FRAME_AT, frame);
    if (!bytes || write_return(region + FRAME_AT, frame, bytes))
        return -1;
    if (trace(PTRACE_GETREGS, 0, (uintptr_t)&registers))
        return fail("PTRACE_GETREGS");
    registers.rsp = region + FRAME_AT - sizeof process.sigreturn;
    if (trace(PTRACE_SETREGS, 0, (uintptr_t)&registers))
        return fail("PTRACE_SETREGS");
    thread.frame_at = region + FRAME_AT;
    return write_to_process(thread.kept_at, thread.kept, thread.kept_bytes);
}

static int continue_to_call(void)
{
    if (trace(PTRACE_SYSCALL, 0, 0))
        return fail("PTRACE_SYSCALL");
    int status = wait_for_stop();
    if (status < 0)
        return -1;
    if (WSTOPSIG(status) == (SIGTRAP | AT_CALL))
        return 0;
    errno = EINTR;
    return fail("the process was stopped meanwhile");
}

/* Lets the thread make a system call; afterwards it is stopped behind it, on its way back. -1 if it was not made. */
static int call_in_process(long number, const uint64_t arguments[6], int64_t *result)
{
    struct user_regs_struct registers = thread.before.registers;
    const uint64_t everything = ~UINT64_C(0);
    registers.rip = process.syscall;
    registers.rsp = thread.frame_at - sizeof(uint64_t);
    registers.rax = (uint64_t)number;
    registers.orig_rax = ~UINT64_C(0);
    registers.rdi = arguments[0];
    registers.rsi = arguments[1];
    registers.rdx = arguments[2];
    registers.r10 = arguments[3];
    registers.r8 = arguments[4];
    registers.r9 = arguments[5];
    if (trace(PTRACE_SETREGS, 0, (uintptr_t)&registers))
        return fail("PTRACE_SETREGS");
    /* Behind the registers: without them, the thread would never unblock its signals. */
    if (trace(PTRACE_SETSIGMASK, sizeof everything, (uintptr_t)&everything))
        return fail("PTRACE_SETSIGMASK");
    if (continue_to_call() || continue_to_call())
        return -1;
    if (trace(PTRACE_GETREGS, 0, (uintptr_t)&registers))
        return fail("PTRACE_GETREGS");
    *result = (int64_t)registers.rax;
    return 0;
}

static int64_t checked(long number, const char *name, const uint64_t arguments[6])
{
    int64_t result;
    if (call_in_process(number, arguments, &result))
        return -1;
    if (result < 0 && result > -PAGE) {
        errno = (int)-result;
        return fail(name);
    }
    return result;
}

/* The process's descriptor with a number, opened as little as its kind allows; -1 without it. */
static int take_descriptor(int64_t number)
{
    if (process.descriptor >= 0) {
        int taken = (int)syscall(SYS_PIDFD_GETFD, process.descriptor, (int)number, 0);
        if (taken >= 0 || errno != ENOSYS)
            return taken;
    }
    char path[64];
    /* Of whatever kind the file is by now, O_PATH opens none. */
    snprintf(path, sizeof path, "/proc/%d/fd/%" PRId64, (int)process.pid, number);
    return open(path, O_PATH | O_CLOEXEC);
}

/* Whether a descriptor is of an empty memfd: other threads of the process may have put another file at its number. */
static int is_new_memory(int taken)
{
    struct stat status, own_status;
    int own = (int)syscall(SYS_memfd_create, "stallscope-own", MFD_CLOEXEC);
    int is_new = own >= 0 && !fstat(own, &own_status) && !fstat(taken, &status) && S_ISREG(status.st_mode) &&
                 status.st_dev == own_status.st_dev && !status.st_nlink && !status.st_size;
    if (own >= 0)
        close(own);
    return is_new;
}

/* The descriptor, opened for writing where it was not. */
static int opened_for_writing(int taken)
{
    int flags = fcntl(taken, F_GETFL);
    if (flags < 0 || !(flags & O_PATH))
        return taken;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", taken);
    int opened = open(path, O_WRONLY | O_CLOEXEC);
    close(taken);
    return opened;
}

/* A memfd of the process with the library; its number there. */
static int64_t send_library(const uint8_t *library, size_t bytes, uint64_t name_at)
{
    const uint64_t arguments[6] = {name_at, MFD_CLOEXEC};
    int64_t number = checked(SYS_memfd_create, "memfd_create", arguments);
    if (number < 0)
        return -1;
    int taken = take_descriptor(number);
    step();
    if (taken < 0)
        return fail("the process's memfd");
    if (!is_new_memory(taken)) {
        close(taken);
        errno = EBADF;
        return fail("the process's memfd");
    }
    int descriptor = opened_for_writing(taken);
    if (descriptor < 0)
        return fail("the process's memfd");
    size_t written = 0;
    while (written < bytes) {
        ssize_t more = pwrite(descriptor, library + written, bytes - written, (off_t)written);
        if (more <= 0)
            break;
        written += (size_t)more;
    }
    close(descriptor);
    step();
    return written == bytes ? number : fail("the process's memfd");
}

/* Writes the stub and its arguments into the region. The region already contains the signal frame. */
static int write_stub(uint64_t region, int64_t descriptor)
{
    struct ss_stub stub = {
        .dlopen = process.dlopen,
        .dlsym = process.dlsym,
        .dlerror = process.dlerror,
        .errno_location = process.errno_location,
        .frame = region + FRAME_AT,
        .interrupted = thread.before.registers.rip,
        .all_signals = ~UINT64_C(0),
        .mask = thread.before.mask,
        .result = -1,
        .descriptor = descriptor,
        .entry = SS_ENTRY,
    };
    /* The C library knows a library by its path, and the number may have been another one's: so not as others write it. */
    snprintf(stub.path, sizeof stub.path, "/proc/self/./fd/%" PRId64, descriptor);
    return write_to_process(region, ss_stub_code, (size_t)(ss_stub_code_end - ss_stub_code)) ||
           write_to_process(region + BLOCK_AT, &stub, sizeof stub);
}

/* Gives the thread the stub's first instruction, and lets it go. */
static int begin_stub(uint64_t region)
{
    struct user_regs_struct registers = thread.before.registers;
    registers.rip = region;
    registers.rbx = region + BLOCK_AT;
    registers.rsp = region + REGION_BYTES - 64;
    registers.rbp = 0;
    registers.orig_rax = ~UINT64_C(0);
    /* The direction flag, as functions expect it. */
    registers.eflags &= ~UINT64_C(0x400);
    if (trace(PTRACE_SETREGS, 0, (uintptr_t)&registers))
        return fail("PTRACE_SETREGS");
    let_go();
    return 0;
}

/* Puts the library and the stub into the process, which has the memory for it by now. */
static int fill(const uint8_t *library, size_t bytes, uint64_t region, int64_t *descriptor)
{
    static const char name[] = "stallscope-inject";
    const uint64_t code[6] = {region, PAGE, PROT_READ | PROT_EXEC};
    if (move_return(region) || write_to_process(region, name, sizeof name))
        return -1;
    *descriptor = send_library(library, bytes, region);
    if (*descriptor < 0 || write_stub(region, *descriptor) || checked(SYS_mprotect, "mprotect", code) < 0)
        return -1;
    return begin_stub(region);
}

/* All until the stub has begun; 1 if another thread may do. Wherever it fails, the thread is on its way back. */
static int borrow(const uint8_t *library, size_t bytes, uint64_t *region)
{
    int64_t descriptor = -1, ignored;
    if (prepare_return())
        return 1;
    const uint64_t place[6] = {0, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, ~UINT64_C(0), 0};
    int64_t mapped = checked(SYS_mmap, "mmap", place);
    if (mapped < 0)
        return -1;
    *region = (uint64_t)mapped;
    if (!fill(library, bytes, *region, &descriptor))
        return 0;
    char first[sizeof reason];
    memcpy(first, reason, sizeof first);
    if (descriptor >= 0)
        call_in_process(SYS_close, (const uint64_t[6]){(uint64_t)descriptor}, &ignored);
    /* The region may contain the signal frame by which the thread returns. */
    if (!prepare_return())
        call_in_process(SYS_munmap, (const uint64_t[6]){*region, REGION_BYTES}, &ignored);
    memcpy(reason, first, sizeof first);
    return -1;
}

/* Follows the stub to its end from outside. */
static int follow(uint64_t region, uint64_t began)
{
    struct ss_stub stub = {.state = SS_STUB_PREPARED};
    uint64_t limit = now() + LOADED_MS * MS;
    while (!read_stub(region, &stub) && stub.state != SS_STUB_DONE && now() < limit)
        rest(50000);
    uint64_t ended = (uint64_t)stub.ended[0] * 1000000000u + (uint64_t)stub.ended[1];
    if (stub.state != SS_STUB_DONE && !is_same_program())
        return say(REPLACED, "it has executed another program");
    if (stub.state != SS_STUB_DONE) {
        printf("state %u\n", (unsigned)stub.state);
        return say(UNDER_WAY, "the stub has not ended");
    }
    printf("stopped_ns %" PRIu64 "\n", ended - began);
    if (!stub.result)
        return say(ATTACHED, "");
    if (stub.result > 0)
        printf("lack %" PRId64 "\n", stub.result);
    stub.error[sizeof stub.error - 1] = 0;
    stub.error[strcspn(stub.error, "\n")] = 0;
    return say(NOT_LOADED, *stub.error ? stub.error : "the library cannot begin in it");
}

static int attach(const uint8_t *library, size_t bytes, char **tids)
{
    for (int tried = 0; tried < MOST_TRIES; tried++, rest(BETWEEN_TRIES_NS))
        for (char **tid = tids; *tid; tid++) {
            uint64_t region = 0, began = now();
            int result = stop_thread((pid_t)strtol(*tid, NULL, 10));
            if (!result)
                result = borrow(library, bytes, &region);
            if (result > 0)
                strcpy(reason, "no thread sleeps in a system call in which it can be borrowed");
            if (!result) {
                printf("tid %s\nregion %" PRIu64 "\nregion_bytes %d\n", *tid, region, REGION_BYTES);
                return follow(region, began);
            }
            let_go();
            if (result < 0)
                return say(is_same_program() ? REFUSED : REPLACED, reason);
        }
    return say(is_same_program() ? NO_THREAD : REPLACED, reason);
}

static uint64_t address(const char *text)
{
    return strtoull(text, NULL, 16);
}

int main(int count, char **words)
{
    if (count < 12)
        return say(REFUSED, "PID SYSCALL RETURN DLOPEN DLSYM DLERROR ERRNO LIBRARY MEMORY PROCESS TID... are needed");
    process.pid = (pid_t)strtol(words[1], NULL, 10);
    process.syscall = address(words[2]);
    process.sigreturn = address(words[3]);
    process.dlopen = address(words[4]);
    process.dlsym = address(words[5]);
    process.dlerror = address(words[6]);
    process.errno_location = address(words[7]);
    int file = (int)strtol(words[8], NULL, 10);
    process.memory = (int)strtol(words[9], NULL, 10);
    process.descriptor = (int)strtol(words[10], NULL, 10);
    struct stat status;
    if (fstat(file, &status) || !status.st_size)
        return say(REFUSED, "the library cannot be read");
    const uint8_t *library = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    close(file);
    if (library == MAP_FAILED)
        return say(REFUSED, "the library cannot be read");
    return attach(library, (size_t)status.st_size, words + 11);
}

#endif
