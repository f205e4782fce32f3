"""Keeps a window of recent detections as Python lists and trains on samples of it."""
import collections
import gc
import json
import random
import time

import torch

PER_STEP = 20_000
window = collections.deque(maxlen=75)
spent = {"gc": 0.0, "start": 0.0, "collections": [0, 0, 0]}


def watch_gc(phase, info):
    if phase == "start":
        spent["start"] = time.perf_counter()
    else:
        spent["gc"] += time.perf_counter() - spent["start"]
        spent["collections"][info["generation"]] += 1


def step(x, weight, number):
    y = torch.tanh(x @ weight)
    scores = y.view(-1)[:PER_STEP].tolist()
    detections = [[number, i, score] for i, score in enumerate(scores)]
    window.append(detections)
    picked = [random.choice(random.choice(window)) for _ in range(512)]
    target = torch.tensor([p[2] for p in picked], device="cuda")
    return (y[0, :512] - target).square().mean().item()


def main():
    x = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    number = 0
    while number < 200:
        step(x, weight, number)
        number += 1
    gc.callbacks.append(watch_gc)
    first, begin = number, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(x, weight, number)
        number += 1
    wall = time.perf_counter() - begin
    gc.callbacks.remove(watch_gc)
    truth = {"gc": round(100 * spent["gc"] / wall, 1), "collections": spent["collections"]}
    print(f"RATE {(number - first) / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
