"""A process parses sensor logs (text) and feeds a model through a multiprocessing.Queue."""
import json
import multiprocessing
import random
import time

import numpy as np
import torch

COLUMNS = 64
ROWS = 2400


def make_log(seed):
    rng = random.Random(seed)
    lines = (",".join(f"{rng.random():.5f}" for _ in range(COLUMNS)) for _ in range(ROWS))
    return "\n".join(lines)


def parse_log(text):
    rows = []
    for line in text.split("\n"):
        rows.append([float(field) for field in line.split(",")])
    return rows


def feed(queue):
    logs = [make_log(seed) for seed in range(3)]
    number = 0
    while True:
        table = np.asarray(parse_log(logs[number % len(logs)]), dtype=np.float32)
        table -= table.mean(axis=0)
        queue.put(table)
        number += 1


def step(queue, weight, spent):
    start = time.perf_counter()
    table = queue.get()
    spent["queue"] += time.perf_counter() - start
    x = torch.from_numpy(table).to("cuda")
    mixed = weight
    for _ in range(4):
        mixed = torch.relu(mixed @ weight)
    y = torch.relu(x @ mixed[:COLUMNS]) @ weight
    return y.mean().item()


def main():
    context = multiprocessing.get_context("fork")
    queue = context.Queue(maxsize=4)
    feeder = context.Process(target=feed, args=(queue,), name="feeder", daemon=True)
    feeder.start()
    weight = torch.randn(4096, 4096, device="cuda") / 64
    spent = {"queue": 0.0}
    for _ in range(20):
        step(queue, weight, spent)
    spent["queue"] = 0.0
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 9:
        step(queue, weight, spent)
        steps += 1
    wall = time.perf_counter() - begin
    truth = {"queue": round(100 * spent["queue"] / wall, 1)}
    feeder.terminate()
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
