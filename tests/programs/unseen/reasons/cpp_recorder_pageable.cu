// A wave simulation that records its field and its edge to the host in each step.
#include <cuda_runtime.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

__global__ void wave(float* field, size_t n, float phase) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        field[i] = 0.99f * field[i] + 0.01f * __sinf(1e-4f * i + phase);
}

__global__ void iterate(float* x, int rounds) {
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 0; k < rounds; ++k) v = 3.7f * v * (1.0f - v);
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

template <class T, class Reduce>
class Recorder {
public:
    Recorder(size_t n, Reduce reduce) : frame_(n), reduce_(reduce) {}
    inline double record(const T* device) {
        auto fetch = [this](const T* from) {
            cudaMemcpy(frame_.data(), from, frame_.size() * sizeof(T), cudaMemcpyDeviceToHost);
        };
        fetch(device);
        return reduce_(frame_);
    }
private:
    std::vector<T> frame_;
    Reduce reduce_;
};

template <class T, class Reduce>
Recorder<T, Reduce> make_recorder(size_t n, Reduce reduce) { return {n, reduce}; }

struct Spent { double edge = 0, whole = 0; };

template <class Edge, class Whole>
double step(float* field, size_t n, float* noise, Edge& edge, Whole& whole, long number, Spent& spent) {
    wave<<<528, 256>>>(field, n, 0.1f * number);
    iterate<<<132, 128>>>(noise, 900000);
    cudaDeviceSynchronize();
    double t0 = now();
    double left = edge.record(field);
    double t1 = now();
    double all = whole.record(field);
    double t2 = now();
    spent.edge += t1 - t0;
    spent.whole += t2 - t1;
    return left + all;
}

int main() {
    const size_t n = 12 << 20;
    float *field, *noise;
    cudaMalloc(&field, n * sizeof(float));
    cudaMemset(field, 0, n * sizeof(float));
    cudaMalloc(&noise, 132 * 128 * sizeof(float));
    cudaMemset(noise, 0x3e, 132 * 128 * sizeof(float));
    auto edge = make_recorder<float>(1 << 16, [](const std::vector<float>& f) { return double(f.front()); });
    auto whole = make_recorder<float>(n, [](const std::vector<float>& f) {
        double sum = 0;
        for (size_t i = 0; i < f.size(); i += 1024) sum += f[i];
        return sum;
    });
    Spent spent;
    for (long i = 0; i < 30; ++i) step(field, n, noise, edge, whole, i, spent);
    spent = Spent();
    long steps = 0;
    double begin = now(), sum = 0;
    while (now() - begin < 9) { sum += step(field, n, noise, edge, whole, steps, spent); ++steps; }
    double wall = now() - begin;
    printf("RATE %.2f; TRUTH {\"copy\": %.1f, \"edge\": %.1f, \"finite\": %d}\n", steps / wall,
           100 * spent.whole / wall, 100 * spent.edge / wall, int(std::isfinite(sum)));
}
