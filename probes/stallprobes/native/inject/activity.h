/* Records of the GPU's work (activity.c). */
#ifndef STALLSCOPE_ACTIVITY_H
#define STALLSCOPE_ACTIVITY_H

#include "cupti.h"

int ss_activity_ended(void);
/* How a gate has to be closed before kinds are switched. */
enum { SS_NO_GATE = 0, SS_QUICKLY, SS_PATIENTLY };
int ss_start_activity(const struct ss_cupti *cupti, int gate);
int ss_stop_activity(const struct ss_cupti *cupti, int gate);
void ss_start_rating(const struct ss_cupti *cupti);
void ss_finish_activity(void);

#endif
