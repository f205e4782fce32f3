// Steps beside which aggressors run: "d2d" copies within the GPU, "launch" launches many small kernels. Both check their
// results, and allocate memory now and then. beside_steps CASE SECONDS, or until SIGTERM
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

static const size_t COPY_BYTES = 64 << 20, SPARE_BYTES = 256 << 20;
static const int COPIES = 150, LAUNCHES = 400, THREADS = 256;

#define DO(call)                                                                                                      \
    do {                                                                                                              \
        cudaError_t code = (call);                                                                                    \
        if (code != cudaSuccess) {                                                                                    \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));                                             \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

__global__ void add_one(unsigned *values)
{
    values[threadIdx.x]++;
}

__global__ void fill(unsigned *values, size_t count, unsigned value)
{
    for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count; at += gridDim.x * (size_t)blockDim.x)
        values[at] = value + (unsigned)at;
}

static volatile sig_atomic_t ended;

static void end_soon(int)
{
    ended = 1;
}

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    signal(SIGTERM, end_soon);
    bool copies = !strcmp(words[1], "d2d");
    unsigned *source, *target, host[THREADS];
    cudaStream_t stream;
    DO(cudaMalloc(&source, COPY_BYTES));
    DO(cudaMalloc(&target, COPY_BYTES));
    DO(cudaMemset(target, 0, COPY_BYTES));
    DO(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DO(cudaDeviceSynchronize());
    unsigned long steps = 0, wrong = 0, refused = 0;
    double end = now() + atof(words[2]), longest = 0, before = now();
    while (now() < end && !ended) {
        if (copies) {
            fill<<<256, THREADS, 0, stream>>>(source, COPY_BYTES / sizeof *source, (unsigned)steps);
            for (int at = 0; at < COPIES; at++)
                DO(cudaMemcpyAsync(target, source, COPY_BYTES, cudaMemcpyDeviceToDevice, stream));
        } else {
            for (int at = 0; at < LAUNCHES; at++)
                add_one<<<1, THREADS, 0, stream>>>(target);
        }
        DO(cudaGetLastError());
        DO(cudaStreamSynchronize(stream));
        steps++;
        if (steps % 64 == 0) {
            size_t last = copies ? COPY_BYTES / sizeof *source - THREADS : 0;
            DO(cudaMemcpy(host, target + last, sizeof host, cudaMemcpyDeviceToHost));
            for (unsigned at = 0; at < THREADS; at++)
                wrong += host[at] != (copies ? (unsigned)(steps - 1) + (unsigned)last + at : (unsigned)(LAUNCHES * steps));
            void *spare;
            if (cudaMalloc(&spare, SPARE_BYTES) != cudaSuccess)
                refused++;
            else
                DO(cudaFree(spare));
        }
        longest = longest > now() - before ? longest : now() - before;
        before = now();
    }
    printf("steps %lu wrong %lu refused %lu longest_ms %.1f\n", steps, wrong, refused, longest * 1e3);
    return wrong || refused ? 1 : 0;
}
