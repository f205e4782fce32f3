"""Reinforcement learning on one machine: 24 environments, and a learner with 16 CPU threads."""
import json
import multiprocessing
import os
import time

import torch

THREADS = 16
ENVIRONMENTS = 24


def play(go, seconds, seed):
    if not go.wait(120):
        return
    state, end = seed + 1, time.time() + seconds
    while time.time() < end:
        for _ in range(20_000):
            state = (state * 1103515245 + 12345) % 2147483648


def spectra(waves):
    loud = torch.log1p(waves.abs() * 8.0)
    loud = torch.tanh(loud - loud.mean(dim=1, keepdim=True))
    mixed = torch.sin(3.0 * loud) * torch.exp(-loud * loud)
    return mixed.view(64, 1024, 64).mean(dim=2)


def schedstat():
    try:
        with open("/proc/thread-self/schedstat") as f:
            return int(f.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


class Learner:
    def __init__(self):
        self.waves = torch.rand(64, 65536)
        self.weight = torch.randn(4096, 4096, device="cuda") / 64
        self.prepared = 0.0

    def learn(self):
        start = time.perf_counter()
        features = spectra(self.waves)
        self.prepared += time.perf_counter() - start
        x = features.to("cuda").view(16, 4096)
        mixed = torch.relu(self.weight @ self.weight) @ self.weight
        return (x @ mixed).mean().item()

    def loop(self, seconds):
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            self.learn()
            steps += 1
        return steps, time.perf_counter() - begin


def main():
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    context = multiprocessing.get_context("fork")
    go = context.Event()
    players = [context.Process(target=play, args=(go, 45, i), name=f"environment-{i}", daemon=True)
               for i in range(ENVIRONMENTS)]
    for player in players:
        player.start()
    torch.set_num_threads(THREADS)
    learner = Learner()
    learner.loop(1.0)
    alone_steps, alone_wall = learner.loop(1.0)
    go.set()
    time.sleep(0.5)
    learner.prepared = 0.0
    cpu, delay = time.thread_time(), schedstat()
    steps, wall = learner.loop(9.0)
    truth = {"off_cpu": round(100 * (1 - (time.thread_time() - cpu) / wall), 1),
             "prepare": round(100 * learner.prepared / wall, 1),
             "slower": round(100 * (1 - (alone_wall / alone_steps) / (wall / steps)), 1)}
    if delay is not None:
        truth["run_delay"] = round(100 * (schedstat() - delay) / wall, 1)
    for player in players:
        player.terminate()
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
