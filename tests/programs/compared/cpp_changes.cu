// Steps of CUDA C++, each in two variants: how memory is copied, how kernels are launched, how often the host waits.
//
//     cpp_changes --variant VARIANT --seconds SECONDS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

static const size_t BYTES = size_t(64) << 20;
static const int KERNELS = 400, WAITS = 40;
static std::string variant;
static cudaStream_t stream;
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

static void launch_all()
{
    for (int made = 0; made < KERNELS; made++)
        scale<<<4, 128, 0, stream>>>(on_gpu, 512, 1.0f); // changed: launches
}

static void wait_often(bool each)
{
    for (int made = 0; made < WAITS; made++) {
        scale<<<132, 256, 0, stream>>>(on_gpu, BYTES / sizeof(float), 1.0f);
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
    } else if (variant == "launches") {
        launch_all();
        check(cudaStreamSynchronize(stream));
    } else if (variant == "graph") {
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
    }
    check(cudaStreamCreate(&stream));
    check(cudaMalloc(&on_gpu, BYTES));
    if (variant == "pinned")
        check(cudaMallocHost(&in_host, BYTES));
    else
        in_host = static_cast<float *>(std::malloc(BYTES));
    std::memset(in_host, 0, BYTES);
    if (variant == "graph") {
        cudaGraph_t graph;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        launch_all();
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
