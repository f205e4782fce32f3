# launches without a wait, faster than the GPU can work
import time, cupy as cp

burn = cp.RawKernel(r"""
extern "C" __global__ void burn(float *x, float a, float b, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    for (int k = 0; k < rounds; k++) v = v * a + b;
    x[i] = v;
}""", "burn")

x = cp.zeros(132 * 256, dtype=cp.float32)
a, b = cp.float32(0.999), cp.float32(0.001)
n = 0
for _ in range(1100): burn((132,), (256,), (x, a, b, cp.int32(1000000)))
t = time.perf_counter()
while time.perf_counter() - t < 8:
    burn((132,), (256,), (x, a, b, cp.int32(1000000)))
    n += 1
print("RATE %.0f launches/s" % (n / (time.perf_counter() - t)))
cp.cuda.Device().synchronize()
