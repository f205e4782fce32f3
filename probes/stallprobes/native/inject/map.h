/* The file of this process (map.c). */
#ifndef STALLSCOPE_MAP_H
#define STALLSCOPE_MAP_H

#include <stdint.h>

uint64_t ss_start_ticks(void);
int ss_open_file(uint32_t flags);
void ss_close_file(void);
int ss_own_folder(void);
void ss_remove_file(int folder);
void ss_stamp_clocks(void);

#endif
