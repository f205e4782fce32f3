// Particles in a container over managed memory; the host sums their energy after each kernel.
#include <cuda_runtime.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <new>
#include <numeric>
#include <utility>

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
class UnifiedVector {
public:
    UnifiedVector() = default;
    UnifiedVector(const UnifiedVector&) = delete;
    UnifiedVector& operator=(const UnifiedVector&) = delete;
    ~UnifiedVector() { cudaFree(data_); }
    void reserve(size_t capacity) {
        if (capacity <= capacity_) return;
        T* bigger = nullptr;
        if (cudaMallocManaged(&bigger, capacity * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
        for (size_t i = 0; i < size_; ++i) bigger[i] = data_[i];
        cudaFree(data_);
        data_ = bigger;
        capacity_ = capacity;
    }
    void push_back(const T& value) {
        if (size_ == capacity_) reserve(capacity_ ? 2 * capacity_ : 16);
        data_[size_++] = value;
    }
    T* data() { return data_; }
    size_t size() const { return size_; }
    const T* begin() const { return data_; }
    const T* end() const { return data_ + size_; }
private:
    T* data_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

struct Particle { float x[3], v[3], mass, charge; float history[8]; };
static_assert(sizeof(Particle) == 64, "one cache line");

__global__ void move(Particle* particles, size_t n, float dt) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        Particle& p = particles[i];
        for (int k = 0; k < 3; ++k) {
            p.v[k] = 0.999f * p.v[k] - dt * p.x[k];
            p.x[k] += dt * p.v[k];
        }
    }
}

__global__ void iterate(float* x, int rounds) {
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 0; k < rounds; ++k) v = 3.7f * v * (1.0f - v);
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

double kinetic_energy(const UnifiedVector<Particle>& particles) {
    return std::accumulate(particles.begin(), particles.end(), 0.0, [](double sum, const Particle& p) {
        return sum + 0.5 * p.mass * (p.v[0] * p.v[0] + p.v[1] * p.v[1] + p.v[2] * p.v[2]);
    });
}

struct Spent { double sum = 0, wait = 0; };

void run_kernels(UnifiedVector<Particle>& particles, float* noise, Spent& spent) {
    iterate<<<132, 128>>>(noise, 400000);
    move<<<528, 256>>>(particles.data(), particles.size(), 0.001f);
    double start = now();
    cudaDeviceSynchronize();
    spent.wait += now() - start;
}

double step(UnifiedVector<Particle>& particles, float* noise, Spent& spent) {
    run_kernels(particles, noise, spent);
    double start = now();
    double energy = kinetic_energy(particles);
    spent.sum += now() - start;
    return energy;
}

int main() {
    const size_t n = (32 << 20) / sizeof(Particle);
    float* noise;
    cudaMalloc(&noise, 132 * 128 * sizeof(float));
    cudaMemset(noise, 0x3e, 132 * 128 * sizeof(float));
    UnifiedVector<Particle> particles;
    particles.reserve(n);
    for (size_t i = 0; i < n; ++i)
        particles.push_back(Particle{{1.0f, 0.5f, 0.1f * (i % 10)}, {0.0f, 0.1f, 0.2f}, 1.0f, -1.0f, {}});
    Spent spent, resident;
    double sum = 0;
    for (int i = 0; i < 20; ++i) sum += step(particles, noise, spent);
    double start = now();   // the pages are on the host now: the cost of the sum alone
    for (int i = 0; i < 10; ++i) sum += kinetic_energy(particles);
    resident.sum = (now() - start) / 10;
    run_kernels(particles, noise, spent);   // from here on the pages are on the GPU: the kernels alone
    for (int i = 0; i < 10; ++i) run_kernels(particles, noise, resident);
    sum += step(particles, noise, spent);
    spent = Spent();
    long steps = 0;
    double begin = now();
    while (now() - begin < 9) { sum += step(particles, noise, spent); ++steps; }
    double wall = now() - begin, p = 100 / wall;
    printf("RATE %.2f; TRUTH {\"sum\": %.1f, \"sum_if_resident\": %.1f, \"wait\": %.1f, \"wait_if_resident\": %.1f, "
           "\"finite\": %d}\n", steps / wall, p * spent.sum, p * resident.sum * steps, p * spent.wait,
           p * resident.wait / 10 * steps, int(std::isfinite(sum)));
    cudaFree(noise);
}
