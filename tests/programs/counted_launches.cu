// Threads that launch kernels which count, with copies and fills between them; exits 1 if a count is wrong. Prints the
// longest launch of all threads in us, and the 99.99th percentile.
//
//     counted_launches THREADS SECONDS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static const int LAUNCHES = 20;

__global__ void count(unsigned *counter) { atomicAdd(counter, 1u); }

static void run(double seconds, std::vector<float> *durations, int *wrong)
{
    using Clock = std::chrono::steady_clock;
    cudaStream_t stream;
    unsigned *memory, found, made = 0;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(&memory, 1 << 20);
    cudaMemsetAsync(memory, 0, 1 << 20, stream);
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    for (auto now = Clock::now(); now < end;) {
        for (int launch = 0; launch < LAUNCHES; launch++) {
            count<<<1, 1, 0, stream>>>(memory);
            const auto after = Clock::now();
            durations->push_back(std::chrono::duration<float, std::micro>(after - now).count());
            now = after;
        }
        made += LAUNCHES;
        cudaMemcpyAsync(memory + 1024, memory + 4096, 4096, cudaMemcpyDeviceToDevice, stream);
        cudaMemsetAsync(memory + 64, 0, 64, stream);
        cudaMemcpyAsync(&found, memory, sizeof found, cudaMemcpyDeviceToHost, stream);
        if (cudaStreamSynchronize(stream) != cudaSuccess || found != made)
            ++*wrong;
        now = Clock::now();
    }
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    const int threads = std::atoi(arguments[1]);
    std::vector<std::thread> started;
    std::vector<std::vector<float>> durations(threads);
    std::vector<int> wrong(threads);
    cudaFree(nullptr);
    for (int number = 0; number < threads; number++)
        started.emplace_back(run, std::atof(arguments[2]), &durations[number], &wrong[number]);
    std::vector<float> all;
    int failed = 0;
    for (int number = 0; number < threads; number++) {
        started[number].join();
        all.insert(all.end(), durations[number].begin(), durations[number].end());
        failed += wrong[number];
    }
    std::sort(all.begin(), all.end());
    std::printf("%.0f %.0f\n", all.back(), all[all.size() - 1 - all.size() / 10000]);
    return failed != 0;
}
