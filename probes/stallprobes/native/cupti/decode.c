/* Decoding of CUPTI's activity records. The caller steps from record to record with CUPTI's own function. */
#include "cupti.h"
#include "words.h"

/* TAKE_GPU_WORK: takes over the members that records of all kinds of GPU work have. TAKE_COPY: also those of copies. */
#define TAKE_GPU_WORK(record)                                                                                          \
    activity->start = (record)->start, activity->end = (record)->end, activity->device = (record)->device,             \
    activity->context = (record)->context, activity->stream = (record)->stream,                                        \
    activity->correlation = (record)->correlation
#define TAKE_COPY(record)                                                                                              \
    TAKE_GPU_WORK(record), activity->subkind = (record)->subkind, activity->source = (record)->source,                 \
    activity->target = (record)->target, activity->bytes = (record)->bytes

static uint32_t up_to(uint64_t number, uint32_t most)
{
    return number < most ? (uint32_t)number : most;
}

/* Threads, registers and shared memory of a kernel's block, as a watch file has them. */
static uint32_t shape_of(const struct ss_kernel_record *kernel)
{
    uint64_t threads = (uint64_t)(uint32_t)kernel->block_x * (uint32_t)kernel->block_y * (uint32_t)kernel->block_z;
    uint64_t shared = (uint64_t)(uint32_t)kernel->fixed_shared + (uint32_t)kernel->shared;
    return up_to(threads ? threads - 1 : 0, 0x3ff) | up_to(kernel->registers, 0xff) << 10 |
           up_to((shared + 15) / 16, 0x3fff) << 18;
}

SS_EXPORTED int ss_decode(const uint8_t *raw, uint32_t version, struct ss_activity *activity)
{
    /* Buffers are aligned, and records have sizes of multiples of 8 bytes. */
    const void *record = raw;
    uint32_t kind = *(const uint32_t *)record;
    *activity = (struct ss_activity){.kind = kind};
    switch (kind) {
    case SS_KIND_KERNEL: {
        const struct ss_kernel_record *kernel = record;
        TAKE_GPU_WORK(kernel);
        activity->name = kernel->name;
        uint64_t layer = (uint64_t)(uint32_t)kernel->grid_x * (uint32_t)kernel->grid_y;
        activity->blocks = layer > UINT32_MAX ? UINT32_MAX : up_to(layer * (uint32_t)kernel->grid_z, UINT32_MAX);
        activity->shape = shape_of(kernel);
        activity->local = kernel->local;
        return 1;
    }
    case SS_KIND_COPY: {
        const struct ss_copy_record *copy = record;
        TAKE_COPY(copy);
        return 1;
    }
    case SS_KIND_PEER_COPY: {
        const struct ss_peer_copy_record *copy = record;
        TAKE_COPY(copy);
        activity->source_device = copy->source_device;
        activity->target_device = copy->target_device;
        return 1;
    }
    case SS_KIND_MEMSET: {
        const struct ss_memset_record *memset = record;
        TAKE_GPU_WORK(memset);
        activity->bytes = memset->bytes;
        return 1;
    }
    case SS_KIND_DRIVER_CALL: {
        const struct ss_driver_call_record *call = record;
        activity->start = call->start;
        activity->end = call->end;
        activity->subkind = call->subkind;
        activity->thread = call->thread;
        activity->correlation = call->correlation;
        return 1;
    }
    case SS_KIND_OVERHEAD: {
        const struct ss_overhead_record *overhead = record;
        activity->start = overhead->start;
        activity->end = overhead->end;
        activity->subkind = overhead->subkind;
        if (overhead->object == SS_OBJECT_THREAD)
            activity->thread = overhead->thread;
        if (version >= SS_OVERHEAD_CORRELATION_SINCE)
            activity->correlation = overhead->correlation;
        return 1;
    }
    case SS_KIND_CONTEXT_SWITCH: {
        const struct ss_context_switch_record *change = record;
        activity->start = change->start;
        activity->subkind = change->subkind;
        activity->context = change->context;
        return 1;
    }
    case SS_KIND_STREAM: {
        const struct ss_stream_record *stream = record;
        activity->context = stream->context;
        activity->stream = stream->stream;
        activity->subkind = stream->subkind;
        return 1;
    }
    default: return 0;
    }
}
