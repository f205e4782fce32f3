/* What the arguments of a call say of it (arguments.c). */
#ifndef STALLSCOPE_ARGUMENTS_H
#define STALLSCOPE_ARGUMENTS_H

#include <stdint.h>

#include "layout.h"

void ss_describe_call(struct ss_call *call, const struct ss_shape *shape, const unsigned char *parameters);
void ss_before_use(const struct ss_shape *shape, const unsigned char *parameters);
void ss_after_use(const struct ss_shape *shape, const unsigned char *parameters);
struct ss_call ss_with_stream(struct ss_call call, const unsigned char *parameters);

#endif
