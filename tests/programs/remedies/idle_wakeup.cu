// idle-wakeup with the CUDA runtime API: a launch after 0.3 s without a call.
//
// nvcc -std=c++17 -o idle_wakeup idle_wakeup.cu -lcuda; ./idle_wakeup
//
// Timed: the call of the launch. That of the empty kernel, which is made before the work arrives, is not part of it.

#include "measured.h"

#include <thread>

constexpr unsigned long long SHORT_NS = 2'000;
constexpr int FEW_ROUNDS = 6;
// On H200s a call after 0.1 s takes as long as one after 5 s.
constexpr auto IDLE = std::chrono::milliseconds(300);

// remedy warmed
__global__ void empty() {}
// end

int main()
{
    cudaStream_t stream = new_stream();
    unsigned long long length_ns = SHORT_NS;
    empty<<<1, 1, 0, stream>>>();
    CHECK(cudaDeviceSynchronize());

    auto after_idle_ns = [&](auto warm, auto launch) {
        std::this_thread::sleep_for(IDLE);
        warm();
        long long begin = now_ns();
        launch();
        long long took = now_ns() - begin;
        CHECK(cudaStreamSynchronize(stream));
        return took;
    };

    auto nothing = [] {};
    double before = median_us(
        [&] { return after_idle_ns(nothing, [&] { busy<<<1, 1, 0, stream>>>(SHORT_NS); }); }, FEW_ROUNDS
    );
    auto warm = [&] {
        // remedy warmed
        // Just before the work arrives, in the thread that launches it.
        empty<<<1, 1, 0, stream>>>();
        // end
    };
    auto launch = [&] {
        // remedy warmed
        busy<<<1, 1, 0, stream>>>(length_ns); // the work
        // end
    };
    double warmed = median_us([&] { return after_idle_ns(warm, launch); }, FEW_ROUNDS);
    report("the call of the launch", before, {{"warmed", warmed}});
}
