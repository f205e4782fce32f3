/* Recordings (recording.c). */
#ifndef STALLSCOPE_RECORDING_H
#define STALLSCOPE_RECORDING_H

#include <stdint.h>

uint32_t ss_record(uint32_t flags, int gate);
uint32_t ss_begin_recording(int *code);
int ss_begin_records(int gate);
int ss_end_recording(int gate);
void *ss_next_function(const char *name);

#endif
