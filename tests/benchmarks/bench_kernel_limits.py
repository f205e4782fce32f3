"""What limits kernels of known kind, by NVML's counters: what ``watch`` says beside the truth, on a GPU.

Each kernel runs for --seconds in this process while the counters are read twice a second; the limit follows as in
``watch``, with this GPU's calibration where there is one. Prints the counters and the limit of each, then the largest
use of each unit, which gpu_reach.json has of a model. Exits 1 if a limit is wrong, or not known for more than three.

python tests/benchmarks/bench_kernel_limits.py [KERNEL ...] [--seconds S]

It needs PyTorch, CuPy, and a GPU with such counters (from Hopper on).
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from stallprobes.machine import gpm, nvml
from stallprobes.machine.gpu_reach import PCIE, UNITS, known
from stallprobes.watch.division.limits import Limit, limit_of

SOURCE = r"""
template <typename T> __device__ void multiply(T *out, int count, T scale, T add)
{
    T a = T(threadIdx.x), b = scale, c = add, d = T(1);
    for (int i = 0; i < count; i++) {
        a = a * scale + add;
        b = b * scale + add;
        c = c * scale + add;
        d = d * scale + add;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
extern "C" {
__global__ void fp32(float *out, int count) { multiply<float>(out, count, 0.99f, 0.01f); }
__global__ void fp64(double *out, int count) { multiply<double>(out, count, 0.99, 0.01); }
__global__ void integer(int *out, int count) { multiply<int>(out, count, 3, 7); }
__global__ void chase(const int *next, int *out, int count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x, place = at * 7919;
    for (int i = 0; i < count; i++)
        place = next[place];
    out[at] = place;
}
__global__ void spin(long long cycles)
{
    for (long long begin = clock64(); clock64() - begin < cycles;)
        ;
}
}
"""
# Apart, since its header may not be found.
HALF = r"""
#include <cuda_fp16.h>
extern "C"
__global__ void fp16(__half2 *out, int count)
{
    __half2 scale = __float2half2_rn(0.99f), add = __float2half2_rn(0.01f), a = add, b = scale, c = add, d = scale;
    for (int i = 0; i < count; i++) {
        a = __hfma2(a, scale, add);
        b = __hfma2(b, scale, add);
        c = __hfma2(c, scale, add);
        d = __hfma2(d, scale, add);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = __hadd2(__hadd2(a, b), __hadd2(c, d));
}
"""
# Length of a pause between two kernels' samples (s), so that no sample has two kernels.
SETTLE_S = 0.3
BLOCKS, THREADS = 1056, 256
Made = tuple[Callable[[], Any], frozenset[Limit], float]


def own_kernels() -> dict[str, Callable[[], Made]]:
    """Kernels of our own: what runs one, the right limits, and the part of the GPU's work that copies take."""
    import cupy

    module = cupy.RawModule(code=SOURCE, options=("-std=c++17",))

    def arithmetic(name: str, dtype: Any, limit: Limit, blocks: int = BLOCKS, count: int = 50000) -> Made:
        source = cupy.RawModule(code=HALF) if name == "fp16" else module
        out, kernel = cupy.zeros(BLOCKS * THREADS, dtype), source.get_function(name)
        return lambda: kernel((blocks,), (THREADS,), (out, cupy.int32(count))), frozenset({limit}), 0.0

    def chase() -> Made:
        places = 1 << 26
        following = cupy.random.permutation(places).astype(cupy.int32)
        out, kernel = cupy.zeros(132 * 32, cupy.int32), module.get_function("chase")
        return lambda: kernel((132,), (32,), (following, out, cupy.int32(2000))), frozenset({Limit.LATENCY}), 0.0

    def spin() -> Made:
        kernel = module.get_function("spin")
        return lambda: kernel((1,), (1,), (cupy.int64(1_000_000),)), frozenset({Limit.FEW_BLOCKS}), 0.0

    return {
        "fp32": lambda: arithmetic("fp32", cupy.float32, Limit.FP32),
        "fp32, 24 blocks": lambda: arithmetic("fp32", cupy.float32, Limit.FEW_BLOCKS, 24),
        "fp64": lambda: arithmetic("fp64", cupy.float64, Limit.FP64),
        "integer": lambda: arithmetic("integer", cupy.int32, Limit.INTEGER),
        "fp16": lambda: arithmetic("fp16", cupy.float32, Limit.FP16),
        "tiny": lambda: arithmetic("fp32", cupy.float32, Limit.FEW_BLOCKS, 1, 1),
        "chase": chase,
        "spin": spin,
    }


def library_kernels() -> dict[str, Callable[[], Made]]:
    """Kernels of PyTorch and its libraries, likewise."""
    import torch

    dram, tensor = frozenset({Limit.DRAM}), frozenset({Limit.TENSOR})

    def product(dtype: Any, limits: frozenset[Limit], rows: int = 8192, tf32: bool = False) -> Made:
        left, right = torch.randn(rows, 8192, device="cuda"), torch.randn(8192, 8192, device="cuda")
        left, right = left.to(dtype), right.to(dtype)
        out = left @ right

        def run() -> None:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            torch.mm(left, right, out=out)

        return run, limits, 0.0

    def of(make: Callable[[], Callable[[], Any]], limits: frozenset[Limit], copies: float = 0.0) -> Callable[[], Made]:
        return lambda: (make(), limits, copies)

    def large() -> Any:
        return torch.randn(1 << 28, device="cuda")

    def copy() -> Callable[[], Any]:
        source = large()
        target = torch.empty_like(source)
        return lambda: torch.add(source, 1, out=target)

    def relu() -> Callable[[], Any]:
        values = large()
        return lambda: torch.relu_(values)

    def softmax() -> Callable[[], Any]:
        values = torch.randn(16384, 16384, device="cuda")
        return lambda: torch.softmax(values, -1)

    def layer_norm() -> Callable[[], Any]:
        values, layer = torch.randn(65536, 4096, device="cuda"), torch.nn.LayerNorm(4096).cuda()
        return lambda: layer(values)

    def embedding() -> Callable[[], Any]:
        layer, words = torch.nn.Embedding(500_000, 1024).cuda(), torch.randint(500_000, (262_144,), device="cuda")
        return lambda: layer(words)

    def gather() -> Callable[[], Any]:
        values, places = large(), torch.randint(1 << 28, (1 << 26,), device="cuda")
        return lambda: values[places]

    def fft() -> Callable[[], Any]:
        values = torch.randn(4096, 32768, dtype=torch.complex64, device="cuda")
        return lambda: torch.fft.fft(values)

    def convolution() -> Callable[[], Any]:
        layer = torch.nn.Conv2d(512, 512, 3, padding=1).cuda().bfloat16().to(memory_format=torch.channels_last)
        values = torch.randn(64, 512, 64, 64, device="cuda", dtype=torch.bfloat16)
        values = values.to(memory_format=torch.channels_last)
        return lambda: layer(values)

    def copied(to_gpu: bool) -> Callable[[], Any]:
        host = torch.empty(1 << 28, dtype=torch.uint8).pin_memory()
        device = host.cuda()
        source, target = (host, device) if to_gpu else (device, host)
        return lambda: target.copy_(source, non_blocking=True)

    return {
        "bf16 product": lambda: product(torch.bfloat16, tensor),
        "tf32 product": lambda: product(torch.float32, tensor, tf32=True),
        "fp32 product": lambda: product(torch.float32, frozenset({Limit.FP32})),
        "bf16 product, 8 rows": lambda: product(torch.bfloat16, dram, 8),
        "copy": of(copy, dram),
        "relu": of(relu, dram),
        "softmax": of(softmax, dram),
        "layer norm": of(layer_norm, dram),
        "embedding": of(embedding, dram),
        "gather": of(gather, dram),
        "fft": of(fft, dram),
        "convolution": of(convolution, tensor),
        "upload": of(lambda: copied(True), frozenset({Limit.PCIE}), 1.0),
        "download": of(lambda: copied(False), frozenset({Limit.PCIE}), 1.0),
    }


def samples_of(run: Callable[[], Any], seconds: float, module: Any, handle: Any) -> list[Mapping[str, float | None]]:
    """Samples of the counters while a kernel runs again and again."""
    import torch

    counters, samples, ended = gpm.GpmCounters(gpm.LIMITS), [], threading.Event()

    def read() -> None:
        ended.wait(SETTLE_S)
        while not ended.is_set():
            samples.append(counters.read(module, handle))
            ended.wait(gpm.PERIOD_S)

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    reader = threading.Thread(target=read)
    reader.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begin = time.monotonic()
        while time.monotonic() - begin < 0.02:
            run()
        torch.cuda.synchronize()
    ended.set()
    reader.join()
    return samples[1:]


def main() -> int:
    """Measure each kernel; 1 if a limit is wrong."""
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    module = nvml.load()
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    handle = module.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    model, driver = str(module.nvmlDeviceGetName(handle)), str(module.nvmlSystemGetDriverVersion())
    print(f"{model}, driver {driver}, PyTorch {torch.__version__}")
    reach = known(uuid, model, driver)
    print(", ".join(f"{name} {value:g} ({basis})" for name, (value, basis) in reach.items()) or "nothing is known")
    reached = dict.fromkeys((*UNITS, *PCIE), 0.0)
    wrong: list[str] = []
    unknown: list[str] = []
    for name, make in (own_kernels() | library_kernels()).items():
        if options.kernels and name not in options.kernels:
            continue
        run, limits, copies = make()
        samples = samples_of(run, options.seconds, module, handle)
        found = limit_of(samples, reach, copies=copies)
        del run, make
        torch.cuda.empty_cache()
        if found is None:
            print(f"{name:22} no limit: {samples[-1:]}", flush=True)
            unknown.append(name)
            continue
        right = found.limit in limits
        if not right:
            (unknown if found.limit is Limit.UNKNOWN else wrong).append(name)
        shown = ("graphics", "sm_active", "occupancy", *UNITS)
        figures = ", ".join(f"{each} {getattr(found, each):.2f}" for each in shown)
        traffic = f"PCIe {found.pcie_to_gpu:.0f} and {found.pcie_from_gpu:.0f} MiB/s"
        word = "right" if right else "not known" if found.limit is Limit.UNKNOWN else "WRONG"
        print(f"{name:22} {found.limit} {word} (truth {' or '.join(sorted(limits))}): {figures}, {traffic}", flush=True)
        for each in reached:
            if found.graphics > 1 / 2 or each in PCIE:
                reached[each] = max(reached[each], getattr(found, each))
    print(json.dumps({model: {each: round(value, 3) for each, value in reached.items()}}))
    print(f"wrong: {', '.join(wrong) or 'none'}; not known: {', '.join(unknown) or 'none'}")
    return int(bool(wrong) or len(unknown) > 3)


if __name__ == "__main__":
    sys.exit(main())
