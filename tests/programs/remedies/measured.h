// What the programs of remedies share: a kernel of a given length, rounds, and the result as one line of JSON.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

constexpr int ROUNDS = 20;

#define CHECK(call) check(static_cast<int>(call), #call)
#define REQUIRE(condition) require(condition, #condition)

void check(int code, const char *call)
{
    if (code) {
        std::fprintf(stderr, "%s returned %d\n", call, code);
        std::exit(1);
    }
}

// Ends the program where a copy did not copy: a remedy that does nothing would be fast.
void require(bool condition, const char *text)
{
    if (!condition) {
        std::fprintf(stderr, "not so: %s\n", text);
        std::exit(1);
    }
}

__global__ void busy(unsigned long long length_ns)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < length_ns);
}

long long now_ns()
{
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

cudaStream_t new_stream()
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void *device_memory(size_t size)
{
    void *memory;
    CHECK(cudaMalloc(&memory, size));
    return memory;
}

// Median of what the rounds return in ns, in us, without the first one. The regions with a remedy check no return code:
// the last error of the runtime is checked after each round.
template <typename Round> double median_us(Round round, int rounds = ROUNDS)
{
    std::vector<long long> found;
    for (int number = 0; number <= rounds; number++) {
        long long took = round();
        CHECK(cudaGetLastError());
        if (number)
            found.push_back(took);
    }
    std::sort(found.begin(), found.end());
    return (found[(rounds - 1) / 2] + found[rounds / 2]) / 2e3;
}

using After = std::vector<std::pair<const char *, double>>;

// ``without_us`` is the latency without the cause, where the stall is not hundreds of times longer.
void report(const char *victim, double before_us, const After &after_us, double without_us = 0)
{
    std::printf("{\"victim\": \"%s\", \"before_us\": %.2f, \"after_us\": {", victim, before_us);
    const char *separator = "";
    for (const auto &[variant, took_us] : after_us) {
        std::printf("%s\"%s\": %.2f", separator, variant, took_us);
        separator = ", ";
    }
    std::printf("}, \"without_us\": %.2f}\n", without_us);
}

} // namespace
