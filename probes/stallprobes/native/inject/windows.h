/* Windows in which work is recorded (windows.c). */
#ifndef STALLSCOPE_WINDOWS_H
#define STALLSCOPE_WINDOWS_H

#include <stdint.h>

#include "cupti.h"

/* Calls that begin from then on and wait for the GPU settle the window; UINT64_MAX if it is settled or has no records. */
extern uint64_t ss_unsettled_since;
/* Whether callbacks of frequent calls are off, when they last went off, and until when calls may be missing therefore:
 * UINT64_MAX while they may, 0 if they never were off. */
extern uint32_t ss_unfollowed;
extern uint64_t ss_quiet_since, ss_quiet_until;
void ss_settle_window(uint64_t now);
void ss_begin_windows(const struct ss_cupti *cupti, uint64_t since);
uint64_t ss_change_window(void);
int ss_begin_flush(void);
void ss_end_flush(void);
void ss_end_windows(void);
void ss_stop_windows(void);
int ss_leaves_graphs(uint64_t since);
void ss_forget_windows(void);

#endif
