// Loops of calls for bench_watch_parts.py and bench_watch_cost.py: watch_parts MODE [FILE]. Each tenth of a second it
// prints begin and end (ns, CLOCK_MONOTONIC), the operations, and for storm the time (ns) in capture, instantiation,
// launch, destruction, waits. FILE gets the end (ns) of each turn, or of as many as
// there are threads.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

__global__ void layer(float *state, int step)
{
    state[blockIdx.x * blockDim.x + threadIdx.x] *= 0.99f + 0.001f * (step & 15);
}

__global__ void spin(unsigned long long ns)
{
    unsigned long long begin, end;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end));
    while (end - begin < ns);
}

static unsigned long long now()
{
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static cudaGraph_t captured(cudaStream_t stream, float *state, int nodes)
{
    cudaGraph_t graph;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    for (int node = 0; node < nodes; node++)
        layer<<<8, 128, 0, stream>>>(state, node);
    cudaStreamEndCapture(stream, &graph);
    return graph;
}

int main(int count, char **words)
{
    const std::string mode = count > 1 ? words[1] : "launch";
    std::atomic<long> operations{0};
    std::atomic<long long> spent[5] = {};
    float *state;
    cudaMalloc(&state, 1 << 20);
    cudaMemset(state, 0, 1 << 20);
    auto storm = [&](cudaStream_t stream, long turn) {
        cudaGraphExec_t executable;
        unsigned long long times[6] = {now()};
        cudaGraph_t graph = captured(stream, state, 300);
        times[1] = now();
        cudaGraphInstantiate(&executable, graph, 0);
        times[2] = now();
        cudaGraphLaunch(executable, stream);
        times[3] = now();
        cudaGraphExecDestroy(executable);
        cudaGraphDestroy(graph);
        times[4] = now();
        if (turn % 16 == 0)
            cudaStreamSynchronize(stream);
        times[5] = now();
        for (int part = 0; part < 5; part++)
            spent[part] += times[part + 1] - times[part];
        operations++;
    };
    cudaGraphExec_t kept;
    cudaStream_t first, ordered;
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreate(&ordered);
    cudaGraph_t graph = captured(first, state, 100);
    cudaGraphInstantiate(&kept, graph, 0);
    auto replay = [&](cudaStream_t stream, long) {
        for (int launch = 0; launch < 8; launch++)
            cudaGraphLaunch(kept, stream);
        cudaStreamSynchronize(stream);
        operations += 8;
    };
    auto launch = [&](cudaStream_t stream, long) {
        for (int step = 0; step < 200; step++)
            layer<<<8, 128, 0, stream>>>(state, step);
        cudaStreamSynchronize(stream);
        operations += 200;
    };
    auto query = [&](cudaStream_t stream, long) {
        long asked = 1;
        spin<<<1, 1, 0, stream>>>(200000);
        for (; cudaStreamQuery(stream) == cudaErrorNotReady; asked++)
            ;
        operations += asked;
    };
    auto poll = [&](cudaStream_t stream, long) {
        for (int asked = 0; asked < 500; asked++) {
            if (cudaStreamQuery(stream) != cudaErrorNotReady)
                spin<<<1, 1, 0, stream>>>(1000000);
            for (unsigned long long begin = now(); now() - begin < 1700;)
                ;
        }
        operations += 500;
    };
    cudaGraphExec_t token;
    cudaGraphInstantiate(&token, captured(first, state, 900), 0);
    auto decode = [&](cudaStream_t stream, long) {
        unsigned long long begin = now();
        cudaGraphLaunch(token, stream);
        unsigned long long launched = now();
        cudaStreamSynchronize(stream);
        spent[2] += launched - begin;
        spent[4] += now() - launched;
        operations++;
    };
    const std::map<std::string, std::function<void(cudaStream_t, long)>> modes = {
        {"storm", storm},   {"replay", replay}, {"decode", decode},
        {"launch", launch}, {"threads", launch}, {"query", query}, {"poll", poll}};
    FILE *ends = count > 2 ? fopen(words[2], "wb") : nullptr;
    if (!modes.count(mode))
        return 1;
    spin<<<1, 1>>>(1000);
    cudaDeviceSynchronize();
    close(open(getenv("READY"), O_CREAT | O_WRONLY, 0600));
    std::vector<std::thread> threads;
    const int count_of_threads = mode == "threads" ? 16 : 1;
    std::atomic<long> turns{0};
    std::mutex writing;
    std::vector<cudaStream_t> streams(count_of_threads);
    // Beside threads that launch all the time, it may wait for seconds.
    for (cudaStream_t &stream : streams)
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (cudaStream_t stream : streams)
        threads.emplace_back([&, stream] {
            for (long turn = 0;; turn++) {
                modes.at(mode)(stream, turn);
                if (ends && ++turns % count_of_threads == 0) {
                    std::lock_guard<std::mutex> guard(writing);
                    unsigned long long end = now();
                    if (std::fwrite(&end, sizeof end, 1, ends) && turns / count_of_threads % 64 == 0)
                        std::fflush(ends);
                }
            }
        });
    long before = 0;
    long long spent_before[5] = {};
    for (unsigned long long begin = now();;) {
        usleep(100000);
        unsigned long long end = now();
        long made = operations;
        std::printf("%llu %llu %ld", begin, end, made - before);
        for (int part = 0; part < 5; part++) {
            long long total = spent[part];
            std::printf(" %lld", total - spent_before[part]);
            spent_before[part] = total;
        }
        std::printf("\n");
        std::fflush(stdout);
        before = made, begin = end;
    }
}
