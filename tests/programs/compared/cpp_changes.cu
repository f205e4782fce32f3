// Steps of CUDA C++, each in two variants: how memory is copied, how kernels are launched, how often the host waits, and
// the numbers.
//
//     cpp_changes --variant VARIANT --seconds SECONDS [--gate FILE]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <vector>

using Clock = std::chrono::steady_clock;

static const size_t BYTES = size_t(64) << 20, NUMBERS = size_t(64) << 20, WAITED = size_t(3) << 20;
static const int KERNELS = 400, WAITS = 40, FORKS = 100, SCALINGS = 16;
static std::string variant;
static cudaStream_t stream, side;
static cudaEvent_t forked, joined;
static float *on_gpu, *in_host;
static cudaGraphExec_t recorded;

static void check(cudaError_t code)
{
    if (code == cudaSuccess)
        return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(code));
    std::exit(1);
}

__global__ void scale(float *values, size_t count, float factor)
{
    for (size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x; at < count; at += size_t(gridDim.x) * blockDim.x)
        values[at] *= factor;
}

// 16 bytes of numbers, which are loaded at once.
template <typename Two> struct alignas(16) Word {
    Two twos[16 / sizeof(Two)];
};

static __device__ float2 product(float2 one, float factor)
{
    return make_float2(one.x * factor, one.y * factor);
}

static __device__ __nv_bfloat162 product(__nv_bfloat162 one, float factor)
{
    return __hmul2(one, __float2bfloat162_rn(factor));
}

template <typename Two> __global__ void scale_words(Word<Two> *words, size_t count, float factor)
{
    for (size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x; at < count; at += size_t(gridDim.x) * blockDim.x) {
        Word<Two> word = words[at];
        for (Two &two : word.twos)
            two = product(two, factor);
        words[at] = word;
    }
}

static void compute(double seconds)
{
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (Clock::now() < end)
        ;
}

static void upload()
{
    check(cudaMemcpyAsync(on_gpu, in_host, BYTES, cudaMemcpyHostToDevice, stream)); // changed: pageable
    scale<<<256, 256, 0, stream>>>(on_gpu, BYTES / sizeof(float), 0.5f);
    check(cudaStreamSynchronize(stream));
}

static void read_back()
{
    scale<<<256, 256, 0, stream>>>(on_gpu, BYTES / sizeof(float), 0.5f);
    check(cudaMemcpyAsync(in_host, on_gpu, BYTES, cudaMemcpyDeviceToHost, stream)); // changed: read-pageable
    check(cudaStreamSynchronize(stream));
}

static void launch_all()
{
    for (int made = 0; made < KERNELS; made++)
        scale<<<4, 128, 0, stream>>>(on_gpu, 512, 1.0f); // changed: launches
}

static void launch_forked()
{
    for (int made = 0; made < FORKS; made++) {
        check(cudaEventRecord(forked, stream));
        check(cudaStreamWaitEvent(side, forked));
        scale<<<4, 128, 0, side>>>(on_gpu + 512, 512, 1.0f); // changed: forks
        scale<<<4, 128, 0, stream>>>(on_gpu, 512, 1.0f);     // changed: forks
        check(cudaEventRecord(joined, side));
        check(cudaStreamWaitEvent(stream, joined));
    }
}

static void scale_all(bool single)
{
    for (int made = 0; made < SCALINGS; made++)
        if (single)
            scale_words<<<2048, 256, 0, stream>>>((Word<float2> *)on_gpu, NUMBERS / 4, 1); // changed: fp32
        else
            scale_words<<<2048, 256, 0, stream>>>((Word<__nv_bfloat162> *)on_gpu, NUMBERS / 8, 1); // changed: fp32
    check(cudaStreamSynchronize(stream));
}

static void wait_often(bool each)
{
    for (int made = 0; made < WAITS; made++) {
        scale<<<132, 256, 0, stream>>>(on_gpu, WAITED, 1.0f);
        if (each)
            check(cudaStreamSynchronize(stream)); // changed: waits
        compute(30e-6);
    }
    check(cudaStreamSynchronize(stream));
}

static void step()
{
    if (variant == "pageable" || variant == "pinned") {
        upload();
    } else if (variant == "read-pageable" || variant == "read-pinned") {
        read_back();
    } else if (variant == "launches" || variant == "forks") {
        variant == "launches" ? launch_all() : launch_forked();
        check(cudaStreamSynchronize(stream));
    } else if (variant == "fp32" || variant == "bf16") {
        scale_all(variant == "fp32");
    } else if (variant == "graph" || variant == "forked-graph") {
        check(cudaGraphLaunch(recorded, stream));
        check(cudaStreamSynchronize(stream));
    } else {
        wait_often(variant == "waits");
    }
}

int main(int count, char **words)
{
    double seconds = 6;
    for (int at = 1; at + 1 < count; at += 2) {
        if (!std::strcmp(words[at], "--variant"))
            variant = words[at + 1];
        else if (!std::strcmp(words[at], "--seconds"))
            seconds = std::atof(words[at + 1]);
        else if (!std::strcmp(words[at], "--gate"))
            // Released by the end of the process: programs use the GPU one after the other.
            check(flock(open(words[at + 1], O_RDWR | O_CREAT | O_CLOEXEC, 0600), LOCK_EX) ? cudaErrorUnknown : cudaSuccess);
    }
    check(cudaStreamCreate(&stream));
    check(cudaStreamCreate(&side));
    check(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    check(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    check(cudaMalloc(&on_gpu, NUMBERS * sizeof(float)));
    if (variant == "pinned" || variant == "read-pinned")
        check(cudaMallocHost(&in_host, BYTES));
    else
        in_host = static_cast<float *>(std::malloc(BYTES));
    std::memset(in_host, 0, BYTES);
    if (variant == "graph" || variant == "forked-graph") {
        cudaGraph_t graph;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        variant == "graph" ? launch_all() : launch_forked();
        check(cudaStreamEndCapture(stream, &graph));
        check(cudaGraphInstantiate(&recorded, graph, 0));
    }
    auto begin = Clock::now();
    while (Clock::now() < begin + std::chrono::seconds(1))
        step();
    long steps = 0;
    begin = Clock::now();
    while (Clock::now() < begin + std::chrono::duration<double>(seconds)) {
        step();
        steps++;
    }
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
    std::printf("STEP_NS %.0f\n", ns / double(steps));
    return 0;
}
