/* The functions of the driver that are watched, and what their arguments say of a call. */
#ifndef STALLSCOPE_DRIVER_FUNCTIONS_H
#define STALLSCOPE_DRIVER_FUNCTIONS_H

#include <stdint.h>
#include <string.h>

#include "cupti.h"
#include "layout.h"
#include "words.h"

enum {
    /* Upper limit of CUPTI's numbers of driver functions. */
    SS_DRIVER_FUNCTIONS = 2048,
    /* Offset (bytes) of the stream in a CUlaunchConfig (cuda.h of CUDA 13.0): it follows seven words of 4 bytes,
     * aligned to 8. */
    SS_CONFIG_STREAM = 32,
};
/* Parameters of a function that are recorded. SS_MORE_THAN_STREAM: more than the stream. SS_STREAM_IN_PARAMETERS: only
 * the stream, which is a parameter. SS_STREAM_IN_CONFIG: only the stream, which lies in a CUlaunchConfig. */
enum { SS_MORE_THAN_STREAM = 0, SS_STREAM_IN_PARAMETERS, SS_STREAM_IN_CONFIG };

/* ``api`` counts the functions that are watched, from 1; it is 0 for the others. */
struct ss_driver_function {
    const struct ss_shape *shape;
    uint16_t api;
    /* Where the stream lies in the parameters, or the address of its CUlaunchConfig. */
    int8_t stream;
    uint8_t only_stream;
    /* Whether it waits, or asks alone, whether what it does is noted when it returns, and whether it instantiates a
     * graph. */
    uint8_t waits, asks, noted, instantiates;
    /* Whether its calls may be plain: only their stream is of interest. */
    uint8_t is_plain;
    /* Whether a program may call it so often that its callbacks go off for a while, whether it has been called, and whether
     * its callbacks are off. */
    uint8_t frequent, used, off;
    /* Calls of it that are held at the gate. */
    uint32_t held;
};
/* By CUPTI's number. */
extern struct ss_driver_function ss_driver_functions[SS_DRIVER_FUNCTIONS];

/* 8 bytes of parameters, or of what they point to. */
SS_INLINE uint64_t ss_argument(const unsigned char *parameters, int offset)
{
    uint64_t value;
    memcpy(&value, parameters + offset, sizeof value);
    return value;
}

/* The stream of a function of which only that is of interest. */
SS_INLINE uint64_t ss_stream_of(const struct ss_driver_function *function, const unsigned char *parameters)
{
    uint64_t found = ss_argument(parameters, function->stream);
    if (function->only_stream == SS_STREAM_IN_CONFIG)
        return found ? ss_argument((const unsigned char *)(uintptr_t)found, SS_CONFIG_STREAM) : 0;
    return found;
}

int ss_choose_calls(const struct ss_cupti *cupti, void *subscriber, uint64_t held_since);
void ss_note_use(uint32_t api);
int ss_is_frequent(uint32_t api);
void ss_follow_frequent(void);
int ss_leave_frequent(int all);
int ss_leave_calls(void);
void ss_write_apis(void);

#endif
