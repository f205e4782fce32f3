// Launches without an end, for attaching: attached_loop loop|threads|long [THREADS|SECONDS]
//
// Each thread adds ones on a stream of its own and compares the sum now and then. "long": one more thread keeps the GPU
// busy with kernels of so many seconds and waits for each. After "ready", each line on the input is answered by one: "ok",
// how many launches there were, the longest call since the line before and the median launch of the first thread (ns);
// or "wrong" with what is, and exit code 3. The program ends with its input, with 0.
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

static void work(int number, int pause_us)
{
    cudaStream_t stream;
    unsigned long long *sum, found = 0, expected = 0;
    std::vector<uint32_t> own;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    require(cudaMalloc(&sum, sizeof *sum), "cudaMalloc");
    require(cudaMemset(sum, 0, sizeof *sum), "cudaMemset");
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    while (!ended) {
        for (int at = 0; at < 500; at++) {
            uint64_t before = now();
            add<<<1, 1, 0, stream>>>(sum);
            uint64_t took = now() - before;
            note(took);
            if (!number)
                own.push_back((uint32_t)std::min<uint64_t>(took, UINT32_MAX));
        }
        require(cudaGetLastError(), "launch");
        expected += 500;
        launches += 500;
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
        if (pause_us)
            std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
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
    int workers = mode == "threads" ? (int)amount : 1;
    for (int number = 0; number < workers; number++)
        threads.emplace_back(work, number, workers > 1 ? 2000 : 0);
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
