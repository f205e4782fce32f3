/* What the arguments of a call say of it, and what it does to host memory and streams. */
#include "arguments.h"
#include "driver_functions.h"
#include "host_memory.h"
#include "state.h"

static uint8_t kind_of(int kind, const unsigned char *parameters, int offset)
{
    if (kind < SS_HOST)
        return (uint8_t)kind;
    uint8_t otherwise = kind == SS_HOST ? SS_MEMORY_PAGEABLE : SS_MEMORY_UNKNOWN;
    return ss_host_memory_kind(ss_argument(parameters, offset), otherwise);
}

/* CUDA_MEMCPY2D and CUDA_MEMCPY3D: offsets of the kind of memory, the host address and the device address. */
struct end {
    int type, host, device;
};

static uint8_t kind_of_end(const unsigned char *copy, struct end end)
{
    /* CUmemorytype. */
    enum { TYPE_HOST = 1, TYPE_DEVICE, TYPE_ARRAY, TYPE_UNIFIED };
    uint32_t type;
    memcpy(&type, copy + end.type, sizeof type);
    switch (type) {
    case TYPE_HOST: return ss_host_memory_kind(ss_argument(copy, end.host), SS_MEMORY_PAGEABLE);
    case TYPE_DEVICE: return SS_MEMORY_DEVICE;
    case TYPE_ARRAY: return SS_MEMORY_ARRAY;
    case TYPE_UNIFIED: return ss_host_memory_kind(ss_argument(copy, end.device), SS_MEMORY_UNKNOWN);
    default: return SS_MEMORY_UNKNOWN;
    }
}

static void describe_block(struct ss_call *call, const unsigned char *copy, int dimensions)
{
    static const struct end source2 = {16, 24, 32}, target2 = {72, 80, 88};
    static const struct end source3 = {32, 40, 48}, target3 = {120, 128, 136};
    if (!copy)
        return;
    call->source = kind_of_end(copy, dimensions == 2 ? source2 : source3);
    call->target = kind_of_end(copy, dimensions == 2 ? target2 : target3);
    call->bytes = dimensions == 2 ? ss_argument(copy, 112) * ss_argument(copy, 120)
                                  : ss_argument(copy, 176) * ss_argument(copy, 184) * ss_argument(copy, 192);
    call->flags |= SS_CALL_BYTES;
}

/* Notes what the arguments of a function with a shape say: stream, bytes, event, and memory at both ends of a copy. */
void ss_describe_call(struct ss_call *call, const struct ss_shape *shape, const unsigned char *parameters)
{
    if (shape->stream >= 0) {
        call->stream = ss_argument(parameters, shape->stream);
        call->flags |= SS_CALL_STREAM;
    }
    if (shape->bytes >= 0) {
        call->bytes = ss_argument(parameters, shape->bytes) * (uint64_t)shape->units;
        call->flags |= SS_CALL_BYTES;
        if (shape->rows >= 0)
            call->bytes *= ss_argument(parameters, shape->rows);
    }
    if (shape->event >= 0) {
        call->bytes = ss_argument(parameters, shape->event);
        call->flags |= SS_CALL_EVENT;
    }
    call->source = kind_of(shape->source_kind, parameters, shape->source);
    call->target = kind_of(shape->target_kind, parameters, shape->target);
    if (shape->dimensions) {
        uint64_t copy = ss_argument(parameters, shape->description);
        describe_block(call, (const unsigned char *)(uintptr_t)copy, shape->dimensions);
    }
}

/* Memory that is freed leaves the table before the call, since another thread may get its address before the call
 * returns. */
void ss_before_use(const struct ss_shape *shape, const unsigned char *parameters)
{
    if (shape->use == SS_USE_FREES)
        ss_remove_host_memory(ss_argument(parameters, 0));
}

/* Memory that a call has allocated or registered is in the table from then on. */
void ss_after_use(const struct ss_shape *shape, const unsigned char *parameters)
{
    uint64_t first = ss_argument(parameters, 0);
    if (shape->use == SS_USE_NONE || shape->use >= SS_USE_FREES || !first)
        return;
    uint64_t size = ss_argument(parameters, shape->bytes);
    if (shape->use != SS_USE_REGISTERS)
        first = ss_argument((const unsigned char *)(uintptr_t)first, 0);
    ss_add_host_memory(first, size, shape->use == SS_USE_ALLOCATES_MANAGED ? SS_MEMORY_MANAGED : SS_MEMORY_PINNED);
}

/* The call that has created a stream, with its handle, and whether that is ordered with the legacy default stream. */
struct ss_call ss_with_stream(struct ss_call call, const unsigned char *parameters)
{
    /* CU_STREAM_NON_BLOCKING. */
    enum { NON_BLOCKING = 1 };
    const unsigned char *handle = (const unsigned char *)(uintptr_t)ss_argument(parameters, 0);
    uint32_t flags;
    memcpy(&flags, parameters + sizeof handle, sizeof flags);
    call.stream = handle ? ss_argument(handle, 0) : 0;
    call.flags |= SS_CALL_STREAM | (flags & NON_BLOCKING ? 0 : SS_CALL_BLOCKING);
    return call;
}
