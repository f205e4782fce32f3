// host-callback with the CUDA runtime API: a host function that works for 10 ms, and a short one on another stream.
//
// nvcc -std=c++17 -o host_callback host_callback.cu -lcuda; ./host_callback
//
// Timed: the short host function, from the call until the driver has run it.

#include "measured.h"

#include <atomic>
#include <semaphore.h>
#include <thread>

constexpr unsigned long long SHORT_NS = 2'000;
constexpr auto WORK = std::chrono::milliseconds(10), BEFORE_SHORT = std::chrono::milliseconds(1);
constexpr auto MOST = std::chrono::seconds(5);
constexpr auto BETWEEN_LOOKS = std::chrono::microseconds(50);

// The work, with how often it has begun and has been done.
struct Work {
    std::atomic<int> begun{0}, done{0};

    void operator()()
    {
        begun++;
        std::this_thread::sleep_for(WORK);
        done++;
    }
};

void wait_for(const std::atomic<int> &count, int least)
{
    auto limit = std::chrono::steady_clock::now() + MOST;
    while (count < least) {
        REQUIRE(std::chrono::steady_clock::now() < limit);
        std::this_thread::sleep_for(BETWEEN_LOOKS);
    }
}

int main()
{
    cudaStream_t stream = new_stream(), unrelated = new_stream();
    busy<<<1, 1, 0, stream>>>(SHORT_NS);
    CHECK(cudaDeviceSynchronize());
    Work work;

    // The short host function while the work, which ``hand_over`` begins behind a kernel, is in progress.
    auto short_function_ns = [&](auto hand_over) {
        int number = work.begun + 1;
        busy<<<1, 1, 0, stream>>>(SHORT_NS);
        hand_over();
        wait_for(work.begun, number);
        std::this_thread::sleep_for(BEFORE_SHORT);
        std::atomic<long long> ran{0};
        long long begin = now_ns();
        CHECK(cudaLaunchHostFunc(
            unrelated, [](void *ran) { *static_cast<std::atomic<long long> *>(ran) = now_ns(); }, &ran
        ));
        CHECK(cudaStreamSynchronize(unrelated));
        wait_for(work.done, number);
        CHECK(cudaStreamSynchronize(stream));
        return ran - begin;
    };

    double before = median_us([&] {
        return short_function_ns([&] {
            CHECK(cudaLaunchHostFunc(stream, [](void *work) { (*static_cast<Work *>(work))(); }, &work));
        });
    });

    double short_function, event;
    {
        std::atomic<bool> ended{false};
        // remedy short
        // Once: a thread for the work, and a semaphore that wakes it.
        sem_t ready;
        sem_init(&ready, 0, 0);
        std::thread worker([&] {
            while (sem_wait(&ready) == 0 && !ended)
                work();
        });
        // end
        short_function = median_us([&] {
            return short_function_ns([&] {
                // remedy short
                // The host function only wakes the thread.
                cudaLaunchHostFunc(stream, [](void *semaphore) {
                    sem_post(static_cast<sem_t *>(semaphore));
                }, &ready);
                // end
            });
        });
        ended = true;
        sem_post(&ready);
        worker.join();
    }
    {
        // remedy event
        // Once: an event for which a thread can wait asleep.
        cudaEvent_t ready;
        cudaEventCreateWithFlags(
            &ready, cudaEventBlockingSync | cudaEventDisableTiming);
        // end
        event = median_us([&] {
            std::thread worker;
            long long took = short_function_ns([&] {
                // remedy event
                // No host function.
                cudaEventRecord(ready, stream);
                // end
                worker = std::thread([&] {
                    // remedy event
                    // In the thread that does the work:
                    cudaEventSynchronize(ready);
                    work();
                    // end
                });
            });
            worker.join();
            return took;
        });
    }
    report("the short host function", before, {{"short", short_function}, {"event", event}});
}
