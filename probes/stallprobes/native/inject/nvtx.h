/* Ranges of NVTX (nvtx.c). */
#ifndef STALLSCOPE_NVTX_H
#define STALLSCOPE_NVTX_H

#include <stddef.h>
#include <stdint.h>

void ss_copy_range(char *text, size_t size, uint64_t since);

#endif
