// scalar-readback with the CUDA runtime API: a scalar behind a kernel of 5 ms is read into pageable memory.
//
// nvcc -std=c++17 -o scalar_readback scalar_readback.cu -lcuda; ./scalar_readback
//
// Timed: the calls until the CPU is free for other work.

#include "measured.h"

constexpr unsigned long long KERNEL_NS = 5'000'000;
constexpr int COUNT = 1024;

__global__ void fill(float *vector)
{
    vector[threadIdx.x] = 2;
}

__global__ void sum(float *total, const float *vector)
{
    *total = 0;
    for (int place = 0; place < COUNT; place++)
        *total += vector[place];
}

__global__ void divide(float *scaled, const float *vector, const float *total)
{
    scaled[threadIdx.x] = vector[threadIdx.x] / *total;
}

int main()
{
    cudaStream_t stream = new_stream();
    float *vector = static_cast<float *>(device_memory(COUNT * sizeof(float)));
    float *scaled = static_cast<float *>(device_memory(COUNT * sizeof(float)));
    float *total = static_cast<float *>(device_memory(sizeof(float)));
    fill<<<1, COUNT, 0, stream>>>(vector);
    auto reduction = [&] {
        busy<<<1, 1, 0, stream>>>(KERNEL_NS);
        sum<<<1, 1, 0, stream>>>(total, vector);
    };

    double before = median_us([&] {
        reduction();
        float value = 0;
        long long begin = now_ns();
        cudaMemcpyAsync(&value, total, sizeof value, cudaMemcpyDeviceToHost, stream);
        long long took = now_ns() - begin;
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(value == 2 * COUNT);
        return took;
    });

    // remedy pinned
    // Once, before the loop.
    float *value;
    cudaMallocHost(&value, sizeof *value);
    cudaEvent_t copied;
    cudaEventCreateWithFlags(&copied, cudaEventDisableTiming);
    // end
    double pinned = median_us([&] {
        *value = 0;
        reduction();
        long long begin = now_ns();
        // remedy pinned
        cudaMemcpyAsync(value, total, sizeof *value,
                        cudaMemcpyDeviceToHost, stream);
        cudaEventRecord(copied, stream);
        // end
        long long took = now_ns() - begin;
        // remedy pinned
        cudaEventSynchronize(copied); // where the CPU needs the value
        // end
        REQUIRE(*value == 2 * COUNT);
        return took;
    });

    double on_device = median_us([&] {
        reduction();
        long long begin = now_ns();
        // remedy on-device
        // The next kernel reads the scalar where it is.
        divide<<<1, COUNT, 0, stream>>>(scaled, vector, total);
        // end
        long long took = now_ns() - begin;
        float first = 0;
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(&first, scaled, sizeof first, cudaMemcpyDeviceToHost));
        REQUIRE(first == 1.0f / COUNT);
        return took;
    });

    report("the CPU's part of reading the scalar", before, {{"pinned", pinned}, {"on-device", on_device}});
}
