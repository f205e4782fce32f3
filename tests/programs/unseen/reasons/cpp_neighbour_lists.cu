// Particles in a box: cell lists and neighbour lists on the CPU, forces on the GPU, in each step.
#include <cuda_runtime.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#define CHECK(call) do { cudaError_t code_ = (call); if (code_ != cudaSuccess) { \
    fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(code_)); exit(1); } } while (0)

__global__ void pair_forces(const int2* pairs, int count, const float2* at, float2* force) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= count) return;
    int2 p = pairs[k];
    float dx = at[p.x].x - at[p.y].x, dy = at[p.x].y - at[p.y].y;
    float f = 1e-4f / (0.05f + dx * dx + dy * dy);
    atomicAdd(&force[p.x].x, f * dx);
    atomicAdd(&force[p.x].y, f * dy);
    atomicAdd(&force[p.y].x, -f * dx);
    atomicAdd(&force[p.y].y, -f * dy);
}

__global__ void move(float2* at, const float2* force, int n, float side, float phase) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = at[i].x + force[i].x + 0.01f * __sinf(0.7f * i + phase);
    float y = at[i].y + force[i].y + 0.01f * __cosf(0.7f * i + phase);
    at[i] = make_float2(x - side * floorf(x / side), y - side * floorf(y / side));
}

__global__ void iterate(float* x, int rounds) {
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 0; k < rounds; ++k) v = 3.7f * v * (1.0f - v);
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

class CellList {
public:
    CellList(int n, int cells) : cells_(cells), cell_of_(n), first_(cells * cells + 1), next_(cells * cells), order_(n),
        density_(cells * cells) {}

    __attribute__((always_inline)) inline void bin(const float2* at, int n) {
        for (int& f : first_) f = 0;
        for (float& d : density_) d *= 0.9f;
        for (int i = 0; i < n; ++i) {
            int cx = std::min(int(at[i].x), cells_ - 1), cy = std::min(int(at[i].y), cells_ - 1);
            for (int y = std::max(cy - 2, 0); y <= std::min(cy + 2, cells_ - 1); ++y) {
                for (int x = std::max(cx - 2, 0); x <= std::min(cx + 2, cells_ - 1); ++x) {
                    float dx = at[i].x - x - 0.5f, dy = at[i].y - y - 0.5f;
                    density_[y * cells_ + x] += 0.1f * std::exp(-dx * dx - dy * dy);
                }
            }
            cell_of_[i] = cy * cells_ + cx;
            ++first_[cell_of_[i] + 1];
        }
        for (size_t c = 0; c < next_.size(); ++c) {
            first_[c + 1] += first_[c];
            next_[c] = first_[c];
        }
        for (int i = 0; i < n; ++i) order_[next_[cell_of_[i]]++] = i;
    }

    float density(int cell) const { return density_[cell]; }
    __attribute__((noinline)) int collect_pairs(const float2* at, int n, int2* pairs, int capacity) const;

private:
    int cells_;
    std::vector<int> cell_of_, first_, next_, order_;
    std::vector<float> density_;
};

int CellList::collect_pairs(const float2* at, int n, int2* pairs, int capacity) const {
    int count = 0;
    for (int i = 0; i < n; ++i) {
        int cx = cell_of_[i] % cells_, cy = cell_of_[i] / cells_;
        for (int y = cy - 1; y <= cy + 1; ++y) {
            for (int x = cx - 1; x <= cx + 1; ++x) {
                int cell = (y + cells_) % cells_ * cells_ + (x + cells_) % cells_;
                for (int k = first_[cell]; k < first_[cell + 1]; ++k) {
                    int j = order_[k];
                    if (j <= i) continue;
                    float dx = at[i].x - at[j].x, dy = at[i].y - at[j].y;
                    if (dx * dx + dy * dy < 1.0f && count < capacity) pairs[count++] = make_int2(i, j);
                }
            }
        }
    }
    return count;
}

struct Spent { double bin = 0, pairs = 0, wait = 0; };

struct Buffers {
    float2 *at, *force, *host_at;
    int2 *pairs, *host_pairs;
    float* noise;
    cudaStream_t stream;
};

int step(CellList& list, Buffers& b, int n, int cells, int capacity, long number, Spent& spent) {
    double t0 = now();
    list.bin(b.host_at, n);
    double t1 = now();
    int count = list.collect_pairs(b.host_at, n, b.host_pairs, capacity);
    double t2 = now();
    CHECK(cudaMemcpyAsync(b.pairs, b.host_pairs, count * sizeof(int2), cudaMemcpyHostToDevice, b.stream));
    CHECK(cudaMemsetAsync(b.force, 0, n * sizeof(float2), b.stream));
    pair_forces<<<(count + 255) / 256, 256, 0, b.stream>>>(b.pairs, count, b.at, b.force);
    move<<<(n + 255) / 256, 256, 0, b.stream>>>(b.at, b.force, n, float(cells), 0.1f * number);
    CHECK(cudaMemcpyAsync(b.host_at, b.at, n * sizeof(float2), cudaMemcpyDeviceToHost, b.stream));
    iterate<<<132, 128, 0, b.stream>>>(b.noise, 700000);
    double t3 = now();
    CHECK(cudaStreamSynchronize(b.stream));
    spent.bin += t1 - t0;
    spent.pairs += t2 - t1;
    spent.wait += now() - t3;
    return count;
}

int main() {
    const int n = 12000, cells = 56, capacity = 1 << 20;
    Buffers b;
    CHECK(cudaStreamCreate(&b.stream));
    CHECK(cudaMalloc(&b.at, n * sizeof(float2)));
    CHECK(cudaMalloc(&b.force, n * sizeof(float2)));
    CHECK(cudaMalloc(&b.pairs, capacity * sizeof(int2)));
    CHECK(cudaMalloc(&b.noise, 132 * 128 * sizeof(float)));
    CHECK(cudaMemset(b.noise, 0x3e, 132 * 128 * sizeof(float)));
    CHECK(cudaMallocHost(&b.host_at, n * sizeof(float2)));
    CHECK(cudaMallocHost(&b.host_pairs, capacity * sizeof(int2)));
    srand(1);
    for (int i = 0; i < n; ++i)
        b.host_at[i] = make_float2(cells * (rand() / (RAND_MAX + 1.0f)), cells * (rand() / (RAND_MAX + 1.0f)));
    CHECK(cudaMemcpy(b.at, b.host_at, n * sizeof(float2), cudaMemcpyHostToDevice));
    CellList list(n, cells);
    Spent spent;
    for (long i = 0; i < 50; ++i) step(list, b, n, cells, capacity, i, spent);
    spent = Spent();
    long steps = 0;
    double begin = now(), pairs = 0;
    while (now() - begin < 9) { pairs += step(list, b, n, cells, capacity, steps, spent); ++steps; }
    double wall = now() - begin, p = 100 / wall;
    printf("RATE %.2f; TRUTH {\"host\": %.1f, \"bin\": %.1f, \"pairs\": %.1f, \"wait\": %.1f, \"pairs_per_step\": %.0f, \"density\": %.1f}\n",
           steps / wall, p * (spent.bin + spent.pairs), p * spent.bin, p * spent.pairs, p * spent.wait, pairs / steps, list.density(0));
}
