// peer-copy-behind-kernel with the CUDA runtime API: a peer copy beside one that waits for a kernel. Needs two GPUs.
//
// nvcc -std=c++17 -o peer_copy_behind_kernel peer_copy_behind_kernel.cu -lcuda; ./peer_copy_behind_kernel
//
// Timed: the copy beside, until it is complete.

#include "measured.h"

constexpr unsigned long long KERNEL_NS = 20'000'000;
constexpr size_t BYTES = 1 << 20;

// Buffers of one copy, its streams on both GPUs, and what the relay needs.
struct Route {
    void *source, *target, *pinned;
    cudaStream_t out, into;
    cudaEvent_t ready;

    Route()
    {
        CHECK(cudaSetDevice(1));
        target = device_memory(BYTES);
        into = new_stream();
        CHECK(cudaSetDevice(0));
        source = device_memory(BYTES);
        out = new_stream();
        CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
        CHECK(cudaMallocHost(&pinned, BYTES));
    }
};

int main()
{
    Route behind, beside;
    unsigned char content = 0;
    size_t bytes = BYTES;

    // The copy beside, while the other one waits for a kernel.
    auto copy_ns = [&](auto copy) {
        CHECK(cudaMemset(behind.source, ++content, BYTES));
        CHECK(cudaMemset(beside.source, content, BYTES));
        CHECK(cudaDeviceSynchronize());
        busy<<<1, 1, 0, behind.out>>>(KERNEL_NS);
        copy(behind);
        long long begin = now_ns();
        copy(beside);
        CHECK(cudaStreamSynchronize(beside.out));
        CHECK(cudaStreamSynchronize(beside.into));
        long long took = now_ns() - begin;
        CHECK(cudaStreamSynchronize(behind.out));
        CHECK(cudaStreamSynchronize(behind.into));
        for (const Route &route : {behind, beside}) {
            unsigned char last = 0;
            CHECK(cudaMemcpy(&last, static_cast<char *>(route.target) + BYTES - 1, 1, cudaMemcpyDeviceToHost));
            REQUIRE(last == content);
        }
        return took;
    };
    auto enable_peer_access = [] {
        // remedy direct
        // Once, where cudaDeviceCanAccessPeer returns 1.
        cudaSetDevice(1);
        cudaDeviceEnablePeerAccess(0, 0);
        cudaSetDevice(0);
        cudaDeviceEnablePeerAccess(1, 0);
        // end
    };
    auto peer_copy = [&](const Route &route) {
        auto [source, target, pinned, out, into, ready] = route;
        // remedy direct
        cudaMemcpyPeerAsync(target, 1, source, 0, bytes, out);
        // end
    };

    double before = median_us([&] { return copy_ns(peer_copy); });
    double relay = median_us([&] {
        return copy_ns([&](const Route &route) {
            auto [source, target, pinned, out, into, ready] = route;
            // remedy host-relay
            // ``out`` is a stream of the source's GPU, ``into`` one of the
            // target's. ``pinned`` is memory of cudaMallocHost.
            cudaMemcpyAsync(pinned, source, bytes,
                            cudaMemcpyDeviceToHost, out);
            cudaEventRecord(ready, out);
            cudaStreamWaitEvent(into, ready, 0);
            cudaMemcpyAsync(target, pinned, bytes,
                            cudaMemcpyHostToDevice, into);
            // end
        });
    });
    After after{{"host-relay", relay}};
    int there, back;
    CHECK(cudaDeviceCanAccessPeer(&there, 0, 1));
    CHECK(cudaDeviceCanAccessPeer(&back, 1, 0));
    if (there && back) {
        enable_peer_access();
        after.emplace_back("direct", median_us([&] { return copy_ns(peer_copy); }));
    }
    report("the peer copy", before, after);
}
