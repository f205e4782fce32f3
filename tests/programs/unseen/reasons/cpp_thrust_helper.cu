// Statistics of a pressure field with Thrust; a templated helper makes its temporaries anew.
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/scan.h>
#include <thrust/transform.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double spent_allocating = 0;

struct Square {
    __host__ __device__ float operator()(float v) const { return v * v; }
};

__global__ void iterate(float* x, int rounds) {
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 0; k < rounds; ++k) v = 3.7f * v * (1.0f - v);
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

template <class T, class Map, class Fold>
T summarize(const thrust::device_vector<T>& field, Map map, Fold fold) {
    T result;
    double t0 = now(), t1, t2;
    {
        thrust::device_vector<T> mapped(field.size());
        thrust::device_vector<T> running(field.size());
        t1 = now();
        thrust::transform(field.begin(), field.end(), mapped.begin(), map);
        thrust::inclusive_scan(mapped.begin(), mapped.end(), running.begin(), fold);
        result = running.back() / T(field.size());
        t2 = now();
    }
    spent_allocating += (t1 - t0) + (now() - t2);
    return result;
}

template <class T>
T step(thrust::device_vector<T>& field, thrust::device_vector<T>& probes, std::vector<double>& history) {
    iterate<<<132, 128>>>(thrust::raw_pointer_cast(probes.data()), 40000);
    cudaDeviceSynchronize();
    for (double& h : history) h = 0.9 * h + 0.1 * std::sin(h);
    return summarize(field, Square(), thrust::plus<T>());
}

int main() {
    thrust::device_vector<float> field(16 << 20, 0.3f), probes(132 * 128, 0.3f);
    std::vector<double> history(5000, 0.5);
    for (int i = 0; i < 50; ++i) step(field, probes, history);
    spent_allocating = 0;
    long steps = 0;
    double begin = now(), sum = 0;
    while (now() - begin < 9) { sum += step(field, probes, history); ++steps; }
    double wall = now() - begin;
    printf("RATE %.2f; TRUTH {\"allocation\": %.1f, \"finite\": %d}\n", steps / wall,
           100 * spent_allocating / wall, int(std::isfinite(sum)));
}
