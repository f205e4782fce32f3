/* Memory of the host that the program has pinned (host_memory.c). */
#ifndef STALLSCOPE_HOST_MEMORY_H
#define STALLSCOPE_HOST_MEMORY_H

#include <stdint.h>

void ss_add_host_memory(uint64_t address, uint64_t size, uint8_t kind);
void ss_remove_host_memory(uint64_t address);
void ss_forget_host_memory(void);
uint8_t ss_host_memory_kind(uint64_t address, uint8_t otherwise);

#endif
