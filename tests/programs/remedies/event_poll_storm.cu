// event-poll-storm with the CUDA runtime API: 16 threads that wait for blocking events, and a launch on another stream.
//
// nvcc -std=c++17 -o event_poll_storm event_poll_storm.cu -lcuda; ./event_poll_storm
//
// Timed: a launch of an empty kernel and the wait for its stream, the longest of some.

#include "measured.h"

#include <atomic>
#include <thread>

constexpr int THREADS = 16, LAUNCHES = 16, FEW_ROUNDS = 10;
constexpr unsigned long long KERNEL_NS = 4'000'000;
constexpr auto BETWEEN_LAUNCHES = std::chrono::microseconds(1'500);
constexpr auto UNTIL_ALL_WAIT = std::chrono::milliseconds(20);

__global__ void empty() {}

int main()
{
    CHECK(cudaSetDevice(0));
    cudaStream_t launches = new_stream();
    std::vector<cudaStream_t> streams;
    for (int number = 0; number < THREADS; number++)
        streams.push_back(new_stream());
    empty<<<1, 1, 0, launches>>>();
    CHECK(cudaDeviceSynchronize());

    // The longest of some launches, beside threads that run tasks, each with its number.
    auto longest_ns = [&](int threads, auto task) {
        std::atomic<bool> ended{false};
        std::vector<std::thread> workers;
        for (int number = 0; number < threads; number++)
            workers.emplace_back([&, number] {
                while (!ended) {
                    task(number);
                    CHECK(cudaGetLastError());
                }
            });
        std::this_thread::sleep_for(UNTIL_ALL_WAIT);
        long long longest = 0;
        for (int number = 0; number < LAUNCHES; number++) {
            long long begin = now_ns();
            empty<<<1, 1, 0, launches>>>();
            CHECK(cudaStreamSynchronize(launches));
            longest = std::max(longest, now_ns() - begin);
            std::this_thread::sleep_for(BETWEEN_LAUNCHES);
        }
        ended = true;
        for (std::thread &worker : workers)
            worker.join();
        return longest;
    };

    auto event_with = [](unsigned flags) {
        cudaEvent_t event;
        CHECK(cudaEventCreateWithFlags(&event, flags));
        return event;
    };
    std::vector<cudaEvent_t> blocking, polled;
    for (int number = 0; number < THREADS; number++) {
        blocking.push_back(event_with(cudaEventBlockingSync | cudaEventDisableTiming));
        polled.push_back(event_with(cudaEventDisableTiming));
    }

    auto wait_blocking = [&](int number) {
        busy<<<1, 1, 0, streams[number]>>>(KERNEL_NS);
        CHECK(cudaEventRecord(blocking[number], streams[number]));
        CHECK(cudaEventSynchronize(blocking[number]));
    };
    double before = median_us([&] { return longest_ns(THREADS, wait_blocking); }, FEW_ROUNDS);

    auto wait_with_pauses = [&](int number) {
        cudaStream_t stream = streams[number];
        cudaEvent_t done = polled[number];
        busy<<<1, 1, 0, stream>>>(KERNEL_NS);
        // remedy back-off-x16
        // An event without cudaEventBlockingSync, and a thread that
        // sleeps between its queries.
        cudaEventRecord(done, stream);
        while (cudaEventQuery(done) == cudaErrorNotReady)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        // end
    };
    double back_off = median_us([&] { return longest_ns(THREADS, wait_with_pauses); }, FEW_ROUNDS);

    // remedy blocking-x4
    // Fewer threads and streams than the 8 hardware queues.
    constexpr int WAITING = 4;
    // end
    auto wait_on_few = [&](int number) {
        // remedy blocking-x4
        cudaStream_t stream = streams[number % WAITING];
        cudaEvent_t done = blocking[number % WAITING];
        // end
        busy<<<1, 1, 0, stream>>>(KERNEL_NS);
        // remedy blocking-x4
        // Behind the work, in one of the WAITING threads:
        cudaEventRecord(done, stream);
        cudaEventSynchronize(done);
        // end
    };
    double few = median_us([&] { return longest_ns(WAITING, wait_on_few); }, FEW_ROUNDS);
    report("a launch and the wait for it", before, {{"back-off-x16", back_off}, {"blocking-x4", few}});
}
