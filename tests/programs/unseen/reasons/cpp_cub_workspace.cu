// Sorts particles by cell and sums their energy with CUB, through a wrapper for its two phases.
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double spent_allocating = 0;

template <class Call>
void with_workspace(cudaStream_t stream, Call call) {
    void* workspace = nullptr;
    size_t bytes = 0;
    call(workspace, bytes);
    double t0 = now();
    cudaMalloc(&workspace, bytes);
    double t1 = now();
    call(workspace, bytes);
    cudaStreamSynchronize(stream);
    double t2 = now();
    cudaFree(workspace);
    spent_allocating += (t1 - t0) + (now() - t2);
}

__global__ void move(uint32_t* cells, float* energy, int n, uint32_t seed, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = 0.1f + 0.8f * float((i * 2654435761u + seed) >> 8) / float(1 << 24);
    for (int k = 0; k < rounds; ++k) v = 3.7f * v * (1.0f - v);
    energy[i] = v;
    cells[i] = uint32_t(v * 4e9f);
}

struct Particles {
    int n = 1 << 20;
    uint32_t *cells, *sorted_cells;
    float *energy, *sorted_energy, *total;
};

template <class P>
float step(P& p, cudaStream_t stream, uint32_t number) {
    move<<<(p.n + 255) / 256, 256, 0, stream>>>(p.cells, p.energy, p.n, number * 977u, 300);
    with_workspace(stream, [&](void* temp, size_t& bytes) {
        return cub::DeviceRadixSort::SortPairs(temp, bytes, p.cells, p.sorted_cells, p.energy, p.sorted_energy,
                                               p.n, 0, 32, stream);
    });
    with_workspace(stream, [&](void* temp, size_t& bytes) {
        return cub::DeviceReduce::Sum(temp, bytes, p.sorted_energy, p.total, p.n, stream);
    });
    float total = 0;
    cudaMemcpyAsync(&total, p.total, sizeof total, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    return total;
}

int main() {
    Particles p;
    for (uint32_t** a : {&p.cells, &p.sorted_cells}) cudaMalloc(a, p.n * sizeof(uint32_t));
    for (float** a : {&p.energy, &p.sorted_energy}) cudaMalloc(a, p.n * sizeof(float));
    cudaMalloc(&p.total, sizeof(float));
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    for (int i = 0; i < 100; ++i) step(p, stream, i);
    spent_allocating = 0;
    long steps = 0;
    double begin = now(), sum = 0;
    while (now() - begin < 9) { sum += step(p, stream, steps); ++steps; }
    double wall = now() - begin;
    printf("RATE %.2f; TRUTH {\"allocation\": %.1f, \"finite\": %d}\n", steps / wall,
           100 * spent_allocating / wall, int(std::isfinite(sum)));
}
