/* CUPTI: its functions in declarations of our own, the buffers that it fills, and the decoding of its records.
 *
 * One implementation for the engine's timeline and for the injected library; each of the two has its own copy of it.
 */
#ifndef STALLSCOPE_CUPTI_H
#define STALLSCOPE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#include "functions.h"
#include "layout.h"

enum {
    /* CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_API_ENTER, CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT and _SYSTEM. */
    SS_DRIVER_API = 1,
    SS_CALL_ENTER = 0,
    SS_DEFAULT_THREAD_IDS = 0,
    SS_SYSTEM_THREAD_IDS = 1,
    /* CUDA_ERROR_NOT_READY: the result of a query of unfinished work, which is no failure. */
    SS_CUDA_NOT_READY = 600,
};

typedef void (*ss_cupti_callback)(void *user, int domain, uint32_t number, const struct ss_callback_data *data);
typedef void (*ss_buffer_requested)(uint8_t **buffer, size_t *size, size_t *most);
typedef void (*ss_buffer_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

/* Every function returns CUPTI's code, 0 for success. */
struct ss_cupti {
    int (*get_version)(uint32_t *version);
    int (*subscribe)(void **subscriber, ss_cupti_callback callback, void *user);
    int (*unsubscribe)(void *subscriber);
    int (*finalize)(void);
    int (*enable_callback)(uint32_t on, void *subscriber, int domain, uint32_t number);
    int (*get_callback_name)(int domain, uint32_t number, const char **name);
    int (*set_thread_id_type)(int type);
    int (*set_timestamps)(uint64_t (*clock)(void));
    int (*set_buffers)(ss_buffer_requested requested, ss_buffer_completed completed);
    int (*enable)(int kind);
    int (*disable)(int kind);
    int (*enable_and_dump)(int kind);
    ss_flush flush;
    ss_next_record next_record;
    ss_count_dropped count_dropped;
};

/* decode.c */

/* What the record says; 0 if its kind has no layout. ``version`` is that of the libcupti that made it. */
int ss_decode(const uint8_t *record, uint32_t version, struct ss_activity *activity);

/* buffers.c */

/* Size (bytes) of all buffers of the injected library. */
#define SS_BUFFER_MEMORY                                                                                               \
    ((uint64_t)SS_LARGE_BUFFERS * SS_LARGE_BUFFER_BYTES +                                                              \
     (uint64_t)(SS_MOST_BUFFERS - SS_LARGE_BUFFERS) * SS_BUFFER_BYTES)

/* The buffers of this process. Their memory lasts as long as the library: CUPTI may hold one until it is detached. */
extern struct ss_buffer_pool ss_pool;
/* Called in any thread after a buffer was completed, if it is set. */
extern void (*ss_on_completed)(void);

/* The callbacks for cuptiActivityRegisterCallbacks. */
void ss_requested(uint8_t **buffer, size_t *size, size_t *most);
/* What ss_requested does, with a small buffer where one is free if ``small``, else with a large one. */
void ss_give_buffer(uint8_t **buffer, size_t *size, size_t *most, int small);
void ss_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
/* The number of the buffer that was completed first and is not yet released; -1 without one. */
int ss_oldest_completed(void);
uint8_t *ss_buffer_memory(int number);
void ss_release_buffer(int number);
/* Releases the completed buffers unread, and those that CUPTI holds too, which only a detached CUPTI allows. */
int64_t ss_discard_buffers(int64_t with_cupti);

#ifndef SS_CORE
/* Those of the injected library have no memory before a recording, and as many are used as the process has room for. */
int ss_have_memory(void);
void ss_place_buffers(void *place);
void ss_use_buffers(uint32_t large, uint32_t small);
void ss_return_pages(void);
#endif

#endif
