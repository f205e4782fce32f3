/* Records of the GPU's work (activity.c). */
#ifndef STALLSCOPE_ACTIVITY_H
#define STALLSCOPE_ACTIVITY_H

#include "cupti.h"

int ss_activity_ended(void);
/* Gate during a switch of kinds. SS_NO_GATE: the gate stays open. SS_QUICKLY: the gate closes after a short wait for
 * calls in flight. SS_PATIENTLY: the gate closes after a long wait for calls in flight. */
enum { SS_NO_GATE = 0, SS_QUICKLY, SS_PATIENTLY };
int ss_start_activity(const struct ss_cupti *cupti, int gate);
int ss_stop_activity(const struct ss_cupti *cupti, int gate);
void ss_start_rating(const struct ss_cupti *cupti);
void ss_finish_activity(void);

#endif
