/* What the stand-ins of libcuda and libcupti and the host programs share.
 *
 * The stand-ins do what matters to an injected library: they load it, call it at enter and exit of driver calls, and
 * deliver activity records in CUPTI's layouts. The numbers of functions are their own.
 */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <stddef.h>
#include <stdint.h>

#define FUNCTIONS(f)                                                                                                   \
    f(2, cuCtxGetDevice) f(5, cuCtxSynchronize) f(7, cuMemAlloc_v2) f(8, cuMemFree_v2) f(11, cuMemHostAlloc)          \
    f(12, cuMemFreeHost) f(20, cuMemcpyDtoH_v2) f(21, cuMemcpyDtoHAsync_v2) f(22, cuMemcpyHtoDAsync_v2)               \
    f(23, cuMemcpy2D_v2) f(24, cuMemcpyPeerAsync) f(30, cuMemsetD8Async) f(40, cuLaunchKernel)                        \
    f(41, cuLaunchKernel_ptsz) f(42, cuLaunchKernelEx) f(50, cuStreamSynchronize) f(60, cuEventQuery) f(61, cuMemHostRegister_v2)             \
    f(62, cuMemHostUnregister) f(63, cuModuleLoadData) f(64, cuModuleGetFunction) f(70, cuDevicePrimaryCtxRetain)      \
    f(71, cuStreamCreate) f(72, cuGraphInstantiateWithFlags)

enum {
#define NUMBER(number, name) STAND_IN_##name = number,
    FUNCTIONS(NUMBER)
#undef NUMBER
    /* Above all numbers of CUPTI's own. */
    STAND_IN_FUNCTIONS = 2048,
};

/* A function of a stream: its number in the libcupti that recorded it. */
struct stand_in_function {
    uint32_t number;
    char name[60];
};

/* One piece of work of the GPU, or a record of the driver. ``subkind`` of a kernel: its blocks, 0 if nothing says. */
struct stand_in_work {
    uint32_t kind;
    uint32_t subkind;
    uint64_t bytes;
    uint32_t source, target;
    uint32_t correlation;
    const char *name;
    /* How long ago it began, and how long it takes if that is not the present. */
    uint64_t began_ago_ns, length_ns;
    /* Where and when it was, NULL for the stand-in's own GPU and the present. */
    const struct stand_in_place *place;
};

/* Times on the clock of the calls, except that of a context switch. An overhead without a thread has 0. */
struct stand_in_place {
    uint64_t start_ns, end_ns;
    uint32_t device, context, stream, peer, thread;
};

typedef void (*stand_in_call_hook)(uint32_t number, const char *name, int site, const void *parameters,
                                   const int *result, uint32_t context, uint32_t correlation);
typedef void (*stand_in_work_hook)(const struct stand_in_work *work);

/* libcuda */
void stand_in_set_hooks(stand_in_call_hook call, stand_in_work_hook work);
/* How many calls have begun, in all threads. */
uint32_t stand_in_begun(void);
/* The length of this thread's next calls, and the result of its next one. */
void stand_in_length(uint64_t ns);
void stand_in_result(int result);
/* The length of the kernels that this thread launches from now on. */
void stand_in_kernel_length(uint64_t ns);
/* From now on this thread's calls hold the lock that a driver has for a context. */
void stand_in_take_lock(void);
/* The calling thread's next call ends only once the first thread is held in the begin of one, as a call that waits for a lock
 * which others take again and again. */
void stand_in_starve(void);
/* A stream of calls and records that were recorded elsewhere: its functions replace those of FUNCTIONS, before cuInit;
 * begin (site 0) and end (site 1) of a call; a record. */
void stand_in_use_functions(const struct stand_in_function *functions, uint32_t count);
/* The function with a number from 0 to STAND_IN_FUNCTIONS, or NULL. */
const char *stand_in_name(uint32_t number);
void stand_in_replay_call(uint32_t number, int site, const void *parameters, const int *result, uint32_t context,
                          uint32_t correlation);
void stand_in_replay_record(const struct stand_in_work *work);
/* A copy of 4 bytes with the present length, in a thread of its own. */
void stand_in_copy_in_thread(void);
int cuInit(unsigned flags);
int cuCtxGetDevice(int *device);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemFree_v2(uint64_t address);
int cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
int cuMemFreeHost(void *address);
int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *address);
int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t bytes);
int cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t bytes, void *stream);
int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t bytes, void *stream);
int cuMemcpy2D_v2(const void *copy);
int cuMemcpyPeerAsync(uint64_t target, void *target_context, uint64_t source, void *source_context, size_t bytes,
                      void *stream);
int cuMemsetD8Async(uint64_t target, unsigned char value, size_t count, void *stream);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);
int cuLaunchKernel_ptsz(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                        void **extra);
int cuStreamSynchronize(void *stream);
int cuEventQuery(void *event);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuDeviceGet(int *device, int number);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuStreamCreate(void **stream, unsigned flags);
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);

#endif
