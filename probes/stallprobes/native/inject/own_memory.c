/* Memory of the process itself at an address that may be none: the kernel reads it, and answers where it cannot.
 *
 * process_vm_readv needs no descriptor, nor a right to one's own memory. Where a filter of system calls refuses it, which is
 * found out once, memory goes through a pipe. The program may close descriptors that it does not know, and use their numbers:
 * those of the pipe are looked at before each use.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "own_memory.h"
#include "state.h"

static uint32_t is_refused;

static int is_own_end(const struct ss_text_pipe *pipe, int end)
{
    struct stat status;
    return !ss_file_status(pipe->ends[end], &status) && S_ISFIFO(status.st_mode) && status.st_dev == pipe->device &&
           status.st_ino == pipe->inode;
}

/* A pipe that belongs to this process alone and that the program has not closed; 0 if it can be used. */
static int prepare_pipe(struct ss_text_pipe *pipe)
{
    struct stat status;
    if (pipe->file == ss_file && is_own_end(pipe, 0) && is_own_end(pipe, 1))
        return 0;
    /* The numbers may be the program's by now. */
    for (int end = 0; pipe->file && end < 2; end++)
        if (is_own_end(pipe, end))
            close(pipe->ends[end]);
    pipe->file = 0;
    if (pipe2(pipe->ends, O_CLOEXEC | O_NONBLOCK) || ss_file_status(pipe->ends[0], &status))
        return -1;
    pipe->device = status.st_dev;
    pipe->inode = status.st_ino;
    pipe->file = ss_file;
    return 0;
}

/* Copies parts of the memory one after the other; how many bytes there are before the first that cannot be read. The parts
 * have the same sizes on both sides, in all less than what a pipe takes. The calls of the system are made as such: a
 * sanitizer would check what is read behind an object. */
long ss_read_memory(struct ss_text_pipe *pipe, const struct iovec *from, const struct iovec *to, int count)
{
    int error = errno;
    long got = -1;
    if (!ss_load(is_refused)) {
        got = syscall(SYS_process_vm_readv, getpid(), to, (unsigned long)count, from, (unsigned long)count, 0);
        if (got < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES))
            ss_store(is_refused, 1);
    }
    if (ss_load(is_refused)) {
        got = prepare_pipe(pipe) ? -1 : syscall(SYS_writev, pipe->ends[1], from, count);
        got = got > 0 ? syscall(SYS_readv, pipe->ends[0], to, count) : -1;
    }
    errno = error;
    return got > 0 ? got : 0;
}
