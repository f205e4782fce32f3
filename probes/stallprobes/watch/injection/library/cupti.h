/* The part of CUPTI's interface that the library uses, in declarations of our own.
 *
 * The layouts are the same in all versions from CUDA 12.0 on.
 */
#ifndef STALLSCOPE_CUPTI_H
#define STALLSCOPE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

enum {
    CUPTI_SUCCESS = 0,
    CUPTI_NO_MORE_RECORDS = 12,
    CUPTI_NOT_INITIALIZED = 15,
    CUPTI_TAKEN = 39,
    CUPTI_OLDEST_VERSION = 18,
    CUPTI_DRIVER_API = 1,
    CUPTI_ENTER = 0,
    CUPTI_DEFAULT_THREAD_IDS = 0,
    CUPTI_SYSTEM_THREAD_IDS = 1,
    CUPTI_OBJECT_THREAD = 2,
    /* CUDA_ERROR_NOT_READY: the answer of a query, not a failure. */
    CUDA_NOT_READY = 600,
};

struct cupti_callback_data {
    int site;
    const char *function;
    const void *parameters;
    const void *result;
    const char *symbol;
    void *context;
    uint32_t context_number;
    uint64_t *shared;
    uint32_t correlation;
};
_Static_assert(offsetof(struct cupti_callback_data, parameters) == 16, "CUpti_CallbackData");
_Static_assert(offsetof(struct cupti_callback_data, context_number) == 48, "CUpti_CallbackData");
_Static_assert(offsetof(struct cupti_callback_data, correlation) == 64, "CUpti_CallbackData");

typedef void (*cupti_callback)(void *user, int domain, uint32_t number, const struct cupti_callback_data *data);
typedef void (*cupti_requested)(uint8_t **buffer, size_t *size, size_t *most);
typedef void (*cupti_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

/* Every function returns CUPTI's code, 0 for success. */
struct cupti {
    int (*get_version)(uint32_t *version);
    int (*subscribe)(void **subscriber, cupti_callback callback, void *user);
    int (*unsubscribe)(void *subscriber);
    int (*enable_callback)(uint32_t on, void *subscriber, int domain, uint32_t number);
    int (*get_callback_name)(int domain, uint32_t number, const char **name);
    int (*set_thread_id_type)(int type);
    int (*set_timestamps)(uint64_t (*clock)(void));
    int (*set_buffers)(cupti_requested requested, cupti_completed completed);
    int (*enable)(int kind);
    int (*disable)(int kind);
    int (*flush)(uint32_t flag);
    int (*next_record)(uint8_t *buffer, size_t valid, uint8_t **record);
    int (*dropped_records)(void *context, uint32_t stream, size_t *dropped);
};

#endif
