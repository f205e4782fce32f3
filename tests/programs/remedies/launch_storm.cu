// launch-storm with the CUDA runtime API: 16 threads that each launch 64 kernels at the same time, on streams of their own.
//
// nvcc -std=c++17 -o launch_storm launch_storm.cu -lcuda; ./launch_storm
//
// Timed: the calls that submit the 64 kernels of a stream, the mean of the streams.

#include "measured.h"

#include <atomic>
#include <thread>

constexpr int THREADS = 16, KERNELS = 64;

__global__ void step() {}

int main()
{
    CHECK(cudaSetDevice(0));
    std::vector<cudaStream_t> streams;
    for (int number = 0; number < THREADS; number++)
        streams.push_back(new_stream());
    step<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());

    auto launch_all = [](cudaStream_t stream) {
        for (int number = 0; number < KERNELS; number++)
            step<<<1, 1, 0, stream>>>();
    };

    // The time of submit, the mean of threads that begin together.
    auto mean_ns = [&](int threads, auto submit) {
        std::atomic<int> ready{0};
        std::atomic<long long> all_ns{0};
        std::vector<std::thread> workers;
        for (int number = 0; number < threads; number++)
            workers.emplace_back([&, number] {
                step<<<1, 1, 0, streams[number]>>>();
                CHECK(cudaStreamSynchronize(streams[number]));
                ready++;
                while (ready < threads)
                    ;
                long long begin = now_ns();
                submit(number);
                all_ns += now_ns() - begin;
                CHECK(cudaGetLastError());
                CHECK(cudaStreamSynchronize(streams[number]));
            });
        for (std::thread &worker : workers)
            worker.join();
        return all_ns / threads;
    };

    double without = median_us([&] { return mean_ns(1, [&](int number) { launch_all(streams[number]); }); });
    double before = median_us([&] { return mean_ns(THREADS, [&](int number) { launch_all(streams[number]); }); });

    std::vector<cudaGraphExec_t> graphs;
    for (cudaStream_t stream : streams) {
        // remedy graphs-x16
        // Once for each stream: the kernels become a graph.
        cudaGraph_t graph;
        cudaGraphExec_t kernels;
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
        for (int number = 0; number < KERNELS; number++)
            step<<<1, 1, 0, stream>>>();
        cudaStreamEndCapture(stream, &graph);
        cudaGraphInstantiate(&kernels, graph, 0);
        // end
        CHECK(cudaGetLastError());
        REQUIRE(kernels);
        graphs.push_back(kernels);
    }
    double with_graphs = median_us([&] {
        return mean_ns(THREADS, [&](int number) {
            cudaGraphExec_t kernels = graphs[number];
            cudaStream_t stream = streams[number];
            // remedy graphs-x16
            cudaGraphLaunch(kernels, stream);
            // end
        });
    });

    double with_one_thread = median_us([&] {
        return mean_ns(1, [&](int) {
            // remedy one-thread
            // One thread launches on the streams of all.
            for (cudaStream_t stream : streams)
                for (int number = 0; number < KERNELS; number++)
                    step<<<1, 1, 0, stream>>>();
            // end
        }) / THREADS;
    });
    CHECK(cudaDeviceSynchronize());
    report(
        "submitting 64 kernels", before, {{"graphs-x16", with_graphs}, {"one-thread", with_one_thread}}, without
    );
}
