// Launches without an end, for attaching: attached_loop loop|threads|long [THREADS|SECONDS]
//
// Each thread adds ones on a stream of its own and compares the sum now and then. They begin to launch together: one that
// prepares itself beside others that launch waits for their work. "long": one more thread keeps the GPU busy with kernels
// of so many seconds and waits for each. After "ready", each line on the input is answered by one: "ok", how many launches
// there were, the longest one since the line before, also where it has not returned, and the median launch of the first
// thread (ns); or "wrong" with what is, and exit code 3. The program ends with its input, with 0.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

static std::atomic<bool> ended{false};
static std::atomic<uint64_t> launches{0}, longest_ns{0};
static const int MOST_THREADS = 1024;
static struct alignas(64) { std::atomic<uint64_t> began_ns; } flights[MOST_THREADS];
static std::atomic<int> prepared{0};
static std::mutex guard;
static std::vector<uint32_t> durations;

__global__ void add(unsigned long long *sum) { atomicAdd(sum, 1ull); }

__global__ void spin(uint64_t ns)
{
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
}

static void require(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    std::printf("wrong: %s: %s\n", what, cudaGetErrorString(code));
    std::fflush(stdout);
    std::_Exit(3);
}

static uint64_t now()
{
    return (uint64_t)std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

static void note(uint64_t ns)
{
    uint64_t known = longest_ns.load(std::memory_order_relaxed);
    while (ns > known && !longest_ns.compare_exchange_weak(known, ns))
        ;
}

static void work(int number, int workers)
{
    cudaStream_t stream;
    unsigned long long *sum, found = 0, expected = 0;
    std::vector<uint32_t> own;
    // Where 200 threads launch all the time, the driver's lock leaves one of them waiting for more than 20 s.
    const int batch = workers > 1 ? 20 : 500, pause_ms = workers > 1 ? 20 : 0;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    require(cudaMalloc(&sum, sizeof *sum), "cudaMalloc");
    require(cudaMemset(sum, 0, sizeof *sum), "cudaMemset");
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (prepared++; prepared < workers;)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    while (!ended) {
        for (int at = 0; at < batch; at++) {
            uint64_t before = now();
            flights[number].began_ns.store(before, std::memory_order_relaxed);
            add<<<1, 1, 0, stream>>>(sum);
            flights[number].began_ns.store(0, std::memory_order_relaxed);
            uint64_t took = now() - before;
            note(took);
            if (!number)
                own.push_back((uint32_t)std::min<uint64_t>(took, UINT32_MAX));
        }
        require(cudaGetLastError(), "launch");
        expected += batch;
        launches += batch;
        require(cudaMemcpyAsync(&found, sum, sizeof found, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
        require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        if (found != expected) {
            std::printf("wrong: the sum is %llu in place of %llu\n", found, expected);
            std::fflush(stdout);
            std::_Exit(3);
        }
        if (!number) {
            std::lock_guard<std::mutex> locked(guard);
            durations.insert(durations.end(), own.begin(), own.end());
            if (durations.size() > 200000)
                durations.erase(durations.begin(), durations.end() - 200000);
            own.clear();
        }
        if (pause_ms)
            std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    }
}

static void keep_busy(double seconds)
{
    cudaStream_t stream;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    while (!ended) {
        spin<<<1, 1, 0, stream>>>((uint64_t)(seconds * 1e9));
        require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
}

static void answer()
{
    uint64_t at = now();
    for (auto &flight : flights) {
        uint64_t before = flight.began_ns.load(std::memory_order_relaxed);
        if (before && before < at)
            note(at - before);
    }
    std::lock_guard<std::mutex> locked(guard);
    uint32_t median = 0;
    if (!durations.empty()) {
        std::nth_element(durations.begin(), durations.begin() + (long)durations.size() / 2, durations.end());
        median = durations[durations.size() / 2];
    }
    durations.clear();
    std::printf("ok %llu %llu %u\n", (unsigned long long)launches.load(), (unsigned long long)longest_ns.exchange(0),
                median);
    std::fflush(stdout);
}

int main(int count, char **words)
{
    std::string mode = count > 1 ? words[1] : "loop";
    double amount = count > 2 ? std::atof(words[2]) : 0;
    require(cudaFree(nullptr), "cudaFree");
    std::vector<std::thread> threads;
    int workers = mode == "threads" ? std::min((int)amount, MOST_THREADS) : 1;
    for (int number = 0; number < workers; number++)
        threads.emplace_back(work, number, workers);
    if (mode == "long")
        std::thread(keep_busy, amount).detach();
    while (!launches)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::puts("ready");
    std::fflush(stdout);
    std::string line;
    while (std::getline(std::cin, line))
        answer();
    ended = true;
    for (std::thread &thread : threads)
        thread.join();
    if (mode == "long")
        // Its last kernel may run for a while.
        std::_Exit(0);
    return 0;
}
