// nvcc -O2 -g -std=c++17 -o free_launch free_launch.cu
#include <cuda_runtime.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
__global__ void spin(long long cycles) { long long t = clock64(); while (clock64() - t < cycles) ; }
__global__ void small(float *x) { x[threadIdx.x] += 1; }
std::atomic<bool> stop{false};
void second() {
    cudaStream_t s; cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    while (!stop) {
        void *p; cudaMalloc(&p, 64 << 20);
        spin<<<1, 1, 0, s>>>(8500000);
        cudaFree(p);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}
int main() {
    float *x; cudaMalloc(&x, 1024); cudaStream_t s; cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    small<<<1, 256, 0, s>>>(x); spin<<<1, 1, 0, s>>>(1); cudaDeviceSynchronize();
    std::thread th(second); long n = 0; auto t = std::chrono::steady_clock::now(), e = t + std::chrono::seconds(8);
    for (; std::chrono::steady_clock::now() < e; n++) {
        small<<<1, 256, 0, s>>>(x);
        cudaStreamSynchronize(s);
    }
    stop = true; th.join();
    if (cudaError_t r = cudaGetLastError()) return fprintf(stderr, "%s\n", cudaGetErrorString(r)), 1;
    printf("RATE %.0f launches/s\n", n / 8.0);
}
