/* Switches the recording of the injected library off and on, for a benchmark of its cost; linked into the library with
 * -Wl,--wrap=ss_choose_calls. To be called while no other thread makes CUDA calls. */
#include "cupti.h"
#include "state.h"

enum { MOST = 2048 };

int __real_ss_choose_calls(const struct ss_cupti *cupti, void *subscriber, uint64_t held_since);
int __wrap_ss_choose_calls(const struct ss_cupti *cupti, void *subscriber, uint64_t held_since);
int watch_switch(int on);

static struct ss_cupti cupti;
static void *subscriber;
static uint32_t chosen[MOST];
static uint32_t count;

static int choose(uint32_t on, void *of, int domain, uint32_t number)
{
    int code = cupti.enable_callback(on, of, domain, number);
    if (!code && count < MOST)
        chosen[count++] = number;
    return code;
}

int __wrap_ss_choose_calls(const struct ss_cupti *functions, void *of, uint64_t held_since)
{
    struct ss_cupti noting = cupti = *functions;
    subscriber = of;
    noting.enable_callback = choose;
    return __real_ss_choose_calls(&noting, of, held_since);
}

__attribute__((visibility("default"))) int watch_switch(int on)
{
    int failed = 0;
    if (!subscriber)
        return -1;
    for (uint32_t at = 0; at < count; at++)
        failed |= cupti.enable_callback((uint32_t)on, subscriber, SS_DRIVER_API, chosen[at]);
    for (uint32_t kind = 0; kind < 64; kind++)
        if (ss_header->kinds >> kind & 1)
            failed |= on ? cupti.enable((int)kind) : cupti.disable((int)kind);
    return failed ? -1 : (int)count;
}
