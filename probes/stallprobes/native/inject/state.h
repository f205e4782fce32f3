/* What all files of the library know of the process and of its recording (state.c). */
#ifndef STALLSCOPE_STATE_H
#define STALLSCOPE_STATE_H

#include <stdint.h>
#include <sys/stat.h>

#include "cupti.h"
#include "glibc.h"
#include "layout.h"
#include "words.h"

/* The library's code runs inside callbacks of the program's own calls: it makes no CUDA call and takes no lock. */

/* Attribute of a function that the driver, NVTX or the program's profiler calls; the program sees no other function. */
#define SS_SHOWN __attribute__((visibility("default")))

/* Flags of memfd_create, which older headers lack. */
enum { MEMFD_CLOEXEC = 1, MEMFD_SEALABLE = 2 };

/* State of the recording of this process. SS_FORKED: the process was forked, and its recording has not begun.
 * SS_OPENING: the recording opens its file. SS_OPEN: the process is recorded. SS_OFF: the process is not recorded. */
enum { SS_FORKED = 0, SS_OPENING, SS_OPEN, SS_OFF };

struct ss_private {
    uint32_t recording;
    /* The number of the file while this process records, else 0. */
    uint32_t file;
    uint32_t helpers;
    uint32_t looks;
    /* Whether there is a gate. */
    uint32_t gated;
};

struct ss_settings {
    char folder[3072];
    char cupti[1024];
    uint64_t slow_ns;
    uint64_t cost_ppm;
    int calls_only;
    int yield;
    /* Whether a libcupti is loaded beside an older one of the program, whose own profiler then records nothing. */
    int beside;
    int no_stacks;
};

extern struct ss_settings ss_settings;
extern struct ss_private *ss_private;
extern struct ss_file_header *ss_header;
/* The number of the file, from 1: a forked process has one of its own. */
extern uint32_t ss_file;
/* Memory that is shared with the stallscope that attached; NULL without it. */
extern struct ss_control *ss_control;
/* Calls of a forked process while another thread of it opens its file. */
extern uint64_t ss_lost_before_file;

void ss_set_recording(uint32_t recording);
int ss_is_exiting(void);
void ss_begin_exit(void);
void ss_note_step(const char *function);
int ss_file_status(int descriptor, struct stat *status);
const char *ss_parse_number(const char *text, uint64_t *number);
uint64_t ss_clock(void);
uint64_t ss_real_clock(void);
void ss_count_lost(int kind, uint64_t count);
void *ss_at(uint64_t offset);

/* The names in an open folder, from a descriptor; nothing else of it is set at first. */
struct ss_listing {
    int descriptor;
    long at, bytes;
    char entries[2048] __attribute__((aligned(8)));
};
const char *ss_next_name(struct ss_listing *listing);

#endif
