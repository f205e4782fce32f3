"""Fits a correction polynomial to a signal and applies it with a generated CUDA kernel."""
import json
import os
import tempfile
import time

os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp(prefix="cupy_")

import cupy as cp
import numpy as np

N = 4_000_000
GRID = np.linspace(-1, 1, 2000)
FIT = np.linalg.pinv(np.vander(GRID, 8))
spent = {"compile": 0.0, "count": 0}

logistic = cp.ElementwiseKernel(
    "float32 x, int32 rounds", "float32 y",
    "y = x; for (int k = 0; k < rounds; ++k) y = 3.7f * y * (1.0f - y);", "logistic")


def make_source(pieces):
    body = ""
    for low, row in pieces:
        terms = " ".join(f"v = fmaf(v, x, {c:.9e}f);" for c in row)
        body += f"        if (x > {low:.9e}f) {{ v = 0.0f; {terms} }}\n"
    return f"""
extern "C" __global__ void correct(const float* in, float* out, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{
        float x = in[i], v = 0.0f;
{body}
        out[i] = sqrtf(fabsf(v)) + 0.1f * sinf(v);
    }}
}}"""


def fit_pieces(sample):
    edges = np.sort(sample)[:: len(sample) // 16][:16]
    curves = np.tanh(GRID[:, None] + edges[None, :])
    return list(zip(edges, (FIT @ curves).T))


def step(signal, response, chaos):
    pieces = fit_pieces(response[::10].get())
    kernel = cp.RawKernel(make_source(pieces), "correct")
    start = time.perf_counter()
    kernel(((N + 255) // 256,), (256,), (signal, response, np.int32(N)))
    spent["compile"] += time.perf_counter() - start
    spent["count"] += 1
    for _ in range(4):
        chaos = logistic(chaos, np.int32(8000))
    signal *= cp.float32(0.999)
    return float(chaos.sum()) + float(response.sum())


def main():
    rng = np.random.default_rng(0)
    signal = cp.asarray(rng.standard_normal(N, dtype=np.float32))
    response = signal.copy()
    chaos = cp.asarray(rng.random(N, dtype=np.float32))
    for _ in range(5):
        step(signal, response, chaos)
    spent.update(compile=0.0, count=0)
    begin = time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(signal, response, chaos)
    wall = time.perf_counter() - begin
    truth = {"compile": round(100 * spent["compile"] / wall, 1), "count": spent["count"]}
    print(f"RATE {spent['count'] / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
