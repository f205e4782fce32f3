// A simulation bound to two cores, with four threads that poll result slots without pause.
#include <cuda_runtime.h>
#include <sched.h>
#include <time.h>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

__global__ void relax(float* cells, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = cells[i];
    for (int k = 0; k < rounds; ++k) x = 3.7f * x * (1.0f - x);
    cells[i] = x;
}

struct Slot { std::atomic<bool> ready{false}; std::atomic<long> seen{0}; char pad[48]; };

double cpu_time() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

double run_delay() {
    unsigned long long ran = 0, delay = 0;
    FILE* f = fopen("/proc/thread-self/schedstat", "r");
    if (!f || fscanf(f, "%llu %llu", &ran, &delay) != 2) return 0;
    fclose(f);
    return 1e-9 * delay;
}

void poll(std::atomic<bool>& stop, Slot& slot) {
    while (!stop.load(std::memory_order_relaxed))
        if (slot.ready.load(std::memory_order_acquire)) ++slot.seen;
}

void step(float* host, float* cells, int n, long number) {
    for (int i = 0; i < n; ++i)
        host[i] = 0.5f + 0.4f * std::sin(0.001f * i + number);
    cudaMemcpyAsync(cells, host, n * sizeof(float), cudaMemcpyHostToDevice);
    relax<<<(n + 255) / 256, 256>>>(cells, n, 20000);
    cudaDeviceSynchronize();
}

int main() {
    cpu_set_t all, two;
    CPU_ZERO(&two);
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &two);
    sched_setaffinity(0, sizeof two, &two);
    const int n = 400000;
    float *host, *cells;
    cudaMallocHost(&host, n * sizeof(float));
    cudaMalloc(&cells, n * sizeof(float));
    for (int i = 0; i < 100; ++i) step(host, cells, n, i);
    std::atomic<bool> stop{false};
    std::vector<Slot> slots(4);
    std::vector<std::thread> pollers;
    for (Slot& slot : slots) pollers.emplace_back(poll, std::ref(stop), std::ref(slot));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    long steps = 0;
    double cpu = cpu_time(), delay = run_delay();
    auto begin = Clock::now(), end = begin + std::chrono::seconds(9);
    while (Clock::now() < end) step(host, cells, n, steps++);
    double wall = std::chrono::duration<double>(Clock::now() - begin).count();
    printf("RATE %.2f; TRUTH {\"off_cpu\": %.1f, \"run_delay\": %.1f}\n", steps / wall,
           100 * (1 - (cpu_time() - cpu) / wall), 100 * (run_delay() - delay) / wall);
    stop = true;
    for (std::thread& poller : pollers) poller.join();
}
