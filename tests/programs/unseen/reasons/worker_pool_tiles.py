"""A model of terrain; child processes render the tiles of the next step with numpy."""
import concurrent.futures
import json
import multiprocessing
import time

import numpy as np
import torch

TILES = 3
SIDE = 256


def erode(height):
    slope = np.abs(np.roll(height, 1, axis=0) - height) + np.abs(np.roll(height, 1, axis=1) - height)
    return np.tanh(height - 0.1 * np.sqrt(slope + 1e-3)) + 0.02 * np.sin(7.0 * height)


def render_tile(seed, passes):
    height = np.random.default_rng(seed).standard_normal((SIDE, SIDE)).astype(np.float32)
    for _ in range(passes):
        height = erode(height)
    return height.astype(np.float32)


def time_of_passes(passes):
    render_tile(0, passes)
    start = time.perf_counter()
    render_tile(1, passes)
    return time.perf_counter() - start


class TileSource:
    def __init__(self, pool, passes):
        self.pool = pool
        self.passes = passes
        self.seed = 0
        self.waited = 0.0
        self.pending = self.submit()

    def submit(self):
        self.seed += TILES
        return [self.pool.submit(render_tile, self.seed + i, self.passes) for i in range(TILES)]

    def next_tiles(self):
        start = time.perf_counter()
        tiles = [future.result() for future in self.pending]
        self.waited += time.perf_counter() - start
        self.pending = self.submit()
        return np.stack(tiles)


def step(source, weight):
    tiles = source.next_tiles()
    x = torch.from_numpy(tiles).to("cuda").view(-1, 4096)
    mixed = weight
    for _ in range(3):
        mixed = torch.relu(mixed @ weight)
    return (x @ mixed).mean().item()


def main():
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(TILES, mp_context=context) as pool:
        took = max(pool.map(time_of_passes, [10] * TILES)) / 10
        source = TileSource(pool, max(1, round(0.024 / took)))
        weight = torch.randn(4096, 4096, device="cuda") / 64
        for _ in range(20):
            step(source, weight)
        source.waited = 0.0
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < 9:
            step(source, weight)
            steps += 1
        wall = time.perf_counter() - begin
        truth = {"result": round(100 * source.waited / wall, 1), "passes": source.passes}
        print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}", flush=True)


if __name__ == "__main__":
    main()
