# launches without a wait, faster than the GPU can work
import time, numpy as np
from numba import cuda

@cuda.jit
def burn(x, a, b, rounds):
    i = cuda.grid(1)
    v = x[i]
    for _ in range(rounds):
        v = v * a + b
    x[i] = v

x = cuda.to_device(np.zeros(132 * 256, dtype=np.float32))
a, b = np.float32(0.999), np.float32(0.001)
n = 0
for _ in range(1100): burn[132, 256](x, a, b, 1000000)
t = time.perf_counter()
while time.perf_counter() - t < 8:
    burn[132, 256](x, a, b, 1000000)
    n += 1
print("RATE %.0f launches/s" % (n / (time.perf_counter() - t)))
cuda.synchronize()
