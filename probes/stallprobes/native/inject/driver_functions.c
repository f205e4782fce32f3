/* Which functions of the driver are watched, by their names in the program's libcupti, and what is known of each.
 *
 * Where the callbacks of a function go off during a call of it, CUPTI (13.5) misses the end: it takes all later calls of the
 * thread for parts of that call, with its number, also for the program's own profiler later. So they go off only while no
 * thread is in such a call: behind the gate, and on again at once where one arrives meanwhile. Callbacks may go on during
 * a call.
 */
#include <time.h>

#include "driver_functions.h"
#include "gate.h"
#include "slots.h"
#include "state.h"

enum {
    /* Number of consecutive numbers without a function after which the search for functions ends. Reserved numbers have
     * names, so they do not end the search. */
    UNKNOWN_IN_A_ROW = 256,
    /* Longest time (ns) from the entry of a call in CUPTI to the gate, if its thread has a CPU. After callbacks went
     * off, the library waits this time for calls that entered before. */
    ARRIVAL_NS = 5000,
    /* TRIES: number of tries to switch callbacks off, which a call in flight prevents. SOON_NS: pause (ns) before each
     * of the first SOON tries, as a loop of launches is often between two calls. LATER_NS: pause (ns) before each later
     * try, as a wait takes milliseconds. */
    TRIES = 100,
    SOON = 64,
    SOON_NS = 100000,
    LATER_NS = 2000000,
};

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
        function->off = 0;
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

/* Switches the callbacks of a function off, unless a call of it is in flight; whether they are off. */
static int leave_function(uint32_t api)
{
    struct ss_driver_function *function = &ss_driver_functions[known[api].number];
    if (!function->off && !ss_load(function->used)) {
        switched.cupti->enable_callback(0, switched.subscriber, SS_DRIVER_API, known[api].number);
        function->off = 1;
    }
    if (function->off || !ss_close_gate(0))
        return function->off;
    if (!ss_is_in_call(api)) {
        switched.cupti->enable_callback(0, switched.subscriber, SS_DRIVER_API, known[api].number);
        /* A call that began before that arrives by then, and is held at the gate, or waits. */
        for (uint64_t limit = ss_clock() + ARRIVAL_NS; ss_clock() < limit;)
            ;
        function->off = !__atomic_load_n(&function->held, __ATOMIC_SEQ_CST) && !ss_is_in_call(api);
        if (!function->off)
            switched.cupti->enable_callback(1, switched.subscriber, SS_DRIVER_API, known[api].number);
    }
    ss_open_gate();
    return function->off;
}

/* Switches callbacks off, of all functions or of those that are frequent: once no call of each is in flight, by some tries.
 * Whether all are off. */
static int leave_functions(int every, int unused)
{
    int left = 1;
    for (int tried = 0; left && tried < TRIES; tried++) {
        if (tried)
            nanosleep(&(struct timespec){.tv_nsec = tried < SOON ? SOON_NS : LATER_NS}, NULL);
        left = 0;
        for (uint32_t api = 0; api < api_count; api++) {
            const struct ss_driver_function *function = &ss_driver_functions[known[api].number];
            if ((every || function->frequent) && (unused || ss_load(function->used)))
                left += !leave_function(api);
        }
    }
    return !left;
}

/* Switches the callbacks of all functions off that have no call in flight. Returns 1 if all callbacks are off, else 0. */
int ss_leave_calls(void)
{
    return leave_functions(1, 1);
}

/* Switches the callbacks of all functions on that were off. */
void ss_follow_frequent(void)
{
    for (uint32_t api = 0; api < api_count; api++) {
        struct ss_driver_function *function = &ss_driver_functions[known[api].number];
        if (function->off)
            switched.cupti->enable_callback(1, switched.subscriber, SS_DRIVER_API, known[api].number);
        function->off = 0;
    }
}

/* Switches the callbacks of frequent calls off, of those that the program has made, or of ``all``; 0, with all on, if calls
 * in flight prevent it. */
int ss_leave_frequent(int all)
{
    if (leave_functions(0, all))
        return 1;
    ss_follow_frequent();
    return 0;
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
