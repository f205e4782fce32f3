"""Training with a big in-memory vocabulary; memory is tidied every few steps."""
import gc
import json
import time

import torch

spent = {"gc": 0.0, "explicit": 0.0, "start": 0.0, "collections": [0, 0, 0]}


def watch_gc(phase, info):
    if phase == "start":
        spent["start"] = time.perf_counter()
    else:
        spent["gc"] += time.perf_counter() - spent["start"]
        spent["collections"][info["generation"]] += 1


def load_vocabulary(size):
    vocabulary = {}
    for i in range(size):
        vocabulary[f"token{i}"] = {"id": i, "pieces": [i, i + 1], "counts": [0, 0, 0]}
    return vocabulary


def free_memory():
    start = time.perf_counter()
    gc.collect()
    spent["explicit"] += time.perf_counter() - start


def step(x, weight, vocabulary, number):
    ids = [vocabulary[f"token{(number * 37 + k * 101) % len(vocabulary)}"]["id"] for k in range(4096)]
    rows = torch.tensor(ids, device="cuda") % 4096
    y = torch.relu(x[rows] @ weight) @ weight
    loss = torch.tanh(y @ weight).mean().item()
    if number % 4 == 0:
        free_memory()
    return loss


def main():
    vocabulary = load_vocabulary(160_000)
    x = torch.randn(4096, 4096, device="cuda")
    weight = torch.randn(4096, 4096, device="cuda") / 64
    number = 0
    while number < 40:
        step(x, weight, vocabulary, number)
        number += 1
    spent.update(gc=0.0, explicit=0.0, collections=[0, 0, 0])
    gc.callbacks.append(watch_gc)
    first, begin = number, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(x, weight, vocabulary, number)
        number += 1
    wall = time.perf_counter() - begin
    gc.callbacks.remove(watch_gc)
    truth = {"gc": round(100 * spent["gc"] / wall, 1),
             "explicit": round(100 * spent["explicit"] / wall, 1),
             "collections": spent["collections"]}
    print(f"RATE {(number - first) / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
