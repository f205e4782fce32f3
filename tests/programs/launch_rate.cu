// Threads that launch empty kernels at a rate, each on a stream of its own, and wait now and then.
//
//     launch_rate THREADS LAUNCHES_PER_SECOND SECONDS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static const long LAUNCHES_IN_A_ROW = 500;

__global__ void nothing() {}

static void launch(double seconds_each, double seconds)
{
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    cudaStream_t stream;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        std::exit(1);
    for (long made = 0;;) {
        const double now = std::chrono::duration<double>(Clock::now() - begin).count();
        if (now > seconds)
            break;
        if (made * seconds_each > now)
            continue;
        nothing<<<1, 1, 0, stream>>>();
        if (++made % LAUNCHES_IN_A_ROW == 0)
            cudaStreamSynchronize(stream);
    }
    if (cudaStreamSynchronize(stream) != cudaSuccess)
        std::exit(1);
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    const int threads = std::atoi(arguments[1]);
    const double rate = std::atof(arguments[2]), seconds = std::atof(arguments[3]);
    if (cudaFree(nullptr) != cudaSuccess)
        return 1;
    std::vector<std::thread> started;
    for (int number = 0; number < threads; number++)
        started.emplace_back(launch, threads / rate, seconds);
    for (auto &thread : started)
        thread.join();
}
