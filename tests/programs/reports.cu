// The five reports as one program with the CUDA runtime API.
//
// nvcc -o reports reports.cu -lcuda; ./reports REPORT ROUNDS
//
// 1: copies in a second context beside a kernel. 2: peer copies beside one that waits for a kernel (two GPUs).
// 3: launches beside pageable copies. 4: a read-back of four bytes behind a kernel. 5: launches beside a pageable copy
// on the default stream, which waits for an event behind a host function; a timer opens the gate after 100 ms.

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace {

constexpr size_t SMALL = 4, COPY = 1 << 20, LARGE = 64 << 20;
constexpr unsigned long long SHORT_NS = 2'000, LONG_NS = 5'000'000, LONGEST_NS = 20'000'000;
constexpr auto BEFORE_COPIES = std::chrono::milliseconds(2), BEFORE_LAUNCH = std::chrono::milliseconds(20);
constexpr auto GATE = std::chrono::milliseconds(100);
constexpr auto BETWEEN_LAUNCHES = std::chrono::microseconds(500);

__global__ void busy(unsigned long long length_ns)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < length_ns);
}

void check(int code, const char *call)
{
    if (code) {
        std::fprintf(stderr, "%s returned %d\n", call, code);
        std::exit(1);
    }
}

#define CHECK(call) check(static_cast<int>(call), #call)

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

void secondary_context(int rounds)
{
    cudaStream_t stream = new_stream();
    CUdevice device;
    CUcontext primary, secondary;
    CUstream copies;
    CUdeviceptr source, target;
    busy<<<1, 1, 0, stream>>>(SHORT_NS);
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxGetCurrent(&primary));
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&secondary, nullptr, 0, device));
#else
    CHECK(cuCtxCreate(&secondary, 0, device));
#endif
    CHECK(cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&source, COPY));
    CHECK(cuMemAlloc(&target, COPY));
    for (int round = 0; round < rounds; round++) {
        CHECK(cuCtxSetCurrent(primary));
        busy<<<1, 1, 0, stream>>>(LONGEST_NS);
        std::this_thread::sleep_for(BEFORE_COPIES);
        CHECK(cuCtxSetCurrent(secondary));
        for (int time = 0; time < 4; time++) {
            for (int copy = 0; copy < 8; copy++)
                CHECK(cuMemcpyDtoDAsync(target, source, COPY, copies));
            CHECK(cuStreamSynchronize(copies));
        }
        CHECK(cuCtxSetCurrent(primary));
        CHECK(cudaStreamSynchronize(stream));
    }
}

void peer_copy(int rounds)
{
    CHECK(cudaSetDevice(1));
    void *targets[] = {device_memory(COPY), device_memory(COPY)};
    CHECK(cudaSetDevice(0));
    void *sources[] = {device_memory(COPY), device_memory(COPY)};
    cudaStream_t behind = new_stream(), beside = new_stream();
    for (int round = 0; round < rounds; round++) {
        busy<<<1, 1, 0, behind>>>(LONGEST_NS);
        CHECK(cudaMemcpyPeerAsync(targets[0], 1, sources[0], 0, COPY, behind));
        CHECK(cudaMemcpyPeerAsync(targets[1], 1, sources[1], 0, COPY, beside));
        CHECK(cudaStreamSynchronize(beside));
        CHECK(cudaStreamSynchronize(behind));
    }
}

void pageable_copies(int rounds)
{
    void *source = device_memory(LARGE);
    busy<<<1, 1>>>(SHORT_NS);
    CHECK(cudaGetLastError());
    std::atomic<bool> ended{false};
    std::thread launches([&ended] {
        while (!ended) {
            busy<<<1, 1>>>(SHORT_NS);
            std::this_thread::sleep_for(BETWEEN_LAUNCHES);
        }
    });
    for (int round = 0; round < rounds; round++) {
        void *target = std::malloc(LARGE);
        CHECK(cudaMemcpyAsync(target, source, LARGE, cudaMemcpyDeviceToHost, nullptr));
        std::free(target);
    }
    ended = true;
    launches.join();
}

void read_back(int rounds)
{
    cudaStream_t stream = new_stream();
    void *source = device_memory(SMALL);
    int target;
    for (int round = 0; round < rounds; round++) {
        busy<<<1, 1, 0, stream>>>(LONG_NS);
        CHECK(cudaMemcpyAsync(&target, source, SMALL, cudaMemcpyDeviceToHost, stream));
    }
}

struct Gate {
    std::mutex lock;
    std::condition_variable changed;
    bool open = false;

    static void CUDART_CB wait(void *gate)
    {
        Gate *self = static_cast<Gate *>(gate);
        std::unique_lock<std::mutex> held(self->lock);
        self->changed.wait(held, [self] { return self->open; });
    }

    void set(bool value)
    {
        std::lock_guard<std::mutex> held(lock);
        open = value;
        changed.notify_all();
    }
};

void default_stream_gate(int rounds)
{
    cudaStream_t gated = new_stream(), unrelated = new_stream();
    void *source = device_memory(SMALL);
    cudaEvent_t event;
    int target;
    Gate gate;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    busy<<<1, 1, 0, unrelated>>>(SHORT_NS);
    CHECK(cudaDeviceSynchronize());
    for (int round = 0; round < rounds; round++) {
        gate.set(false);
        CHECK(cudaLaunchHostFunc(gated, Gate::wait, &gate));
        CHECK(cudaEventRecord(event, gated));
        CHECK(cudaStreamWaitEvent(nullptr, event, 0));
        std::thread timer([&gate] {
            std::this_thread::sleep_for(GATE);
            gate.set(true);
        });
        std::thread copy([&] { CHECK(cudaMemcpyAsync(&target, source, SMALL, cudaMemcpyDeviceToHost, nullptr)); });
        std::this_thread::sleep_for(BEFORE_LAUNCH);
        busy<<<1, 1, 0, unrelated>>>(SHORT_NS);
        copy.join();
        timer.join();
    }
}

} // namespace

int main(int count, char **arguments)
{
    void (*const reports[])(int) = {secondary_context, peer_copy, pageable_copies, read_back, default_stream_gate};
    int number = count == 3 ? std::atoi(arguments[1]) : 0, rounds = count == 3 ? std::atoi(arguments[2]) : 0;
    if (number < 1 || number > 5 || rounds < 1) {
        std::fprintf(stderr, "usage: reports REPORT ROUNDS\n");
        return 2;
    }
    CHECK(cudaSetDevice(0));
    reports[number - 1](rounds);
    CHECK(cudaDeviceSynchronize());
    return 0;
}
