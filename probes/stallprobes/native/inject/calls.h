/* What the callbacks of calls do (calls.c). */
#ifndef STALLSCOPE_CALLS_H
#define STALLSCOPE_CALLS_H

#include <stdint.h>

#include "layout.h"

void ss_callback(void *user, int domain, uint32_t number, const struct ss_callback_data *data);
int ss_prepare_calls(void);

#endif
