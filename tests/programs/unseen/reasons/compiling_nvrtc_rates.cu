// flags: -lnvrtc -lcuda
// (where only pip's NVRTC is there: -L<site-packages>/nvidia/cu13/lib -l:libnvrtc.so.13 -Xlinker -rpath=<the same> -lcuda)
// Search over the rates of a reaction network; each candidate gets a kernel of its own by NVRTC.
#include <cuda.h>
#include <cuda_runtime.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#else   // the few functions that are used here, for machines with the library but not the header
typedef struct _nvrtcProgram* nvrtcProgram;
typedef int nvrtcResult;
extern "C" nvrtcResult nvrtcCreateProgram(nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*);
extern "C" nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*);
extern "C" nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t*);
extern "C" nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char*);
extern "C" nvrtcResult nvrtcDestroyProgram(nvrtcProgram*);
#endif

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char* SOURCE = R"(
template <int N> struct Network {
    float c[N];
    __device__ void advance(float dt) {
        #pragma unroll
        for (int i = 0; i < N; ++i) {
            float in = c[(i + 1) % N] * RATE_A, out = c[i] * c[(i + 2) % N] * RATE_B;
            c[i] += dt * (in - out - RATE_C * c[i] + 0.01f * __sinf(c[(i + 3) % N]));
        }
    }
};
extern "C" __global__ void react(float* state, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Network<8> net;
    #pragma unroll
    for (int k = 0; k < 8; ++k) net.c[k] = state[i] + 0.01f * k;
    for (int r = 0; r < rounds; ++r) net.advance(0.001f);
    float sum = 0;
    #pragma unroll
    for (int k = 0; k < 8; ++k) sum += net.c[k];
    state[i] = sum * 0.125f;
}
)";

#define CHECK(call) do { int code_ = int(call); if (code_ != 0) { \
    fprintf(stderr, "line %d: error %d\n", __LINE__, code_); exit(1); } } while (0)

struct Rates { double a, b, c; };
struct Spent { double compile = 0, load = 0, run = 0; };

class Candidate {
public:
    Candidate(const Rates& rates, Spent& spent) {
        double t0 = now();
        std::vector<char> image = build(rates);
        double t1 = now();
        CHECK(cuModuleLoadData(&module_, image.data()));
        CHECK(cuModuleGetFunction(&function_, module_, "react"));
        spent.compile += t1 - t0;
        spent.load += now() - t1;
    }
    ~Candidate() { cuModuleUnload(module_); }
    void launch(CUdeviceptr state, int n, int rounds) {
        void* arguments[] = {&state, &n, &rounds};
        CHECK(cuLaunchKernel(function_, (n + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
    }
private:
    static std::vector<char> build(const Rates& rates) {
        nvrtcProgram program;
        CHECK(nvrtcCreateProgram(&program, SOURCE, "react.cu", 0, nullptr, nullptr));
        std::string a = "-DRATE_A=" + std::to_string(rates.a) + "f";
        std::string b = "-DRATE_B=" + std::to_string(rates.b) + "f";
        std::string c = "-DRATE_C=" + std::to_string(rates.c) + "f";
        const char* options[] = {"--gpu-architecture=sm_90", a.c_str(), b.c_str(), c.c_str()};
        CHECK(nvrtcCompileProgram(program, 4, options));
        size_t size = 0;
        CHECK(nvrtcGetCUBINSize(program, &size));
        std::vector<char> image(size);
        CHECK(nvrtcGetCUBIN(program, image.data()));
        CHECK(nvrtcDestroyProgram(&program));
        return image;
    }
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
};

double try_rates(long number, CUdeviceptr state, int n, int launches, Spent& spent) {
    Rates rates = {0.1 + 1e-5 * number, 0.2 + 1e-5 * number, 0.05 + 1e-6 * number};
    Candidate candidate(rates, spent);
    double start = now();
    for (int i = 0; i < launches; ++i) candidate.launch(state, n, 1000);
    float first = 0;
    CHECK(cuMemcpyDtoH(&first, state, sizeof first));
    spent.run += now() - start;
    return first;
}

int main() {
    const int n = 132 * 2048;
    float* cells;
    CHECK(cudaMalloc(&cells, n * sizeof(float)));
    std::vector<float> begin_state(n, 0.5f);
    CHECK(cudaMemcpy(cells, begin_state.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CUdeviceptr state = reinterpret_cast<CUdeviceptr>(cells);
    Spent spent;
    for (long i = 0; i < 5; ++i) try_rates(i, state, n, 20, spent);
    spent = Spent();
    for (long i = 5; i < 15; ++i) try_rates(i, state, n, 20, spent);
    int launches = int(0.7 * spent.compile / (spent.run / 20) + 0.5);
    if (launches < 1) launches = 1;
    spent = Spent();
    long steps = 0;
    double begin = now(), sum = 0;
    while (now() - begin < 9) { sum += try_rates(100 + steps, state, n, launches, spent); ++steps; }
    double wall = now() - begin;
    printf("RATE %.2f; TRUTH {\"compile\": %.1f, \"load\": %.1f, \"run\": %.1f, \"launches\": %d, \"finite\": %d}\n",
           steps / wall, 100 * spent.compile / wall, 100 * spent.load / wall, 100 * spent.run / wall, launches,
           int(std::isfinite(sum)));
    cudaFree(cells);
}
