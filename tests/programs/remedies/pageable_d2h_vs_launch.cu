// pageable-d2h-vs-launch with the CUDA runtime API: one thread copies to pageable memory, another one launches.
//
// nvcc -std=c++17 -o pageable_d2h_vs_launch pageable_d2h_vs_launch.cu -lcuda; ./pageable_d2h_vs_launch
//
// Both threads use the default stream. Timed: the longest launch beside some copies.

#include "measured.h"

#include <atomic>
#include <cstring>
#include <thread>

constexpr size_t BYTES = 64 << 20;
constexpr unsigned long long SHORT_NS = 2'000;
constexpr int COPIES = 4;
constexpr unsigned char CONTENT = 0x5a;
constexpr auto BETWEEN_LAUNCHES = std::chrono::microseconds(100);

// The longest launch of this thread while another one copies.
template <typename Copy> long long longest_launch_ns(Copy copy)
{
    std::atomic<bool> ended{false};
    std::thread thread([&] {
        for (int number = 0; number < COPIES; number++)
            copy();
        ended = true;
    });
    long long longest = 0;
    while (!ended) {
        long long begin = now_ns();
        busy<<<1, 1>>>(SHORT_NS);
        longest = std::max(longest, now_ns() - begin);
        std::this_thread::sleep_for(BETWEEN_LAUNCHES);
    }
    thread.join();
    return longest;
}

bool is_copied(const void *memory)
{
    const unsigned char *bytes = static_cast<const unsigned char *>(memory);
    return bytes[0] == CONTENT && bytes[BYTES - 1] == CONTENT;
}

int main()
{
    void *source = device_memory(BYTES);
    CHECK(cudaMemset(source, CONTENT, BYTES));
    size_t bytes = BYTES;

    double before = median_us([&] {
        return longest_launch_ns([&] {
            void *target = std::malloc(BYTES);
            cudaMemcpyAsync(target, source, BYTES, cudaMemcpyDeviceToHost, nullptr);
            CHECK(cudaStreamSynchronize(nullptr));
            REQUIRE(is_copied(target));
            std::free(target);
        });
    });

    double null_stream, other_stream;
    {
        // remedy pinned-null-stream
        // Once, before the loop.
        void *target;
        cudaMallocHost(&target, bytes);
        cudaEvent_t copied;
        cudaEventCreateWithFlags(&copied, cudaEventDisableTiming);
        // end
        null_stream = median_us([&] {
            std::memset(target, 0, BYTES);
            return longest_launch_ns([&] {
                // remedy pinned-null-stream
                cudaMemcpyAsync(target, source, bytes,
                                cudaMemcpyDeviceToHost, nullptr);
                cudaEventRecord(copied, nullptr);
                // end
                // remedy pinned-null-stream
                cudaEventSynchronize(copied); // where the CPU reads the data
                // end
                REQUIRE(is_copied(target));
            });
        });
    }
    {
        // remedy pinned-other-stream
        // Once, before the loop.
        void *target;
        cudaMallocHost(&target, bytes);
        cudaStream_t copies;
        cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
        // end
        other_stream = median_us([&] {
            std::memset(target, 0, BYTES);
            return longest_launch_ns([&] {
                // remedy pinned-other-stream
                cudaMemcpyAsync(target, source, bytes,
                                cudaMemcpyDeviceToHost, copies);
                // end
                // remedy pinned-other-stream
                cudaStreamSynchronize(copies); // where the CPU reads the data
                // end
                REQUIRE(is_copied(target));
            });
        });
    }
    report(
        "the longest launch",
        before,
        {{"pinned-null-stream", null_stream}, {"pinned-other-stream", other_stream}}
    );
}
