// A field on the GPU whose boundary is set by the host in each step; keys are sorted with Thrust.
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/sort.h>
#include <chrono>
#include <cmath>
#include <cstdio>

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Spent { double down = 0, up = 0, change = 0, sort = 0; };

__global__ void scramble(unsigned* keys, int n, unsigned salt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) keys[i] = (keys[i] ^ (i * 2654435761u)) * 747796405u + salt;
}

__global__ void relax(float* field, size_t n) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        field[i] = 0.99f * field[i] + 0.002f;
}

__global__ void iterate(float* x, int rounds) {
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 0; k < rounds; ++k) v = 3.7f * v * (1.0f - v);
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

template <class T, class Change>
T change_on_host(thrust::device_vector<T>& device, thrust::host_vector<T>& host, Change change, Spent& spent) {
    cudaDeviceSynchronize();
    double t0 = now();
    thrust::copy(device.begin(), device.end(), host.begin());
    double t1 = now();
    T result = change(host);
    double t2 = now();
    device = host;
    spent.down += t1 - t0;
    spent.change += t2 - t1;
    spent.up += now() - t2;
    return result;
}

struct Boundary {
    size_t width;
    float value;
    float operator()(thrust::host_vector<float>& field) const {
        float sum = 0;
        for (size_t i = 0; i < width; ++i) {
            sum += field[i];
            field[i] = value;
        }
        return sum / width;
    }
};

void sort_keys(thrust::device_vector<unsigned>& keys, unsigned salt, Spent& spent) {
    scramble<<<(keys.size() + 255) / 256, 256>>>(thrust::raw_pointer_cast(keys.data()), int(keys.size()), salt);
    double start = now();
    thrust::sort(keys.begin(), keys.end());
    spent.sort += now() - start;
}

template <class T>
T step(thrust::device_vector<T>& field, thrust::host_vector<T>& host, thrust::device_vector<unsigned>& keys,
       thrust::device_vector<float>& probes, long number, Spent& spent) {
    relax<<<528, 256>>>(thrust::raw_pointer_cast(field.data()), field.size());
    sort_keys(keys, unsigned(number), spent);
    iterate<<<132, 128>>>(thrust::raw_pointer_cast(probes.data()), 1600000);
    return change_on_host(field, host, Boundary{4096, 0.1f + 1e-4f * (number % 100)}, spent);
}

int main() {
    thrust::device_vector<float> field(12 << 20, 0.3f), probes(132 * 128, 0.3f);
    thrust::host_vector<float> host(field.size());
    thrust::device_vector<unsigned> keys(1 << 20, 7u);
    Spent spent;
    for (long i = 0; i < 30; ++i) step(field, host, keys, probes, i, spent);
    spent = Spent();
    long steps = 0;
    double begin = now(), sum = 0;
    while (now() - begin < 9) { sum += step(field, host, keys, probes, steps, spent); ++steps; }
    double wall = now() - begin, p = 100 / wall;
    printf("RATE %.2f; TRUTH {\"copy\": %.1f, \"down\": %.1f, \"up\": %.1f, \"change\": %.1f, \"sort\": %.1f, \"finite\": %d}\n",
           steps / wall, p * (spent.down + spent.up), p * spent.down, p * spent.up, p * spent.change, p * spent.sort,
           int(std::isfinite(sum)));
}
