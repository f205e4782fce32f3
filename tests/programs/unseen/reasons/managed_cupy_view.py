"""Corrects camera frames with CuPy; the frames are written through a numpy view of managed memory."""
import ctypes
import json
import time

import cupy as cp
import numpy as np

HEIGHT, WIDTH = 2048, 3072

pool = cp.cuda.MemoryPool(cp.cuda.malloc_managed)
cp.cuda.set_allocator(pool.malloc)

correct = cp.ElementwiseKernel(
    "float32 pixel, float32 gain, float32 dark", "float32 out",
    "out = sqrtf(fabsf(pixel - dark)) * gain;", "correct")
logistic = cp.ElementwiseKernel(
    "float32 x, int32 rounds", "float32 y",
    "y = x; for (int k = 0; k < rounds; ++k) y = 3.7f * y * (1.0f - y);", "logistic")


class FrameBuffer:
    def __init__(self):
        self.pixels = cp.zeros((HEIGHT, WIDTH), dtype=cp.float32)
        pointer = ctypes.cast(self.pixels.data.ptr, ctypes.POINTER(ctypes.c_float))
        self.view = np.ctypeslib.as_array(pointer, shape=(HEIGHT, WIDTH))

    def load(self, frame):
        self.view[...] = frame


def step(buffer, frame, gain, dark, seeds, spent):
    start = time.perf_counter()
    buffer.load(frame)
    spent["touch"] += time.perf_counter() - start
    image = correct(buffer.pixels, gain, dark)
    noise = logistic(seeds, np.int32(15000))
    start = time.perf_counter()
    total = float(image.sum() + noise.sum())
    spent["wait"] += time.perf_counter() - start
    return total + float(np.sort(frame[::64].ravel())[1000])


def main():
    rng = np.random.default_rng(0)
    frames = [rng.random((HEIGHT, WIDTH), dtype=np.float32) for _ in range(4)]
    gain = cp.asarray(rng.random((HEIGHT, WIDTH), dtype=np.float32))
    dark = cp.asarray(rng.random((HEIGHT, WIDTH), dtype=np.float32))
    seeds = cp.asarray(rng.random(1 << 20, dtype=np.float32))
    buffer, spent = FrameBuffer(), {"touch": 0.0, "wait": 0.0}
    for number in range(20):
        step(buffer, frames[number % 4], gain, dark, seeds, spent)
    buffer.load(frames[0])
    start = time.perf_counter()
    for number in range(10):
        buffer.load(frames[number % 4])
    resident = (time.perf_counter() - start) / 10
    spent = {"touch": 0.0, "wait": 0.0}
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(buffer, frames[steps % 4], gain, dark, seeds, spent)
        steps += 1
    wall = time.perf_counter() - begin
    truth = {name: round(100 * seconds / wall, 1) for name, seconds in spent.items()}
    truth["touch_if_resident"] = round(100 * resident * steps / wall, 1)
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
