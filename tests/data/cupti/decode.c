/* Decodes the activity records of a file with NVIDIA's own header, for comparison with ours.
 *
 * The names of the newest records (KERNEL, COPY, PEER_COPY, MEMSET, OVERHEAD) are given on the compiler's command line.
 * Standard output: the version of CUPTI's interface and the size of each kind; then a line for each record with the
 * kind, start, end, device, context, stream, correlation, subkind, source, target, bytes, thread, name, source device and
 * target device; 0 where a record has no such field. After the line of a kernel comes one with its blocks in the grid,
 * and the threads, registers and shared memory (bytes) of a block.
 */
#include <cupti_activity.h>
#include <cupti_version.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void line(uint32_t kind, uint64_t start, uint64_t end, uint32_t device, uint32_t context, uint32_t stream,
                 uint32_t correlation, uint32_t subkind, unsigned source, unsigned target, uint64_t bytes,
                 uint32_t thread, const char *name, uint32_t source_device, uint32_t target_device) {
    printf("%u %" PRIu64 " %" PRIu64 " %u %u %u %u %u %u %u %" PRIu64 " %u %" PRIuPTR " %u %u\n", kind, start, end,
           device, context, stream, correlation, subkind, source, target, bytes, thread, (uintptr_t)name, source_device,
           target_device);
}

int main(int count, char **arguments) {
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    if (!file)
        return 2;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *buffer = malloc(size);
    if (fread(buffer, 1, size, file) != (size_t)size)
        return 2;
    printf("%d %zu %zu %zu %zu %zu %zu", CUPTI_API_VERSION, sizeof(KERNEL), sizeof(COPY), sizeof(PEER_COPY),
           sizeof(MEMSET), sizeof(CUpti_ActivityAPI), sizeof(OVERHEAD));
    printf(" %zu", sizeof(CUpti_ActivityStream));
#ifdef SWITCH
    printf(" %zu", sizeof(SWITCH));
#endif
    printf("\n");
    for (long at = 0; at < size;) {
        CUpti_Activity *record = (CUpti_Activity *)(buffer + at);
        switch ((int)record->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
            KERNEL *r = (KERNEL *)record;
            line(r->kind, r->start, r->end, r->deviceId, r->contextId, r->streamId, r->correlationId, 0, 0, 0,
                 0, 0, r->name, 0, 0);
            printf("%.0f %.0f %u %.0f %" PRIu64 "\n", (double)(uint32_t)r->gridX * (uint32_t)r->gridY * (uint32_t)r->gridZ,
                   (double)(uint32_t)r->blockX * (uint32_t)r->blockY * (uint32_t)r->blockZ, r->registersPerThread,
                   (double)(uint32_t)r->staticSharedMemory + (uint32_t)r->dynamicSharedMemory,
                   r->localMemoryTotal_v2);
            at += sizeof *r;
            break;
        }
        case CUPTI_ACTIVITY_KIND_MEMCPY: {
            COPY *r = (COPY *)record;
            line(r->kind, r->start, r->end, r->deviceId, r->contextId, r->streamId, r->correlationId, r->copyKind,
                 r->srcKind, r->dstKind, r->bytes, 0, NULL, 0, 0);
            at += sizeof *r;
            break;
        }
        case CUPTI_ACTIVITY_KIND_MEMCPY2: {
            PEER_COPY *r = (PEER_COPY *)record;
            line(r->kind, r->start, r->end, r->deviceId, r->contextId, r->streamId, r->correlationId, r->copyKind,
                 r->srcKind, r->dstKind, r->bytes, 0, NULL, r->srcDeviceId, r->dstDeviceId);
            at += sizeof *r;
            break;
        }
        case CUPTI_ACTIVITY_KIND_MEMSET: {
            MEMSET *r = (MEMSET *)record;
            line(r->kind, r->start, r->end, r->deviceId, r->contextId, r->streamId, r->correlationId, 0, 0, 0,
                 r->bytes, 0, NULL, 0, 0);
            at += sizeof *r;
            break;
        }
        case CUPTI_ACTIVITY_KIND_DRIVER: {
            CUpti_ActivityAPI *r = (CUpti_ActivityAPI *)record;
            line(r->kind, r->start, r->end, 0, 0, 0, r->correlationId, r->cbid, 0, 0, 0, r->threadId,
                 NULL, 0, 0);
            at += sizeof *r;
            break;
        }
        case CUPTI_ACTIVITY_KIND_OVERHEAD: {
            OVERHEAD *r = (OVERHEAD *)record;
            uint32_t thread = r->objectKind == CUPTI_ACTIVITY_OBJECT_THREAD ? r->objectId.pt.threadId : 0;
            line(r->kind, r->start, r->end, 0, 0, 0, r->correlationId, r->overheadKind, 0, 0, 0, thread, NULL, 0, 0);
            at += sizeof *r;
            break;
        }
        case CUPTI_ACTIVITY_KIND_STREAM: {
            CUpti_ActivityStream *r = (CUpti_ActivityStream *)record;
            line(r->kind, 0, 0, 0, r->contextId, r->streamId, 0, r->flag, 0, 0, 0, 0, NULL, 0, 0);
            at += sizeof *r;
            break;
        }
#ifdef SWITCH
        case CUPTI_ACTIVITY_KIND_COMPUTE_ENGINE_CTX_SWITCH: {
            SWITCH *r = (SWITCH *)record;
            line(r->kind, r->timestamp, 0, 0, r->contextId, 0, 0, r->operationType, 0, 0, 0, 0, NULL, 0,
                 0);
            at += sizeof *r;
            break;
        }
#endif
        default:
            return 3;
        }
    }
    return 0;
}
