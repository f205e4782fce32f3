"""Training keeps running statistics; a snapshot thread saves them compressed every few ms."""
import json
import threading
import time
import zlib

import numpy as np
import torch


class RunningStats:
    def __init__(self, size):
        self.lock = threading.Lock()
        self.values = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        self.waited = 0.0
        self.snapshot = b""

    def update(self, row):
        start = time.perf_counter()
        self.lock.acquire()
        self.waited += time.perf_counter() - start
        try:
            self.values *= 0.99
            self.values[: len(row)] += 0.01 * row
        finally:
            self.lock.release()

    def save_forever(self, stop):
        while not stop.is_set():
            with self.lock:
                self.snapshot = zlib.compress(self.values.tobytes(), 6)
            time.sleep(0.010)


def step(x, weight, stats):
    y = x @ weight
    y = torch.relu(y) @ weight
    y = torch.relu(y) @ weight
    row = y.mean(dim=0).cpu().numpy()
    row = np.sort(np.concatenate([row, np.sin(row), np.cos(row)]))
    stats.update(row)


def main():
    x = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    stats = RunningStats(190_000)
    stop = threading.Event()
    saver = threading.Thread(target=stats.save_forever, args=(stop,), name="snapshot", daemon=True)
    saver.start()
    for _ in range(30):
        step(x, weight, stats)
    stats.waited = 0.0
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(x, weight, stats)
        steps += 1
    wall = time.perf_counter() - begin
    truth = {"lock": round(100 * stats.waited / wall, 1)}
    stop.set()
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
