"""Simulation bound to one core by its job script; two helper processes index logs beside it."""
import json
import multiprocessing
import os
import time

import torch


def index_logs(go, seconds):
    if not go.wait(120):
        return
    end = time.time() + seconds
    words = {}
    while time.time() < end:
        for i in range(20_000):
            word = i * 7919 % 1009
            words[word] = words.get(word, 0) + 1


def run_delay():
    try:
        with open("/proc/thread-self/schedstat") as f:
            return int(f.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def step(x, weight, rates):
    for i in range(60):
        x = x + 0.001 * torch.sin(x * rates[i % len(rates)])
    energy = (torch.relu(x @ weight)).mean()
    worst = max((abs(rate - 0.5), k) for k, rate in enumerate(rates))
    return x, energy.item() + worst[0]


def main():
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    context = multiprocessing.get_context("fork")
    go = context.Event()
    helpers = [context.Process(target=index_logs, args=(go, 60), daemon=True) for _ in range(2)]
    for helper in helpers:
        helper.start()
    x = torch.randn(2048, 2048, device="cuda")
    weight = torch.randn(2048, 2048, device="cuda") / 45
    rates = [0.1 * (i % 9) for i in range(2000)]
    for _ in range(100):
        x, _ = step(x, weight, rates)
    go.set()
    time.sleep(0.5)
    steps, begin, cpu, delay = 0, time.perf_counter(), time.thread_time(), run_delay()
    while time.perf_counter() - begin < 9:
        x, _ = step(x, weight, rates)
        steps += 1
    wall = time.perf_counter() - begin
    truth = {"off_cpu": round(100 * (1 - (time.thread_time() - cpu) / wall), 1)}
    if delay is not None:
        truth["run_delay"] = round(100 * (run_delay() - delay) / wall, 1)
    for helper in helpers:
        helper.terminate()
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
