/* Which functions of the driver are watched, by their names in the program's libcupti, and what is known of each. */
#include "driver_functions.h"
#include "gate.h"
#include "state.h"

/* Numbers without a function that end the search; reserved numbers have names too. */
enum { UNKNOWN_IN_A_ROW = 256 };

struct ss_driver_function ss_driver_functions[SS_DRIVER_FUNCTIONS];
static uint32_t api_count;
/* Who switches the callbacks of the present recording. */
static struct {
    const struct ss_cupti *cupti;
    void *subscriber;
} switched;
static struct {
    uint32_t number;
    const char *name;
} known[SS_APIS];

/* What is known of the functions whose names begin so; NULL if they are not watched. */
static const struct ss_prefix *prefix_of(const char *name)
{
    for (size_t at = 0; at < sizeof ss_prefixes / sizeof *ss_prefixes; at++)
        if (!strncmp(name, ss_prefixes[at].text, strlen(ss_prefixes[at].text)))
            return ss_prefixes[at].watched ? &ss_prefixes[at] : NULL;
    return NULL;
}

static const struct ss_shape *shape_of(const char *name)
{
    size_t length = strlen(name);
    if (length > 5 && (!strcmp(name + length - 5, "_ptsz") || !strcmp(name + length - 5, "_ptds")))
        length -= 5;
    for (size_t at = 0; at < sizeof ss_shapes / sizeof *ss_shapes; at++)
        if (strlen(ss_shapes[at].name) == length && !memcmp(ss_shapes[at].name, name, length))
            return &ss_shapes[at];
    return NULL;
}

static void learn(struct ss_driver_function *function, const char *name, const struct ss_prefix *prefix)
{
    const struct ss_shape *shape = shape_of(name);
    function->shape = shape;
    function->waits = prefix->waits;
    function->asks = prefix->asks;
    function->instantiates = !strncmp(name, "cuGraphInstantiate", strlen("cuGraphInstantiate"));
    if (!shape)
        return;
    function->stream = shape->config >= 0 ? shape->config : shape->stream;
    function->noted = shape->use != SS_USE_NONE;
    if (function->stream >= 0 && shape->bytes < 0 && shape->event < 0 && !shape->dimensions && !shape->source_kind &&
        !shape->target_kind && !function->noted)
        function->only_stream = shape->config >= 0 ? SS_STREAM_IN_CONFIG : SS_STREAM_IN_PARAMETERS;
}

/* Switches on the callbacks of the watched functions that this libcupti knows; their count. Calls may be held up from
 * ``held_since`` on. */
int ss_choose_calls(const struct ss_cupti *cupti, void *subscriber, uint64_t held_since)
{
    int unknown = 0;
    switched.cupti = cupti;
    switched.subscriber = subscriber;
    /* Those of a recording before are the same ones. */
    api_count = 0;
    for (uint32_t number = 1; number < SS_DRIVER_FUNCTIONS; number++) {
        const char *name = NULL;
        if (unknown == UNKNOWN_IN_A_ROW || api_count == SS_APIS)
            break;
        if (cupti->get_callback_name(SS_DRIVER_API, number, &name) || !name) {
            unknown++;
            continue;
        }
        unknown = 0;
        const struct ss_prefix *prefix = prefix_of(name);
        if (!prefix || strlen(name) >= sizeof ((struct ss_api *)0)->name)
            continue;
        uint64_t began = ss_clock();
        int code = cupti->enable_callback(1, subscriber, SS_DRIVER_API, number);
        held_since = ss_rest_after(began, held_since);
        if (code)
            continue;
        known[api_count].number = number;
        known[api_count].name = name;
        struct ss_driver_function *function = &ss_driver_functions[number];
        learn(function, name, prefix);
        /* A callback may come at once, in another thread. */
        ss_store_release(function->api, (uint16_t)++api_count);
        int is_plain = function->only_stream != SS_MORE_THAN_STREAM && !function->waits && !function->asks;
        function->frequent = is_plain || function->asks;
        ss_store_release(function->is_plain, is_plain);
    }
    ss_note_hold(held_since);
    return (int)api_count;
}

/* The program calls a watched function. */
void ss_note_use(uint32_t api)
{
    struct ss_driver_function *function = &ss_driver_functions[known[api].number];
    if (!ss_load(function->used))
        ss_store(function->used, 1);
}

int ss_is_frequent(uint32_t api)
{
    return api < api_count && ss_driver_functions[known[api].number].frequent;
}

/* Switches all callbacks off. */
void ss_leave_calls(void)
{
    for (uint32_t api = 0; api < api_count; api++)
        switched.cupti->enable_callback(0, switched.subscriber, SS_DRIVER_API, known[api].number);
}

/* Switches the callbacks of frequent calls on or off, of those that the program has made, or of ``all``. */
void ss_follow_frequent(int on, int all)
{
    for (uint32_t api = 0; api < api_count; api++) {
        const struct ss_driver_function *function = &ss_driver_functions[known[api].number];
        if (function->frequent && (all || ss_load(function->used)))
            switched.cupti->enable_callback((uint32_t)on, switched.subscriber, SS_DRIVER_API, known[api].number);
    }
}

void ss_write_apis(void)
{
    struct ss_api *written = ss_at(SS_APIS_AT);
    for (uint32_t api = 0; api < api_count; api++) {
        written[api].number = known[api].number;
        strncpy(written[api].name, known[api].name, sizeof written[api].name - 1);
    }
    ss_store_release(ss_header->apis, api_count);
}
