"""Training with an averaging thread; training may be at most one version ahead of it."""
import json
import threading
import time
import zlib

import numpy as np
import torch

SIZE = 10_000_000


class Averager(threading.Thread):
    def __init__(self):
        super().__init__(name="averager", daemon=True)
        self.changed = threading.Condition()
        self.buffers = [torch.zeros(SIZE, pin_memory=True) for _ in range(2)]
        self.average = np.zeros(SIZE, dtype=np.float32)
        self.scratch = np.zeros(SIZE, dtype=np.float32)
        self.checksum = 0
        self.published = 0
        self.averaged = 0
        self.waited = 0.0

    def publish(self, weights):
        self.buffers[self.published % 2].copy_(weights)
        with self.changed:
            self.published += 1
            self.changed.notify_all()

    def wait_until_close(self):
        with self.changed:
            start = time.perf_counter()
            self.changed.wait_for(lambda: self.published - self.averaged < 2)
            self.waited += time.perf_counter() - start

    def run(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.published > self.averaged)
            newest = self.buffers[self.averaged % 2].numpy()
            np.multiply(self.average, 0.99, out=self.average)
            np.multiply(newest, 0.01, out=self.scratch)
            np.add(self.average, self.scratch, out=self.average)
            self.checksum = zlib.crc32(self.average)
            with self.changed:
                self.averaged += 1
                self.changed.notify_all()


def step(x, weight, averager):
    y = torch.relu(x @ weight) @ weight
    weight.add_(torch.tanh(y), alpha=1e-6)
    averager.publish(weight.view(-1)[:SIZE])
    averager.wait_until_close()


def main():
    x = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    averager = Averager()
    averager.start()
    for _ in range(30):
        step(x, weight, averager)
    averager.waited = 0.0
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(x, weight, averager)
        steps += 1
    wall = time.perf_counter() - begin
    truth = {"lock": round(100 * averager.waited / wall, 1)}
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
