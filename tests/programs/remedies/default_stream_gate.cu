// default-stream-gate with the CUDA runtime API: a pageable copy on the default stream, which waits for an event.
//
// nvcc -std=c++17 -o default_stream_gate default_stream_gate.cu -lcuda; ./default_stream_gate
//
// A thread launches on an unrelated stream and opens the gate then; where the launch waits for the copy, a timer opens
// it after 100 ms. Timed: the launch.

#include "measured.h"

#include <condition_variable>
#include <mutex>
#include <thread>

constexpr unsigned long long SHORT_NS = 2'000;
constexpr int CONTENT = 7;
constexpr auto GATE = std::chrono::milliseconds(100), BEFORE_LAUNCH = std::chrono::milliseconds(20);

struct Gate {
    std::mutex lock;
    std::condition_variable changed;
    bool is_open = false;

    static void CUDART_CB wait(void *gate)
    {
        static_cast<Gate *>(gate)->wait_for(std::chrono::hours(1));
    }

    void wait_for(std::chrono::milliseconds most)
    {
        std::unique_lock<std::mutex> held(lock);
        changed.wait_for(held, most, [this] { return is_open; });
    }

    void set(bool value)
    {
        std::lock_guard<std::mutex> held(lock);
        is_open = value;
        changed.notify_all();
    }
};

int main()
{
    cudaStream_t gated = new_stream(), unrelated = new_stream();
    int *source = static_cast<int *>(device_memory(sizeof(int)));
    CHECK(cudaMemcpy(source, &CONTENT, sizeof CONTENT, cudaMemcpyHostToDevice));
    cudaEvent_t ready;
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    busy<<<1, 1, 0, unrelated>>>(SHORT_NS);
    CHECK(cudaDeviceSynchronize());
    Gate gate;

    // The launch while another thread copies what ``ready`` announces.
    auto launch_ns = [&](auto copy) {
        gate.set(false);
        CHECK(cudaLaunchHostFunc(gated, Gate::wait, &gate));
        CHECK(cudaEventRecord(ready, gated));
        CHECK(cudaStreamWaitEvent(nullptr, ready, 0));
        std::thread timer([&gate] {
            gate.wait_for(GATE);
            gate.set(true);
        });
        std::thread thread(copy);
        std::this_thread::sleep_for(BEFORE_LAUNCH);
        long long begin = now_ns();
        busy<<<1, 1, 0, unrelated>>>(SHORT_NS);
        long long took = now_ns() - begin;
        gate.set(true);
        thread.join();
        timer.join();
        CHECK(cudaDeviceSynchronize());
        return took;
    };

    double before = median_us([&] {
        return launch_ns([&] {
            int target = 0;
            cudaMemcpyAsync(&target, source, sizeof target, cudaMemcpyDeviceToHost, nullptr);
            CHECK(cudaStreamSynchronize(nullptr));
            REQUIRE(target == CONTENT);
        });
    });

    double pinned, own_stream;
    {
        // remedy pinned
        // Once, before the loop.
        int *target;
        cudaMallocHost(&target, sizeof *target);
        cudaEvent_t copied;
        cudaEventCreateWithFlags(&copied, cudaEventDisableTiming);
        // end
        pinned = median_us([&] {
            *target = 0;
            return launch_ns([&] {
                // remedy pinned
                cudaMemcpyAsync(target, source, sizeof *target,
                                cudaMemcpyDeviceToHost, nullptr);
                cudaEventRecord(copied, nullptr);
                // end
                // remedy pinned
                cudaEventSynchronize(copied); // where the CPU needs it
                // end
                REQUIRE(*target == CONTENT);
            });
        });
    }
    {
        // remedy own-stream
        // Once, before the loop.
        cudaStream_t copies;
        cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
        // end
        own_stream = median_us([&] {
            return launch_ns([&] {
                int target = 0;
                // remedy own-stream
                cudaStreamWaitEvent(copies, ready, 0); // not the default stream
                cudaMemcpyAsync(&target, source, sizeof target,
                                cudaMemcpyDeviceToHost, copies);
                cudaStreamSynchronize(copies);
                // end
                REQUIRE(target == CONTENT);
            });
        });
    }
    report("the launch", before, {{"pinned", pinned}, {"own-stream", own_stream}});
}
