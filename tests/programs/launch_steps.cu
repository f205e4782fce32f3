// Steps of some empty kernels and one wait: prints the time of a launch in ns, the tenth percentile of all steps, of the
// first, third, ... and of the second, fourth, ...
//
//     launch_steps SECONDS CPU LAUNCHES
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <vector>

static const int WARM_UP = 2000;

__global__ void nothing() {}

static double tenth(std::vector<double> steps)
{
    std::sort(steps.begin(), steps.end());
    return steps[steps.size() / 10];
}

int main(int count, char **arguments)
{
    using Clock = std::chrono::steady_clock;
    if (count != 4)
        return 2;
    const double seconds = std::atof(arguments[1]);
    const int launches = std::atoi(arguments[3]);
    cudaStream_t stream;
    if (cudaStreamCreate(&stream) != cudaSuccess)
        return 1;
    for (int made = 0; made < WARM_UP; made++)
        nothing<<<1, 32, 0, stream>>>();
    cudaStreamSynchronize(stream);
    // This thread alone, now that others of the process have begun: CPUs of a shared machine differ by half.
    cpu_set_t chosen;
    CPU_ZERO(&chosen);
    CPU_SET(std::atoi(arguments[2]), &chosen);
    sched_setaffinity(0, sizeof chosen, &chosen);
    std::vector<double> steps, in_turn[2];
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (Clock::now() < end) {
        const auto begin = Clock::now();
        for (int made = 0; made < launches; made++)
            nothing<<<1, 32, 0, stream>>>();
        cudaStreamSynchronize(stream);
        steps.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / launches);
    }
    if (cudaGetLastError() != cudaSuccess || steps.size() < 2)
        return 1;
    for (size_t number = 0; number < steps.size(); number++)
        in_turn[number % 2].push_back(steps[number]);
    std::printf("%.1f %.1f %.1f\n", tenth(steps), tenth(in_turn[0]), tenth(in_turn[1]));
    return 0;
}
