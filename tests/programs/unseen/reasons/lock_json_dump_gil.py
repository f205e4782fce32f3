"""Simulation of small GPU operations; a background thread writes the metrics history as JSON."""
import json
import random
import threading
import time

import torch

history = {f"metric{i}": [random.random() for _ in range(1000)] for i in range(200)}
stop = threading.Event()
dump = {"seconds": 0.0, "bytes": 0}


def write_metrics():
    while not stop.is_set():
        start = time.perf_counter()
        text = json.dumps(history)
        took = time.perf_counter() - start
        dump["seconds"] += took
        dump["bytes"] = len(text)
        time.sleep(0.7 * took)


def step(x, scale, shift):
    for _ in range(40):
        x = torch.tanh(x * scale + shift)
    return x, float(x.mean())


def run(x, scale, shift, seconds):
    steps, begin = 0, time.perf_counter()
    cpu = time.thread_time()
    while time.perf_counter() - begin < seconds:
        x, _ = step(x, scale, shift)
        steps += 1
    wall = time.perf_counter() - begin
    return steps, wall, 100 * (1 - (time.thread_time() - cpu) / wall)


def main():
    x = torch.randn(2048, 2048, device="cuda")
    scale, shift = torch.rand_like(x), torch.rand_like(x)
    run(x, scale, shift, 1.0)
    alone_steps, alone_wall, _ = run(x, scale, shift, 1.5)
    writer = threading.Thread(target=write_metrics, name="metrics-writer", daemon=True)
    writer.start()
    time.sleep(0.5)
    dump["seconds"] = 0.0
    steps, wall, off_cpu = run(x, scale, shift, 9.0)
    held = 100 * dump["seconds"] / wall
    stop.set()
    writer.join()
    lost = 100 * (1 - (alone_wall / alone_steps) / (wall / steps))
    truth = {"gil": round(lost, 1), "held_by_dump": round(held, 1), "off_cpu": round(off_cpu, 1)}
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
