// A field in managed memory: a kernel moves it forward, the CPU clamps it, in each step.
#include <cuda_runtime.h>
#include <chrono>
#include <cstdio>

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
__global__ void advance(T* values, size_t n, T rate) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        values[i] += rate * values[i] * (T(1) - values[i]);
}

__global__ void iterate(float* x, int rounds) {
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 0; k < rounds; ++k) v = 3.7f * v * (1.0f - v);
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

template <class T>
class Field {
public:
    explicit Field(size_t n) : size_(n) {
        cudaMallocManaged(&values_, n * sizeof(T));
        for (size_t i = 0; i < n; ++i) values_[i] = T(0.5);
    }
    ~Field() { cudaFree(values_); }
    void apply_on_gpu(T rate) { advance<T><<<528, 256>>>(values_, size_, rate); }
    template <class Function>
    void apply_on_host(Function function) {
        for (size_t i = 0; i < size_; ++i)
            values_[i] = function(values_[i]);
    }
private:
    size_t size_;
    T* values_ = nullptr;
};

struct Spent { double touch = 0, wait = 0; };

template <class T>
void step(Field<T>& field, float* noise, Spent& spent) {
    iterate<<<132, 128>>>(noise, 400000);
    field.apply_on_gpu(T(0.1));
    double start = now();
    cudaDeviceSynchronize();
    double middle = now();
    field.apply_on_host([](T v) { return v > T(0.9) ? T(0.2) : v; });
    spent.touch += now() - middle;
    spent.wait += middle - start;
}

int main() {
    float* noise;
    cudaMalloc(&noise, 132 * 128 * sizeof(float));
    cudaMemset(noise, 0x3e, 132 * 128 * sizeof(float));
    Field<float> field(6 << 20);
    Spent spent;
    for (int i = 0; i < 20; ++i) step(field, noise, spent);
    double start = now();   // the pages are on the host now: the cost of the loop alone
    for (int i = 0; i < 10; ++i) field.apply_on_host([](float v) { return v > 0.9f ? 0.2f : v; });
    double resident = (now() - start) / 10;
    spent = Spent();
    long steps = 0;
    double begin = now();
    while (now() - begin < 9) { step(field, noise, spent); ++steps; }
    double wall = now() - begin;
    printf("RATE %.2f; TRUTH {\"touch\": %.1f, \"touch_if_resident\": %.1f, \"wait\": %.1f}\n", steps / wall,
           100 * spent.touch / wall, 100 * resident * steps / wall, 100 * spent.wait / wall);
    cudaFree(noise);
}
