/* Memory and space for what the library writes (space.c). */
#ifndef STALLSCOPE_SPACE_H
#define STALLSCOPE_SPACE_H

#include <stdint.h>

void *ss_map(void *place, uint64_t size, int descriptor);
int ss_size_allowed(uint64_t size);
int ss_seal(int descriptor);
void ss_begin_space(uint64_t most, int (*reopen_file)(void));
int ss_lacks_space(void);
int ss_lacks_room(uint64_t size);
int ss_give_space(uint64_t offset, uint64_t size);
int ss_give_ring(uint64_t offset, uint64_t size);
int ss_give_beginning(uint64_t size);
void ss_uncount_space(uint64_t size);

#endif
