// secondary-context-d2d with the CUDA runtime API: copies in a second context, while a kernel runs in the first.
//
// nvcc -std=c++17 -o secondary_context_d2d secondary_context_d2d.cu -lcuda; ./secondary_context_d2d
//
// Timed: a copy of 1 MiB until it is complete, the longest of some copies beside one kernel.

#include "measured.h"

#include <thread>

constexpr unsigned long long SHORT_NS = 2'000, KERNEL_NS = 20'000'000;
constexpr size_t BYTES = 1 << 20;
constexpr int COPIES = 4;
constexpr auto BEFORE_COPIES = std::chrono::milliseconds(2);

struct Buffers {
    void *source = device_memory(BYTES), *target = device_memory(BYTES);
};

int main()
{
    CHECK(cudaSetDevice(0));
    cudaStream_t kernels = new_stream();
    Buffers first;
    CUdevice device;
    CUcontext primary, secondary;
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxGetCurrent(&primary));
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&secondary, nullptr, 0, device));
#else
    CHECK(cuCtxCreate(&secondary, 0, device));
#endif
    Buffers second;
    cudaStream_t second_stream = new_stream();
    busy<<<1, 1, 0, second_stream>>>(SHORT_NS);
    CHECK(cudaDeviceSynchronize());
    CHECK(cuCtxSetCurrent(primary));
    busy<<<1, 1, 0, kernels>>>(SHORT_NS);
    CHECK(cudaDeviceSynchronize());
    unsigned char content = 0;
    size_t bytes = BYTES;

    // The longest of some copies from and to ``buffers`` in ``context`` beside a kernel in the primary one.
    auto longest_copy_ns = [&](CUcontext context, const Buffers &buffers, auto copy) {
        CHECK(cuCtxSetCurrent(context));
        CHECK(cudaMemset(buffers.source, ++content, BYTES));
        CHECK(cudaDeviceSynchronize());
        CHECK(cuCtxSetCurrent(primary));
        busy<<<1, 1, 0, kernels>>>(KERNEL_NS);
        std::this_thread::sleep_for(BEFORE_COPIES);
        CHECK(cuCtxSetCurrent(context));
        long long longest = 0;
        for (int number = 0; number < COPIES; number++) {
            long long begin = now_ns();
            copy();
            longest = std::max(longest, now_ns() - begin);
        }
        CHECK(cuCtxSetCurrent(primary));
        CHECK(cudaDeviceSynchronize());
        CHECK(cuCtxSetCurrent(context));
        unsigned char last = 0;
        CHECK(cudaMemcpy(&last, static_cast<char *>(buffers.target) + BYTES - 1, 1, cudaMemcpyDeviceToHost));
        REQUIRE(last == content);
        CHECK(cudaGetLastError());
        CHECK(cuCtxSetCurrent(primary));
        return longest;
    };

    double before = median_us([&] {
        return longest_copy_ns(secondary, second, [&] {
            cudaMemcpyAsync(second.target, second.source, BYTES, cudaMemcpyDeviceToDevice, second_stream);
            CHECK(cudaStreamSynchronize(second_stream));
        });
    });

    double same_context, copy_engine, green_context = 0;
    {
        void *source = first.source, *target = first.target;
        // remedy kernel-same-context
        // Once: a stream of the primary context, no context of its own.
        cudaStream_t copies;
        cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
        // end
        same_context = median_us([&] {
            return longest_copy_ns(primary, first, [&] {
                // remedy kernel-same-context
                cudaMemcpyAsync(target, source, bytes,
                                cudaMemcpyDeviceToDevice, copies);
                cudaStreamSynchronize(copies);
                // end
            });
        });
    }
    {
        void *source = second.source, *target = second.target;
        cudaStream_t copies = second_stream;
        CHECK(cuCtxSetCurrent(secondary));
        // remedy copy-engine
        // Once, in the second context.
        void *relay;
        cudaMallocHost(&relay, bytes);
        // end
        CHECK(cuCtxSetCurrent(primary));
        copy_engine = median_us([&] {
            return longest_copy_ns(secondary, second, [&] {
                // remedy copy-engine
                // Through pinned memory, by the copy engines.
                cudaMemcpyAsync(relay, source, bytes,
                                cudaMemcpyDeviceToHost, copies);
                cudaMemcpyAsync(target, relay, bytes,
                                cudaMemcpyHostToDevice, copies);
                cudaStreamSynchronize(copies);
                // end
            });
        });
    }
    After after{{"kernel-same-context", same_context}, {"copy-engine", copy_engine}};
#if CUDA_VERSION >= 12050
    {
        void *source = first.source, *target = first.target;
        cudaStream_t copies = nullptr;
        // remedy green-context
        // Once, before kernels run: a context with 16 SMs (CUDA 12.5).
        CUdevResource all, some;
        unsigned int groups = 1;
        cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
        cuDevSmResourceSplitByCount(&some, &groups, &all, nullptr, 0, 16);
        CUdevResourceDesc description;
        cuDevResourceGenerateDesc(&description, &some, 1);
        CUgreenCtx green;
        cuGreenCtxCreate(&green, description, device,
                         CU_GREEN_CTX_DEFAULT_STREAM);
        cuGreenCtxStreamCreate(&copies, green, CU_STREAM_NON_BLOCKING, 0);
        // end
        REQUIRE(copies != nullptr);
        green_context = median_us([&] {
            return longest_copy_ns(primary, first, [&] {
                // remedy green-context
                cudaMemcpyAsync(target, source, bytes,
                                cudaMemcpyDeviceToDevice, copies);
                cudaStreamSynchronize(copies);
                // end
            });
        });
        after.emplace_back("green-context", green_context);
    }
#endif
    report("the longest copy", before, after);
}
