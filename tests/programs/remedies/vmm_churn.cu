// vmm-churn with the CUDA runtime API: one thread allocates and frees 64 MiB in each step, another one copies.
//
// nvcc -std=c++17 -o vmm_churn vmm_churn.cu -lcuda; ./vmm_churn
//
// Timed: the call of a copy of 1 MiB within the GPU, the longest of some.

#include "measured.h"

#include <atomic>
#include <cstdint>
#include <thread>

constexpr size_t BYTES = 64 << 20, COPIED_BYTES = 1 << 20;
constexpr int COPIES = 16;
constexpr auto BETWEEN_COPIES = std::chrono::microseconds(100);

int main()
{
    CHECK(cudaSetDevice(0));
    void *source = device_memory(COPIED_BYTES), *target = device_memory(COPIED_BYTES);
    cudaStream_t copies = new_stream(), stream = new_stream();
    size_t bytes = BYTES;

    // The longest call of some copies, beside a thread that makes steps.
    auto longest_call_ns = [&](auto step) {
        std::atomic<int> steps{0};
        std::atomic<bool> ended{false};
        std::thread thread([&] {
            while (!ended) {
                step();
                CHECK(cudaStreamSynchronize(stream));
                CHECK(cudaGetLastError());
                steps++;
            }
        });
        while (!steps)
            std::this_thread::sleep_for(BETWEEN_COPIES);
        long long longest = 0;
        for (int number = 0; number < COPIES; number++) {
            long long begin = now_ns();
            cudaMemcpyAsync(target, source, COPIED_BYTES, cudaMemcpyDeviceToDevice, copies);
            longest = std::max(longest, now_ns() - begin);
            CHECK(cudaStreamSynchronize(copies));
            std::this_thread::sleep_for(BETWEEN_COPIES);
        }
        ended = true;
        thread.join();
        return longest;
    };

    double before = median_us([&] {
        return longest_call_ns([&] {
            void *memory = device_memory(BYTES);
            CHECK(cudaMemsetAsync(memory, 0, BYTES, stream));
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaFree(memory));
        });
    });

    // remedy pool
    // Once: the pool keeps all memory that it has.
    cudaMemPool_t pool;
    cudaDeviceGetDefaultMemPool(&pool, 0);
    uint64_t kept = UINT64_MAX;
    cudaMemPoolSetAttribute(
        pool, cudaMemPoolAttrReleaseThreshold, &kept);
    // end
    double after = median_us([&] {
        return longest_call_ns([&] {
            // remedy pool
            void *memory;
            cudaMallocAsync(&memory, bytes, stream);
            cudaMemsetAsync(memory, 0, bytes, stream);
            cudaFreeAsync(memory, stream);
            // end
        });
    });
    report("the longest call of a copy", before, {{"pool", after}});
}
