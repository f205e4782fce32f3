// A heat grid in managed memory; between the kernels the host looks at a few of its values.
#include <cuda_runtime.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

const int ROWS = 3072, COLUMNS = 4096;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

__global__ void heat(float* grid, float gain) {
    size_t n = size_t(ROWS) * COLUMNS;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        grid[i] = grid[i] * (1.0f - gain) + gain;
}

__global__ void iterate(float* x, int rounds) {
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 0; k < rounds; ++k) v = 3.7f * v * (1.0f - v);
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

struct Spent { double top = 0, probe = 0, left = 0, wait = 0; };

struct Border { double top = 0, left = 0; float probe = 0; };

Border inspect(const float* grid, Spent& spent) {
    Border border;
    double t0 = now();
    for (int c = 0; c < COLUMNS; ++c) border.top += grid[c];
    double t1 = now();
    border.probe = grid[size_t(ROWS / 2) * COLUMNS + COLUMNS / 2];
    double t2 = now();
    for (int r = 0; r < ROWS; ++r) border.left += grid[size_t(r) * COLUMNS];
    double t3 = now();
    spent.top += t1 - t0;
    spent.probe += t2 - t1;
    spent.left += t3 - t2;
    return border;
}

double step(float* grid, float* noise, std::vector<double>& profile, Spent& spent) {
    iterate<<<132, 128>>>(noise, 700000);
    heat<<<528, 256>>>(grid, 0.01f);
    double start = now();
    cudaDeviceSynchronize();
    spent.wait += now() - start;
    Border border = inspect(grid, spent);
    for (double& p : profile) p = 0.9 * p + 0.1 * std::sin(p + border.left + border.probe);
    return border.top + profile[0];
}

int main() {
    float *grid, *noise;
    cudaMallocManaged(&grid, size_t(ROWS) * COLUMNS * sizeof(float));
    cudaMalloc(&noise, 132 * 128 * sizeof(float));
    cudaMemset(noise, 0x3e, 132 * 128 * sizeof(float));
    for (size_t i = 0; i < size_t(ROWS) * COLUMNS; ++i) grid[i] = 0.25f;
    std::vector<double> profile(100000, 0.5);
    Spent spent;
    for (int i = 0; i < 20; ++i) step(grid, noise, profile, spent);
    spent = Spent();
    long steps = 0;
    double begin = now(), sum = 0;
    while (now() - begin < 9) { sum += step(grid, noise, profile, spent); ++steps; }
    double wall = now() - begin, p = 100 / wall;
    printf("RATE %.2f; TRUTH {\"left\": %.1f, \"top\": %.2f, \"probe\": %.2f, \"wait\": %.1f, \"finite\": %d}\n",
           steps / wall, p * spent.left, p * spent.top, p * spent.probe, p * spent.wait, int(std::isfinite(sum)));
    cudaFree(grid);
    cudaFree(noise);
}
