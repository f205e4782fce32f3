/* Memory of this process that may not be there (own_memory.c). */
#ifndef STALLSCOPE_OWN_MEMORY_H
#define STALLSCOPE_OWN_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

/* A pipe of the process with the number ``file``; ``device`` and ``inode`` are its identity. */
struct ss_text_pipe {
    uint32_t file;
    int ends[2];
    dev_t device;
    ino_t inode;
};
struct iovec;
long ss_read_memory(struct ss_text_pipe *pipe, const struct iovec *from, const struct iovec *to, int count);

#endif
