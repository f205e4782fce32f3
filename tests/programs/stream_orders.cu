// Waits for a kernel of another stream, by the rules of the legacy default stream or by the branches of a graph.
//
//     stream_orders CASE [ROUNDS]
//
// CASE: legacy_sync, legacy_sync_action and legacy_copy wait in the default stream for a blocking one; blocking_sync
// the other way round; through waits in a blocking stream for another one, with work of the default stream in between;
// nonblocking waits for nothing of the other stream; graph_sync, graph_event and graph_copy wait for a branch of a
// graph.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

static const long long LONG_NS = 4000000, SHORT_NS = 1000;

static __device__ void wait_for(long long ns)
{
    long long began, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - began < ns);
}

__global__ void spin(long long ns) { wait_for(ns); }
__global__ void longer(long long ns) { wait_for(ns); }

static void check(cudaError_t error)
{
    if (error != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

int main(int count, char **words)
{
    const char *name = count > 1 ? words[1] : "";
    const int rounds = count > 2 ? std::atoi(words[2]) : 300;
    auto is = [name](const char *other) { return !std::strcmp(name, other); };
    cudaStream_t first, second, apart;
    cudaEvent_t forked, joined;
    float *device;
    void *pageable = std::malloc(4);
    check(cudaStreamCreate(&first));
    check(cudaStreamCreate(&second));
    check(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    check(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    check(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    check(cudaMalloc(&device, 4));
    for (cudaStream_t stream : {first, second, apart, cudaStream_t(0)})
        spin<<<1, 1, 0, stream>>>(SHORT_NS);
    check(cudaDeviceSynchronize());
    cudaGraphExec_t graph = nullptr;
    if (!std::strncmp(name, "graph", 5)) {
        cudaGraph_t captured;
        check(cudaStreamBeginCapture(apart, cudaStreamCaptureModeGlobal));
        spin<<<1, 1, 0, apart>>>(100 * SHORT_NS);
        check(cudaEventRecord(forked, apart));
        check(cudaStreamWaitEvent(first, forked));
        longer<<<1, 1, 0, first>>>(LONG_NS);
        check(cudaEventRecord(joined, first));
        spin<<<1, 1, 0, apart>>>(200 * SHORT_NS);
        check(cudaStreamWaitEvent(apart, joined));
        spin<<<1, 1, 0, apart>>>(SHORT_NS);
        check(cudaStreamEndCapture(apart, &captured));
        check(cudaGraphInstantiate(&graph, captured, 0));
    }
    cudaStream_t others = is("blocking_sync") ? 0 : is("through") ? second : is("nonblocking") ? apart : first;
    for (int round = 0; round < rounds; round++, usleep(500)) {
        if (graph)
            check(cudaGraphLaunch(graph, apart));
        else
            longer<<<1, 1, 0, others>>>(LONG_NS);
        if (is("legacy_sync_action") || is("through"))
            spin<<<1, 1>>>(SHORT_NS);
        if (is("blocking_sync") || is("through"))
            spin<<<1, 1, 0, first>>>(SHORT_NS);
        if (is("legacy_sync") || is("legacy_sync_action"))
            check(cudaStreamSynchronize(0));
        else if (is("legacy_copy") || is("nonblocking"))
            check(cudaMemcpy(pageable, device, 4, cudaMemcpyDeviceToHost));
        else if (is("blocking_sync") || is("through"))
            check(cudaStreamSynchronize(first));
        else if (is("graph_sync"))
            check(cudaStreamSynchronize(apart));
        else if (is("graph_copy"))
            check(cudaMemcpyAsync(pageable, device, 4, cudaMemcpyDeviceToHost, apart));
        if (is("graph_event")) {
            check(cudaEventRecord(joined, apart));
            check(cudaEventSynchronize(joined));
        }
        if (is("nonblocking"))
            check(cudaStreamSynchronize(apart));
    }
    check(cudaDeviceSynchronize());
    return 0;
}
