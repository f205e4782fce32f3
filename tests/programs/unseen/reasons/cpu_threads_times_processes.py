"""Three ranks on one machine; each prepares images on the CPU with all cores, rank 0 trains."""
import json
import multiprocessing
import os
import time

import torch
import torch.nn.functional as F

CORES = len(os.sched_getaffinity(0))


def prepare(images):
    light = torch.log1p(images * 4.0)
    light = torch.tanh(light - light.mean(dim=(2, 3), keepdim=True))
    light = torch.exp(-light * light) + torch.sin(3.0 * light)
    return F.avg_pool2d(light, 4)


def other_rank(go, seconds):
    torch.set_num_threads(CORES)
    images = torch.rand(24, 3, 256, 256)
    if not go.wait(120):
        return
    end = time.time() + seconds
    while time.time() < end:
        prepare(images)


def run_delay():
    try:
        with open("/proc/thread-self/schedstat") as f:
            return int(f.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def step(images, weight, spent):
    start = time.perf_counter()
    small = prepare(images)
    spent["prepare"] += time.perf_counter() - start
    x = small.to("cuda").view(72, 4096)
    y = torch.relu(weight @ weight)
    return (x @ y).mean().item()


def main():
    torch.set_num_threads(CORES)
    context = multiprocessing.get_context("fork")
    go = context.Event()
    ranks = [context.Process(target=other_rank, args=(go, 60), daemon=True) for _ in range(2)]
    for rank in ranks:
        rank.start()
    weight = torch.randn(4096, 4096, device="cuda") / 64
    images = torch.rand(24, 3, 256, 256)
    spent = {"prepare": 0.0}
    for _ in range(20):
        step(images, weight, spent)
    go.set()
    time.sleep(0.5)
    spent["prepare"] = 0.0
    steps, begin, cpu, delay = 0, time.perf_counter(), time.thread_time(), run_delay()
    while time.perf_counter() - begin < 9:
        step(images, weight, spent)
        steps += 1
    wall = time.perf_counter() - begin
    truth = {"off_cpu": round(100 * (1 - (time.thread_time() - cpu) / wall), 1),
             "prepare": round(100 * spent["prepare"] / wall, 1)}
    if delay is not None:
        truth["run_delay"] = round(100 * (run_delay() - delay) / wall, 1)
    for rank in ranks:
        rank.terminate()
    print(f"RATE {steps / wall:.2f}; TRUTH {json.dumps(truth)}")


if __name__ == "__main__":
    main()
