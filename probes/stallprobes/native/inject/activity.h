/* Records of the GPU's work (activity.c). */
#ifndef STALLSCOPE_ACTIVITY_H
#define STALLSCOPE_ACTIVITY_H

#include "cupti.h"

int ss_activity_ended(void);
/* How the gate is closed before a switch of kinds: not at all, or after a short or long wait for calls in flight. */
enum { SS_NO_GATE = 0, SS_QUICKLY, SS_PATIENTLY };
int ss_start_activity(const struct ss_cupti *cupti, int gate);
int ss_stop_activity(const struct ss_cupti *cupti, int gate);
void ss_start_rating(const struct ss_cupti *cupti);
void ss_finish_activity(void);

#endif
